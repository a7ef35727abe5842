"""Functions of single elements: the last thing that many operations do, before they write an element.

These are the inverse links of generalised linear models and the NumPy functions that transformers use. Kernels compute
them in float64. The first terms of the Taylor series replace a textbook formula that cancels near zero.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl

from ..format.errors import PlanError
from .special import arcsin, arctan, erfc, expm1, log1p, ndtri

FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "identity": lambda x: x,
    "absolute": torch.abs,
    "arccos": torch.acos,
    "arccosh": torch.acosh,
    "arcsin": torch.asin,
    "arcsinh": torch.asinh,
    "arctan": torch.atan,
    "arctanh": torch.atanh,
    "cbrt": lambda x: torch.sign(x) * torch.abs(x) ** (1 / 3),
    "ceil": torch.ceil,
    "cos": torch.cos,
    "cosh": torch.cosh,
    "degrees": torch.rad2deg,
    "erf": torch.erf,
    "erfc": torch.erfc,
    "exp": torch.exp,
    "exp10": lambda x: 10.0**x,
    "exp2": torch.exp2,
    "expit": torch.sigmoid,
    "expm1": torch.expm1,
    "floor": torch.floor,
    "isnan": lambda x: torch.isnan(x).to(x.dtype),
    "log": torch.log,
    "log10": torch.log10,
    "log1p": torch.log1p,
    "log2": torch.log2,
    "log_expit": torch.nn.functional.logsigmoid,
    "logit": torch.logit,
    "ndtr": lambda x: 0.5 * torch.special.erfc(x * -0.7071067811865476),
    "ndtri": torch.special.ndtri,
    "negative": torch.neg,
    "radians": torch.deg2rad,
    "reciprocal": torch.reciprocal,
    "relu": torch.relu,
    "rint": torch.round,
    "sign": lambda x: torch.where(torch.isnan(x), x, torch.sign(x)),
    "sin": torch.sin,
    "sinh": torch.sinh,
    "sqrt": torch.sqrt,
    "square": torch.square,
    "sublinear": lambda x: torch.where(x == 0, x, torch.log(x) + 1.0),
    "tan": torch.tan,
    "tanh": torch.tanh,
    "trunc": torch.trunc,
}
"""Every function by name, as torch computes it."""


IN_PLACE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "exp": torch.exp_,
    "expit": torch.sigmoid_,
    "relu": torch.relu_,
    "square": torch.square_,
    "tanh": torch.tanh_,
}
"""In-place versions in torch of some of the functions."""


@triton.jit
def apply_function(x, FUNCTION: tl.constexpr):
    """Return `FUNCTION(x)` for a float64 block; every kernel's epilogue."""
    y = x
    if FUNCTION == "absolute":
        y = tl.abs(x)
    elif FUNCTION == "arccos":
        y = 2.0 * arctan(tl.sqrt((1.0 - x) / (1.0 + x)))
    elif FUNCTION == "arccosh":
        t = x - 1.0
        y = tl.where(x < 1e8, log1p(t + tl.sqrt(t) * tl.sqrt(t + 2.0)), tl.log(x) + 0.6931471805599453)
    elif FUNCTION == "arcsin":
        y = arcsin(x)
    elif FUNCTION == "arcsinh":
        a = tl.abs(x)
        far = tl.where(
            a > 1e150, tl.log(a) + 0.6931471805599453, tl.log(a + tl.sqrt(a * a + 1.0))
        )  # no square overflows
        y = tl.where(a < 1e-4, x - x * x * x / 6.0, tl.where(x < 0.0, -far, far))
    elif FUNCTION == "arctan":
        y = arctan(x)
    elif FUNCTION == "arctanh":
        y = tl.where(tl.abs(x) < 1e-4, x + x * x * x / 3.0, 0.5 * tl.log((1.0 + x) / (1.0 - x)))
    elif FUNCTION == "cbrt":
        a = tl.exp(tl.log(tl.abs(x)) / 3.0)
        y = tl.where(x == 0.0, x, tl.where(x < 0.0, -a, a))
    elif FUNCTION == "ceil":
        y = tl.ceil(x)
    elif FUNCTION == "cos":
        y = tl.cos(x)
    elif FUNCTION == "cosh":
        e = tl.exp(tl.abs(x))
        y = 0.5 * (e + 1.0 / e)
    elif FUNCTION == "degrees":
        y = x * 57.29577951308232
    elif FUNCTION == "erf":
        y = tl.erf(x)
    elif FUNCTION == "erfc":
        y = erfc(x)
    elif FUNCTION == "exp":
        y = tl.exp(x)
    elif FUNCTION == "exp10":
        y = tl.exp(x * 2.302585092994046)
    elif FUNCTION == "exp2":
        y = tl.exp(x * 0.6931471805599453)
    elif FUNCTION == "expit":
        y = 1.0 / (1.0 + tl.exp(-x))
    elif FUNCTION == "expm1":
        y = expm1(x)
    elif FUNCTION == "floor":
        y = tl.floor(x)
    elif FUNCTION == "isnan":
        y = tl.where(x == x, 0.0, 1.0).to(tl.float64)
    elif FUNCTION == "log":
        y = tl.log(x)
    elif FUNCTION == "log10":
        y = tl.log(x) * 0.4342944819032518
    elif FUNCTION == "log1p":
        y = log1p(x)
    elif FUNCTION == "log2":
        y = tl.log(x) * 1.4426950408889634
    elif FUNCTION == "log_expit":
        y = tl.where(x < 0.0, x, 0.0) - log1p(tl.exp(-tl.abs(x)))
    elif FUNCTION == "logit":
        y = tl.log(x / (1.0 - x))
    elif FUNCTION == "ndtr":
        y = 0.5 * erfc(x * -0.7071067811865476)
    elif FUNCTION == "ndtri":
        y = ndtri(x)
    elif FUNCTION == "negative":
        y = -x
    elif FUNCTION == "radians":
        y = x * 0.017453292519943295
    elif FUNCTION == "reciprocal":
        y = 1.0 / x
    elif FUNCTION == "relu":
        y = tl.where(x < 0.0, 0.0, x)
    elif FUNCTION == "rint":
        a = tl.abs(x)
        whole = (a + 4503599627370496.0) - 4503599627370496.0  # 2**52 leaves no place for a fraction
        y = tl.where(a < 4503599627370496.0, tl.where(x < 0.0, -whole, whole), x)
    elif FUNCTION == "sign":
        y = tl.where(x > 0.0, 1.0, tl.where(x < 0.0, -1.0, x))
    elif FUNCTION == "sin":
        y = tl.sin(x)
    elif FUNCTION == "sinh":
        e = tl.exp(tl.abs(x))
        far = 0.5 * (e - 1.0 / e)
        s = x * x
        near = x * (1.0 + s / 6.0 * (1.0 + s / 20.0 * (1.0 + s / 42.0)))
        y = tl.where(tl.abs(x) < 0.1, near, tl.where(x < 0.0, -far, far))
    elif FUNCTION == "sqrt":
        y = tl.sqrt(x)
    elif FUNCTION == "square":
        y = x * x
    elif FUNCTION == "sublinear":
        y = tl.where(x == 0.0, x, tl.log(x) + 1.0)
    elif FUNCTION == "tan":
        y = tl.sin(x) / tl.cos(x)
    elif FUNCTION == "tanh":
        s = x * x
        y = tl.where(tl.abs(x) < 1e-3, x * (1.0 - s / 3.0 + 2.0 * s * s / 15.0), 1.0 - 2.0 / (tl.exp(2.0 * x) + 1.0))
    elif FUNCTION == "trunc":
        y = tl.where(x < 0.0, tl.ceil(x), tl.floor(x))
    else:
        tl.static_assert(FUNCTION == "identity")
    return y


def check_function(name: str) -> None:
    """Raise `PlanError` unless `name` is one of `FUNCTIONS`."""
    if name not in FUNCTIONS:
        raise PlanError(f"There is no function '{name}'; the functions are {', '.join(FUNCTIONS)}.")


def function_suffix(function: str) -> str:
    """Return the name that `describe` gives the function at the end of an operation."""
    return "" if function == "identity" else f", then {function}"
