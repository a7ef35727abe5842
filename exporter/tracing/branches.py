"""Branches: code that decides by the values of a row's cells is run on every way, and the results put together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from triton_regressors.exporter.tracing.cells import Cell, algebra, holds_cells, mapped, of, row_of
from triton_regressors.exporter.tracing.expressions import Expression
from triton_regressors.exporter.tracing.paths import Decision, Mixed, Path, current
from triton_regressors.exporter.tracing.refusal import Untraceable

MOST_BRANCHES = 256
"""The most ways through a function that are followed."""

Way = tuple[list[tuple[Expression, bool]], Any]
"""The decisions that a function takes in turn, and what it returns."""

RAISED = object()
"""The result of a way on which the function raises an error."""


class ManyWays(Untraceable):
    """A function with too many ways through its branches."""


def explored(function: Callable[[], Any]) -> Any:
    """Return what a function of one row's cells returns, with every way through its branches followed.

    The ways are put together by conditions: a function that returns 1 or 0 after an `if` returns `where(…, 1, 0)`.
    """
    path = current.get()
    if path is not None and not path.of_table:
        return function()
    return merged([(way.taken, result) for way, result in _ways(function, of_table=False)], chosen, _nothing)


def explored_table(function: Callable[[], Any], rows: int) -> list[Way]:
    """Return every way through a function of a table's cells that decides row by row, such as a loop over its rows.

    Every row takes the same way, and each decision must be one that every row asks for.
    """
    ways = _ways(function, of_table=True)
    every = set(range(rows))
    if any(asked != every for way, result in ways if result is not RAISED for asked in way.rows.values()):
        raise Decision
    return [(way.taken, result) for way, result in ways]


def on_ways(function: Callable[[], Any], answers: Sequence[Mapping[Expression, bool]]) -> Any:
    """Return what a function of a table's cells returns where each row takes a way of its own."""
    token = current.set(Mixed(answers))
    try:
        return function()
    finally:
        current.reset(token)


def _ways(function: Callable[[], Any], of_table: bool) -> list[tuple[Path, Any]]:
    """Return every way through a function's branches with its result; `RAISED` if a dictionary lacks a key."""
    ways: list[tuple[Path, Any]] = []
    waiting: list[tuple[bool, ...]] = [()]
    while waiting:
        given = waiting.pop()
        path = Path(given, of_table)
        token = current.set(path)
        try:
            result = function()
        except KeyError as error:
            if not error.args or not holds_cells(error.args[0]):
                raise
            result = RAISED
        finally:
            current.reset(token)
        ways.append((path, result))
        if len(ways) > MOST_BRANCHES:
            raise ManyWays(
                f"it has more than {MOST_BRANCHES} ways through its branches and look-ups for a row",
                "Use numpy.where, numpy.select or Series.map",
            )
        answers = [answer for _, answer in path.taken]
        for place in range(len(given), len(answers)):
            waiting.append((*answers[:place], not answers[place]))
    if all(result is RAISED for _, result in ways):
        raise Untraceable("it looks values up in a dictionary that has none of them")
    return ways


def merged(
    ways: list[Way],
    choose: Callable[[Expression, Any, Any], Any],
    nothing: Callable[[Any], Any],
    depth: int = 0,
) -> Any:
    """Put the results of ways that share their first `depth` decisions together, two by two by `choose`.

    `nothing` makes a result of missing values like another, for ways that raise an error.
    """
    if len(ways) == 1:
        return ways[0][1]
    condition = ways[0][0][depth][0]
    yes, no = (
        merged([way for way in ways if way[0][depth][1] == answer], choose, nothing, depth + 1)
        for answer in (True, False)
    )
    if yes is RAISED or no is RAISED:
        known = no if yes is RAISED else yes
        if known is RAISED:
            return RAISED
        yes, no = (nothing(known), known) if yes is RAISED else (known, nothing(known))
    return choose(condition, yes, no)


def _nothing(like: Any) -> Any:
    """Return missing values in the form of a row's result."""
    if isinstance(like, list | tuple):
        return type(like)(math.nan for _ in like)
    if hasattr(like, "iloc"):
        return type(like)([math.nan] * len(like), index=like.index, dtype=object)
    return np.full(np.shape(like), math.nan, dtype=object) if isinstance(like, np.ndarray) else math.nan


def chosen(condition: Expression, yes: Any, no: Any) -> Any:
    """Return one of two results of branches by a condition: cells, constants, or sequences of them."""
    if isinstance(yes, list | tuple) and isinstance(no, list | tuple) and len(yes) == len(no):
        return type(yes)(chosen(condition, a, b) for a, b in zip(yes, no, strict=True))
    if hasattr(yes, "iloc") and hasattr(no, "iloc") and yes.shape == no.shape:
        values = [chosen(condition, a, b) for a, b in zip(yes._values.tolist(), no._values.tolist(), strict=True)]
        return type(yes)(values, index=yes.index, dtype=object)
    if isinstance(yes, np.ndarray) and isinstance(no, np.ndarray) and yes.shape == no.shape:
        return mapped(lambda a, b: algebra().where(condition, a, b), yes, no)
    row = row_of((yes, no))
    return Cell(algebra().where(condition, of(yes), of(no)), row)
