"""Split-fp16 numbers in two float16 parts, which a GPU's matrix units multiply faster than float64 numbers.

`high + low = value · 2ᵏ` holds 22 bits of `value`. Each row of a block of numbers and each column of weights has its
own power of two. NumPy versions of the device functions stand beside them.
"""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl

from .dot import dot

ROW_TOP = 13
"""The exponent for rows: a row's largest number is scaled to at least 2¹³, at most twice that; float16 ends at 2¹⁶."""

COLUMN_TOP = 10
"""The exponent for columns: a column's largest weight is scaled to at least 2¹⁰, at most twice that."""


@triton.jit
def float16_parts(value, TOP: tl.constexpr):
    """Return two float16 blocks, `high + low = value · 2ᵏ` with 22 bits of it, and `2⁻ᵏ` for each row.

    `value`: float32 `[rows, columns]`. Each row's `k` brings its largest magnitude to `2^TOP` or more; integers make
    the powers of two. Rows below 2⁻¹¹⁰ are scaled no further.
    """
    exponent = tl.max(tl.abs(value), axis=1).to(tl.int32, bitcast=True) & 0x7F800000
    exponent = tl.minimum(tl.maximum(exponent, 0x08000000), 0x7F000000)
    factor = ((0x7F000000 - exponent) + (TOP << 23)).to(tl.float32, bitcast=True)
    scaled = value * factor[:, None]
    high = scaled.to(tl.float16)
    low = (scaled - high.to(tl.float32)).to(tl.float16)
    return high, low, (exponent - (TOP << 23)).to(tl.float32, bitcast=True)


@triton.jit
def multiply_parts(high, low, scale, w_high, w_low, acc, MATRIX_UNITS: tl.constexpr):
    """Return `acc + (high + low) @ (w_high + w_low) · scale[:, None]`; the smallest products come first.

    Without matrix units for float16, the sums are multiplied in float32.
    """
    found = tl.zeros(acc.shape, tl.float32)
    if MATRIX_UNITS:
        found = dot(low, w_high, found)
        found = dot(high, w_low, found)
        found = dot(high, w_high, found)
    else:
        found = dot(high.to(tl.float32) + low.to(tl.float32), w_high.to(tl.float32) + w_low.to(tl.float32), found)
    return acc + found * scale[:, None]


def column_parts(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the float16 parts of weights `[features, columns]`, and each column's inverse power of two."""
    power = COLUMN_TOP + 1 - np.frexp(np.abs(weight).max(axis=0))[1]
    scaled = np.ldexp(weight, power)
    high = scaled.astype(np.float16)
    return high, (scaled - high).astype(np.float16), np.ldexp(1.0, -power)


def row_parts(value: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the result of `float16_parts` with `ROW_TOP`, the parts as float64."""
    power = ROW_TOP + 1 - np.maximum(np.frexp(np.abs(value).max(axis=1))[1], -110)
    scaled = np.ldexp(value, power[:, None])
    high = scaled.astype(np.float16)
    return high.astype(np.float64), (scaled - high).astype(np.float16).astype(np.float64), np.ldexp(1.0, -power)


def add_products(total: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return `total + left @ right`, cut off to float32's 24 bits after every 16 products."""
    for begin in range(0, left.shape[1], 16):
        total = total + left[:, begin : begin + 16] @ right[begin : begin + 16].astype(np.float64)
        total = (total.view(np.int64) & -(1 << 29)).view(np.float64)
    return total
