"""Map in Numba CUDA: y = x + c, one thread an element; beside `gallery/kernels/map.py`.

    Triton language, a program: a block of elements     Numba CUDA, a thread: one element
    ------------------------------------------------    ---------------------------------------------------
    at = program_id(0) * BLOCK + tl.arange(0, BLOCK)    i = blockIdx.x * blockDim.x + threadIdx.x
    inside = at < n                                     if i < x.shape[0]:
    value = tl.load(x + at, mask=inside)                x[i], of an array that knows its length and strides
    tl.store(y + at, value + c, mask=inside)            y[i] = x[i] + c
    map_kernel[(cdiv(n, BLOCK),)](x, y, c, n)           add[blocks, threads](x, y, c)
    BLOCK and num_warps, tuned                          THREADS, chosen by hand

Numba's demands: choose how many threads a block has, and write the program of one thread. The mask becomes an `if`. You
have to ensure that neighbouring threads read neighbouring elements, so that one transfer serves a warp of 32; in a
block program the compiler distributes the elements to the threads, and lets one load 16 bytes at a time.
"""

from __future__ import annotations

import numpy
import torch

from gallery.puzzles.numba_cuda import THREADS, arrays, blocks_for, cuda, launch


@cuda.jit
def add(x, y, c):
    """Write one element of y; x, y: [n]."""
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if i < x.shape[0]:
        y[i] = x[i] + c


def solve(x: torch.Tensor, c: float) -> torch.Tensor:
    """Return x + c for x of any shape."""
    y = torch.empty(x.numel(), device=x.device)
    if n := x.numel():
        launch(add, blocks_for(n), THREADS, *arrays(x=x.reshape(-1), y=y), numpy.float32(c))
    return y.view(x.shape)
