"""Measures a subject at every level on a GPU: error, time, launches, memory and compile time."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.timing import capture
from gallery.levels import extension, text
from gallery.levels.parts import CUDA, EAGER, LEVELS, missing
from gallery.levels.subjects import Arguments, Call, Subject, error, other
from gallery.limits import copy_call, product_call
from gallery.timing import ROUNDS, time_calls

WARM_CALLS, HOST_CALLS, HOST_BLOCKS = 3, 20, 5
CONTINUED_FROM = 12
"""The number of letters of the text that the language model is given; it has to find the others."""

Figures = dict[str, Any]


def measure(subject: Subject, rounds: int = ROUNDS) -> Figures:
    """Return a subject's figures for each level that runs here; every answer is checked before it is timed.

    Raises:
        AssertionError: An answer is farther from the truth than the subject allows.
    """
    device, size = torch.device("cuda"), subject.large
    torch.compiler.reset()
    with torch.inference_mode():
        arguments = subject.arguments(size, device)
        truth = subject.truth(size, arguments)
        calls: dict[str, Callable[[], Any]] = {}
        levels: dict[str, Figures] = {}
        for name in (*(level for level in LEVELS if not missing(level)), *subject.others):
            call, levels[name] = prepared(subject, name, arguments)
            levels[name]["error"] = float(f"{error(call(*arguments), truth):.2g}")
            assert levels[name]["error"] <= subject.tolerance, f"{subject.name}, {name}: error {levels[name]['error']}"
            levels[name] |= {"launches": launches(call, arguments), **memory(call, arguments)}
            levels[name]["host_us"] = host_us(call, arguments)
            levels[name]["graph_us"] = graph_us(call, arguments)
            if subject.name == "language_model":
                levels[name] |= generation(call, device)
            calls[name] = lambda call=call: call(*arguments)  # type: ignore[misc]
        del truth
        roofs = {"bytes": copy_call(), "operations": product_call(subject.dtype)}
        times = time_calls({name: call for name, (_, call) in roofs.items()} | calls, rounds)
    rates = {name: amount / times.pop(name).median_us * 1e6 for name, (amount, _) in roofs.items()}
    amounts = {"bytes": subject.numbers(size) * subject.dtype.itemsize, "operations": subject.work(size)}
    least_us = {name: amount / rates[name] * 1e6 for name, amount in amounts.items()}
    bound = max(least_us, key=least_us.__getitem__)
    for name, timing in times.items():
        levels[name] |= timing.to_json() | {"share": float(f"{least_us[bound] / timing.median_us:.3g}")}
    return {
        "subject": subject.name,
        "size": list(size),
        "dtype": str(subject.dtype).removeprefix("torch."),
        **amounts,
        "bound": bound,
        "rates": {name: float(f"{rate:.4g}") for name, rate in rates.items()},
        "levels": levels,
    }


def prepared(subject: Subject, name: str, arguments: Arguments) -> tuple[Call, Figures]:
    """Return a level's call after warm-up, and how much longer the first calls took than later ones.

    The difference is the time of compilers and of tuning. All of CUDA C++ is compiled before, at once.
    """
    device = arguments[0].device
    if name == CUDA:
        extension.library()
    gc.collect()
    began = time.perf_counter()
    call = other(subject, name) if name in subject.others else subject.at(name, subject.large, device)
    if name in subject.others or name != EAGER:
        synchronised(call, arguments, WARM_CALLS)
    took = time.perf_counter() - began
    began = time.perf_counter()
    synchronised(call, arguments, WARM_CALLS)
    compiling = extension.seconds() if name == CUDA else max(took - (time.perf_counter() - began), 0.0)
    return call, {"compile_s": 0.0 if name == EAGER else round(compiling, 2)}


def synchronised(call: Call, arguments: Arguments, count: int) -> None:
    """Call a number of times, and wait for the GPU."""
    for _ in range(count):
        call(*arguments)
    torch.cuda.synchronize()


def launches(call: Call, arguments: Arguments) -> int:
    """Return how many kernels, copies and fills one call starts on the GPU."""
    synchronised(call, arguments, 1)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        synchronised(call, arguments, 1)
    on_gpu = torch.autograd.DeviceType.CUDA
    return sum(event.device_type == on_gpu for event in profiler.events() or ())


def memory(call: Call, arguments: Arguments) -> Figures:
    """Return the most memory that one call holds beyond its arguments and weights, its answer included."""
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    synchronised(call, arguments, 1)
    return {"peak_mb": round((torch.cuda.max_memory_allocated() - before) / 1e6, 2)}


def host_us(call: Call, arguments: Arguments) -> float:
    """Return how long a call takes when Python makes one after the other, in microseconds, the median of blocks."""
    synchronised(call, arguments, WARM_CALLS)
    blocks = []
    for _ in range(HOST_BLOCKS):
        began = time.perf_counter()
        synchronised(call, arguments, HOST_CALLS)
        blocks.append((time.perf_counter() - began) / HOST_CALLS * 1e6)
    return round(median(blocks), 1)


def graph_us(call: Call, arguments: Arguments) -> float | None:
    """Return how long a call takes when Python replays it as one CUDA graph after the other; None if it has none."""
    try:
        replay = capture(lambda: call(*arguments))
    except RuntimeError:  # as where the host waits for the GPU within the call
        torch.cuda.synchronize()
        return None
    return host_us(lambda *_: replay(), arguments)


def generation(model: Call, device: torch.device) -> Mapping[str, Any]:
    """Return the language model's continuation of the text's beginning, and its time for each token."""
    count = len(text.TEXT) - CONTINUED_FROM
    torch.cuda.synchronize()
    began = time.perf_counter()
    found = text.continued(model, text.TEXT[:CONTINUED_FROM], count, device)
    return {"generated": found, "token_us": round((time.perf_counter() - began) / count * 1e6, 1)}
