"""Broadcast in Numba CUDA: zᵢⱼ = aᵢ + bⱼ, for a column a [rows, 1] and a row b [1, columns], z [rows, columns].

            b │ 0  1  2  3  4  5  6  7
    a       ──┼───────────────────────
    0         │  block 0, its threads stride along row 0 →
    1         │  block 1
    2         │  block 2

Every block makes one row of z. Complete `add_row`; `solve` is done.
Page: docs/gallery.md, step 4 and the puzzles in Numba.

How to check it, with or without a GPU, as often as you like:

    python -m gallery check FILE
    python -m gallery try broadcast_numba --hint 1        (and 2, and 3)
    python -m gallery try broadcast_numba --solution
"""

import torch
from numba import cuda

EXERCISE = "broadcast_numba"
THREADS = 128
"""The threads of a block."""


def array(tensor: torch.Tensor):
    """Return a tensor as an array that Numba takes, over the same memory."""
    return tensor if tensor.is_cuda else tensor.numpy()


@cuda.jit
def add_row(a, b, z):
    """Write one row of z by a block of THREADS threads; a: [rows, 1], b: [1, columns], z: [rows, columns]."""
    # Your part: the row is the block's number, and a thread has every THREADS-th column.


def solve(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return a + b."""
    z = torch.empty(len(a), b.shape[1], device=a.device)
    add_row[len(a), THREADS](array(a), array(b), array(z))
    return z
