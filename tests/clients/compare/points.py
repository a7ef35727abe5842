"""Points of a comparison for the tests: figures that are made up."""

import dataclasses

from triton_regressors.clients.compare.batching import BatchingConfiguration
from triton_regressors.clients.compare.figures.results import Figures, Point
from triton_regressors.clients.compare.figures.statistics import Latencies, ServerFigures, Window
from triton_regressors.clients.compare.load.generator import Load

NAN = float("nan")


def figures(
    rate: float, p99: float, *, errors: int = 0, stable: bool = True, busy: float = 0.5, rows: int = 1
) -> Figures:
    return Figures(
        requests_per_s=rate,
        rows_per_s=rate * rows,
        requests=int(rate * 3),
        latency=Latencies(p99 / 2, p99 * 0.8, p99 * 0.9, p99, p99 * 3, p99 / 2),
        errors={"INTERNAL: <b>broken</b>": errors} if errors else {},
        answers_checked=5,
        server=ServerFigures(0.5, 0.1, 0.2, 0.1, {rows: 5, 8 * rows: 10}, 5.7 * rows),
        client_cpu_share=busy,
        client_processes=1,
        stable=stable,
        windows=(Window(rate, p99 / 2, p99, 0),),
    )


def point(label: str, found: Figures, load: Load | None = None, floor: Figures | None = None) -> Point:
    return Point(BatchingConfiguration(label), load or Load("grpc", 1, concurrency=8), found, floor)


def dead() -> Figures:
    """Figures of a model that answered no request."""
    nothing = ServerFigures(NAN, NAN, NAN, NAN, {}, NAN)
    no_latency = Latencies(NAN, NAN, NAN, NAN, NAN, NAN)
    found = figures(0, 1, errors=9, stable=False)
    return dataclasses.replace(found, requests=0, latency=no_latency, server=nothing)
