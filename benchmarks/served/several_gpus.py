"""Several GPUs on one Triton server: the same bits from each, and the throughput of all of them against one.

    python -m benchmarks.served.several_gpus [--quick] [--rounds N] [--generator perf_analyzer] [--models forest]
                                               [--output DIR]       needs two GPUs
    python -m benchmarks.served.several_gpus --dry-run              tries the script out on a CPU

Each model is exported once for every GPU and once for all of them, with one instance on each of an entry's GPUs. Every
entry answers the same rows, in requests of several sizes that are under way together, with the bits of the first. Then
the entries are asked in turn under each load, beside a model that does nothing with as many instances.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from tritonclient.grpc.model_config_pb2 import ModelInstanceGroup

from benchmarks.environment import busy, default_directory, device_name, save_models
from benchmarks.models import Model
from benchmarks.served.requests import QUICK, SOURCES, TOLERANCE, Measure, four_digits, measuring
from benchmarks.timing import rotated
from triton_regressors import export
from triton_regressors.clients.client.client import Client
from triton_regressors.clients.compare.compare import GENERATORS
from triton_regressors.clients.compare.figures.measurement import Settings
from triton_regressors.clients.compare.load.generator import Load
from triton_regressors.clients.compare.load.payloads import CheckedRows
from triton_regressors.clients.compare.session.session import FLOOR_SOURCE, floor_config
from triton_regressors.clients.server.triton_server import TritonServer
from triton_regressors.model_config import from_pbtxt, to_pbtxt

ON_CPU, ON_GPU = ModelInstanceGroup.KIND_CPU, ModelInstanceGroup.KIND_GPU

NAMES = ("forest", "svr")
NOTHING, ALL = "nothing", "all"
LOADS = tuple(Load("grpc", rows, concurrency=clients) for rows, clients in ((1, 64), (1, 256), (1024, 32)))
ROUNDS = 3
SIZES = (2048, 1000, 64, 1)
REQUESTS, AT_ONCE = 48, 8

Places = dict[str, list[int]]


def places(gpus: int) -> Places:
    """Return the GPUs of an entry's instances, by the place's name."""
    return {**{f"GPU {number}": [number] for number in range(gpus)}, ALL: list(range(gpus))}


def served_name(model: str, place: str) -> str:
    """Return an entry's name on the server."""
    return f"{model}_{place.replace(' ', '_')}"


def write_repository(directory: Path, sources: Sequence[Model], where: Places, kind: int) -> None:
    """Export each model for each place, and write a model that does nothing with as many instances."""
    for place, gpus in where.items():
        for source in sources:
            name = served_name(source.name, place)
            export(source.estimator, directory, name=name, sample=source.sample())
            path = directory / name / "config.pbtxt"
            config = from_pbtxt(path.read_text(encoding="utf-8"))
            del config.instance_group[:]
            config.instance_group.add(count=1 if kind == ON_GPU else len(gpus), kind=kind)
            if kind == ON_GPU:
                config.instance_group[0].gpus.extend(gpus)
            path.write_text(to_pbtxt(config), encoding="utf-8")
        floor = floor_config(config)
        floor.name = served_name(NOTHING, place)
        del floor.instance_group[:]
        floor.instance_group.add(count=len(gpus), kind=ON_CPU)
        version = directory / floor.name / "1"
        version.mkdir(parents=True)
        shutil.copyfile(FLOOR_SOURCE, version / "model.py")
        (version.parent / "config.pbtxt").write_text(to_pbtxt(floor), encoding="utf-8")


def rows_of(source: Model) -> np.ndarray:
    """Return the rows that every entry of a model answers."""
    return source.rows(max(SIZES), seed=5).astype(np.float32)


def demand_same_bits(url: str, source: Model, where: Places) -> float:
    """Ask every entry of a model, several requests at once; return the largest error in standard deviations.

    Raises:
        ValueError: an answer differs from the first entry's, or from scikit-learn's by more than 1e-6.
    """
    X = rows_of(source)
    sizes = (SIZES * REQUESTS)[:REQUESTS]
    truth = source.estimator.predict(X.astype(np.float64))
    whole: np.ndarray | None = None
    for place in where:

        def ask(rows: int, name: str = served_name(source.name, place)) -> np.ndarray:
            with Client(url, timeout_s=60) as client:
                return client.infer(name, {"X": X[:rows]}, outputs=("y",))["y"]

        with ThreadPoolExecutor(AT_ONCE) as pool:
            found = list(pool.map(ask, sizes))
        whole = found[0] if whole is None else whole
        if any(answer.tobytes() != whole[: len(answer)].tobytes() for answer in found):
            raise ValueError(f"{source.title} on {place}: some rows have other bits than on {next(iter(where))}.")
    assert whole is not None
    error = float(np.abs(whole[:, 0] - truth).max() / truth.std())
    if error > TOLERANCE["triton_regressors"]:
        raise ValueError(f"{source.title}: answers are {error:.1e} standard deviations off.")
    return error


