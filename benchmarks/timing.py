"""The timing of all benchmarks.

Contenders are timed in the same run and take turns: a block of calls of one, a block of the next, and again, in another
order each round, so that a machine that slows down slows them all. Every block begins with calls that are not timed.
Calls rotate among several inputs, so that no contender finds its rows in a cache only because it was just there.
Figures are medians, with the 10th and 90th percentile and the distance between the blocks' own medians.

On a host every call is timed by `perf_counter_ns`, from the call to its return. On a CUDA device the calls on all
inputs are captured into one graph, so that no launch waits for Python between them, and a replay is timed by events.
"""

from __future__ import annotations

import contextlib
import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True)
class Contender:
    """A function to time: `call(i)` works on input number `i`; `context` is entered around its calls, untimed.

    If `graph`, device time is that of a captured graph of the calls.
    """

    name: str
    call: Callable[[int], Any]
    context: Callable[[], AbstractContextManager[Any]] = nullcontext
    graph: bool = True


@dataclass(frozen=True)
class Timing:
    """One contender's time per call in microseconds.

    `median_us`, `p10_us` and `p90_us` are over all samples. `spread` is the largest of the
    blocks' medians less the smallest, as a share of the median: smaller differences between contenders mean nothing.
    """

    median_us: float
    p10_us: float
    p90_us: float
    spread: float
    samples: int
    method: str

    @classmethod
    def of(cls, blocks: Sequence[Sequence[float]], method: str) -> Timing:
        """Summarise blocks of times in microseconds."""
        times = np.concatenate([np.asarray(block, dtype=np.float64) for block in blocks])
        p10, median, p90 = np.percentile(times, (10, 50, 90))
        medians = [statistics.median(block) for block in blocks]
        spread = (max(medians) - min(medians)) / median
        return cls(float(median), float(p10), float(p90), float(spread), int(times.size), method)

    def to_json(self) -> dict[str, Any]:
        """Return the figures with four significant digits."""
        return {
            name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in asdict(self).items()
        }


def compared(ours: Mapping[str, Any], other: Mapping[str, Any]) -> int:
    """Return 1 if one time is shorter than another by more than the spread of either, −1 if longer, 0 if neither.

    Both are as `Timing.to_json` gives them.
    """
    difference = float(other["median_us"]) - float(ours["median_us"])
    if abs(difference) <= max(time["spread"] * time["median_us"] for time in (ours, other)):
        return 0
    return 1 if difference > 0 else -1


@dataclass(frozen=True)
class Effort:
    """The duration of a measurement.

    It has `rounds` of blocks of `block_s` each, with `pause_s` before a block, in which the threads of the block before
    stop spinning. A contender that has taken `contender_s` is left out of further rounds once it had `least_rounds`.
    """

    rounds: int = 11
    block_s: float = 0.02
    pause_s: float = 0.003
    contender_s: float = 1.0
    least_rounds: int = 3
    warm_up_s: float = 0.1


QUICK = Effort(rounds=5, block_s=0.005, contender_s=0.5, least_rounds=2, warm_up_s=0.02)
ONE_CALL = Effort(rounds=2, block_s=0.0, pause_s=0.0, warm_up_s=0.0)
UNTIMED_SHARE = 0.2
LEAST_CALLS = 3


def time_on_host(contenders: Sequence[Contender], inputs: int, effort: Effort) -> dict[str, Timing]:
    """Return each contender's time from call to return; all work must be done when a call returns."""
    by_name = {contender.name: contender for contender in contenders}
    return take_turns(
        [contender.name for contender in contenders],
        lambda name, duration_s: time_block(by_name[name], inputs, duration_s),
        effort,
    )


def take_turns(names: Sequence[str], block: Callable[[str, float], list[float]], effort: Effort) -> dict[str, Timing]:
    """Time blocks in turn; `block(name, duration_s)` runs one of that contender and returns its times in µs."""
    _check_names(names)
    blocks: dict[str, list[list[float]]] = {name: [] for name in names}
    spent = dict.fromkeys(names, 0.0)
    for name in names:
        block(name, effort.warm_up_s)
    for number in range(effort.rounds):
        for name in rotated(names, number):
            if number >= effort.least_rounds and spent[name] > effort.contender_s:
                continue
            time.sleep(effort.pause_s)
            began = time.perf_counter()
            blocks[name].append(block(name, effort.block_s))
            spent[name] += time.perf_counter() - began
    return {name: Timing.of(found, "host") for name, found in blocks.items()}


