"""Numbers of polars: arithmetic, casts and constants."""

from __future__ import annotations

import dataclasses
import datetime
import math
from typing import Any

import numpy as np
import pandas as pd
import polars as pl

from triton_regressors.exporter.tracing.algebra import microseconds_of
from triton_regressors.exporter.tracing.expressions import BOOLEAN, INTEGER, SINGLE, Expression
from triton_regressors.exporter.tracing.polars_strings import of_strings
from triton_regressors.exporter.tracing.polars_times import PER_UNIT, cast_time
from triton_regressors.exporter.tracing.polars_values import Nullable, Values, bounds_of, is_text, kind_of, unknown
from triton_regressors.exporter.tracing.refusal import Untraceable


def plain(value: Any, dtype: Any) -> float | str | None:
    """Return a constant as a number or a string: a date as microseconds since 1970 in UTC."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, datetime.timedelta):
        return float(value / datetime.timedelta(microseconds=1))
    if isinstance(value, datetime.date):
        return microseconds_of(pd.Timestamp(value))
    if dtype.is_temporal() and isinstance(value, int):
        return value * PER_UNIT["d" if dtype == pl.Date() else dtype.time_unit]
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise Untraceable(f"it computes with a value of type {type(value).__name__}") from None
    if isinstance(value, int) and abs(value) > 2**53:
        raise Untraceable(f"it computes with the integer {value}, which float64 rounds")
    return number


def arithmetic(values: Values, operator: str, x: Nullable, y: Nullable, dtype: Any) -> Nullable:
    """Return an operation on two numbers, as polars computes it: a division by a constant multiplies by its inverse."""
    own, a, b = values.own, as_number(values, x, dtype), as_number(values, y, dtype)
    if operator in ("Plus", "Minus", "Multiply"):
        name = {"Plus": "add", "Minus": "subtract", "Multiply": "multiply"}[operator]
        found = values.computed(dtype, own.binary(name, a, b), x, y, bounds=_bounds(name, x, y))
        return values.wrapped(found)
    if dtype.is_integer() and operator in ("FloorDivide", "Modulus"):
        zero: Expression | None = values.make("equal", b, values.number(0.0))
        if y.constant is not None:
            zero = None if y.constant else values.number(1.0, BOOLEAN)
        name = "floor_divide" if operator == "FloorDivide" else "remainder"
        return values.computed(dtype, own.binary(name, a, b), x, y, also=zero)
    divisor = y.constant
    if operator not in ("TrueDivide", "FloorDivide", "Modulus"):
        raise unknown(operator)
    if divisor is not None:
        with np.errstate(all="ignore"):
            inverse = np.float32(1) / np.float32(divisor) if dtype == pl.Float32() else np.float64(1) / divisor
        quotient = own.binary("multiply", a, values.number(float(inverse), kind_of(dtype)))
        finite = x.finite and math.isfinite(float(inverse))
    else:
        quotient, finite = own.binary("divide", a, b), False
    if operator == "TrueDivide":
        return values.computed(dtype, quotient, x, y, finite=finite)
    whole = own.unary("floor", quotient)
    if operator == "Modulus":
        whole = own.binary("subtract", a, own.binary("multiply", whole, b))
    return values.computed(dtype, whole, x, y, finite=finite)


def as_number(values: Values, x: Nullable, dtype: Any) -> Expression:
    """Return the expression of a number in the kind of a dtype, NaN where it is null."""
    kind, raw = kind_of(dtype), values.value(x)
    if raw.kind.name == kind.name:
        return raw
    if kind.name == INTEGER and raw.kind.name not in (INTEGER, BOOLEAN):
        return raw
    return values.own.cast(raw, kind.name)


def _bounds(name: str, x: Nullable, y: Nullable) -> tuple[float, float]:
    (a, b), (c, d) = x.bounds, y.bounds
    if not all(map(math.isfinite, (a, b, c, d))):
        return -math.inf, math.inf
    if name == "add":
        return a + c, b + d
    if name == "subtract":
        return a - d, b - c
    corners = (a * c, a * d, b * c, b * d)
    return min(corners), max(corners)


def cast(values: Values, x: Nullable, dtype: Any, wraps: bool = False) -> Nullable:
    """Return a value cast to another dtype."""
    if x.dtype == dtype:
        return x
    if x.cells is not None:
        return dataclasses.replace(x, dtype=dtype)
    if x.dtype == pl.Null():
        return values.literal(dtype, None)
    if x.dtype.is_temporal() or dtype.is_temporal():
        return cast_time(values, x, dtype)
    if x.text:
        if is_text(dtype):
            return Nullable(dtype, x.raw, x.null)
        found = of_strings(values, "cast", [x], [], dtype)
        assert found is not None
        return found
    if is_text(dtype):
        if x.dtype == pl.Boolean():
            raw = values.own.graph.make("text_of", values.value(x), ("false", "true"), kind=kind_of(dtype))
            return values.of_text(dtype, raw)
        raise Untraceable("it makes text of numbers (cast)")
    raw = values.value(x)
    if dtype == pl.Boolean():
        return values.truth(values.make("not_equal", raw, values.number(0.0, raw.kind)), x)
    if dtype.is_float():
        single = kind_of(dtype).name == SINGLE
        return values.computed(dtype, values.own.cast(raw, kind_of(dtype).name), x, finite=x.finite and not single)
    if not dtype.is_integer():
        raise Untraceable(f"it casts a column to {dtype}")
    if x.dtype.is_float():
        whole = values.own.cast(raw, INTEGER)
        low, high = bounds_of(dtype)
        outside = values.either(
            values.opposite(values.make("greater_equal", whole, values.number(low))),
            values.opposite(values.make("less_equal", whole, values.number(high))),
        )
        raw = values.make("where", outside, values.number(math.nan), whole, kind=INTEGER)
        return Nullable(dtype, raw, values.own.missing(raw), bounds=bounds_of(dtype))
    found = values.computed(dtype, values.own.cast(raw, INTEGER), x, bounds=_integers(x))
    (low, high), (least, most) = bounds_of(dtype), found.bounds
    if wraps or (low <= least and most <= high):
        return values.wrapped(found)
    outside = values.number(0.0, BOOLEAN)
    if least < low:
        outside = values.make("less", found.raw, values.number(low))
    if most > high:
        outside = values.either(outside, values.make("greater", found.raw, values.number(high)))
    return values.computed(dtype, found.raw, x, bounds=(max(low, least), min(high, most)), also=outside)


def _integers(x: Nullable) -> tuple[float, float]:
    return (0.0, 1.0) if x.dtype == pl.Boolean() else x.bounds
