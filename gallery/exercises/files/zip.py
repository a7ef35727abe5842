"""Zip: zᵢ = xᵢ + yᵢ, for x, y and z of n numbers.

    x   │ 0  1  2  3 │ 4  5  6  7 │ 8  9 ··│
        +              +            +
    y   │ 0  1  2  3 │ 4  5  6  7 │ 8  9 ··│      BLOCK = 4, n = 10
        =              =            =
    z   │ 0  1  2  3 │ 4  5  6  7 │ 8  9 ··│

Every program makes one block of z. Complete `zip_kernel`; `solve` is done.
Page: docs/gallery.md, step 2.

How to check it, with or without a GPU, as often as you like:

    python -m gallery check FILE
    python -m gallery try zip --hint 1        (and 2, and 3)
    python -m gallery try zip --solution
"""

import torch
import triton
import triton.language as tl

EXERCISE = "zip"
SWEEP = {"BLOCK": [256, 512, 1024, 2048, 4096], "num_warps": [1, 2, 4, 8]}


@triton.jit
def zip_kernel(x, y, z, n, BLOCK: tl.constexpr):
    """Write one block of z; x, y, z: [n]."""
    # Your part: load a block of x and one of y, and store their sum in z.


def solve(x: torch.Tensor, y: torch.Tensor, BLOCK: int = 1024, num_warps: int = 4) -> torch.Tensor:
    """Return x + y."""
    x, y = x.contiguous(), y.contiguous()
    z = torch.empty_like(x)
    n = x.numel()
    zip_kernel[(triton.cdiv(n, BLOCK),)](x, y, z, n, BLOCK=BLOCK, num_warps=num_warps)
    return z
