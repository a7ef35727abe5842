"""Tables and matrices: rows are a table if they are a pandas DataFrame or become one, and else a matrix.

A table is a pandas DataFrame, pyarrow's Table or RecordBatch, an object with Arrow's PyCapsule interface (polars), or a
list of records. pandas is not imported before a table needs it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np

from triton_regressors.extras import require
from triton_regressors.tables.columns import check_shape
from triton_regressors.tables.errors import TableError, one_line

ARROW = ("__arrow_c_stream__", "__arrow_c_array__")
"""The methods of Arrow's PyCapsule interface, through which a table exports its data."""


def is_table(rows: object) -> TypeGuard[Any]:
    """Return whether rows are a pandas DataFrame."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(rows, pandas.DataFrame)


def is_tabular(rows: object) -> bool:
    """Return whether rows are a table of any kind that `as_frame` converts to a DataFrame."""
    return is_table(rows) or _are_records(rows) or any(hasattr(rows, method) for method in ARROW)


def has_names(rows: Any) -> bool:
    """Return whether rows are a DataFrame whose columns have names."""
    return is_table(rows) and all(isinstance(name, str) for name in rows.columns)


def as_frame(rows: Any) -> Any:
    """Return a table of any kind as a pandas DataFrame; anything else unchanged.

    A list of records, mappings of names to values, has the columns of all of them: a name that a record lacks is a
    missing value there.

    Raises:
        TableError: an object with Arrow's PyCapsule interface is not a table.
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
        reason = "`to_frame()` makes one of one column" if hasattr(rows, "to_frame") else one_line(error)
        raise TableError(f"Rows of type {type(rows).__name__} are not a table: {reason}.") from None


def as_matrix(rows: Any, called: str, width: int | None = None, *, objects: bool = False) -> np.ndarray:
    """Return rows that are not a table as a matrix `[rows, columns]` of any dtype, of Python's objects with `objects`.

    Raises:
        TableError: they are not two-dimensional, have no rows, or have not `width` columns.
    """
    try:
        matrix = np.asarray(rows, dtype=object if objects else None)
    except ValueError as error:
        raise TableError(f"{called} is not an array: {one_line(error)}.") from None
    if matrix.ndim == 0 and hasattr(rows, "toarray"):
        raise TableError(f"{called} is a sparse matrix; use .toarray().")
    if matrix.dtype.kind in "US" and not isinstance(rows, np.ndarray):  # numpy has made strings of numbers beside them
        matrix = np.asarray(rows, dtype=object)
    check_shape(matrix.shape, called, width)
    return matrix


def as_rows(rows: Any, called: str, width: int | None = None, *, objects: bool = False) -> Any:
    """Return a DataFrame unchanged, and other rows as `as_matrix` does; the errors are the same."""
    if not is_table(rows):
        return as_matrix(rows, called, width, objects=objects)
    check_shape(rows.shape, called, width)
    return rows


def _are_records(rows: object) -> TypeGuard[Sequence[Mapping[str, Any]]]:
    """Return whether rows are a list of mappings."""
    return isinstance(rows, list | tuple) and bool(rows) and all(isinstance(record, Mapping) for record in rows)
