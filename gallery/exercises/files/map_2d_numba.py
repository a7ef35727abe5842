"""Map of a matrix in Numba CUDA: yᵢⱼ = xᵢⱼ + c, for x and y [rows, columns].

               column = cuda.grid(2)[0]
              0  1  2  3 │ 4  5  6  7
    row    0             │
    = cuda 1   block 0,0 │ block 1,0        blocks of 32 × 4 threads: x counts columns, y counts rows
    .grid ───────────────┼───────────
    (2)[1] 2   block 0,1 │ block 1,1

Every thread makes one element of y. An array knows its strides. Complete `add`; `solve` is done.
Page: docs/gallery.md, step 3 and the puzzles in Numba.

How to check it, with or without a GPU, as often as you like:

    python -m gallery check FILE
    python -m gallery try map_2d_numba --hint 1        (and 2, and 3)
    python -m gallery try map_2d_numba --solution
"""

import numpy
import torch
from numba import cuda

EXERCISE = "map_2d_numba"


def array(tensor: torch.Tensor):
    """Return a tensor as an array that Numba takes, over the same memory."""
    return tensor if tensor.is_cuda else tensor.numpy()


@cuda.jit
def add(x, y, c):
    """Write one element of y; x, y: [rows, columns]."""
    # Your part.


def solve(x: torch.Tensor, c: float) -> torch.Tensor:
    """Return x + c."""
    rows, columns = x.shape
    y = torch.empty(rows, columns, device=x.device)
    add[(-(-columns // 32), -(-rows // 4)), (32, 4)](array(x), array(y), numpy.float32(c))
    return y
