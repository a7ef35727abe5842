"""Arithmetic on measured latencies and on the server's statistics extension."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

PERCENTILES = (50, 90, 95, 99)
STABLE_WINDOWS = 3
"""The number of consecutive windows that must agree."""
TAIL_FACTOR = 3.0
"""The factor on the tolerance for p99, which rests on a hundredth of the answers and scatters more."""


@dataclass(frozen=True)
class Latencies:
    """Percentiles, maximum and mean of raw latencies, in ms; NaN without answers."""

    p50_ms: float
    p90_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float
    mean_ms: float

    @classmethod
    def of(cls, latencies_s: np.ndarray) -> Latencies:
        """Summarise raw latencies in seconds, in any order; workers' arrays are concatenated first, never averaged."""
        if latencies_s.size == 0:
            return cls(*[float("nan")] * 6)
        milliseconds = latencies_s * 1e3
        p50, p90, p95, p99 = map(float, np.percentile(milliseconds, PERCENTILES))
        return cls(p50, p90, p95, p99, float(milliseconds.max()), float(milliseconds.mean()))


@dataclass(frozen=True)
class Window:
    """The figures of one window: answers per second, p50 and p99 in ms (NaN without answers), and errors."""

    requests_per_s: float
    latency_p50_ms: float
    latency_p99_ms: float
    errors: int


def stable(windows: Sequence[Window], tolerance: float, count: int = STABLE_WINDOWS) -> bool:
    """Return whether the last `count` windows agree.

    Throughput and median latency must lie within ±tolerance of their mean over these windows, p99 within ±3 times
    that. Windows without answers are never stable.
    """
    last = windows[-count:]
    if len(last) < count:
        return False
    for values, allowed in (
        ([window.requests_per_s for window in last], tolerance),
        ([window.latency_p50_ms for window in last], tolerance),
        ([window.latency_p99_ms for window in last], TAIL_FACTOR * tolerance),
    ):
        mean = float(np.mean(values))
        if not mean > 0 or any(abs(value - mean) > allowed * mean for value in values):
            return False
    return True


@dataclass(frozen=True)
class ServerCounters:
    """Running totals of one model from the statistics extension; times in ns, summed over its versions."""

    requests: int = 0
    queue_ns: int = 0
    compute_input_ns: int = 0
    compute_infer_ns: int = 0
    compute_output_ns: int = 0
    executions: Mapping[int, int] = field(default_factory=dict)
    """Executions per batch size in rows."""

    @classmethod
    def of(cls, statistics: Mapping[str, Any]) -> ServerCounters:
        """Read the answer of the statistics extension (`{"model_stats": [...]}`), whose zero fields may be absent."""
        totals: Counter[str] = Counter()
        executions: Counter[int] = Counter()
        for model in statistics.get("model_stats", ()):
            counters = model.get("inference_stats", {})
            totals["requests"] += int(counters.get("success", {}).get("count", 0))
            for name in ("queue", "compute_input", "compute_infer", "compute_output"):
                totals[name] += int(counters.get(name, {}).get("ns", 0))
            for batch in model.get("batch_stats", ()):
                executions[int(batch.get("batch_size", 0))] += int(batch.get("compute_infer", {}).get("count", 0))
        return cls(
            totals["requests"],
            totals["queue"],
            totals["compute_input"],
            totals["compute_infer"],
            totals["compute_output"],
            dict(executions),
        )


@dataclass(frozen=True)
class ServerFigures:
    """The server's own figures of a measurement: mean times per request in ms, and executions per batch size.

    mean_batch_size is in rows per execution. Values are NaN, and executions empty, if the server counted nothing.
    """

    queue_ms: float
    compute_input_ms: float
    compute_infer_ms: float
    compute_output_ms: float
    executions_per_batch_size: Mapping[int, int]
    mean_batch_size: float

    @property
    def compute_ms(self) -> float:
        """Input, inference and output together."""
        return self.compute_input_ms + self.compute_infer_ms + self.compute_output_ms

    @classmethod
    def between(cls, before: ServerCounters, after: ServerCounters) -> ServerFigures:
        """Return the figures between two readings of the same loaded model."""
        requests = after.requests - before.requests
        executions = {
            size: count - before.executions.get(size, 0)
            for size, count in sorted(after.executions.items())
            if count > before.executions.get(size, 0)
        }
        batches = sum(executions.values())

        def per_request(total_ns: int) -> float:
            return total_ns / requests / 1e6 if requests > 0 else float("nan")

        return cls(
            per_request(after.queue_ns - before.queue_ns),
            per_request(after.compute_input_ns - before.compute_input_ns),
            per_request(after.compute_infer_ns - before.compute_infer_ns),
            per_request(after.compute_output_ns - before.compute_output_ns),
            executions,
            sum(size * count for size, count in executions.items()) / batches if batches else float("nan"),
        )
