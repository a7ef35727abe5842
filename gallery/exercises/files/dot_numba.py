"""Dot product in Numba CUDA: d = Σᵢ xᵢ · yᵢ, for x and y of n numbers.

    x · y    │ 0  1  2  3 │ 4  5  6  7 │ 8  9 ··│
    shared     0  1  2  3                          a number of each thread
               0+2  1+3                            a tree: half of the threads add, then a barrier
               0+2+1+3                             and half of these again
                       ╲         │         ╱
                        total[0]                   blocks run in any order, many at once

Every block sums its products, and adds them to one number. Complete `dot`; `solve` is done.
Page: docs/gallery.md, step 6 and the puzzles in Numba.

How to check it, with or without a GPU, as often as you like:

    python -m gallery check FILE
    python -m gallery try dot_numba --hint 1        (and 2, and 3)
    python -m gallery try dot_numba --solution
"""

import torch
from numba import cuda, float32

EXERCISE = "dot_numba"
THREADS = 128
"""The threads of a block."""


def array(tensor: torch.Tensor):
    """Return a tensor as an array that Numba takes, over the same memory."""
    return tensor if tensor.is_cuda else tensor.numpy()


@cuda.jit
def dot(x, y, total):
    """Add this block's products to total [1], which is 0 before; x, y: [n]."""
    shared = cuda.shared.array(THREADS, float32)
    # Your part.


def solve(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return Σ x · y."""
    total = torch.zeros(1, device=x.device)
    dot[-(-len(x) // THREADS), THREADS](array(x), array(y), array(total))
    return total.view(())
