"""Dot product in Numba CUDA: Σ xᵢ yᵢ in two stages; beside `gallery/kernels/dot.py`.

    Triton language                                     Numba CUDA
    ------------------------------------------------    ---------------------------------------------------
    for start in tl.range(...): total += left * ...     a loop that strides over the whole grid
    tl.sum(total, 0)                                    shared memory, a tree of log₂ THREADS steps with a
                                                        barrier after each, and `if` for who still works
    tl.store(partial + tl.program_id(0), ...)           if threadIdx.x == 0: partial[blockIdx.x] = total
    sum_kernel adds the partial sums                    add_up, likewise

Numba's demands: the reduction. A sum of a block's values is one word in a block program. In Numba threads must pass
their values through shared memory, and wait for each other: a missing barrier, or one inside an `if` that not all
threads take, is a race or a deadlock that tests may miss.
"""

from __future__ import annotations

import torch

from gallery.arguments import demand_shape
from gallery.puzzles.numba_cuda import THREADS, arrays, blocks_for, cuda, float32, launch

MOST_BLOCKS = 2048
"""About the number that a large GPU runs at once; a longer vector makes their loops longer."""


@cuda.jit(device=True)
def sum_of_block(mine):
    """Return the sum of all threads' numbers, to each thread of the block."""
    shared = cuda.shared.array(THREADS, float32)
    t = cuda.threadIdx.x
    shared[t] = mine
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if t < half:
            shared[t] += shared[t + half]
        cuda.syncthreads()
        half //= 2
    return shared[0]


@cuda.jit
def add_products(x, y, partial):
    """Write a block's share of Σ xᵢ yᵢ; x, y: [n], partial: [blocks]."""
    mine = float32(0)
    for i in range(cuda.grid(1), x.shape[0], cuda.gridsize(1)):
        mine += x[i] * y[i]
    total = sum_of_block(mine)
    if cuda.threadIdx.x == 0:
        partial[cuda.blockIdx.x] = total


@cuda.jit
def add_up(partial, total):
    """Write the sum of all partial sums, by one block; partial: [blocks], total: [1]."""
    mine = float32(0)
    for i in range(cuda.threadIdx.x, partial.shape[0], THREADS):
        mine += partial[i]
    mine = sum_of_block(mine)
    if cuda.threadIdx.x == 0:
        total[0] = mine


def solve(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return Σ xᵢ yᵢ, without dimensions, for two vectors of one length, which alone sets the order of the sum."""
    demand_shape("x", x, -1)
    demand_shape("y", y, len(x))
    total = torch.zeros(1, device=x.device)
    if n := len(x):
        partial = torch.empty(min(blocks_for(n), MOST_BLOCKS), device=x.device)
        launch(add_products, len(partial), THREADS, *arrays(x=x, y=y, partial=partial))
        launch(add_up, 1, THREADS, *arrays(partial=partial, total=total))
    return total.view(())
