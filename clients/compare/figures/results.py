"""The results of a comparison: the figures of each point, and the metrics that tables and files show of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from triton_regressors.clients.compare.batching import BatchingConfiguration
from triton_regressors.clients.compare.figures.statistics import Latencies, ServerFigures, Window
from triton_regressors.clients.compare.load.generator import Load

BUSY = 0.9
"""From this CPU share on, a load worker may have been the limit."""


@dataclass(frozen=True)
class Figures:
    """One model under one load and one batching configuration.

    requests_per_s, rows_per_s: good answers. requests: the number of requests behind the figures.
    latency: over every answered request, and in an open loop also over those given up, counted at the time waited.
    errors: how often each occurred; a wrong answer is one. answers_checked: answers compared with expected values.
    server: the server's own figures. client_cpu_share: CPU seconds per second of the busiest load process (1 = one
    core). stable: whether the last windows agreed; the figures are over the last windows in either case.
    """

    requests_per_s: float
    rows_per_s: float
    requests: int
    latency: Latencies
    errors: Mapping[str, int]
    answers_checked: int
    server: ServerFigures
    client_cpu_share: float
    client_processes: int
    stable: bool
    windows: tuple[Window, ...]

    @property
    def failed(self) -> int:
        """Requests with an error."""
        return sum(self.errors.values())


def number(value: float, digits: int = 3) -> str:
    """Return a figure for people: thousands separated, `digits` significant digits below 1,000, – for no figure."""
    if not math.isfinite(value):
        return "–"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if value == 0:
        return "0"
    return f"{value:.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"


def share(value: float) -> str:
    """Return a share in whole percent."""
    return f"{value:.0%}" if math.isfinite(value) else "–"


@dataclass(frozen=True)
class Metric:
    """A metric of a model under one load: a column of the CSV file and, with a heading, of the table.

    name: the CSV column's. value: the metric in `Figures`. heading: the table column's. text: a cell of the table.
    meaning: what the table's legend says about it, if the heading is not enough.
    """

    name: str
    value: Callable[[Figures], Any]
    heading: str = ""
    text: Callable[[float], str] = number
    meaning: str = ""


METRICS = (
    Metric("requests_per_s", lambda figures: figures.requests_per_s, "requests/s"),
    Metric("rows_per_s", lambda figures: figures.rows_per_s, "rows/s"),
    Metric("requests", lambda figures: figures.requests),
    Metric("latency_p50_ms", lambda figures: figures.latency.p50_ms, "p50 ms"),
    Metric("latency_p90_ms", lambda figures: figures.latency.p90_ms),
    Metric("latency_p95_ms", lambda figures: figures.latency.p95_ms),
    Metric("latency_p99_ms", lambda figures: figures.latency.p99_ms, "p99 ms"),
    Metric("latency_max_ms", lambda figures: figures.latency.max_ms),
    Metric("latency_mean_ms", lambda figures: figures.latency.mean_ms),
    Metric("errors", lambda figures: figures.failed),
    Metric("answers_checked", lambda figures: figures.answers_checked),
    Metric(
        "queue_ms",
        lambda figures: figures.server.queue_ms,
        "queue ms",
        partial(number, digits=2),
        "a request's mean wait in the server",
    ),
    Metric(
        "compute_ms",
        lambda figures: figures.server.compute_ms,
        "compute ms",
        partial(number, digits=2),
        "a request's mean time in the model, the copies of its tensors included",
    ),
    Metric("compute_input_ms", lambda figures: figures.server.compute_input_ms),
    Metric("compute_infer_ms", lambda figures: figures.server.compute_infer_ms),
    Metric("compute_output_ms", lambda figures: figures.server.compute_output_ms),
    Metric("executions", lambda figures: sum(figures.server.executions_per_batch_size.values())),
    Metric(
        "mean_batch_size",
        lambda figures: figures.server.mean_batch_size,
        "mean batch",
        meaning="rows per execution",
    ),
    Metric(
        "client_cpu_share",
        lambda figures: figures.client_cpu_share,
        "client CPU",
        share,
        "share of one core that the busiest load process took",
    ),
    Metric("client_processes", lambda figures: figures.client_processes),
    Metric("stable", lambda figures: figures.stable),
    Metric("windows", lambda figures: len(figures.windows)),
)
"""All metrics, in the order of the columns; the CSV file, the table and the page go through them."""


@dataclass(frozen=True)
class Point:
    """A configuration under a load: the model's figures and, unless left out, the do-nothing model's."""

    configuration: BatchingConfiguration
    load: Load
    model: Figures
    floor: Figures | None

    @property
    def throughput_of_floor(self) -> float:
        """The model's requests per second as a share of the do-nothing model's; NaN without one."""
        if self.floor is None or not self.floor.requests_per_s:
            return float("nan")
        return self.model.requests_per_s / self.floor.requests_per_s

    @property
    def p50_over_floor_ms(self) -> float:
        """The median latency minus the do-nothing model's, in ms; NaN without one."""
        return self.model.latency.p50_ms - self.floor.latency.p50_ms if self.floor else float("nan")

    def flat(self) -> dict[str, Any]:
        """Return one row of the CSV file; the floor's columns begin with `floor_`."""
        configuration = self.configuration
        row: dict[str, Any] = {
            "configuration": configuration.label,
            "dynamic_batching": configuration.dynamic_batching,
            "max_queue_delay_us": configuration.max_queue_delay_us,
            "preferred_batch_sizes": " ".join(map(str, configuration.preferred_batch_sizes)),
            "instances": configuration.instances,
            "protocol": self.load.protocol,
            "rows_per_request": self.load.rows,
            "concurrency": self.load.concurrency,
            "rate": self.load.rate,
            **{metric.name: metric.value(self.model) for metric in METRICS},
            "throughput_of_floor": self.throughput_of_floor,
            "p50_over_floor_ms": self.p50_over_floor_ms,
        }
        if self.floor is not None:
            row |= {f"floor_{metric.name}": metric.value(self.floor) for metric in METRICS}
        return row
