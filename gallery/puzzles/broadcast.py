"""Broadcast in Numba CUDA: z[i, j] = a[i] + b[j]; beside `gallery/kernels/broadcast.py`.

    Triton language                                     Numba CUDA
    ------------------------------------------------    ---------------------------------------------------
    column = tl.load(a + i, mask=i < rows)              a[row, 0]: all threads of a warp read one address
    row = tl.load(b + j, mask=j < columns)              b[0, column]: neighbours read neighbours
    column[:, None] + row[None, :]                      one sum
    each vector loaded once for a tile                  loaded by every thread; the cache answers

Numba's demands: the broadcasting itself, by indices. The code does not say that a value serves a whole row of a tile:
this happens because a warp's equal addresses are one transfer, and the rest is in the cache.
"""

from __future__ import annotations

import torch

from gallery.arguments import demand_shape
from gallery.puzzles.map_2d import COLUMNS, ROWS
from gallery.puzzles.numba_cuda import arrays, blocks_for, cuda, launch


@cuda.jit
def add(a, b, z):
    """Write one element of z; a: [M, 1], b: [1, N], z: [M, N]."""
    column, row = cuda.grid(2)
    if row < z.shape[0] and column < z.shape[1]:
        z[row, column] = a[row, 0] + b[0, column]


def solve(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return a + b, for a column [M, 1] and a row [1, N]."""
    demand_shape("a", a, -1, 1)
    demand_shape("b", b, 1, -1)
    z = torch.empty(a.shape[0], b.shape[1], device=a.device)
    if z.numel():
        for first in range(0, len(a), ROWS * 65535):  # as in a map
            rows = slice(first, first + ROWS * 65535)
            grid = blocks_for(z.shape[1], COLUMNS), blocks_for(len(a[rows]), ROWS)
            launch(add, grid, (COLUMNS, ROWS), *arrays(a=a[rows], b=b, z=z[rows]))
    return z
