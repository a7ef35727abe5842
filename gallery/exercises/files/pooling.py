"""Pooling: yᵢ = Σ x[i + d] over 0 ≤ d < WINDOW, for x [n] and y [n − WINDOW + 1].

    x    0  1  2  3  4  5  6  7
    y₀   └──┴──┘                           WINDOW = 3
    y₁      └──┴──┘                        neighbouring windows share elements:
    y₂         └──┴──┘                     the cache answers all loads but the first

Every program makes one block of y. Complete `pooling_kernel`; `solve` is done.
Page: docs/gallery.md, step 5.

How to check it, with or without a GPU, as often as you like:

    python -m gallery check FILE
    python -m gallery try pooling --hint 1        (and 2, and 3)
    python -m gallery try pooling --solution
"""

import torch
import triton
import triton.language as tl

EXERCISE = "pooling"
SWEEP = {"BLOCK": [256, 512, 1024, 2048, 4096], "num_warps": [1, 2, 4, 8]}


@triton.jit
def pooling_kernel(x, y, n_out, WINDOW: tl.constexpr, BLOCK: tl.constexpr):
    """Write one block of y; x: [n_out + WINDOW − 1], y: [n_out]."""
    # Your part.


def solve(x: torch.Tensor, window: int, BLOCK: int = 1024, num_warps: int = 4) -> torch.Tensor:
    """Return the sums of all windows."""
    x = x.contiguous()
    n_out = x.numel() - window + 1
    y = torch.empty(n_out, dtype=x.dtype, device=x.device)
    pooling_kernel[(triton.cdiv(n_out, BLOCK),)](x, y, n_out, WINDOW=window, BLOCK=BLOCK, num_warps=num_warps)
    return y
