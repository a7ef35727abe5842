"""Dot product: d = Σᵢ xᵢ · yᵢ, for x and y of n numbers.

    x   │ 0  1  2  3 │ 4  5  6  7 │ 8  9 ··│
        ·              ·            ·
    y   │ 0  1  2  3 │ 4  5  6  7 │ 8  9 ··│
        Σ              Σ            Σ           one number of each program
             ╲         │          ╱
                       d                        programs run in any order, many at once

Every program sums one block of products, and all add to d. Complete `dot_kernel`; `solve` is done.
Page: docs/gallery.md, step 6.

How to check it, with or without a GPU, as often as you like:

    python -m gallery check FILE
    python -m gallery try dot --hint 1        (and 2, and 3)
    python -m gallery try dot --solution
"""

import torch
import triton
import triton.language as tl

EXERCISE = "dot"
SWEEP = {"BLOCK": [256, 1024, 4096, 16384], "num_warps": [1, 2, 4, 8]}


@triton.jit
def dot_kernel(x, y, d, n, BLOCK: tl.constexpr):
    """Add one block's products to d; x, y: [n], d: float32, one number, 0 before."""
    # Your part.


def solve(x: torch.Tensor, y: torch.Tensor, BLOCK: int = 1024, num_warps: int = 4) -> torch.Tensor:
    """Return Σ x · y."""
    x, y = x.contiguous(), y.contiguous()
    n = x.numel()
    d = torch.zeros((), dtype=torch.float32, device=x.device)
    dot_kernel[(triton.cdiv(n, BLOCK),)](x, y, d, n, BLOCK=BLOCK, num_warps=num_warps)
    return d.to(x.dtype)
