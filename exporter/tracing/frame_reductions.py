"""Reductions of pandas' tables that hold cells: sums, means, extremes and medians over the columns of a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from triton_regressors.exporter.tracing.numpy_functions import unframed
from triton_regressors.exporter.tracing.order import ascending
from triton_regressors.exporter.tracing.over_rows import refusing

NAMES = ("sum", "mean", "std", "var", "sem", "prod", "min", "max", "count", "any", "all")


def _reduction(name: str) -> Callable[..., Any]:
    def method(self: Any, axis: Any = None, skipna: bool = True, numeric_only: bool = False, **more: Any) -> Any:
        over_rows = self.ndim == 1 or axis in (None, 0, "index")
        table = self
        if numeric_only and self.ndim == 2:
            table = self.select_dtypes("number")
        values = unframed(table)
        ddof = more.get("ddof", 1)
        return _reduced(name, values, 0 if over_rows else 1, skipna, ddof, self.index if not over_rows else None)

    return method


def _reduced(name: str, values: Any, axis: int, skipna: bool, ddof: int, index: Any) -> Any:
    missing = np.isnan(values)
    if name in ("sum", "mean", "std", "var", "sem", "prod"):
        neutral = 1.0 if name == "prod" else 0.0
        kept = np.where(missing, neutral, values) if skipna else values
        count = np.sum(~missing, axis=axis) if skipna else values.shape[axis]
        found = np.prod(kept, axis=axis) if name == "prod" else np.sum(kept, axis=axis)
        if name in ("mean", "std", "var", "sem"):
            found = found / count
        if name in ("std", "var", "sem"):
            mean = found if axis == 0 else found[:, None]
            squares = (values - mean) ** 2
            squares = np.where(missing, 0.0, squares) if skipna else squares
            found = np.sum(squares, axis=axis) / (count - ddof)
            if name == "std":
                found = np.sqrt(found)
            elif name == "sem":
                found = np.sqrt(found) / np.sqrt(count)
    elif name in ("min", "max"):
        fold = {("min", True): np.fmin, ("max", True): np.fmax, ("min", False): np.minimum, ("max", False): np.maximum}
        found = fold[name, skipna].reduce(values, axis=axis)
    elif name == "count":
        found = np.sum(~missing, axis=axis)
    else:
        found = getattr(np, name)(np.where(missing, name == "all", values) if skipna else values, axis=axis)
    return pd.Series(found.view(np.ndarray), index=index, dtype=object) if index is not None else found


def _median(self: Any, axis: Any = 0, skipna: bool = True, numeric_only: bool = False, **_: Any) -> Any:
    if axis not in (1, "columns"):
        return refusing("median")(self)
    values = unframed(self.select_dtypes("number") if numeric_only else self)
    ordered = ascending(list(values.T))
    count, found = np.sum(~np.isnan(values), axis=1), np.full(len(values), np.nan)
    for known in range(1 if skipna else len(ordered), len(ordered) + 1):
        low, high = ordered[(known - 1) // 2], ordered[known // 2]
        found = np.where(count == known, low if known % 2 else (low + high) / 2, found)
    return pd.Series(found.view(np.ndarray), index=self.index, dtype=object)


REDUCTIONS: dict[str, Callable[..., Any]] = {**{name: _reduction(name) for name in NAMES}, "median": _median}
"""What reductions of Series and DataFrame do where they hold cells."""
