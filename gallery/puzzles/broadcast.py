"""Broadcast in Numba CUDA: z[i, j] = a[i] + b[j]; beside `gallery/kernels/broadcast.py`.

    Triton language                                     Numba CUDA
    ------------------------------------------------    ---------------------------------------------------
    column = tl.load(a + i, mask=i < rows)              a[row, 0]: all threads of a warp read one address
    row = tl.load(b + j, mask=j < columns)              b[0, column]: neighbours read neighbours
    column[:, None] + row[None, :]                      one sum
    each vector loaded once for a tile                  loaded by every thread; the cache answers

Numba's demands: the broadcasting itself, by indices. The code does not say that a value serves a whole row of a tile:
this happens because a warp's equal addresses are one transfer, and the rest is in the cache. Four launches write the
same z: a grid of two dimensions or of one with a thread for each element, a block for each row, and a grid whose size
does not depend on z's, with threads that stride over it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import prod
from typing import Any

import torch

from gallery.arguments import demand_shape
from gallery.puzzles.map_2d import COLUMNS, ROWS
from gallery.puzzles.numba_cuda import THREADS, arrays, blocks_for, cuda, launch

MOST_ROWS = 65535
"""The blocks that a grid's second dimension may have."""

BLOCKS = 2048
"""The most blocks of a strided loop: about the number that a large GPU runs at once."""


@cuda.jit
def add(a, b, z):
    """Write one element of z, by a thread of a grid of two dimensions; a: [M, 1], b: [1, N], z: [M, N]."""
    column, row = cuda.grid(2)
    if row < z.shape[0] and column < z.shape[1]:
        z[row, column] = a[row, 0] + b[0, column]


@cuda.jit
def add_in_one_dimension(a, b, z):
    """Write one element of z, by a thread of a grid of one dimension, which divides to find its row."""
    i = cuda.grid(1)
    row, column = i // z.shape[1], i % z.shape[1]
    if row < z.shape[0]:
        z[row, column] = a[row, 0] + b[0, column]


@cuda.jit
def add_row(a, b, z):
    """Write one row of z by a block, whose threads stride along it; a is read once by each thread."""
    row = cuda.blockIdx.x
    left = a[row, 0]
    for column in range(cuda.threadIdx.x, z.shape[1], THREADS):
        z[row, column] = left + b[0, column]


@cuda.jit
def add_striding(a, b, z):
    """Write every element of z whose number is this thread's, plus a multiple of the number of threads."""
    for i in range(cuda.grid(1), z.shape[0] * z.shape[1], cuda.gridsize(1)):
        row, column = i // z.shape[1], i % z.shape[1]
        z[row, column] = a[row, 0] + b[0, column]


SHAPES: Mapping[str, tuple[Callable[..., None], Callable[[int, int], Any], Any]] = {
    "2-D grid": (add, lambda rows, columns: (blocks_for(columns, COLUMNS), blocks_for(rows, ROWS)), (COLUMNS, ROWS)),
    "1-D grid": (add_in_one_dimension, lambda rows, columns: blocks_for(rows * columns), THREADS),
    "block a row": (add_row, lambda rows, columns: rows, THREADS),
    "strided loop": (add_striding, lambda rows, columns: min(blocks_for(rows * columns), BLOCKS), THREADS),
}
"""The launch shapes: a kernel, its grid for rows and columns, and its block."""


def solve(a: torch.Tensor, b: torch.Tensor, shape: str = "2-D grid") -> torch.Tensor:
    """Return a + b, for a column [M, 1] and a row [1, N], by one of `SHAPES`."""
    demand_shape("a", a, -1, 1)
    demand_shape("b", b, 1, -1)
    kernel, grid, block = SHAPES[shape]
    z = torch.empty(a.shape[0], b.shape[1], device=a.device)
    if z.numel():
        most = ROWS * MOST_ROWS if kernel is add else len(a)
        for first in range(0, len(a), most):  # as in a map
            part = slice(first, first + most)
            launch(kernel, grid(len(a[part]), z.shape[1]), block, *arrays(a=a[part], b=b, z=z[part]))
    return z


WAYS = {f"Numba CUDA, {shape}": partial(solve, shape=shape) for shape in SHAPES}


def threads_of(rows: int, columns: int) -> dict[str, int]:
    """Return how many threads each launch shape starts for a z of this size."""
    found = {}
    for shape, (_, grid, block) in SHAPES.items():
        sizes = [each if isinstance(each, tuple) else (each,) for each in (grid(rows, columns), block)]
        found[shape] = prod(prod(size) for size in sizes)
    return found


def remark() -> str:
    """Return how many threads each launch shape starts in an example, in a sentence."""
    started = [f"{shape}, {threads_of(20, 33)[shape]:,} and {threads_of(2000, 3300)[shape]:,}" for shape in SHAPES]
    return "Threads that are started for 20 × 33 and for 2,000 × 3,300 elements: " + "; ".join(started) + "."
