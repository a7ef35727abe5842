"""Map: yᵢ = xᵢ + c, for x and y of n numbers.

    x   │ 0  1  2  3 │ 4  5  6  7 │ 8  9 ··│      BLOCK = 4, n = 10
          program 0    program 1    program 2     the last two lanes of program 2 have no element
    y   │ 0  1  2  3 │ 4  5  6  7 │ 8  9 ··│

Every program makes one block of y. Complete `map_kernel`; `solve` is done.
Page: docs/gallery.md, step 1.

How to check it, with or without a GPU, as often as you like:

    python -m gallery check FILE
    python -m gallery try map --hint 1        (and 2, and 3)
    python -m gallery try map --solution
"""

import torch
import triton
import triton.language as tl

EXERCISE = "map"
SWEEP = {"BLOCK": [256, 512, 1024, 2048, 4096], "num_warps": [1, 2, 4, 8]}


@triton.jit
def map_kernel(x, y, c, n, BLOCK: tl.constexpr):
    """Write one block of y; x, y: [n]."""
    # Your part: load a block of x, add c, and store it in y.


def solve(x: torch.Tensor, c: float, BLOCK: int = 1024, num_warps: int = 4) -> torch.Tensor:
    """Return x + c."""
    x = x.contiguous()
    y = torch.empty_like(x)
    n = x.numel()
    map_kernel[(triton.cdiv(n, BLOCK),)](x, y, c, n, BLOCK=BLOCK, num_warps=num_warps)
    return y
