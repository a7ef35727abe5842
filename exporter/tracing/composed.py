"""Ufuncs of two values that are several instructions: those of scipy.special and numpy that people transform with."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from triton_regressors.exporter.tracing.expressions import Expression
from triton_regressors.exporter.tracing.refusal import Untraceable

Composed = Callable[[Any, Any, Any], Any]
"""A function of an `Algebra` and two values, which returns an expression."""


def _heaviside(own: Any, x: Any, at_zero: Any) -> Any:
    step = own.where(own.binary("greater", x, 0), 1.0, own.where(own.binary("equal", x, 0), at_zero, 0.0))
    return own.where(own.missing(x), math.nan, step)


def _power_transform(logarithm: str) -> Composed:
    """Return Box and Cox's transform: `(xᵖ − 1) / p`, or `log(x)` with p = 0; `logarithm` is that of x or of 1 + x."""

    def function(own: Any, x: Any, power: Any) -> Any:
        p, log = _constant(power, "boxcox"), own.unary(logarithm, x)
        return log if p == 0 else own.binary("divide", own.unary("expm1", own.binary("multiply", log, p)), p)

    return function


def _inverse_power_transform(exponential: str) -> Composed:
    def function(own: Any, y: Any, power: Any) -> Any:
        p = _constant(power, "inv_boxcox")
        log = y if p == 0 else own.binary("divide", own.unary("log1p", own.binary("multiply", y, p)), p)
        return own.unary(exponential, log)

    return function


def _times_log(logarithm: str) -> Composed:
    """Return `x log(y)`, which is 0 for x = 0 and any y but NaN."""

    def function(own: Any, x: Any, y: Any) -> Any:
        product = own.binary("multiply", x, own.unary(logarithm, y))
        nothing = own.binary("logical_and", own.binary("equal", x, 0), own.unary("logical_not", own.missing(y)))
        return own.where(nothing, 0.0, product)

    return function


def _log_of_sum(own: Any, x: Any, y: Any) -> Any:
    """`log(exp(x) + exp(y))`, without their overflow."""
    apart = own.unary("negative", own.unary("absolute", own.binary("subtract", x, y)))
    larger = own.binary("maximum", x, y)
    return own.where(
        own.binary("equal", x, y),
        own.binary("add", x, math.log(2)),
        own.binary("add", larger, own.unary("log1p", own.unary("exp", apart))),
    )


def _constant(value: Any, name: str) -> float:
    if isinstance(value, Expression) and value.constant:
        return float(value.arguments[0])
    if isinstance(value, Expression):
        raise Untraceable(f"it calls {name} with a power that is no constant")
    return float(value)


COMPOSED: dict[str, Composed] = {
    "boxcox": _power_transform("log"),
    "boxcox1p": _power_transform("log1p"),
    "heaviside": _heaviside,
    "inv_boxcox": _inverse_power_transform("exp"),
    "inv_boxcox1p": _inverse_power_transform("expm1"),
    "logaddexp": _log_of_sum,
    "xlog1py": _times_log("log1p"),
    "xlogy": _times_log("log"),
}
"""Each ufunc by its name."""
