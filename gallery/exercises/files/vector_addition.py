"""Vector addition: zᵢ = xᵢ + yᵢ, for x, y and z of n numbers, from nothing.

    x   │ 0  1  2  3 │ 4  5  6  7 │ 8  9 ··│
        +              +            +             which lanes has a program?
    y   │ 0  1  2  3 │ 4  5  6  7 │ 8  9 ··│      how many programs are there?
        =              =            =             which lanes have no element?
    z   │ 0  1  2  3 │ 4  5  6  7 │ 8  9 ··│

Write a kernel, and launch it in `solve`.
Page: docs/gallery.md, steps 1 and 2.

How to check it, with or without a GPU, as often as you like:

    python -m gallery check FILE
    python -m gallery try vector_addition --hint 1        (and 2, and 3)
    python -m gallery try vector_addition --solution
"""

import torch
import triton
import triton.language as tl

EXERCISE = "vector_addition"
SWEEP = {"BLOCK": [256, 512, 1024, 2048, 4096], "num_warps": [1, 2, 4, 8]}

# Your part: a kernel, decorated with @triton.jit.


def solve(x: torch.Tensor, y: torch.Tensor, BLOCK: int = 1024, num_warps: int = 4) -> torch.Tensor:
    """Return x + y."""
    x, y = x.contiguous(), y.contiguous()
    z = torch.empty_like(x)
    # Your part: launch the kernel.
    return z
