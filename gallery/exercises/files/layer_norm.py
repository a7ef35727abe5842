"""Layer normalisation: yᵢⱼ = (xᵢⱼ − μᵢ) / √(σᵢ² + ε) · wⱼ + bⱼ, for x [rows, width], w and b [width],
with μᵢ = Σⱼ xᵢⱼ / width and σᵢ² = Σⱼ (xᵢⱼ − μᵢ)² / width.

    x, row i   │ 0  1  2  3  4  5  6  7  8  9 ·· ·· ·· ·· ·· ·· │     width = 10, WIDTH = 16
                 └─ μ, then σ² ────┘            the last lanes have no element
    y, row i   │ 0  1  2  3  4  5  6  7  8  9

Every program makes one row, in one block of WIDTH ≥ width lanes, and reads x once. Complete `layer_norm_kernel`;
`solve` is done.
Page: docs/gallery.md, step 11.

How to check it, with or without a GPU, as often as you like:

    python -m gallery check FILE
    python -m gallery try layer_norm --hint 1        (and 2, and 3)
    python -m gallery try layer_norm --solution
"""

import torch
import triton
import triton.language as tl

EXERCISE = "layer_norm"
SWEEP = {"num_warps": [1, 2, 4, 8, 16]}


@triton.jit
def layer_norm_kernel(x, w, b, y, width, x_stride, eps, WIDTH: tl.constexpr):
    """Write one row of y; x, y: [rows, width], rows of x `x_stride` apart, w, b: [width]."""
    # Your part.


def solve(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float, num_warps: int = 4) -> torch.Tensor:
    """Return the normalised rows."""
    rows, width = x.shape
    x, weight, bias = (each if each.stride(-1) == 1 else each.contiguous() for each in (x, weight, bias))
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    block = triton.next_power_of_2(width)
    layer_norm_kernel[(rows,)](x, weight, bias, y, width, x.stride(0), eps, WIDTH=block, num_warps=num_warps)
    return y
