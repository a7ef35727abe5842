"""What the kernels of `digit_norm.py` and `hopper_norm.py` make of sums of products of digits."""

from __future__ import annotations

import triton
import triton.language as tl

from .dots import rounded_product


@triton.jit
def norm_parts(
    s0, s1, s2, s3, s4, x, row_terms, terms, row, target, rows,
    FEATURES: tl.constexpr, TARGETS: tl.constexpr, PART_TARGETS: tl.constexpr,
):  # fmt: skip
    """Return the parts, float64 `[rows, *]`, from the sums of products of digits, int32 `[rows, targets]`."""
    BLOCK_ROWS: tl.constexpr = s0.shape[0]
    BLOCK_PARTS: tl.constexpr = s0.shape[1] // PART_TARGETS
    total = (s0.to(tl.int64) * 256 + s1) * 65536 + (s2.to(tl.int64) * 256 + (s3 + ((s4 + 128) >> 8)))
    unit = tl.load(row_terms + row, mask=row < rows, other=0.0)
    middle = tl.load(row_terms + rows + row, mask=row < rows, other=0.0)
    v = rounded_product(total.to(tl.float64), unit[:, None] * tl.load(terms + target)[None, :])
    none = (s0 * 0).to(tl.float64)
    v += rounded_product(middle[:, None] + none, tl.load(terms + TARGETS + target)[None, :] + none)
    inside = (row < rows)[:, None] & (target < FEATURES)[None, :]
    own = tl.load(x + row[:, None] * FEATURES + target[None, :], mask=inside, other=0.0).to(tl.float64)
    v += rounded_product(own, tl.load(terms + 2 * TARGETS + target)[None, :] + none)
    v += tl.load(terms + 3 * TARGETS + target)[None, :]
    y = tl.reshape(rounded_product(v, v), [BLOCK_ROWS, BLOCK_PARTS, PART_TARGETS // 2, 2])
    y = tl.reshape(tl.sum(y, axis=3), [BLOCK_ROWS, BLOCK_PARTS, PART_TARGETS // 4, 2])
    y = tl.reshape(tl.sum(y, axis=3), [BLOCK_ROWS, BLOCK_PARTS, PART_TARGETS // 8, 2])
    y = tl.reshape(tl.sum(y, axis=3), [BLOCK_ROWS, BLOCK_PARTS, PART_TARGETS // 16, 2])
    return tl.sum(tl.sum(y, axis=3), axis=2)
