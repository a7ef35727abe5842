"""Served latency and throughput, beside a model that does nothing, measured in the same run.

    python -m benchmarks.served.batching [--quick] [--rounds N] [--generator perf_analyzer] [--models ridge ...]
                                           [--output DIR]

Exports models into a temporary repository and has `compare` serve and measure them: one row a request over gRPC, closed
loop, with few and with many clients, under several dynamic batching configurations. The do-nothing model is the floor
that the server and its Python backend set; the time above it is ours. Each model is exported once more with its
numbers in FP64, and in every round that entry and the first take turns under dynamic batching.

A machine's speed drifts by more than the differences to be measured, so everything is measured in several rounds, each
with a server of its own. For each point the round with the median share of the do-nothing model's throughput is kept,
beside the shares of all rounds.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.environment import busy, default_directory, device_name, save_models
from benchmarks.models import Model, model
from benchmarks.timing import rotated
from triton_regressors import export
from triton_regressors.clients.compare.batching import BatchingConfiguration
from triton_regressors.clients.compare.compare import GENERATORS, compare
from triton_regressors.clients.compare.figures.comparison import Comparison
from triton_regressors.clients.compare.figures.results import Point

MODELS = ("ridge", "polynomial_2", "boosting", "scaled_forest")
CLIENTS = (1, 64, 256)
ROUNDS = 3
CONFIGURATIONS = (
    BatchingConfiguration("no dynamic batching", dynamic_batching=False, instances=1),
    BatchingConfiguration("dynamic batching", instances=1),
    BatchingConfiguration("delay 100 µs", max_queue_delay_us=100, instances=1),
)
QUICK_CONFIGURATIONS = CONFIGURATIONS[:2]
FP64_CONFIGURATIONS = CONFIGURATIONS[1:2]
COLUMNS = (
    *("configuration", "protocol", "rows_per_request", "concurrency", "requests_per_s", "rows_per_s", "requests"),
    *("latency_p50_ms", "latency_p99_ms", "errors", "answers_checked", "queue_ms", "compute_infer_ms"),
    *("mean_batch_size", "client_cpu_share", "client_processes", "stable", "throughput_of_floor", "p50_over_floor_ms"),
    *("floor_requests_per_s", "floor_latency_p50_ms", "floor_latency_p99_ms", "floor_client_cpu_share", "floor_stable"),
)


def figures(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns to keep of a point's flat row, numbers to four digits and non-finite ones as None."""
    kept: dict[str, Any] = {}
    for column in COLUMNS:
        value = row[column]
        if isinstance(value, float):
            value = float(f"{value:.4g}") if math.isfinite(value) else None
        kept[column] = value
    return kept


def show(point: Point) -> None:
    """Print a point once it is complete."""
    row = point.flat()
    print(
        f"  {row['configuration']:<20} {row['concurrency']:4} clients: p50 {row['latency_p50_ms'] * 1e3:8,.0f} µs "
        f"({row['p50_over_floor_ms'] * 1e3:+,.0f} µs), {row['requests_per_s']:9,.0f} requests/s "
        f"({row['throughput_of_floor']:.0%} of the do-nothing model)" + ("" if row["stable"] else ", not stable")
    )


def measure(source: Model, *, quick: bool, generator: str, clients: Sequence[int], rounds: int) -> dict[str, Any]:
    """Export one model, serve and measure it in several rounds; return its JSON."""
    print(source.title)
    configurations = {"fp32": QUICK_CONFIGURATIONS if quick else CONFIGURATIONS, "fp64": FP64_CONFIGURATIONS}
    found: dict[str, list[Comparison]] = {input: [] for input in configurations}
    with tempfile.TemporaryDirectory() as directory:
        for input in configurations:
            name = f"{source.name}_{input}"
            export(source.estimator, directory, name=name, sample=source.sample(input), input=input)
        for number in range(rounds):
            for input in rotated(list(configurations), number):
                print(f"  numbers in {input.upper()}")
                comparison = compare(
                    f"{source.name}_{input}",
                    Path(directory),
                    configurations=configurations[input],
                    concurrency=clients,
                    rows=(1,),
                    protocols=("grpc",),
                    window_s=0.5 if quick else 1.0,
                    max_windows=3 if quick else 5,
                    warmup_s=0.5 if quick else 1.0,
                    generator=generator,
                    on_point=show,
                )
                found[input].append(comparison)
    warnings = sorted({text for comparisons in found.values() for each in comparisons for text in each.warnings()})
    for warning in warnings:
        print(f"  {warning}")
    if any(comparison.interrupted for comparisons in found.values() for comparison in comparisons):
        raise KeyboardInterrupt
    # Every round has the points in the same order.
    single, double = (
        [[figures(point.flat()) for point in comparison.points] for comparison in comparisons]
        for comparisons in found.values()
    )
    return {
        "model": source.name,
        "title": source.title,
        "points": [median_round(of_rounds) for of_rounds in zip(*single, strict=True)],
        "fp64_points": [
            beside(of_rounds, same_points(single, of_rounds[0])) for of_rounds in zip(*double, strict=True)
        ],
        "warnings": warnings,
    }


def same_points(rounds: Sequence[Sequence[dict[str, Any]]], wanted: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return each round's point of the same configuration and number of clients."""
    keys = ("configuration", "concurrency")
    return [next(point for point in points if all(point[key] == wanted[key] for key in keys)) for points in rounds]


def beside(double: Sequence[dict[str, Any]], single: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the median round of a point in FP64, and its p50 and requests/s over FP32's of the same round."""
    found = median_round(double)
    for figure, name in (("latency_p50_ms", "p50_of_fp32"), ("requests_per_s", "requests_per_s_of_fp32")):
        pairs = [(mine[figure], other[figure]) for mine, other in zip(double, single, strict=True)]
        ratios = sorted(float(f"{mine / other:.4g}") for mine, other in pairs if mine and other)
        found[f"{name}_rounds"] = ratios
        found[name] = ratios[len(ratios) // 2] if ratios else None
    return found


def median_round(of_rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of the round with the median share of the floor's throughput, and the shares of all."""
    ordered = sorted(of_rounds, key=lambda point: point["throughput_of_floor"])
    return {
        **ordered[len(ordered) // 2],
        "throughput_of_floor_rounds": [point["throughput_of_floor"] for point in ordered],
    }


def run(
    directory: Path,
    *,
    quick: bool = False,
    generator: str = "builtin",
    rounds: int | None = None,
    models: Sequence[str] = MODELS,
) -> Path:
    """Measure the models and write served.json."""
    clients = CLIENTS[:2] if quick else CLIENTS
    rounds = rounds or (1 if quick else ROUNDS)
    print(f"served on {device_name()}")
    settings = {"quick": quick, "generator": generator, "rounds": rounds, "busy_at_start": busy()}
    results = [
        measure(model(name), quick=quick, generator=generator, clients=clients, rounds=rounds) for name in models
    ]
    return save_models(directory, "served", settings, results, MODELS)


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two configurations, short windows")
    parser.add_argument("--rounds", type=int, help=f"how often to measure everything; {ROUNDS}, or 1 if quick")
    parser.add_argument("--generator", choices=GENERATORS, default="builtin", help="what sends the requests")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS, help="these alone; others' figures stay")
    parser.add_argument("--output", type=Path, default=None, help="directory of served.json")
    arguments = parser.parse_args()
    directory = arguments.output or default_directory()
    options = {"quick": arguments.quick, "generator": arguments.generator, "rounds": arguments.rounds}
    run(directory, **options, models=arguments.models)


if __name__ == "__main__":
    main()
