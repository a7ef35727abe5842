"""Pooling in Numba CUDA: yᵢ = Σ x over the window that begins at i; beside `gallery/kernels/pooling.py`.

    Triton language                                     Numba CUDA
    ------------------------------------------------    ---------------------------------------------------
    for d in tl.static_range(1, WINDOW):                the block copies its elements and the window's overhang
        result += tl.load(x + column + d, ...)              into shared memory, once
    the loads overlap, and the cache answers            cuda.syncthreads(): nobody reads before all have written
    tl.store(out, result, mask=...)                     for k in range(window): total += shared[t + k]
    WINDOW: tl.constexpr, compiled for each             window, a number like others

Numba's demands: decide which data several threads share, copy them, give their bytes at the launch, and wait. WINDOW
threads need each element; shared memory keeps it a few cycles away from all of them. In the Triton language shared
memory has no name: its compiler puts data there that several threads of a program need.
"""

from __future__ import annotations

import torch

from gallery.arguments import demand_shape
from gallery.puzzles.numba_cuda import THREADS, arrays, blocks_for, cuda, float32, launch

SHARED_BYTES = 48 * 2**10
"""The shared memory of a block by default, in bytes."""

LONGEST_WINDOW = SHARED_BYTES // 4 - THREADS + 1


@cuda.jit
def add_window(x, y, window):
    """Write one element of y; x: [n], y: [n − window + 1]."""
    shared = cuda.shared.array(0, float32)  # of THREADS + window − 1, as the launch says
    t = cuda.threadIdx.x
    first = cuda.blockIdx.x * THREADS
    for k in range(t, THREADS + window - 1, THREADS):
        if first + k < x.shape[0]:
            shared[k] = x[first + k]
    cuda.syncthreads()
    if first + t < y.shape[0]:
        total = float32(0)
        for k in range(window):
            total += shared[t + k]
        y[first + t] = total


def solve(x: torch.Tensor, window: int) -> torch.Tensor:
    """Return the sums of all windows of x, [n − window + 1], for 1 ≤ window ≤ n."""
    demand_shape("x", x, -1)
    if not 1 <= window <= min(len(x), LONGEST_WINDOW):
        raise ValueError(
            f"'window' is {window}; it must be at least 1 and at most {min(len(x), LONGEST_WINDOW):,}, "
            f"the length of x and what {SHARED_BYTES // 1024} KiB of shared memory hold."
        )
    y = torch.empty(len(x) - window + 1, device=x.device)
    shared_bytes = 4 * (THREADS + window - 1)
    launch(add_window, blocks_for(len(y)), THREADS, *arrays(x=x, y=y), window, shared_bytes=shared_bytes)
    return y
