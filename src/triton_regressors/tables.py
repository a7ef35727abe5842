"""Users' tables, by one set of rules for the estimator's own answers, for clients and for scoring.

A table is a pandas DataFrame, pyarrow's Table or RecordBatch, an object with Arrow's PyCapsule interface (polars), or a
list of records. A cell is a number if it is a float, an integer, a boolean or a Decimal; None, NaN and pandas' missing
values are a missing number. Strings and dates are not numbers. A .csv holds only text, so its cells have a separate
rule, `number_in`: a number, a boolean or nothing. pandas is not imported before a table needs it.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from numbers import Integral, Real
from typing import Any, TypeGuard

import numpy as np

from triton_regressors.extras import require

NUMERIC_KINDS = "fiub"
"""The kinds of numpy's dtypes that are numbers."""

PLAIN_NUMBERS = frozenset(map(np.dtype, ("int64", "float64", "bool")))
"""The dtypes of categories that are converted by their codes."""

SHOWN = 5
"""The number of column names in an error."""

MISSING_WORDS = frozenset(
    {"", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"}
    | {"<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"}
)
"""The cells of a .csv that are a missing number, the same as in pandas."""

BOOLEAN_WORDS = {"True": True, "TRUE": True, "true": True, "False": False, "FALSE": False, "false": False}
"""The cells of a .csv that are a boolean."""

MOST_DIGITS = 20
"""Integers with more digits than this are read as floats: int64 cannot hold them."""

ARROW = ("__arrow_c_stream__", "__arrow_c_array__")
"""The methods of Arrow's PyCapsule interface, through which a table exports its data."""


class NotNumber(ValueError):  # noqa: N818
    """A column holds a value that is not a number: `value` in `row`."""

    def __init__(self, row: int, value: object) -> None:
        super().__init__(f"it holds {value!r} in row {row}")
        self.row, self.value = row, value

    def of_row(self, column: object) -> str:
        """Return the message about this row of a column."""
        return f"Row {self.row} of column '{column}' holds {self.value!r}, which is not a number."


def not_numbers(wrong: Mapping[Any, NotNumber], owner: str = "") -> str:
    """Return the message about columns that hold values that are not numbers.

    Args:
        wrong: column name → the first such cell.
        owner: the words that follow the names: " of input 'X'".
    """
    (first, error), *others = wrong.items()
    where = f"'{first}' holds {error.value!r} in row {error.row}" if others else str(error)
    return f"The table's {in_words(list(wrong))}{owner} must be numbers: {where}."


def is_table(rows: object) -> TypeGuard[Any]:
    """Return whether rows are a pandas DataFrame."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(rows, pandas.DataFrame)


def is_tabular(rows: object) -> bool:
    """Return whether rows are a table of any kind that `as_frame` converts to a DataFrame."""
    return is_table(rows) or _are_records(rows) or any(hasattr(rows, method) for method in ARROW)


def _are_records(rows: object) -> TypeGuard[Sequence[Mapping[str, Any]]]:
    """Return whether rows are a list of mappings."""
    return isinstance(rows, list | tuple) and bool(rows) and all(isinstance(record, Mapping) for record in rows)


def is_missing(value: object) -> bool:
    """Return whether a value is one of pandas' own missing values."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and (value is pandas.NA or value is pandas.NaT)


def as_frame(rows: Any) -> Any:
    """Return a table of any kind as a pandas DataFrame; anything else unchanged.

    A list of records, mappings of names to values, has the columns of all of them: a name that a record lacks is a
    missing value there.

    Raises:
        TypeError: an object with Arrow's PyCapsule interface is not a table.
        MissingExtra: an object has this interface, and pyarrow is not installed.
    """
    if is_table(rows) or not is_tabular(rows):
        return rows
    if _are_records(rows):
        import pandas as pd

        return pd.DataFrame.from_records([dict(record) for record in rows])
    require("parquet", f"Taking rows of type {type(rows).__module__.partition('.')[0]}.{type(rows).__name__}")
    import pyarrow as pa

    try:
        return pa.table(rows).to_pandas()
    except (TypeError, ValueError) as error:  # a single column
        raise TypeError(f"rows of type {type(rows).__name__} are not a table: {' '.join(str(error).split())}") from None


def column_numbers(column: Any) -> np.ndarray:
    """Return a column, of a DataFrame or an array, as numbers `[rows]`; a missing one is NaN.

    Integers and booleans keep their type if none is missing, and Decimals that are whole numbers become int64.

    Raises:
        NotNumber: it holds something else.
    """
    dtype = column.dtype
    if isinstance(dtype, np.dtype):
        if dtype.kind in NUMERIC_KINDS:
            return np.asarray(column)
        return _of_cells(list(column) if dtype.kind in "mM" else column.tolist())  # tolist makes integers of dates
    if dtype.kind in NUMERIC_KINDS:
        if column.isna().any():
            return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
        return np.asarray(column.to_numpy(dtype={"b": np.bool_, "i": np.int64, "u": np.uint64}.get(dtype.kind, float)))
    if dtype.kind == "O" and getattr(getattr(dtype, "categories", None), "dtype", None) in PLAIN_NUMBERS:
        codes, categories = column.cat.codes.to_numpy(), np.asarray(dtype.categories)
        if (codes >= 0).all():
            return np.asarray(categories[codes])
        return np.asarray(np.append(categories.astype(np.float64), np.nan)[codes])
    return _of_cells(column.to_numpy(dtype=object).tolist())


def number_in(cell: str) -> float | None:
    """Return the number in a cell of a .csv, an integer exactly; NaN if it is missing, None if it is not a number."""
    word = cell.strip()
    if word in MISSING_WORDS:
        return np.nan
    if word in BOOLEAN_WORDS:
        return BOOLEAN_WORDS[word]
    if "_" in word or not word.isascii():  # Python reads 1_000 and other scripts' digits
        return None
    try:
        return int(word) if len(word) <= MOST_DIGITS and word.lstrip("+-").isdecimal() else float(word)
    except ValueError:
        return None


def cell_numbers(cells: Sequence[Any], wrong: dict[int, NotNumber] | None = None, *, written: bool) -> np.ndarray:
    """Return cells as numbers `[rows]`, NaN for a missing one.

    With `wrong` a cell that is not a number also becomes NaN, and its error is put there by row. With `written` the
    cells are a .csv's, and strings are read by `number_in`; otherwise no string is a number.

    Raises:
        NotNumber: a cell is not a number, and `wrong` is not given.
    """
    found: list[Any] = []
    for row, cell in enumerate(cells):
        number = number_in(cell) if written and isinstance(cell, str) else cell
        if (number is None and cell is not None) or not _is_number(number):
            error = NotNumber(row, cell)
            if wrong is None:
                raise error
            number, wrong[row] = np.nan, error
        found.append(number)
    numbers = _of_cells(found)
    return numbers.astype(np.bool_) if found and all(isinstance(number, bool) for number in found) else numbers


def _of_cells(values: list[Any]) -> np.ndarray:
    """Return Python's numbers as an array, exact if all of them are whole."""
    kinds = set(map(type, values))
    missing = {kind for kind in kinds if kind is type(None) or kind.__name__ in ("NAType", "NaTType")}
    if not all(issubclass(kind, Real | Decimal | np.bool_) for kind in kinds - missing):
        wrong = [(row, value) for row, value in enumerate(values) if not _is_number(value)]
        raise NotNumber(*next(((row, value) for row, value in wrong if not _reads_as_number(value)), wrong[0]))
    if missing:
        values = [np.nan if type(value) in missing else value for value in values]
    elif not any(issubclass(kind, float | np.floating) for kind in kinds) and all(map(_is_whole, values)):
        with suppress(OverflowError):
            return np.array([int(value) for value in values], dtype=np.int64)
    try:
        return np.array([float(value) for value in values], dtype=np.float64)
    except (OverflowError, ValueError):  # an integer above 1.8e308, or Decimal's signalling NaN
        raise next(NotNumber(row, value) for row, value in enumerate(values) if not _has_float(value)) from None


def _is_whole(value: Any) -> bool:
    """Return whether a number other than a float is whole."""
    if isinstance(value, Decimal):
        return value.is_finite() and value == int(value)
    return isinstance(value, Integral | np.bool_)


def _is_number(value: object) -> bool:
    """Return whether a cell is a number or missing."""
    if value is None or is_missing(value):
        return True
    return isinstance(value, Real | Decimal | np.bool_) and _has_float(value)


def _reads_as_number(value: object) -> bool:
    """Return whether a value is a string such as "3.5" or "True", a less helpful example in an error than others."""
    return isinstance(value, str) and value != "" and number_in(value) is not None


def _has_float(value: Any) -> bool:
    """Return whether float64 can hold a number of this size."""
    try:
        float(value)
    except (OverflowError, ValueError):
        return False
    return True


def in_words(names: Sequence[Any]) -> str:
    """Return names of columns for an error, only the first ones if there are many."""
    shown = ", ".join(repr(str(name)) for name in names[:SHOWN])
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"column{'s' if len(names) > 1 else ''} {shown}{more}"


def beside(missing: Sequence[Any], columns: Sequence[Any], wanted: Sequence[Any]) -> str:
    """Return words on the unused columns of a table that lacks some, and on the closest names among them.

    Args:
        missing: the missing columns.
        columns: the present columns.
        wanted: all requested columns.
    """
    others = [str(name) for name in columns if name not in set(wanted)]
    if not others:
        return "it has no other column in their place" if len(missing) > 1 else "it has no other column in its place"
    lower = {name.lower().replace(" ", "_"): name for name in reversed(others)}
    meant = []
    for name in map(str, missing[:SHOWN]):
        closest = difflib.get_close_matches(name.lower().replace(" ", "_"), lower, n=1)
        meant += [f"'{lower[closest[0]]}' may be '{name}'"] if closest else []
    return f"besides the model's columns it has {in_words(others)}{': ' * bool(meant)}{', '.join(meant)}"
