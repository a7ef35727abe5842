"""The instructions of elementwise programs: NumPy's functions of one, two or three float64 numbers, by its names.

A truth is 0.0 or 1.0, and any number but zero is true, NaN too. Instructions of `EXACT` have NumPy's bits on every
processor, except that either zero may be the smaller of zeros of both signs, and that one NaN stands for all. The other
ones are accurate to the last digits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import triton
import triton.language as tl

from .civil_dates import civil, torch_civil
from .functions import FUNCTIONS, apply_function
from .powers import power_of
from .remainders import by_numpy, copysign, floor_divide, fmod, is_negative, remainder
from .special import arctan2, hypot

_UNARY: dict[str, Callable[..., torch.Tensor]] = {
    **FUNCTIONS,
    "civil_day": lambda x: torch_civil(x, "day"),
    "civil_month": lambda x: torch_civil(x, "month"),
    "civil_year": lambda x: torch_civil(x, "year"),
    "float32": lambda x: x.float().double(),
    "isfinite": lambda x: x.isfinite().double(),
    "isinf": lambda x: x.isinf().double(),
    "logical_not": lambda x: (x == 0).double(),
    "signbit": lambda x: x.signbit().double(),
    "sqrt": by_numpy(np.sqrt),
}

_BINARY: dict[str, Callable[..., torch.Tensor]] = {
    "add": torch.add,
    "arctan2": torch.atan2,
    "copysign": torch.copysign,
    "divide": torch.divide,
    "equal": lambda x, y: (x == y).double(),
    "floor_divide": by_numpy(np.floor_divide),
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "fmod": by_numpy(np.fmod),
    "greater": lambda x, y: (x > y).double(),
    "greater_equal": lambda x, y: (x >= y).double(),
    "hypot": torch.hypot,
    "less": lambda x, y: (x < y).double(),
    "less_equal": lambda x, y: (x <= y).double(),
    "logical_and": lambda x, y: ((x != 0) & (y != 0)).double(),
    "logical_or": lambda x, y: ((x != 0) | (y != 0)).double(),
    "logical_xor": lambda x, y: ((x != 0) ^ (y != 0)).double(),
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "multiply": torch.multiply,
    "not_equal": lambda x, y: (x != y).double(),
    "power": torch.pow,
    "remainder": by_numpy(np.remainder),
    "subtract": torch.subtract,
}

_TERNARY: dict[str, Callable[..., torch.Tensor]] = {"where": lambda c, x, y: torch.where(c != 0, x, y)}

UNARY, BINARY, TERNARY = frozenset(_UNARY), frozenset(_BINARY), frozenset(_TERNARY)

INSTRUCTIONS: dict[str, Callable[..., torch.Tensor]] = _UNARY | _BINARY | _TERNARY
"""Every instruction by name, as torch computes it from float64 tensors."""

EXACT = frozenset(
    [
        *("absolute", "ceil", "degrees", "floor", "identity", "isnan", "negative", "radians", "reciprocal", "rint"),
        *("sign", "square", "trunc"),
        *(UNARY - FUNCTIONS.keys()),
        *(BINARY - {"arctan2", "hypot", "power"}),
        *("sqrt", "where"),
    ]
)
"""The instructions that have NumPy's bits everywhere."""

HIDES_NAN = frozenset(
    [
        *("isfinite", "isinf", "isnan", "logical_not", "signbit"),
        *("copysign", "equal", "fmax", "fmin", "greater", "greater_equal", "hypot", "less", "less_equal"),
        *("logical_and", "logical_or", "logical_xor", "not_equal", "power", "where"),
    ]
)
"""The instructions that may make a number of NaN."""


def arguments_of(name: str) -> int:
    """Return how many arguments an instruction has."""
    return 1 if name in UNARY else 2 if name in BINARY else 3


@triton.jit
def apply_instruction(a, b, c, NAME: tl.constexpr):
    """Return the instruction of float64 blocks; those past its last argument are unread."""
    if NAME == "add":
        y = a + b
    elif NAME == "subtract":
        y = a - b
    elif NAME == "multiply":
        y = a * b
    elif NAME == "divide":
        y = a / b
    elif NAME == "power":
        y = power_of(a, b)
    elif NAME == "floor_divide":
        y = floor_divide(a, b)
    elif NAME == "remainder":
        y = remainder(a, b)
    elif NAME == "fmod":
        y = fmod(a, b)
    elif NAME == "maximum":
        y = tl.where((a > b) | (a != a), a, b)
    elif NAME == "minimum":
        y = tl.where((a < b) | (a != a), a, b)
    elif NAME == "fmax":
        y = tl.where((a > b) | (b != b), a, b)
    elif NAME == "fmin":
        y = tl.where((a < b) | (b != b), a, b)
    elif NAME == "arctan2":
        y = arctan2(a, b)
    elif NAME == "hypot":
        y = hypot(a, b)
    elif NAME == "copysign":
        y = copysign(a, b)
    elif NAME == "less":
        y = (a < b).to(tl.float64)
    elif NAME == "less_equal":
        y = (a <= b).to(tl.float64)
    elif NAME == "greater":
        y = (a > b).to(tl.float64)
    elif NAME == "greater_equal":
        y = (a >= b).to(tl.float64)
    elif NAME == "equal":
        y = (a == b).to(tl.float64)
    elif NAME == "not_equal":
        y = (a != b).to(tl.float64)
    elif NAME == "logical_and":
        y = ((a != 0.0) & (b != 0.0)).to(tl.float64)
    elif NAME == "logical_or":
        y = ((a != 0.0) | (b != 0.0)).to(tl.float64)
    elif NAME == "logical_xor":
        y = ((a != 0.0) != (b != 0.0)).to(tl.float64)
    elif NAME == "where":
        y = tl.where(a != 0.0, b, c)
    else:
        y = apply_unary(a, NAME)
    return y


@triton.jit
def apply_unary(x, NAME: tl.constexpr):
    """Return an instruction of one argument; the zeros and signs of some functions are those of NumPy only here."""
    if NAME == "civil_day":
        y = civil(x, "day")
    elif NAME == "civil_month":
        y = civil(x, "month")
    elif NAME == "civil_year":
        y = civil(x, "year")
    elif NAME == "float32":
        y = x.to(tl.float32).to(tl.float64)
    elif NAME == "isfinite":
        y = (tl.abs(x) < float("inf")).to(tl.float64)
    elif NAME == "isinf":
        y = (tl.abs(x) == float("inf")).to(tl.float64)
    elif NAME == "logical_not":
        y = (x == 0.0).to(tl.float64)
    elif NAME == "signbit":
        y = is_negative(x).to(tl.float64)
    elif NAME == "negative":
        y = x * -1.0  # `-x` subtracts from zero
    elif NAME == "sign":
        y = tl.where(x == 0.0, 0.0, apply_function(x, NAME))
    elif NAME == "rint":
        y = copysign(apply_function(x, NAME), x)
    elif NAME == "arcsin" or NAME == "arcsinh" or NAME == "arctan":
        y = tl.where(x == 0.0, x, apply_function(x, NAME))
    else:
        y = apply_function(x, NAME)
    return y
