"""Products of blocks inside kernels, on a GPU and in the interpreter."""

from __future__ import annotations

import os

import triton
import triton.language as tl

INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")


@triton.jit
def dot(a, b, sums, PRECISION: tl.constexpr):
    """Return `a @ b + sums`, sums float32; PRECISION applies to float32 blocks.

    The interpreter holds bfloat16 numbers as integers with their bits, so it multiplies them as float32.
    """
    if INTERPRETED:
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, sums, input_precision=PRECISION)
