"""Two-dimensional map in Numba CUDA: y = x + c of a matrix; beside `gallery/kernels/map_2d.py`.

    Triton language                                     Numba CUDA
    ------------------------------------------------    ---------------------------------------------------
    i = ... tl.arange(0, ROWS)[:, None]                 column, row = cuda.grid(2), of a grid of two dimensions
    j = ... tl.arange(0, COLUMNS)[None, :]              and of blocks of two
    i * row_stride + j * column_stride                  x[row, column]: an array knows its strides
    inside = (i < rows) & (j < columns)                 if row < x.shape[0] and column < x.shape[1]:
    tiles of several shapes, tuned                      COLUMNS = 32 of a warp, and never a column of it

Numba's demands: choose which of a thread's two numbers counts columns. The threads of a warp differ in
`threadIdx.x` first; if that counted rows, they would read 32 places a row apart, and the memory, which delivers at
least 32 bytes, would give each of them 32 for 4. A transposed x is read in this way. A block program gives its
addresses as one matrix: the compiler assigns them to threads, and tuning chooses the tile's shape.
"""

from __future__ import annotations

import numpy
import torch

from gallery.arguments import demand_shape
from gallery.puzzles.numba_cuda import arrays, blocks_for, cuda, launch

COLUMNS, ROWS = 32, 4
"""The columns and rows of a block: a warp is one row of it."""


@cuda.jit
def add(x, y, c):
    """Write one element of y; x, y: [M, N]."""
    column, row = cuda.grid(2)
    if row < x.shape[0] and column < x.shape[1]:
        y[row, column] = x[row, column] + c


def solve(x: torch.Tensor, c: float) -> torch.Tensor:
    """Return x + c for a matrix of any strides."""
    demand_shape("x", x, -1, -1)
    y = torch.empty(x.shape, device=x.device)
    if x.numel():
        # The grid's second dimension may have 65,535 blocks: rows beyond come in further launches.
        for first in range(0, x.shape[0], ROWS * 65535):
            part = x[first : first + ROWS * 65535]
            grid = blocks_for(x.shape[1], COLUMNS), blocks_for(part.shape[0], ROWS)
            launch(add, grid, (COLUMNS, ROWS), *arrays(x=part, y=y[first : first + ROWS * 65535]), numpy.float32(c))
    return y
