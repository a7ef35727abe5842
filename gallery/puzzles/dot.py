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
threads take, is a race or a deadlock that tests may miss. Two other ways are beside the tree: atomic additions to one
number, of threads within a block and then of blocks, and a race, whose threads read the total, add and write it back,
and lose most additions.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

import torch

from gallery.arguments import demand_shape
from gallery.exhibit import Size, of_roundings
from gallery.puzzles.numba_cuda import THREADS, arrays, blocks_for, cuda, find_device, float32, launch

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


@cuda.jit
def add_atomically(x, y, total):
    """Add each thread's share of Σ xᵢ yᵢ to its block's total, and these to total [1], 0 before; x, y: [n]."""
    shared = cuda.shared.array(1, float32)
    if cuda.threadIdx.x == 0:
        shared[0] = 0
    cuda.syncthreads()
    mine = float32(0)
    for i in range(cuda.grid(1), x.shape[0], cuda.gridsize(1)):
        mine += x[i] * y[i]
    cuda.atomic.add(shared, 0, mine)
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        cuda.atomic.add(total, 0, shared[0])


@cuda.jit
def add_in_a_race(x, y, total):
    """Add the same in two steps, between which other threads add too, and lose what these added: it is wrong.

    The barrier changes no step. It only has the simulator, which would let its threads of Python run one by one to the
    end, do what a GPU's warps always do: all of them read, and then all of them write.
    """
    mine = float32(0)
    for i in range(cuda.grid(1), x.shape[0], cuda.gridsize(1)):
        mine += x[i] * y[i]
    before = total[0]
    cuda.syncthreads()
    total[0] = before + mine


def solve(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return Σ xᵢ yᵢ, without dimensions, for two vectors of one length, which alone sets the order of the sum."""
    total, blocks = _prepared(x, y)
    if blocks:
        partial = torch.empty(blocks, device=x.device)
        launch(add_products, blocks, THREADS, *arrays(x=x, y=y, partial=partial))
        launch(add_up, 1, THREADS, *arrays(partial=partial, total=total))
    return total.view(())


def solve_atomically(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the same by atomic additions, in the order in which these happen to come."""
    return _in_one_launch(add_atomically, x, y)


def error_of_atomics(size: Size) -> float:
    """Return the largest error of `solve_atomically` on positive numbers: of threads' sums, blocks' and the total."""
    (n,) = size
    blocks = max(min(blocks_for(n), MOST_BLOCKS), 1)
    return of_roundings(1 + ceil(n / (blocks * THREADS)) + THREADS + blocks)


def race(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return less than the same, if the numbers are positive: most additions are lost."""
    return _in_one_launch(add_in_a_race, x, y)


def remark() -> str:
    """Return what the race makes of an example in a sentence."""
    ones = torch.ones(3 * THREADS, device=find_device())
    due, kept, atomic = (round(float(way(ones, ones))) for way in (solve, race, solve_atomically))
    return (
        f"Of {due} additions of 1 a race kept {kept}: threads that read the same total lose additions. "
        f"Atomic additions kept {atomic}."
    )


def _prepared(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Return a total of 0, [1], and how many blocks share the work."""
    demand_shape("x", x, -1)
    demand_shape("y", y, len(x))
    return torch.zeros(1, device=x.device), min(blocks_for(len(x)), MOST_BLOCKS)


def _in_one_launch(kernel: Callable[..., None], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    total, blocks = _prepared(x, y)
    if blocks:
        launch(kernel, blocks, THREADS, *arrays(x=x, y=y, total=total))
    return total.view(())
