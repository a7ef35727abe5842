"""Timing of a model on this machine: the engines as an entry runs them, and the estimator's own predict."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from triton_regressors.kernels.engine.input_check import Allowed
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.plan.plan import Plan

ENOUGH_S = 0.15
"""The time in s spent on one number of rows; at least three calls are timed."""

LONGEST_S = 1.0
"""The longest call in s to time, predicted from the two previous numbers of rows."""

CALLS = 3


def gpu_name() -> str | None:
    """Return the GPU's name, or None if torch finds none."""
    return str(torch.cuda.get_device_name()) if torch.cuda.is_available() else None


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def time_engine(engine: str, plan: Plan, allowed: Allowed, X: np.ndarray, sizes: Sequence[int]) -> dict[int, float]:
    """Return an engine's µs by the number of rows: the check for refused values, then the predictions.

    `X` are rows of the plan's matrix, which are repeated if there are not enough of them.
    """
    runner = Runner(plan, engine=engine, max_rows=max(sizes))
    runner.warm_up([("y",)])

    def answer(rows: np.ndarray) -> None:
        allowed.holds(rows.reshape(-1))
        runner.predict(rows)

    return time_calls(answer, lambda count: repeated(X, count), sizes)


def time_calls(call: Callable[[Any], object], rows_of: Callable[[int], Any], sizes: Sequence[int]) -> dict[int, float]:
    """Return the median µs of calls by the number of rows, ascending; sizes that would take too long are left out."""
    found: dict[int, float] = {}
    for size in sizes:
        known = list(found.items())[-2:]
        if len(known) == 2:
            (fewer, short), (more, long) = known
            if long + (long - short) / (more - fewer) * (size - more) > LONGEST_S * 1e6:
                break
        rows = rows_of(size)
        call(rows)
        times: list[float] = []
        ends = time.perf_counter() + ENOUGH_S
        while len(times) < CALLS or time.perf_counter() < ends:
            began = time.perf_counter()
            call(rows)
            times.append((time.perf_counter() - began) * 1e6)
        found[size] = statistics.median(times)
    return found


def repeated(X: np.ndarray, count: int) -> np.ndarray:
    """Return `count` rows: those of `X` again and again."""
    return np.ascontiguousarray(np.resize(X, (count, X.shape[1])))
