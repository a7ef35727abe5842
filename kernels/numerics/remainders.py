"""Remainders and floor division of float64 numbers with NumPy's bits, for all numbers.

The Triton language's `%` of floats is not exact on a GPU. Here `fmod` divides by multiples `d = 2ᵏ b` of the divisor
that are at most `a` and have a quotient below 2²⁶, until `a < b`. Such a step is exact: the divisor's upper 26 bits and
its lower 27 bits have exact products with the quotient. Ordinary numbers take one step.

`remainder` has the divisor's sign, and both it and `floor_divide` follow NumPy's `npy_divmod`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import triton
import triton.language as tl


@triton.jit
def is_negative(x):
    """Return where the sign bit of a float64 block is set."""
    return x.to(tl.int64, bitcast=True) < 0


@triton.jit
def copysign(x, y):
    """Return the magnitude of `x` with the sign of `y`, float64 blocks."""
    a = tl.abs(x)
    return tl.where(is_negative(y), a * -1.0, a)


@triton.jit
def fmod(x, y):
    """Return the remainder of `x / y` with the sign of `x`, float64 blocks."""
    known = (tl.abs(x) < float("inf")) & (tl.abs(y) > 0.0)  # neither of them NaN
    a = tl.where(known, tl.abs(x), 0.0)
    b = tl.where(known, tl.abs(y), 1.0)
    while tl.max((a >= b).to(tl.int32), axis=0) > 0:
        d = b
        for place in tl.static_range(7):
            further = d * (2.0 ** (832 >> (place - 1 if place else 0)))  # 2⁸³² twice, then 2⁴¹⁶ … 2²⁶
            d = tl.where(further <= a, further, d)
        upper = (d.to(tl.int64, bitcast=True) & -134217728).to(tl.float64, bitcast=True)  # without the last 27 bits
        times = tl.floor(a / d)
        rest = (a - times * upper) - times * (d - upper)
        rest = tl.where(rest < 0.0, rest + d, rest)  # the quotient was rounded up to a whole number
        a = tl.where(a >= b, rest, a)
    return tl.where(known, copysign(a, x), float("nan"))


@triton.jit
def remainder(x, y):
    """Return the remainder of `x / y` with the sign of `y`, float64 blocks."""
    rest = fmod(x, y)
    moved = tl.where((y < 0.0) != (rest < 0.0), rest + y, rest)
    return tl.where(rest == 0.0, copysign(rest, y), moved)


@triton.jit
def floor_divide(x, y):
    """Return `x / y` rounded down, float64 blocks."""
    rest, ratio = fmod(x, y), x / y
    times = (x - rest) / y
    times = tl.where((rest != 0.0) & ((y < 0.0) != (rest < 0.0)), times - 1.0, times)
    whole = tl.floor(times)
    whole = tl.where(times - whole > 0.5, whole + 1.0, whole)
    whole = tl.where(times == 0.0, copysign(times, ratio), whole)
    return tl.where(y == 0.0, ratio, whole)


def by_numpy(function: Callable[..., np.ndarray]) -> Callable[..., torch.Tensor]:
    """Return a function of tensors that NumPy computes: torch leaves some to a library that is not exact."""

    def compute(*values: torch.Tensor) -> torch.Tensor:
        with np.errstate(all="ignore"):
            return torch.from_numpy(np.asarray(function(*(value.numpy() for value in values))))

    return compute
