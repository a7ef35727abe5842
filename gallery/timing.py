"""Device time of calls on a GPU.

Contenders take turns, a block of calls each, in another order every round. Before a block the GPU gets a task that
lasts until all calls of the block are queued, so that no call waits for Python. Before each call it reads more than its
cache holds, so that the call finds no arguments there and need not write back other calls' data. Two events enclose
each call.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from benchmarks.timing import Timing, rotated

ROUNDS, QUICK_ROUNDS = 7, 3
BLOCK_MS = 15.0
MOST_CALLS, LEAST_CALLS = 25, 3
FLUSH_BYTES = 2**28
CYCLES_PER_MS = 2_000_000
"""An upper bound of a GPU's cycles in a millisecond."""


def time_calls(contenders: Mapping[str, Callable[[], Any]], rounds: int = ROUNDS) -> dict[str, Timing]:
    """Return each contender's device time per call; each is called three times before."""
    device = torch.device("cuda")
    flush = torch.ones(FLUSH_BYTES // 4, dtype=torch.int32, device=device)
    calls = {name: _calls_in_a_block(call) for name, call in contenders.items()}
    blocks: dict[str, list[list[float]]] = {name: [] for name in contenders}
    for number in range(rounds):
        for name in rotated(list(contenders), number):
            count, host_ms = calls[name]
            blocks[name].append(_block(contenders[name], count, host_ms, flush))
    return {name: Timing.of(found, "device, events") for name, found in blocks.items()}


def _calls_in_a_block(call: Callable[[], Any]) -> tuple[int, float]:
    """Return how many calls to time in a block, and how long Python needs to queue one, in milliseconds."""
    call()
    torch.cuda.synchronize()
    began = time.perf_counter()
    call()
    host_ms = (time.perf_counter() - began) * 1e3
    torch.cuda.synchronize()
    began = time.perf_counter()
    call()
    torch.cuda.synchronize()
    once_ms = (time.perf_counter() - began) * 1e3
    return min(max(int(BLOCK_MS / once_ms), LEAST_CALLS), MOST_CALLS), host_ms


def _block(call: Callable[[], Any], count: int, host_ms: float, flush: torch.Tensor) -> list[float]:
    """Return the times of a number of calls in microseconds."""
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]
    torch.cuda._sleep(int(count * (host_ms + 0.1) * CYCLES_PER_MS))
    for start, end in events:
        flush.amax()
        start.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) * 1e3 for start, end in events]
