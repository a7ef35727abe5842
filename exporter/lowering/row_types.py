"""The types in which a user holds rows: scikit-learn computes with float32 where it is given float32.

An entry answers what `predict` answers to a table like the sample. A sample of float64 numbers, or none, leaves
everything in float64. In a sample with float32 columns these stay float32 wherever the estimator is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

ROWS = 16
"""Rows of a sample that are handed from transformer to transformer, to see what types they make of them."""

SINGLE = np.dtype(np.float32)


@dataclass(frozen=True)
class RowTypes:
    """The dtype of each column of a sample, None where it is no number; empty where no column is float32."""

    dtypes: tuple[np.dtype[Any] | None, ...] = ()

    @property
    def float32(self) -> tuple[int, ...]:
        """The columns that are float32."""
        return tuple(column for column, dtype in enumerate(self.dtypes) if dtype == SINGLE)

    def of_table(self, table: Any) -> Any:
        """Return rows, a DataFrame or a matrix, with the columns of the sample's dtypes, and other floats as float64.

        A number that float32 does not hold is rounded as `astype` rounds it.
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
        """Return rows of the plan's matrix, float64, with each number as its column of the sample holds it."""
        if not self.dtypes:
            return X
        rounded: np.ndarray = X.copy()
        columns = list(self.float32)
        with np.errstate(over="ignore"):
            rounded[:, columns] = X[:, columns].astype(np.float32)
        return rounded


DOUBLE = RowTypes()
"""The types of rows without a float32 column: every number is asked as float64."""


def row_types(sample: Any | None, names: Sequence[str] | None) -> RowTypes:
    """Return the types of a sample; `names` are those of the columns that the estimator was fitted on, if any."""
    if sample is None:
        return RowTypes()
    if hasattr(sample, "columns") and names is not None:
        if all(isinstance(name, str) for name in sample.columns):
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
    if hasattr(table, "columns"):
        return {column for column, dtype in enumerate(table.dtypes) if getattr(dtype, "kind", None) == "b"}
    return set(range(table.shape[1])) if table.dtype.kind == "b" else set()


def transformed(transformer: Any, rows: Any | None) -> Any | None:
    """Return what a fitted transformer makes of some rows, or None where there are none or it refuses these."""
    if rows is None:
        return None
    try:
        return transformer.transform(rows)
    except Exception:  # transformers refuse rows in many ways; the whole estimator is asked later
        return None


def columns_of(rows: Any | None, columns: np.ndarray) -> Any | None:
    """Return some columns of rows, a DataFrame or a matrix, dense or sparse; None where there are none."""
    if rows is None:
        return None
    return rows.iloc[:, columns] if hasattr(rows, "iloc") else rows[:, columns]


def float32_columns(rows: Any | None, width: int) -> np.ndarray:
    """Return which of `width` columns of rows are float32, `[width]` bool."""
    if rows is None or np.ndim(rows) != 2 or rows.shape[1] != width:
        return np.zeros(width, dtype=bool)
    dtypes = rows.dtypes if hasattr(rows, "dtypes") else [rows.dtype] * width
    return np.array([dtype == SINGLE for dtype in dtypes], dtype=bool)


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
    """Return whether a column takes the dtype of the sample's: float32 numbers, and whole numbers of few bits."""
    if kept is None or not (isinstance(dtype, np.dtype) and _is_number(dtype)) or kept.itemsize > SINGLE.itemsize:
        return False
    if kept.kind == "f":
        return bool(kept == SINGLE)
    values = column.to_numpy()
    with np.errstate(invalid="ignore"):
        return kept.itemsize < SINGLE.itemsize and bool((values.astype(kept) == values).all())
