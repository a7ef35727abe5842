"""The trace: a function is run once on a table of cells, and its result's columns are expressions of the table's."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError

from triton_regressors.exporter.lowering.polars_tables import PolarsType
from triton_regressors.exporter.tracing.algebra import Algebra
from triton_regressors.exporter.tracing.branches import RAISED, ManyWays, explored_table, merged, on_ways
from triton_regressors.exporter.tracing.cells import Cell, as_cells, recording
from triton_regressors.exporter.tracing.expressions import Expression, Kind
from triton_regressors.exporter.tracing.frames import frame, patched
from triton_regressors.exporter.tracing.keys import keys_of
from triton_regressors.exporter.tracing.numpy_functions import unframed
from triton_regressors.exporter.tracing.paths import Decision
from triton_regressors.exporter.tracing.refusal import Untraceable, place
from triton_regressors.exporter.tracing.texts import MadeOf

ROWS = (5, 7)
"""The number of rows of the traced table: the first one that is not its number of columns."""

MOST_MIXED = 32
"""The most runs in which rows are on different ways through a function's branches."""


@dataclass(frozen=True)
class Trace:
    """The columns of a function's result as expressions, and their names if the result is a DataFrame.

    `kinds` are those of the columns, which tell polars' types if the result is a DataFrame `of_polars`.
    """

    algebra: Algebra
    columns: tuple[Expression, ...]
    names: tuple[Any, ...] | None
    dimensions: int
    kinds: tuple[Kind, ...]
    of_polars: bool = False


class NotTraced(Exception):  # noqa: N818
    """A function that cannot be traced; the message is one or two sentences without an end."""


def trace(
    function: Callable[[Any], Any],
    kinds: Sequence[Kind],
    names: Sequence[Any] | None,
    strings: Mapping[int, Sequence[str]],
    digits: Iterable[str] = (),
    made: MadeOf | None = None,
) -> Trace:
    """Run a function on a table of cells and return its result.

    Args:
        function: takes a table, `[rows, columns]`, and returns one, or a column.
        kinds: the kind of each column.
        names: the columns' names if the table is a DataFrame, of polars if the kinds tell polars' types; None for an
            array.
        strings: the known strings of each column of strings.
        digits: whole numbers, written as text, that steps behind the function ask for.
        made: what the entry can make of these columns' strings; None if nothing.

    Raises:
        NotTraced: the function does what no plan can take, or raises an error.
    """
    own = Algebra(strings, digits, made, keys_of(function))
    rows = next(count for count in ROWS if count != len(kinds))
    leaves = [own.graph.leaf(column, kind) for column, kind in enumerate(kinds)]
    run = functools.partial(_run, function, own, leaves, names)
    try:
        with recording(own), warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                traced: Trace = run(rows, _read)
                return traced
            except Decision:
                found = _explored(run, own, rows)
                again = found and _explored(run, own, rows + 2)  # differs if it counts rows
                if found is None or again is None or not _alike([[*found.columns]], [[*again.columns]]):
                    raise
                return found
    except Untraceable as error:
        raise NotTraced(_sentence(error, str(error), error.instead or _of_polars(error, leaves, names))) from error
    except Exception as error:
        if not place(error) or isinstance(error, NotFittedError):
            raise
        text = str(error).splitlines()[0].rstrip(".") if str(error) else ""
        reason = f"it raises {type(error).__name__}{f' ({text})' if text else ''} on a table whose values are not known"
        raise NotTraced(_sentence(error, reason, _of_polars(error, leaves, names))) from error


def polars_kind(known: PolarsType | None, single: bool) -> Kind:
    """Return the kind of a column of a table of polars; one of no known type holds floats of scikit-learn."""
    from triton_regressors.exporter.tracing.polars_frames import kind_in_polars

    return kind_in_polars(known, single)


@contextlib.contextmanager
def _given(
    function: Any, own: Algebra, rows: int, leaves: Sequence[Expression], names: Sequence[Any] | None
) -> Iterator[Any]:
    """Yield the table that a function is given: an array, or a DataFrame of pandas or polars."""
    if "polars" in sys.modules:
        from triton_regressors.exporter.tracing.polars_frames import polars_patched, polars_table

        with polars_patched(function, own, rows) as tracing:
            if names is not None and any(leaf.kind.polars is not None for leaf in leaves):
                yield polars_table(tracing, names, leaves)
            else:
                yield _of_cells(rows, leaves, names)
        return
    yield _of_cells(rows, leaves, names)


def _of_cells(rows: int, leaves: Sequence[Expression], names: Sequence[Any] | None) -> Any:
    """Return an array of cells, or a DataFrame of pandas if it has names."""
    table = np.empty((rows, len(leaves)), dtype=object)
    for column, leaf in enumerate(leaves):
        for row in range(rows):
            table[row, column] = Cell(leaf, row)
    return as_cells(table) if names is None else frame(names, table)


