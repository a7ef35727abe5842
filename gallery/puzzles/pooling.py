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
memory has no name: its compiler puts data there that several threads of a program need. Beside it here is the naive
kernel, whose threads each read a whole window, and both count what they read from global memory if they are asked to.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from gallery.arguments import demand_shape
from gallery.puzzles.numba_cuda import THREADS, array, arrays, blocks_for, cuda, find_device, float32, launch

SHARED_BYTES = 48 * 2**10
"""The shared memory of a block by default, in bytes."""

LONGEST_WINDOW = SHARED_BYTES // 4 - THREADS + 1


@cuda.jit
def add_window(x, y, window, reads):
    """Write one element of y by shared memory; x: [n], y: [n − window + 1], reads: [1], or [0] to count none."""
    shared = cuda.shared.array(0, float32)  # of THREADS + window − 1, as the launch says
    t = cuda.threadIdx.x
    first = cuda.blockIdx.x * THREADS
    count = 0
    for k in range(t, THREADS + window - 1, THREADS):
        if first + k < x.shape[0]:
            shared[k] = x[first + k]
            count += 1
    cuda.syncthreads()
    if first + t < y.shape[0]:
        total = float32(0)
        for k in range(window):
            total += shared[t + k]
        y[first + t] = total
    if reads.shape[0]:
        cuda.atomic.add(reads, 0, count)


@cuda.jit
def add_window_naively(x, y, window, reads):
    """Write one element of y; each thread reads its whole window from x. Arguments as above."""
    i = cuda.grid(1)
    count = 0
    if i < y.shape[0]:
        total = float32(0)
        for k in range(window):
            total += x[i + k]
            count += 1
        y[i] = total
    if reads.shape[0]:
        cuda.atomic.add(reads, 0, count)


def solve(x: torch.Tensor, window: int) -> torch.Tensor:
    """Return the sums of all windows of x, [n − window + 1], for 1 ≤ window ≤ n, by shared memory."""
    return _launched(add_window, x, window, 0)[0]


def solve_naively(x: torch.Tensor, window: int) -> torch.Tensor:
    """Return the same without shared memory."""
    return _launched(add_window_naively, x, window, 0)[0]


def reads_of(x: torch.Tensor, window: int) -> tuple[int, int]:
    """Return how many numbers all threads read from global memory, naively and with shared memory."""
    naive, shared = (int(_launched(kernel, x, window, 1)[1]) for kernel in (add_window_naively, add_window))
    return naive, shared


def remark() -> str:
    """Return the counted reads of an example in a sentence."""
    n, window = 300, 9
    naive, shared = reads_of(torch.ones(n, device=find_device()), window)
    return (
        f"Sums of {window} over {n} numbers read global memory {naive:,} times naively, {window} times for each sum, "
        f"and {shared:,} times with shared memory."
    )


def _launched(kernel: Callable[..., None], x: torch.Tensor, window: int, counters: int) -> tuple[torch.Tensor, ...]:
    """Return the sums and the reads that were counted, int64 [counters]."""
    demand_shape("x", x, -1)
    if not 1 <= window <= min(len(x), LONGEST_WINDOW):
        raise ValueError(
            f"'window' is {window}; it must be at least 1 and at most {min(len(x), LONGEST_WINDOW):,}, "
            f"the length of x and what {SHARED_BYTES // 1024} KiB of shared memory hold."
        )
    y = torch.empty(len(x) - window + 1, device=x.device)
    reads = torch.zeros(counters, dtype=torch.int64, device=x.device)
    shared_bytes = 4 * (THREADS + window - 1) if kernel is add_window else 0
    given = (*arrays(x=x, y=y), window, array(reads))
    launch(kernel, blocks_for(len(y)), THREADS, *given, shared_bytes=shared_bytes)
    return y, reads
