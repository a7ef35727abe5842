"""The results of a comparison: figures per point, and their flat form for tables and files."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
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
            **_flat_figures(self.model),
            "throughput_of_floor": self.throughput_of_floor,
            "p50_over_floor_ms": self.p50_over_floor_ms,
        }
        if self.floor is not None:
            row |= {f"floor_{name}": value for name, value in _flat_figures(self.floor).items()}
        return row


def _flat_figures(figures: Figures) -> dict[str, Any]:
    server = figures.server
    return {
        "requests_per_s": figures.requests_per_s,
        "rows_per_s": figures.rows_per_s,
        "requests": figures.requests,
        **{f"latency_{name}": value for name, value in dataclasses.asdict(figures.latency).items()},
        "errors": figures.failed,
        "answers_checked": figures.answers_checked,
        "queue_ms": server.queue_ms,
        "compute_ms": server.compute_ms,
        "compute_input_ms": server.compute_input_ms,
        "compute_infer_ms": server.compute_infer_ms,
        "compute_output_ms": server.compute_output_ms,
        "executions": sum(server.executions_per_batch_size.values()),
        "mean_batch_size": server.mean_batch_size,
        "client_cpu_share": figures.client_cpu_share,
        "client_processes": figures.client_processes,
        "stable": figures.stable,
        "windows": len(figures.windows),
    }