def _run(
    function: Callable[[Any], Any],
    own: Algebra,
    leaves: Sequence[Expression],
    names: Sequence[Any] | None,
    rows: int,
    read: Callable[[Algebra, Any, int], Any],
) -> Any:
    """Return what is read of a function's result for a table of so many rows."""
    with patched(function, rows), _given(function, own, rows, leaves, names) as given:
        return read(own, function(given), rows)


def _explored(run: Callable[..., Any], own: Algebra, rows: int) -> Trace | None:
    """Return the trace of a function that decides row by row, or None if it decides for other rows too.

    It is run with all rows on each way through its branches, and with rows on different ways: what a row gets must not
    depend on the way of the others, as in a count or in what a loop keeps for the next row.
    """

    def either(condition: Expression, yes: Trace, no: Trace) -> Trace:
        if (yes.names, yes.dimensions, len(yes.columns)) != (no.names, no.dimensions, len(no.columns)):
            raise Decision
        columns = tuple(own.where(condition, a, b) for a, b in zip(yes.columns, no.columns, strict=True))
        return Trace(own, columns, yes.names, yes.dimensions, tuple(column.kind for column in columns))

    def nothing(like: Trace) -> Trace:
        missing = own.expression(math.nan)
        return dataclasses.replace(like, columns=(missing,) * len(like.columns))

    try:
        ways = explored_table(lambda: run(rows, _read), rows)
        answered = [way for way in ways if way[1] is not RAISED]
        for first in range(min(len(answered), MOST_MIXED)):
            mixed = [answered[(first + row) % len(answered)] for row in range(rows)]
            found = on_ways(lambda: run(rows, _expressions), [dict(taken) for taken, _ in mixed])
            if not _alike(found, [list(trace.columns) for _, trace in mixed]):
                return None
        merge: Trace = merged(ways, either, nothing)
    except (Decision, ManyWays, OtherRows):
        return None
    return merge


def _sentence(error: BaseException, reason: str, instead: str) -> str:
    where = place(error)
    said = f"{where} cannot be traced: {reason}" if where else f"it cannot be traced: {reason}"
    return f"{said}. {instead}" if instead else said


def _alike(found: list[list[Expression]], expected: list[list[Expression]]) -> bool:
    """Return whether rows have the same expressions; a constant may be an integer in one and a float in the other."""
    return all(
        len(row) == len(wanted)
        and all(
            a is b or (a.constant and b.constant and a.kind.number and b.kind.number and a.arguments == b.arguments)
            for a, b in zip(row, wanted, strict=True)
        )
        for row, wanted in zip(found, expected, strict=True)
    )


class OtherRows(Untraceable):
    """A result whose rows are not those of the table."""


def _of_polars(error: Exception, leaves: Sequence[Expression], names: Sequence[Any] | None) -> str:
    """Return what to do for code that may take tables of polars and was given one of pandas; or nothing."""
    given = names is None or any(leaf.kind.polars is not None for leaf in leaves)
    of_polars = "Expr" in str(error) or type(error).__module__.startswith("polars")
    if given or "polars" not in sys.modules or not (isinstance(error, AttributeError) or of_polars):
        return ""
    return "If it takes a DataFrame of polars, give a DataFrame of polars as sample"


def _read(own: Algebra, result: Any, rows: int) -> Trace:
    """Return the columns of a result."""
    if hasattr(result, "traced_columns"):
        names, made, kinds = result.traced_columns()
        return Trace(own, tuple(made), tuple(names), 2, tuple(kinds), of_polars=True)
    columns = []
    for column in zip(*_expressions(own, result, rows), strict=True):
        if any(expression is not column[0] for expression in column):
            raise OtherRows("its result depends on the place of a row in its table")
        columns.append(column[0])
    names = tuple(result.columns) if hasattr(result, "columns") else None
    kinds = tuple(column.kind for column in columns)
    return Trace(own, tuple(columns), names, np.ndim(unframed(result)), kinds)


def _expressions(own: Algebra, result: Any, rows: int) -> list[list[Expression]]:
    """Return the expressions of a result, row by row."""
    if hasattr(result, "traced_columns"):
        return [list(result.traced_columns()[1])] * rows
    if hasattr(result, "toarray") or not (hasattr(result, "iloc") or isinstance(result, np.ndarray)):
        raise Untraceable(f"it returns a value of type {type(result).__name__}", "Return an array or a DataFrame")
    array = np.asarray(unframed(result), dtype=object)
    if array.ndim not in (1, 2):
        raise Untraceable(f"it returns an array of {array.ndim} dimensions")
    if len(array) != rows:
        raise OtherRows(f"it returns {len(array)} rows for {rows}")
    table = array.reshape(rows, -1).tolist()
    return [[own.expression(_of_row(value, row)) for value in values] for row, values in enumerate(table)]


def _of_row(value: Any, row: int) -> Any:
    if isinstance(value, Cell):
        if value.row not in (row, -1):
            raise OtherRows("it changes the order of rows")
        return value.expression
    return value
