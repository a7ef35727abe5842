"""Zip in Numba CUDA: z = x + y, one thread an element; beside `gallery/kernels/zip.py`.

    Triton language                                     Numba CUDA
    ------------------------------------------------    ---------------------------------------------------
    at = program_id(0) * BLOCK + tl.arange(0, BLOCK)    i = cuda.grid(1), short for what the map wrote out
    two loads and a store under one mask                one `if` around two reads and a write

Numba's demands: the same as for the map. There is one difference: each thread may take its own branch, and a block
program computes both and chooses between them with `tl.where`.
"""

from __future__ import annotations

import torch

from gallery.arguments import demand_shape
from gallery.puzzles.numba_cuda import THREADS, arrays, blocks_for, cuda, launch


@cuda.jit
def add(x, y, z):
    """Write one element of z; x, y, z: [n]."""
    i = cuda.grid(1)
    if i < x.shape[0]:
        z[i] = x[i] + y[i]


def solve(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return x + y for two tensors of one shape."""
    demand_shape("y", y, *x.shape)
    z = torch.empty(x.numel(), device=x.device)
    if n := x.numel():
        launch(add, blocks_for(n), THREADS, *arrays(x=x.reshape(-1), y=y.reshape(-1), z=z))
    return z.view(x.shape)
