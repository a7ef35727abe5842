"""In-process latency from host rows to host answers, against scikit-learn and onnxruntime: when does a GPU make sense?

    python -m benchmarks.predict [--quick] [--models ridge boosting ...] [--output DIR]

`Runner.predict` is timed with the engine `torch` and, where there is a CUDA GPU, `triton`, and so are the same steps
with the search for NaN that an entry makes on the server; each engine twice, with numbers in FP32 and in FP64, whatever
the exporter would choose for the model. scikit-learn's `predict` is timed on float64 and on float32 rows, whichever is
faster, with its search for NaN and without. Crossovers compare like with like: both sides search, or neither does.
onnxruntime, which does not search, is an optional peer.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.cpu.libraries import ENGINES, FP64, LIBRARIES, ONNXRUNTIME, SCIKIT_LEARN, Worker
from benchmarks.environment import busy, default_directory, device_name, save_models
from benchmarks.models import MODELS, Model, model
from benchmarks.timing import QUICK, Effort, input_count, take_turns

BATCH_SIZES = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536)
QUICK_BATCH_SIZES = (1, 64, 4096)
PEERS = (SCIKIT_LEARN, ONNXRUNTIME)
COMPARISONS = ((SCIKIT_LEARN, True), (SCIKIT_LEARN, False), (ONNXRUNTIME, False))
"""Peers, and whether both sides search their rows for NaN."""


def crossover(sizes: Sequence[int], ours: Sequence[float], peer: Sequence[float]) -> int | None:
    """Return the batch size from which on ours is faster at every measured size; None if not even at the largest."""
    found = None
    for size, mine, other in sorted(zip(sizes, ours, peer, strict=True), reverse=True):
        if mine >= other:
            break
        found = size
    return found


def fastest(point: Mapping[str, Any], library: str, *, checked: bool = False) -> dict[str, Any] | None:
    """Return a library's fastest timing at one batch size, with its search for NaN or without; None if it has none."""
    found = [
        timing
        for name, timing in point["timings"].items()
        if name.split(", ")[0] == library and name.endswith(", checked") == checked
    ]
    return min(found, key=lambda timing: timing["median_us"]) if found else None


def cost_of_fp64(point: Mapping[str, Any], engine: str) -> float | None:
    """Return an engine's time with numbers in FP64 over that in FP32, neither searching for NaN; None without one."""
    double, single = fastest(point, FP64[engine]), fastest(point, engine)
    return double["median_us"] / single["median_us"] if double and single else None


def crossovers(points: Sequence[Mapping[str, Any]], peer: str, *, checked: bool = False) -> dict[str, int | None]:
    """Return each measured engine's crossover with a peer, both searching for NaN or neither; empty without a peer."""
    found = {}
    for engine in ENGINES:
        pairs = [
            (point["rows"], fastest(point, engine, checked=checked), fastest(point, peer, checked=checked))
            for point in points
        ]
        if pairs and all(mine and other for _, mine, other in pairs):
            measured = [(rows, mine["median_us"], other["median_us"]) for rows, mine, other in pairs if mine and other]
            sizes, ours, theirs = zip(*measured, strict=True)
            found[engine] = crossover(sizes, ours, theirs)
    return found


def measure_point(workers: Sequence[Worker], model: Model, rows: int, effort: Effort) -> dict[str, Any]:
    """Have every library check its answers on every input, then time them in turn; return the point as JSON."""
    count = input_count(rows * model.n_features * 4)
    errors: dict[str, float] = {}
    home: dict[str, Worker] = {}
    for worker in workers:
        for name, error in worker.ask("prepare", rows, count).items():
            errors[name], home[name] = error, worker
    found = take_turns(list(home), lambda name, duration_s: home[name].ask("block", name, duration_s), effort)
    timings = {name: timing.to_json() | {"max_error": errors[name]} for name, timing in found.items()}
    return {"rows": rows, "inputs": count, "timings": timings}


def measure_model(workers: Sequence[Worker], model: Model, sizes: Sequence[int], effort: Effort) -> dict[str, Any]:
    """Measure one model at all batch sizes and print as it goes; return the model's JSON."""
    print(model.title)
    for worker in workers:
        reason = worker.load(model.name, max(sizes))
        if reason:
            print(f"  without {worker.library}: {reason}")
    able = [worker for worker in workers if worker.able]
    points = []
    for rows in sizes:
        point = measure_point(able, model, rows, effort)
        print(f"  {rows:6,} rows: " + ", ".join(summary(point)))
        points.append(point)
    for peer, checked in COMPARISONS:
        for engine, size in crossovers(points, peer, checked=checked).items():
            rival = f"{peer}, {'both' if checked else 'neither'} searching for NaN"
            print(
                f"  {engine}: "
                + (f"faster than {rival}, from {size:,} rows on" if size else f"not faster than {rival}")
            )
    return {"model": model.name, "title": model.title, "n_features": model.n_features, "points": points}


def summary(point: Mapping[str, Any]) -> list[str]:
    """Return each library's median at one batch size in µs, in words: with a search for NaN / without."""
    found = []
    for name in (*ENGINES, *FP64.values(), *PEERS):
        medians = [t["median_us"] for checked in (True, False) if (t := fastest(point, name, checked=checked))]
        if medians:
            found.append(f"{name} {' / '.join(f'{median:,.1f}' for median in medians)} µs")
    return found


def run(directory: Path, *, quick: bool = False, models: Sequence[Model] = MODELS) -> Path:
    """Measure the models and write predict.json."""
    sizes, effort = (QUICK_BATCH_SIZES, QUICK) if quick else (BATCH_SIZES, Effort())
    print(f"predict on {device_name()}, with a search for NaN / without")
    settings = {"quick": quick, "max_rows": max(sizes), "busy_at_start": busy()}
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(Worker(library)) for library in LIBRARIES]
        for model in models:
            results = [measure_model(workers, model, sizes, effort)]
            path = save_models(directory, "predict", settings, results, [model.name for model in MODELS])
    return path


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="three batch sizes, short measurements")
    names = [found.name for found in MODELS]
    parser.add_argument("--models", nargs="+", choices=names, default=names, help="these alone; others' figures stay")
    parser.add_argument("--output", type=Path, default=None, help="directory of predict.json")
    arguments = parser.parse_args()
    models = [model(name) for name in arguments.models]
    run(arguments.output or default_directory(), quick=arguments.quick, models=models)


if __name__ == "__main__":
    main()
