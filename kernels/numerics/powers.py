"""Powers of float64 numbers.

`power` and `torch_power` have one exponent for all numbers and agree in kernels and in plain torch: a whole exponent
is repeated multiplication; any other is `exp(p · log base)`, so NaN for a negative base. `power_of` has an exponent for
each number, and the special cases of NumPy's `power`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

MAX_WHOLE_EXPONENT = 1023


@triton.jit
def power(base, exponent, WHOLE: tl.constexpr):
    """Return `base ** exponent` in the base's dtype; `WHOLE` is the exponent if it is a whole number, else None."""
    if WHOLE is None:
        y = tl.exp(exponent * tl.log(base))
    else:
        COUNT: tl.constexpr = WHOLE if WHOLE >= 0 else -WHOLE
        y = tl.full(base.shape, 1.0, base.dtype)
        square = base
        for bit in tl.static_range(10):
            if (COUNT >> bit) & 1:
                y = y * square
            if (COUNT >> bit) > 1:
                square = square * square
        if WHOLE < 0:
            y = 1.0 / y
    return y


@triton.jit
def power_of(base, exponent):
    """Return `base ** exponent` for float64 blocks of one shape.

    A whole exponent up to `MAX_WHOLE_EXPONENT` is repeated multiplication, unless that leaves the range of numbers; any
    other is `exp(p · log |base|)` with the sign that it should have.
    """
    a, count = tl.abs(base), tl.abs(exponent)
    is_whole = tl.floor(exponent) == exponent
    left = tl.where(is_whole & (count <= 1023.0), count, 0.0).to(tl.int32)
    product, square = tl.where(a == a, 1.0, 1.0).to(tl.float64), a
    for _ in tl.static_range(10):
        product = tl.where(left % 2 == 1, product * square, product)
        square = square * square
        left = left // 2
    inside = (product > 1e-300) & (product < 1e300)
    y = tl.exp(exponent * tl.log(a))
    y = tl.where(is_whole & (count <= 1023.0) & inside, tl.where(exponent < 0.0, 1.0 / product, product), y)
    y = tl.where((a == 1.0) & (exponent == exponent), 1.0, y)  # also to the power infinity
    odd = is_whole & (tl.floor(exponent * 0.5) != exponent * 0.5)
    y = tl.where(odd & (base.to(tl.int64, bitcast=True) < 0), y * -1.0, y)
    y = tl.where((base < 0.0) & (a < float("inf")) & (tl.floor(exponent) != exponent), float("nan"), y)
    return tl.where((exponent == 0.0) | (base == 1.0), 1.0, y)


def whole(exponent: float) -> int | None:
    """Return an exponent that repeated multiplication computes as an integer, and None for any other."""
    return int(exponent) if float(exponent).is_integer() and abs(exponent) <= MAX_WHOLE_EXPONENT else None


def torch_power(base: torch.Tensor, exponent: float) -> torch.Tensor:
    """Return `base ** exponent` for a float64 tensor, in the order that the kernels compute it."""
    count = whole(exponent)
    if count is None:
        return torch.exp(exponent * torch.log(base))
    y, square = None, base
    for bit in range(abs(count).bit_length()):
        if bit:
            square = square * square
        if (abs(count) >> bit) & 1:
            y = square if y is None else y * square
    if y is None:
        y = torch.ones_like(base)
    return torch.reciprocal(y) if count < 0 else y
