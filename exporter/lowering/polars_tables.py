"""Tables of polars: which type each column has, and the same rows as a DataFrame of polars.

The export handles every table as a DataFrame of pandas, in which a missing number is NaN. polars tells null from NaN.
A request cannot: its NaN stands for what the sample holds, null in a column that has any, and else NaN if it has one.
polars is never imported here before the user's own code has imported it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from triton_regressors.tables.values import is_missing

NULL, NAN, BOTH = "null", "NaN", "null and NaN"


@dataclass(frozen=True)
class PolarsType:
    """The dtype of a column, and what its missing values are: `NULL`, `NAN` or `BOTH`."""

    dtype: Any
    missing: str = NULL

    def series(self, name: str, column: Any) -> Any:
        """Return a column of pandas as one of polars; numbers that the dtype does not hold make it one of floats."""
        import polars as pl

        dtype = self.dtype
        if dtype.is_temporal():
            return pl.from_pandas(column.to_frame(name))[name].cast(dtype, strict=False)
        if not dtype.is_numeric() and dtype != pl.Boolean:
            cells = [None if is_missing(cell) else cell for cell in column.tolist()]
            return pl.Series(name, cells, dtype=pl.String if _is_text(dtype) else None, strict=False).cast(dtype)
        exact = isinstance(column.dtype, np.dtype) and column.dtype.kind in "iub"
        found = pl.Series(name, column.to_numpy() if exact else column.astype(float).to_numpy(np.float64))
        if not exact and self.missing != NAN:
            found = found.fill_nan(None)
        held = found.cast(dtype, strict=False)
        return held if dtype.is_float() or (held.cast(found.dtype) == found).all() else found


@dataclass(frozen=True)
class PolarsTables:
    """The types of the columns of a model's tables, None for a column that the sample does not have."""

    types: tuple[PolarsType | None, ...]

    def table(self, frame: Any) -> Any:
        """Return a DataFrame of pandas as one of polars."""
        import polars as pl

        columns = zip(frame.columns, self.types, strict=True)
        return pl.DataFrame([self._series(str(name), frame[name], known) for name, known in columns])

    @staticmethod
    def _series(name: str, column: Any, known: PolarsType | None) -> Any:
        import polars as pl

        try:
            return pl.Series(name, column.to_numpy()) if known is None else known.series(name, column)
        except (TypeError, ValueError, pl.exceptions.PolarsError):  # a column that nothing reads holds zeros
            return pl.Series(name, [None] * len(column), dtype=None if known is None else known.dtype)


def is_polars(rows: object) -> bool:
    """Return whether rows are a DataFrame of polars."""
    polars = sys.modules.get("polars")
    return polars is not None and isinstance(rows, polars.DataFrame)


def polars_types(rows: Any) -> dict[str, PolarsType] | None:
    """Return the type of each column of a DataFrame of polars by name; None for other rows."""
    if not is_polars(rows):
        return None
    return {column.name: PolarsType(column.dtype, _missing(column)) for column in rows.get_columns()}


def _missing(column: Any) -> str:
    if not column.dtype.is_float():
        return NULL
    nulls, nan = column.null_count() > 0, bool(column.is_nan().any())
    return BOTH if nulls and nan else NAN if nan else NULL


def _is_text(dtype: Any) -> bool:
    import polars as pl

    return dtype.base_type() in (pl.String, pl.Categorical, pl.Enum)
