"""Zip in Numba CUDA: zᵢ = xᵢ + yᵢ, for x, y and z of n numbers.

    x   │ 0  1  2  3 │ 4  5  6  7 │ 8  9 ··│
        +            +            +
    y   │ 0  1  2  3 │ 4  5  6  7 │ 8  9 ··│
        =            =            =
    z   │ 0  1  2  3 │ 4  5  6  7 │ 8  9 ··│      a thread for each element

Every thread makes one element of z. Complete `add`; `solve` is done.
Page: docs/gallery.md, step 2 and the puzzles in Numba.

How to check it, with or without a GPU, as often as you like:

    python -m gallery check FILE
    python -m gallery try zip_numba --hint 1        (and 2, and 3)
    python -m gallery try zip_numba --solution
"""

import torch
from numba import cuda

EXERCISE = "zip_numba"
THREADS = 128
"""The threads of a block."""


def array(tensor: torch.Tensor):
    """Return a tensor as an array that Numba takes, over the same memory."""
    return tensor if tensor.is_cuda else tensor.numpy()


@cuda.jit
def add(x, y, z):
    """Write one element of z; x, y, z: [n]."""
    # Your part.


def solve(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return x + y."""
    z = torch.empty(len(x), device=x.device)
    add[-(-len(x) // THREADS), THREADS](array(x), array(y), array(z))
    return z
