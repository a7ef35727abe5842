"""Matrix products of blocks inside kernels.

On a GPU a product is `tl.dot`. The interpreter's `tl.dot` is NumPy's matmul and thus a BLAS, which treats the last rows
of a product differently from the others: on some processors a row's bits would depend on its place in the block. In the
interpreter the products are therefore added in the same order for every row, on every processor.

The compiler, up to release 3.7 of the Triton language, cannot put all products of 64 rows and more on the matrix units
that GPUs of compute capability 10 got: these have no float64 (triton-lang/triton#10126), and it fails on some products
of float16 whose rows are then searched. It does not put batches of products there, and those GPUs have the instructions
of their predecessors too, so that each product is a batch of one.
"""

from __future__ import annotations

import os

import triton
import triton.language as tl
from triton.language.target_info import cuda_capability_geq

INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")


@triton.constexpr_function
def in_batches():
    """Return whether the GPU that a kernel is compiled for gets products as batches of one."""
    return cuda_capability_geq(10) and not cuda_capability_geq(12)


@triton.jit
def dot(a, b, acc):
    """Return `a @ b + acc` for blocks `[rows, features]` and `[features, columns]`.

    All are float64, or all float32, or `a` and `b` are float16 and `acc` is float32.
    """
    if INTERPRETED:
        product = tl.sum(a.to(acc.dtype)[:, :, None] * b.to(acc.dtype)[None, :, :], axis=1) + acc
    elif in_batches():
        batch = tl.dot(a[None], b[None], acc=acc[None], input_precision="ieee", out_dtype=acc.dtype)
        product = batch.reshape(acc.shape)
    elif a.dtype == tl.float64:
        product = tl.dot(a, b, acc=acc, out_dtype=tl.float64)
    elif a.dtype == tl.float16:
        product = tl.dot(a, b, acc=acc)
    else:
        product = tl.dot(a, b, acc=acc, input_precision="ieee")
    return product


@triton.jit
def rounded_product(a, b):
    """Return `a · b` for float64 or float32 blocks of one shape, rounded before anything is added to it.

    A compiler fuses a product with the sum that reads it. If two products are added, it may fuse either one and choose
    differently from row to row, so that a row's bits would depend on its place in a block.
    """
    if INTERPRETED:
        product = a * b
    elif a.dtype == tl.float32:
        product = tl.inline_asm_elementwise("mul.rn.f32 $0, $1, $2;", "=f,f,f", [a, b], tl.float32, True, 1)
    else:
        product = tl.inline_asm_elementwise("mul.rn.f64 $0, $1, $2;", "=d,d,d", [a, b], tl.float64, True, 1)
    return product
