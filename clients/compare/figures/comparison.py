"""A finished comparison: its points, the best of them, and warnings about them; report.py shows it."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from triton_regressors.clients.compare.batching import BatchingConfiguration
from triton_regressors.clients.compare.errors import ComparisonError
from triton_regressors.clients.compare.figures.recommendation import best_point
from triton_regressors.clients.compare.figures.results import BUSY, Point


class IncompleteComparison(ComparisonError):  # noqa: N818  # it is what is left, like StopIteration
    """A comparison that failed after some points; `partial` holds them, and `__cause__` is what failed."""

    def __init__(self, message: str, partial: Comparison) -> None:
        super().__init__(message)
        self.partial = partial


@dataclass(repr=False)
class Comparison:
    """The result of `compare`.

    points: in the order measured, which is configuration by configuration. planned: the number of points asked for.
    settings, environment: what the report prints about how and where. p99_ms: the limit asked for, if any.
    interrupted: Ctrl-C or an error ended it early, and `points` holds those complete by then.
    failure: the message of that error.
    """

    model: str
    points: list[Point] = field(default_factory=list)
    planned: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    p99_ms: float | None = None
    interrupted: bool = False
    failure: str = ""

    def __repr__(self) -> str:
        sentences = textwrap.wrap(self.verdict(), 100, initial_indent="  ", subsequent_indent="  ")
        return "\n".join([f"Comparison of {self.model}: {len(self.points)} of {self.planned} points", *sentences])

    @property
    def configurations(self) -> tuple[BatchingConfiguration, ...]:
        """The configurations measured, each once, in order."""
        return tuple(dict.fromkeys(point.configuration for point in self.points))

    def best(self, p99_ms: float | None = None) -> Point:
        """Return the point with the highest throughput whose p99 is within the limit (default: the one asked for).

        Raises ComparisonError, naming the nearest, if there is none; see choose.py for the rules.
        """
        return best_point(self.points, self.p99_ms if p99_ms is None else p99_ms)

    def verdict(self) -> str:
        """Return the recommendation in one sentence, or why there is none."""
        try:
            point = self.best()
        except ComparisonError as error:
            return str(error)
        limit = "" if self.p99_ms is None else f" with p99 within {self.p99_ms:g} ms"
        figures = point.model
        return (
            f"Highest throughput{limit}: {point.configuration.label!r} with {figures.rows_per_s:,.0f} rows/s "
            f"({figures.requests_per_s:,.0f} requests/s) at {point.load}, {point.load.protocol}, {point.load.rows} "
            f"row{'s' if point.load.rows != 1 else ''} a request; p50 {figures.latency.p50_ms:.3g} ms, "
            f"p99 {figures.latency.p99_ms:.3g} ms."
        )

    def measured_on(self) -> str:
        """Return the model's version and engine, what it ran on and the packages' versions in one line.

        Unknown items are left out. The line is empty if nothing was measured.
        """
        found = {name: value for name, value in self.environment.items() if value}
        if {"processor", "runs_on"} <= found.keys():
            found["runs_on"] += f" ({found['processor']})"
        titles = {
            "model_version": "version",
            "engine": "engine",
            "runs_on": "on",
            "triton_server": "Triton server",
            "torch": "torch",
            "triton_language": "Triton language",
            "triton_regressors": "client's triton_regressors",
            "tritonclient": "tritonclient",
        }
        return ", ".join(f"{title} {found[name]}" for name, title in titles.items() if name in found)

    def warnings(self) -> list[str]:
        """Return what a reader must know before trusting the figures."""
        found = []
        if self.interrupted:
            how = f"Ended by an error ({self.failure.rstrip('.')})" if self.failure else "Interrupted"
            found.append(f"{how}: {len(self.points)} of {self.planned} points were measured.")
        measured = [figures for point in self.points for figures in (point.model, point.floor) if figures]
        busy = [figures for figures in measured if figures.client_cpu_share >= BUSY]
        if busy:
            found.append(
                f"The load generator was the limit in {len(busy)} of {len(measured)} measurements: a worker was at "
                f"least {BUSY:.0%} busy; use more --client-processes."
            )
        shaky = [figures for figures in measured if not figures.stable]
        if shaky:
            found.append(
                f"{len(shaky)} of {len(measured)} measurements did not become stable (their points are marked ~): the "
                "last windows differ by more than the tolerance; longer windows or a quieter machine help."
            )
        failed = [point for point in self.points if point.model.failed]
        if failed:
            reasons: dict[str, int] = {}
            for point in failed:
                for message, count in point.model.errors.items():
                    reasons[message] = reasons.get(message, 0) + count
            listed = "; ".join(f"{count:,} × {message}" for message, count in sorted(reasons.items()))
            found.append(f"{len(failed)} of {len(self.points)} points had errors: {listed}.")
        unsound = [point for point in self.points if point.floor is not None and point.floor.failed]
        if unsound:
            found.append(f"The do-nothing model had errors in {len(unsound)} of {len(self.points)} points.")
        return found
