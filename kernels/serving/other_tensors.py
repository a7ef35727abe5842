"""Tensors other than X, of strings, whole numbers and dates: their rows in a plan's matrix, and refusals of rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..format.inputs import Inputs
from .quoting import quoted

if TYPE_CHECKING:
    from ..engine.gather import Part

Refusal = tuple[str, str]
"""The reason, as metrics count it, and the message."""

MOST_JOINED_ROWS = 4096
"""The most rows of requests that are encoded together, which copies them once more."""


def matrices(tensors: dict[str, list[np.ndarray]], encode: Callable[[dict[str, np.ndarray]], np.ndarray]) -> list[Part]:
    """Return what `encode` makes of each request's tensors; one small request would take as long as all together."""
    rows = list(map(len, next(iter(tensors.values()))))
    if len(rows) == 1:
        return [encode({name: part for name, (part,) in tensors.items()})]
    if sum(rows) > MOST_JOINED_ROWS:
        return [encode(dict(zip(tensors, each, strict=True))) for each in zip(*tensors.values(), strict=True)]
    matrix = encode({name: np.concatenate(parts) for name, parts in tensors.items()})
    ends = list(itertools.accumulate(rows))
    return [matrix[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def why_refused(
    inputs: Inputs,
    column: int,
    number: float,
    where: str,
    given: Callable[[str, int], object],
    max_string_bytes: int,
    member: str,
) -> Refusal:
    """Return why a row is refused whose plan's matrix holds a number in a column.

    Args:
        inputs: the entry's input tensors.
        column: the column of the matrix.
        number: the number there.
        where: the row and the column, in words.
        given: returns what the request holds in that row of a tensor, at a place of its columns.
        max_string_bytes: the most bytes of a string that is not a category.
        member: the row's model with a space before it, for a fleet; nothing for one model.
    """
    tensor, place = inputs.place(column)
    known = f"{tensor} must hold categories that the model{member} was fitted on"
    whose = f" (its model{member} takes none)" if member else ""
    if column in inputs.dates:
        return "missing", f"{tensor} must hold no missing date: {where} is NaT{whose}."
    string = given(tensor, place)
    if not isinstance(string, bytes):
        return "unknown_category", f"{known}: {where} is {string}."
    if column >= inputs.n_given and not np.isfinite(number):
        why = "has no part that the model reads" if np.isnan(number) else "is not UTF-8"
        message = f"{tensor} must hold strings that the model can read: {where}, {quoted(string)}, {why}."
        return "unknown_category", message
    if np.isinf(number):
        limit = f"{max_string_bytes:,} bytes, the entry's max_string_bytes"
        return "too_long", f"{tensor} must hold no string of more than {limit}: {where} is {quoted(string)}."
    if not np.isnan(number):
        return "unknown_category", f"{known}: {where} is {quoted(string)}."
    if not string:
        return "missing", f"{tensor} must hold no empty string, which is a missing value: {where} is empty{whose}."
    counts = f"is {quoted(string)}, which counts as missing"
    return "missing", f"{tensor} must hold no missing value: {where} {counts}{whose}."
