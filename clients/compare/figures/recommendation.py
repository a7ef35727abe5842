"""The choice of the recommended configuration."""

from __future__ import annotations

from collections.abc import Sequence

from triton_regressors.clients.compare.errors import ComparisonError
from triton_regressors.clients.compare.figures.results import Point

SAME_THROUGHPUT = 0.02
"""Relative random variation of the throughput among configurations that keep up with an open loop."""


def best_point(points: Sequence[Point], p99_ms: float | None = None) -> Point:
    """Return the point with the most rows per second among stable ones without errors whose p99 is at most `p99_ms`.

    Open-loop points within 2 % of the most are alike, and the one with the lowest p99 is taken.

    Raises:
        ComparisonError: no point qualifies. The message names the nearest, or the fastest of those not stable.
    """
    if p99_ms is not None and not p99_ms > 0:
        raise ComparisonError(f"The p99 limit is {p99_ms} ms; accepted: a number above 0.")
    faultless = [point for point in points if not point.model.failed and point.model.requests]
    if not faultless:
        raise ComparisonError(
            f"None of the {len(points)} points was measured without errors, so no configuration can be recommended."
        )
    stable = [point for point in faultless if point.model.stable]
    if not stable:
        fastest = max(faultless, key=lambda point: point.model.rows_per_s)
        raise ComparisonError(
            f"No configuration is recommended: none of the {len(points)} points became stable. The fastest was "
            f"{fastest.configuration.label!r} with {fastest.model.rows_per_s:,.0f} rows/s; measure again with longer "
            "windows (--window-s), more of them (--max-windows), or on a quieter machine."
        )
    faultless = stable
    within = [point for point in faultless if p99_ms is None or point.model.latency.p99_ms <= p99_ms]
    if not within:
        nearest = min(faultless, key=lambda point: point.model.latency.p99_ms)
        raise ComparisonError(
            f"No configuration keeps p99 within {p99_ms:g} ms; the nearest is {nearest.configuration.label!r} with "
            f"{nearest.model.latency.p99_ms:.3g} ms at {nearest.load}."
        )
    most = max(within, key=lambda point: point.model.rows_per_s)
    if most.load.rate is None:
        return most
    alike = [p for p in within if p.model.rows_per_s >= (1 - SAME_THROUGHPUT) * most.model.rows_per_s]
    return min(alike, key=lambda point: point.model.latency.p99_ms)
