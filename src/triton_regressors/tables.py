"""Tables in users' hands, by one set of rules for the estimator's own answers, for clients and for scoring.

A table is a pandas DataFrame, pyarrow's Table or RecordBatch, what hands itself on as Arrow does (polars), or a list of
records. A cell is a number where it is a float, an integer, a boolean or a Decimal; None, NaN and pandas' own are a
missing number. Strings and dates are no numbers. pandas is not imported before a table needs it.
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
"""The dtypes of categories that are looked up by their codes."""

SHOWN = 5
"""How many names of columns an error shows."""

ARROW = ("__arrow_c_stream__", "__arrow_c_array__")
"""The methods by which a table hands itself on: Arrow's PyCapsule interface."""


class NotNumber(ValueError):  # noqa: N818
    """A column holds what is no number: `value` in `row`."""

    def __init__(self, row: int, value: object) -> None:
        super().__init__(f"it holds {value!r} in row {row}")
        self.row, self.value = row, value


def is_table(rows: object) -> TypeGuard[Any]:
    """Whether they are a pandas DataFrame."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(rows, pandas.DataFrame)


def is_tabular(rows: object) -> bool:
    """Whether they are a table of any kind, which `as_frame` makes a DataFrame."""
    return is_table(rows) or _are_records(rows) or any(hasattr(rows, method) for method in ARROW)


def _are_records(rows: object) -> TypeGuard[Sequence[Mapping[str, Any]]]:
    """Whether they are a list of mappings."""
    return isinstance(rows, list | tuple) and bool(rows) and all(isinstance(record, Mapping) for record in rows)


def is_missing(value: object) -> bool:
    """Whether a value is pandas' own for one that is missing."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and (value is pandas.NA or value is pandas.NaT)


def as_frame(rows: Any) -> Any:
    """Return a table of any kind as a pandas DataFrame; anything else as it is.

    A list of records, mappings of names to values, has the columns of all of them: a name that a record lacks is
    missing there.

    Raises:
        TypeError: it hands itself on as Arrow does, and is no table.
        MissingExtra: it does so, and pyarrow is not installed.
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
        raise TypeError(f"rows of type {type(rows).__name__} are no table: {' '.join(str(error).split())}") from None


def column_numbers(column: Any) -> np.ndarray:
    """Return a column, of a DataFrame or an array, as numbers `[rows]`; a missing one is NaN.

    Integers and booleans keep their type where none is missing, and Decimals that are whole numbers become int64.

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
            return categories[codes]
        return np.append(categories.astype(np.float64), np.nan)[codes]
    return _of_cells(column.to_numpy(dtype=object).tolist())


def _of_cells(values: list[Any]) -> np.ndarray:
    """Return Python's numbers as an array, exact where all of them are whole."""
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
    """Whether a number that is no float is a whole one."""
    if isinstance(value, Decimal):
        return value.is_finite() and value == int(value)
    return isinstance(value, Integral | np.bool_)


def _is_number(value: object) -> bool:
    """Whether a cell is a number or missing."""
    return value is None or is_missing(value) or isinstance(value, Real | Decimal | np.bool_)


def _reads_as_number(value: object) -> bool:
    """Whether a value is a string such as "3.5", which says less about what is wrong than others."""
    return isinstance(value, str) and _has_float(value)


def _has_float(value: Any) -> bool:
    """Whether float64 holds a number of this size."""
    try:
        float(value)
    except (OverflowError, ValueError):
        return False
    return True


def in_words(names: Sequence[Any]) -> str:
    """Return names of columns, the first of them at least, for an error."""
    shown = ", ".join(repr(str(name)) for name in names[:SHOWN])
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"column{'s' if len(names) > 1 else ''} {shown}{more}"


def beside(missing: Sequence[Any], columns: Sequence[Any], wanted: Sequence[Any]) -> str:
    """Return what a table has that lacks columns: those that nobody wants, and which of them are closest.

    Args:
        missing: the columns that it lacks.
        columns: those that it has.
        wanted: all that were looked for.
    """
    others = [str(name) for name in columns if name not in set(wanted)]
    if not others:
        return "it has no other column in their place" if len(missing) > 1 else "it has no other column in its place"
    lower = {name.lower().replace(" ", "_"): name for name in reversed(others)}
    meant = []
    for name in map(str, missing[:SHOWN]):
        closest = difflib.get_close_matches(name.lower().replace(" ", "_"), lower, n=1)
        meant += [f"'{lower[closest[0]]}' may be '{name}'"] if closest else []
    return f"beside what the model takes it has {in_words(others)}{': ' * bool(meant)}{', '.join(meant)}"