def time_block(contender: Contender, inputs: int, duration_s: float) -> list[float]:
    """Call for at least that long, and once at least, after some untimed calls; return each call's time in µs.

    There are `LEAST_CALLS` at least if they fit in that time, so that a machine that stops for longer than a block
    during one call does not make that call the block's only one, and its time the block's median.
    """
    clock, call = time.perf_counter_ns, contender.call
    times: list[float] = []
    with contender.context(), _without_garbage_collection():
        begins = clock() + int(duration_s * 1e9 * UNTIMED_SHARE)
        i, quickest = 0, math.inf
        while i < 1 or clock() < begins:
            start = clock()
            call(i % inputs)
            quickest = min(quickest, clock() - start)
            i += 1
        ends = clock() + int(duration_s * 1e9)
        least = LEAST_CALLS if quickest * LEAST_CALLS < duration_s * 1e9 else 1
        while len(times) < least or clock() < ends:
            number = i % inputs
            start = clock()
            call(number)
            times.append((clock() - start) / 1e3)
            i += 1
    return times


def time_on_device(
    contenders: Sequence[Contender], inputs: int, device: torch.device, *, rounds: int = 20
) -> dict[str, Timing]:
    """Return each contender's device time per call, by replaying a graph of its calls on all inputs.

    A contender that cannot be captured is called from Python between the same events, and its method says so. On a CPU,
    on which dry runs try a script out, calls are timed on the host.
    """
    if device.type != "cuda":
        return time_on_host(contenders, inputs, ONE_CALL)
    _check_names([contender.name for contender in contenders])
    by_name = {contender.name: contender for contender in contenders}
    replays = {contender.name: _capture(contender, inputs) for contender in contenders}
    blocks: dict[str, list[list[float]]] = {contender.name: [] for contender in contenders}
    with _without_garbage_collection():
        for number in range(rounds):
            events = []
            for name in rotated(list(by_name), number):
                replay, _ = replays[name]
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
                start.record()
                replay()
                end.record()
                events.append((name, start, end))
            torch.cuda.synchronize()
            for name, start, end in events:
                blocks[name].append([start.elapsed_time(end) * 1e3 / inputs])
    return {name: Timing.of(found, replays[name][1]) for name, found in blocks.items()}


def rotated(items: Sequence[str], number: int) -> list[str]:
    """Return the items from another start each round, every second round backwards."""
    first = number % len(items)
    turned = [*items[first:], *items[:first]]
    return turned[::-1] if number % 2 else turned


def input_count(bytes_each: int, *, least: int = 4, most: int = 64, total_bytes: int = 64 * 2**20) -> int:
    """Return the number of inputs to rotate among: enough to fill `total_bytes`, within `least` and `most`."""
    return min(max(-(-total_bytes // max(bytes_each, 1)), least), most)


def _check_names(names: Sequence[str]) -> None:
    if not names or len(set(names)) != len(names):
        raise ValueError(f"Contenders need names of their own, not {list(names)}.")


def _capture(contender: Contender, inputs: int) -> tuple[Callable[[], None], str]:
    """Return a function that makes the contender's calls on all inputs, and the method's name."""

    def call_all() -> None:
        for i in range(inputs):
            contender.call(i)

    if contender.graph:
        try:
            return capture(call_all), "device, graph"
        except RuntimeError as error:
            torch.cuda.synchronize()
            print(f"  {contender.name} cannot be captured ({str(error).splitlines()[0]}); it is called from Python.")
    call_all()
    call_all()
    torch.cuda.synchronize()
    return call_all, "device, called from Python"


def capture(work: Callable[[], Any]) -> Callable[[], None]:
    """Return a function that replays a CUDA graph of `work`, which is called twice before."""
    work()
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    graph.replay()
    torch.cuda.synchronize()
    return graph.replay


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