def measure_load(
    measure: Measure, source: Model, where: Places, load: Load, number: int
) -> dict[str, dict[str, float]]:
    """Measure a model and the do-nothing model in every place under one load; return requests/s by name and place."""
    X = rows_of(source)
    expected = source.estimator.predict(X.astype(np.float64)).reshape(len(X), -1)
    rows = CheckedRows({"X": X}, expected, TOLERANCE["triton_regressors"] * float(expected.std()))
    found: dict[str, dict[str, float]] = {source.name: {}, NOTHING: {}}
    for place in rotated(list(where), number):
        for name, sent in ((source.name, rows), (NOTHING, rows.zeros())):
            figures = measure(served_name(name, place), sent, load)
            if figures.failed:
                raise ValueError(f"{served_name(name, place)}: {dict(figures.errors)}")
            found[name][place] = figures.requests_per_s
    return found


def summary(load: Load, rounds: Sequence[dict[str, dict[str, float]]], model: str) -> dict[str, Any]:
    """Return the medians of the rounds by place, and those of all GPUs over the best single one."""
    point: dict[str, Any] = {"rows": load.rows, "clients": load.concurrency}
    for key, name in (("requests_per_s", model), (NOTHING, NOTHING)):
        by_place = {place: median(found[name][place] for found in rounds) for place in rounds[0][name]}
        best = max(rate for place, rate in by_place.items() if place != ALL)
        point[key] = {place: four_digits(rate) for place, rate in by_place.items()}
        point[f"{key}_of_best"] = four_digits(by_place[ALL] / best)
    return point


def run(
    directory: Path | None,
    *,
    quick: bool = False,
    generator: str = "builtin",
    rounds: int = ROUNDS,
    models: Sequence[str] = NAMES,
    dry_run: bool = False,
) -> Path | None:
    """Check and measure the models and write several_gpus.json; a dry run uses the CPU and writes nothing."""
    gpus = 2 if dry_run else torch.cuda.device_count()
    if gpus < 2:
        raise SystemExit(
            f"benchmarks.served.several_gpus needs two GPUs, and torch finds {gpus}; --dry-run tries it on a CPU."
        )
    print(f"several GPUs on {'the CPU (a dry run: these are no figures)' if dry_run else device_name()}")
    settings = QUICK if quick or dry_run else Settings(max_windows=5)
    stated = {"quick": quick, "generator": generator, "busy_at_start": busy()}
    stated |= {"rounds": rounds, "gpus": gpus, "host_cores": os.cpu_count()}
    sources, where, path = [source for source in SOURCES if source.name in models], places(gpus), None
    with tempfile.TemporaryDirectory() as repository:
        write_repository(Path(repository), sources, where, ON_CPU if dry_run else ON_GPU)
        with TritonServer([repository]) as server:
            errors = {source.name: demand_same_bits(server.grpc_url, source, where) for source in sources}
            print(f"every place answers with the same bits, {REQUESTS} requests of up to {max(SIZES):,} rows each")
            with measuring(server.grpc_url, settings, generator, LOADS) as measure:
                for source in sources:
                    points = []
                    for load in LOADS:
                        found = [measure_load(measure, source, where, load, number) for number in range(rounds)]
                        points.append(summary(load, found, source.name))
                        print(f"  {source.title:<26} {load.rows:5} rows, {load!s:<11} {points[-1]}", flush=True)
                    error = float(f"{errors[source.name]:.2g}")
                    result = {"model": source.name, "title": source.title, "max_error": error, "points": points}
                    if directory is not None and not dry_run:
                        path = save_models(directory, "several_gpus", stated, [result], NAMES)
    return path


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="short windows")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often to measure everything")
    parser.add_argument(
        "--models", nargs="+", choices=NAMES, default=list(NAMES), help="these alone; others' figures stay"
    )
    parser.add_argument("--dry-run", action="store_true", help="one round on a CPU, to try the script out")
    parser.add_argument("--generator", choices=GENERATORS, default="builtin", help="what sends the requests")
    parser.add_argument("--output", type=Path, default=None, help="directory of several_gpus.json")
    arguments = parser.parse_args()
    options = {"quick": arguments.quick, "generator": arguments.generator, "models": arguments.models}
    directory = arguments.output or default_directory()
    run(directory, **options, rounds=1 if arguments.dry_run else arguments.rounds, dry_run=arguments.dry_run)


if __name__ == "__main__":
    main()
