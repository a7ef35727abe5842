"""Softmax of rows: yᵢⱼ = exp(xᵢⱼ − mᵢ) / Σₖ exp(xᵢₖ − mᵢ), mᵢ = maxₖ xᵢₖ, for x [rows, columns].

    x, row i   │ 0  1  2  3  4  5  6  7  8  9 ·· ·· ·· ·· ·· ·· │     columns = 10, COLUMNS = 16
                 └─ the largest: m ─┘
                 └─ Σ exp(x − m) ──┘            the last lanes have no element
    y, row i   │ 0  1  2  3  4  5  6  7  8  9

Every program makes one row, in one block of COLUMNS ≥ columns lanes. Complete `softmax_kernel`; `solve` is done.
Rows of x are `x_stride` apart, rows of y `columns`.
Page: docs/gallery.md, step 7.

How to check it, with or without a GPU, as often as you like:

    python -m gallery check FILE
    python -m gallery try softmax --hint 1        (and 2, and 3)
    python -m gallery try softmax --solution
"""

import torch
import triton
import triton.language as tl

EXERCISE = "softmax"
SWEEP = {"num_warps": [1, 2, 4, 8, 16]}


@triton.jit
def softmax_kernel(x, y, columns, x_stride, COLUMNS: tl.constexpr):
    """Write one row of y; x, y: [rows, columns]."""
    # Your part.


def solve(x: torch.Tensor, num_warps: int = 4) -> torch.Tensor:
    """Return the softmax of every row."""
    rows, columns = x.shape
    x = x if x.stride(1) == 1 else x.contiguous()
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    block = triton.next_power_of_2(columns)
    softmax_kernel[(rows,)](x, y, columns, x.stride(0), COLUMNS=block, num_warps=num_warps)
    return y
