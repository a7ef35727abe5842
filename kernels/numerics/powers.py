"""Powers of float64 numbers, the same in kernels and in plain torch.

A whole exponent is repeated multiplication; any other is `exp(p · log base)`, so NaN for a negative base.
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
