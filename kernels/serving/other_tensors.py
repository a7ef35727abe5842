"""Refusals of rows for what they hold in tensors other than X: strings, whole numbers and dates."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..format.inputs import Inputs
from .quoting import quoted

Refusal = tuple[str, str]
"""The reason, as metrics count it, and the message."""


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
