"""Broadcast in Numba CUDA: z[i, j] = x[i] + y[j]; beside `gallery/kernels/broadcast.py`.

    Triton language                                     Numba CUDA
    ------------------------------------------------    ---------------------------------------------------
    tl.load(x + rows, ...)[:, None]                     x[row]: all threads of a warp read one address
    tl.load(y + columns, ...)[None, :]                  y[column]: neighbours read neighbours
    the sum of a column and a row, as in torch          one sum
    each vector loaded once for a tile                  loaded by every thread; the cache answers

What Numba makes you do: the broadcasting itself, by indices. That a value serves a whole row of a tile is not said
anywhere: it happens because a warp's equal addresses are one transfer, and the rest lies in the cache.
"""

from __future__ import annotations

import torch

from gallery.arguments import demand_shape
from gallery.puzzles.map_2d import COLUMNS, ROWS
from gallery.puzzles.numba_cuda import arrays, blocks_for, cuda, launch


@cuda.jit
def add(x, y, z):
    """Write one element of z; x: [M], y: [N], z: [M, N]."""
    column, row = cuda.grid(2)
    if row < z.shape[0] and column < z.shape[1]:
        z[row, column] = x[row] + y[column]


def solve(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the matrix of all sums of an element of x and one of y."""
    demand_shape("x", x, -1)
    demand_shape("y", y, -1)
    z = torch.empty(len(x), len(y), device=x.device)
    if z.numel():
        for first in range(0, len(x), ROWS * 65535):
            rows = slice(first, first + ROWS * 65535)
            grid = blocks_for(len(y), COLUMNS), blocks_for(len(x[rows]), ROWS)
            launch(add, grid, (COLUMNS, ROWS), *arrays(x=x[rows], y=y, z=z[rows]))
    return z
