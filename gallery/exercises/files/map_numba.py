"""Map in Numba CUDA: yᵢ = xᵢ + c, for x and y of n numbers.

    x   │ 0  1  2  3 │ 4  5  6  7 │ 8  9 ··│      4 threads a block, n = 10
          block 0      block 1      block 2       the last two threads of block 2 have no element
    y   │ 0  1  2  3 │ 4  5  6  7 │ 8  9 ··│

Every thread makes one element of y. Complete `add`; `solve` is done.
Page: docs/gallery.md, step 1 and the puzzles in Numba.

How to check it, with or without a GPU, as often as you like:

    python -m gallery check FILE
    python -m gallery try map_numba --hint 1        (and 2, and 3)
    python -m gallery try map_numba --solution
"""

import numpy
import torch
from numba import cuda

EXERCISE = "map_numba"
THREADS = 128
"""The threads of a block."""


def array(tensor: torch.Tensor):
    """Return a tensor as an array that Numba takes, over the same memory."""
    return tensor if tensor.is_cuda else tensor.numpy()


@cuda.jit
def add(x, y, c):
    """Write one element of y; x, y: [n]."""
    # Your part: find this thread's element, and write y there.


def solve(x: torch.Tensor, c: float) -> torch.Tensor:
    """Return x + c."""
    y = torch.empty(len(x), device=x.device)
    add[-(-len(x) // THREADS), THREADS](array(x), array(y), numpy.float32(c))
    return y
