"""Conversions of pandas' columns that hold cells: `astype`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from triton_regressors.exporter.tracing.algebra import misused
from triton_regressors.exporter.tracing.cells import algebra
from triton_regressors.exporter.tracing.expressions import BOOLEAN, DATE, FLOAT, INTEGER, SINGLE, TEXT, Expression, Kind
from triton_regressors.exporter.tracing.frame_cells import each_cell
from triton_regressors.exporter.tracing.refusal import Untraceable


def astype(self: Any, dtype: Any, *_: Any, **__: Any) -> Any:
    """Return a column or a table as another type, as pandas converts it."""
    if isinstance(dtype, Mapping):
        found = self.copy()
        for name, one in dtype.items():
            found[name] = found[name].astype(one)
        return found

    def each(x: Any) -> Expression:
        own = algebra()
        value, name = own.expression(x), str(getattr(dtype, "__name__", dtype))
        if value.kind.name == TEXT:
            if name in ("str", "string", "category", "object") or isinstance(
                dtype, pd.CategoricalDtype | pd.StringDtype
            ):
                return value
            return own.text_call(value, "astype", lambda series: series.astype(dtype), name, kind=FLOAT)
        if name in ("category", "object"):
            return value
        if name in ("str", "string") or isinstance(dtype, pd.StringDtype):
            return _text_of_number(value)
        if value.kind.name == DATE and name.startswith("datetime64"):
            return value
        if value.kind.name == DATE and name in ("int64", "int"):
            return _whole_time(value)
        return own.cast(value, _kind_of(dtype))

    return each_cell(self, each)


def _text_of_number(value: Expression) -> Expression:
    """Return a whole number or a boolean as Python writes it."""
    own = algebra()
    if value.kind.assumed:
        raise misused(value, "strings")
    if value.kind.name == BOOLEAN:
        return own.graph.make("text_of", value, ("False", "True"), kind=Kind(TEXT, "object"))
    if value.kind.name != INTEGER:
        raise Untraceable(f"it makes text of a {value.kind.name} column (astype)", "Make whole numbers of it before")
    return own.graph.make("digits", value, kind=Kind(TEXT, "object"))


def _whole_time(value: Expression) -> Expression:
    """Return a date as the integer that pandas keeps: a count of the column's unit since 1970."""
    own = algebra()
    unit = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}[value.kind.unit or "us"]
    if unit >= 1:
        return own.graph.make("floor_divide", value, own.graph.constant(unit, Kind(INTEGER)), kind=Kind(INTEGER))
    return own.graph.make("multiply", value, own.graph.constant(1000.0, Kind(INTEGER)), kind=Kind(INTEGER))


def _kind_of(dtype: Any) -> str:
    try:
        kind = np.dtype(str(dtype).lower() if isinstance(dtype, pd.api.extensions.ExtensionDtype) else dtype)
    except TypeError:
        raise Untraceable(f"it casts a column to {dtype}") from None
    if kind.kind == "b":
        return BOOLEAN
    if kind.kind in "iu":
        return INTEGER
    if kind.kind == "f" and kind.itemsize in (4, 8):
        return SINGLE if kind.itemsize == 4 else FLOAT
    raise Untraceable(f"it casts a column to {dtype}")
