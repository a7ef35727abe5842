"""The types in which a user holds rows: scikit-learn computes in float32 if it is given float32.

An entry gives the answers of `predict` to a table like the sample. A sample of float64 numbers, or none, leaves
everything in float64. If the sample has float32 columns, they are float32 in every table that the estimator is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils._set_output import _get_output_config

from triton_regressors.tables.frames import has_names

ROWS = 16
"""Rows of a sample that are passed from transformer to transformer, to see the types of their results."""

SINGLE = np.dtype(np.float32)


@dataclass(frozen=True)
class RowTypes:
    """The dtype of each column of a sample, None for a column without numbers; empty if no column is float32."""

    dtypes: tuple[np.dtype[Any] | None, ...] = ()

    @property
    def float32(self) -> tuple[int, ...]:
        """The columns that are float32."""
        return tuple(column for column, dtype in enumerate(self.dtypes) if dtype == SINGLE)

    def of_table(self, table: Any) -> Any:
        """Return rows, a DataFrame or a matrix, with columns in the sample's dtypes, and other floats as float64.

        A number that float32 cannot hold is rounded as `astype` rounds it.
        """
        with np.errstate(over="ignore"):
            if not hasattr(table, "columns"):
                dtype, kinds = (SINGLE, "fiu") if self.float32 else (np.dtype(np.float64), "f")
                return table.astype(dtype) if table.dtype.kind in kinds else table
            given = dict(zip(table.columns, table.dtypes, strict=True))
            other = {name: np.float64 for name, dtype in given.items() if dtype == SINGLE}
            if self.dtypes:
                named = zip(given.items(), self.dtypes, strict=True)
                other |= {name: kept for (name, dtype), kept in named if _fits(table[name], dtype, kept)}
            other = {name: dtype for name, dtype in other.items() if dtype != given[name]}
            return table.astype(other) if other else table

    def of_matrix(self, X: np.ndarray) -> np.ndarray:
        """Return rows of the plan's matrix, float64, with each number rounded to the dtype of its sample column."""
        if not self.dtypes:
            return X
        rounded: np.ndarray = X.copy()
        columns = list(self.float32)
        with np.errstate(over="ignore"):
            rounded[:, columns] = X[:, columns].astype(np.float32)
        return rounded


DOUBLE = RowTypes()
"""The types of rows without a float32 column: the estimator gets every number as float64."""


def row_types(sample: Any | None, names: Sequence[str] | None) -> RowTypes:
    """Return the types of a sample; `names` are those of the columns that the estimator was fitted on, if any."""
    if sample is None:
        return RowTypes()
    if hasattr(sample, "columns") and names is not None:
        if has_names(sample):
            given = dict(zip(sample.columns, sample.dtypes, strict=True))
            found = [given.get(name) for name in names]  # columns that nothing reads may be absent
        else:
            found = list(sample.dtypes)
        dtypes = tuple(dtype if isinstance(dtype, np.dtype) else None for dtype in found)
    else:
        try:
            matrix = np.asarray(sample)
        except ValueError:
            return RowTypes()
        dtypes = (matrix.dtype,) * (matrix.shape[1] if matrix.ndim == 2 else 0)
    return RowTypes(tuple(dtype if _is_number(dtype) else None for dtype in dtypes)) if SINGLE in dtypes else RowTypes()


def boolean_columns(table: Any) -> set[int]:
    """Return the columns of rows, a DataFrame or a matrix, that hold booleans by their dtype."""
    return {column for column, dtype in enumerate(dtypes_of(table)) if getattr(dtype, "kind", None) == "b"}


def dtypes_of(rows: Any) -> list[Any]:
    """Return the dtype of each column of rows, a DataFrame or a matrix, dense or sparse."""
    return list(rows.dtypes) if hasattr(rows, "dtypes") else [rows.dtype] * rows.shape[1]


def transformed(transformer: Any, rows: Any | None) -> Any | None:
    """Return a fitted transformer's output for some rows, or None if there are none or it refuses them."""
    if rows is None:
        return None
    try:
        return transformer.transform(rows)
    except Exception:  # transformers refuse rows in many ways; the whole estimator is asked later
        return None


def output_table(transformer: Any) -> str:
    """Return what a fitted transformer is set to return: "pandas", "polars" or "default"."""
    return str(_get_output_config("transform", transformer)["dense"])


def output_names(transformer: Any) -> tuple[Any, ...]:
    """Return the names of a fitted transformer's columns if it is set to return a DataFrame; otherwise nothing."""
    if output_table(transformer) == "default":
        return ()
    try:
        return tuple(transformer.get_feature_names_out())
    except Exception:  # transformers that do not name their columns raise in many ways
        return ()


def columns_of(rows: Any | None, columns: np.ndarray) -> Any | None:
    """Return some columns of rows, a DataFrame or a matrix, dense or sparse; None if there are no rows."""
    if rows is None:
        return None
    return rows.iloc[:, columns] if hasattr(rows, "iloc") else rows[:, columns]


def float32_columns(rows: Any | None, width: int) -> np.ndarray:
    """Return the mask of the float32 columns among `width` columns of rows, `[width]` bool."""
    if rows is None or np.ndim(rows) != 2 or rows.shape[1] != width:
        return np.zeros(width, dtype=bool)
    return np.array([dtype == SINGLE for dtype in dtypes_of(rows)], dtype=bool)


def computes_in_float32(rows: Any | None) -> bool:
    """Return whether scikit-learn makes one float32 matrix of these rows, by numpy's result type."""
    if rows is None:
        return False
    dtypes = list(rows.dtypes) if hasattr(rows, "dtypes") else [rows.dtype]
    if not all(isinstance(dtype, np.dtype) and _is_number(dtype) for dtype in dtypes):
        return False
    return bool(np.result_type(*dtypes) == SINGLE)


def _is_number(dtype: Any) -> bool:
    return dtype is not None and dtype.kind in "fiu"


def _fits(column: Any, dtype: Any, kept: Any) -> bool:
    """Return whether a column takes the sample's dtype: float32, or an integer type narrower than 32 bits that fits."""
    if kept is None or not (isinstance(dtype, np.dtype) and _is_number(dtype)) or kept.itemsize > SINGLE.itemsize:
        return False
    if kept.kind == "f":
        return bool(kept == SINGLE)
    values = column.to_numpy()
    with np.errstate(invalid="ignore"):
        return kept.itemsize < SINGLE.itemsize and bool((values.astype(kept) == values).all())
