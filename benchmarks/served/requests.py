"""From request to answer on one Triton server: ours, scikit-learn's own predict, and a model that does nothing.

    python -m benchmarks.served.requests [--quick] [--rounds N] [--generator perf_analyzer] [--models ridge ...]
                                           [--output DIR]

All models are loaded in one server and asked over gRPC, closed loop, under dynamic batching with one instance each.
Compared models take turns: in each round a model, the do-nothing model and scikit-learn's are measured one after the
other. The figures of the round with the median share of the do-nothing model's requests are kept, beside the shares of
all rounds. Beside the first model a fourth takes its turn, `row_reader_model.py`: it
takes its rows in and gives zeros out, which is the most that any Python model can reach.
"""

from __future__ import annotations

import argparse
import contextlib
import pickle
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median_low
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

from benchmarks.environment import busy, default_directory, device_name, save_models
from benchmarks.models import Model
from benchmarks.timing import rotated
from triton_regressors import export
from triton_regressors.clients.client.client import Client
from triton_regressors.clients.compare.compare import GENERATORS
from triton_regressors.clients.compare.figures import perf_analyzer
from triton_regressors.clients.compare.figures.measurement import Settings, measure_load
from triton_regressors.clients.compare.figures.results import Figures
from triton_regressors.clients.compare.figures.statistics import ServerCounters
from triton_regressors.clients.compare.load.generator import Load, LoadGenerator
from triton_regressors.clients.compare.load.payloads import CheckedRows, Payloads, Signature
from triton_regressors.clients.compare.session.session import FLOOR_SOURCE, floor_config
from triton_regressors.clients.server.triton_server import TritonServer
from triton_regressors.model_config import from_pbtxt, to_pbtxt

SOURCES = (
    Model("ridge", "Ridge", 32, Ridge),
    Model("forest", "forest of 100, depth 10", 32, lambda: RandomForestRegressor(max_depth=10, random_state=0)),
    Model("boosting", "HistGradientBoosting 300", 32, lambda: HistGradientBoostingRegressor(max_iter=300)),
    Model("svr", "SVR", 32, lambda: make_pipeline(StandardScaler(), SVR(epsilon=0.1))),
)
NAMES = tuple(source.name for source in SOURCES)
LOADS = tuple(Load("grpc", rows, concurrency=clients) for rows, clients in ((1, 1), (1, 64), (1024, 16)))
ROUNDS = 3
QUICK = Settings(warmup_s=0.3, window_s=0.3, max_windows=3, stability=1.0)
"""Three windows, whatever their spread: the rounds show how certain a figure is."""

OURS, NOTHING, SKLEARN, READING = "triton_regressors", "nothing", "scikit-learn", "reading"
TOLERANCE = {OURS: 1e-6, NOTHING: 0.0, SKLEARN: 1e-3, READING: 0.0}
"""The largest error of answers, in standard deviations; scikit-learn's come from float32 rows and are rounded."""

Measure = Callable[..., Figures]
"""Measures a model, by its name, for some rows under a load; see `measuring`."""


def served_name(source: Model, who: str) -> str:
    """Return a model's name on the server."""
    return {OURS: source.name, SKLEARN: f"{source.name}_sklearn"}.get(who, who)


def write_repository(directory: Path, sources: Sequence[Model]) -> None:
    """Export each model, and write scikit-learn's and those that compute nothing beside it."""
    codes = {NOTHING: FLOOR_SOURCE} | {
        who: Path(__file__).with_name(file)
        for who, file in ((SKLEARN, "sklearn_model.py"), (READING, "row_reader_model.py"))
    }
    for source in sources:
        export(source.estimator, directory, name=source.name, sample=source.sample(), instances=1)
        floor = floor_config(from_pbtxt((directory / source.name / "config.pbtxt").read_text(encoding="utf-8")))
        for who, code in codes.items():
            floor.name = served_name(source, who)
            version = directory / floor.name / "1"
            version.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(code, version / "model.py")
            (version.parent / "config.pbtxt").write_text(to_pbtxt(floor), encoding="utf-8")
            if who == SKLEARN:
                (version / "estimator.pkl").write_bytes(pickle.dumps(source.estimator))


def checked_rows(source: Model, who: str) -> CheckedRows:
    """Return rows to send, and their expected answers."""
    X = source.rows(2048, seed=5).astype(np.float32)
    expected = source.estimator.predict(X.astype(np.float64)).reshape(len(X), -1)
    rows = CheckedRows({"X": X}, expected, TOLERANCE[who] * float(expected.std()))
    return rows.zeros() if who in (NOTHING, READING) else rows


@contextlib.contextmanager
def measuring(url: str, settings: Settings, generator: str, loads: Sequence[Load] = LOADS) -> Any:
    """Yield a function that measures one model of the server at this address under one of the loads.

    It also takes several models, each with its rows, which are asked in turn, with the counters of the one named.
    Requests ask for one output, the model's first.
    """
    tool = perf_analyzer.find() if generator == "perf_analyzer" else None
    processes = {load: load.processes(None) for load in loads}
    with Client(url) as client, LoadGenerator(0 if tool else max(processes.values())) as workers:

        def measure(name: str, rows: CheckedRows | Mapping[str, CheckedRows], load: Load) -> Figures:
            def counters() -> ServerCounters:
                return ServerCounters.of(client.statistics(name))

            if tool is not None and isinstance(rows, CheckedRows):
                return perf_analyzer.measure_load(tool, name, rows, load, url, counters, settings)
            of_models = {name: rows} if isinstance(rows, CheckedRows) else rows
            signature = Signature.of(client.config(name))
            parts = [Payloads.build(each, signature, its, load, url) for each, its in of_models.items()]
            payloads = _in_turn(parts)
            return measure_load(workers, load, payloads, url, counters, settings, processes[load], seed=0)

        yield measure


def _in_turn(parts: Sequence[Payloads]) -> Payloads:
    """Return the requests of models with the same tensors as one load that asks one after the other."""
    fields = {
        field: tuple(each for turn in zip(*(getattr(part, field) for part in parts), strict=True) for each in turn)
        for field in ("requests", "expected", "allowed")
    }
    return replace(parts[0], **fields)


def measure_round(
    measure: Measure, source: Model, load: Load, number: int, beside: Sequence[str] = (NOTHING, SKLEARN)
) -> dict[str, Any]:
    """Measure a model and those beside it under one load; return the figures of each by name."""
    found = {}
    for who in rotated([OURS, *beside], number):
        figures = measure(served_name(source, who), checked_rows(source, who), load)
        if figures.failed:
            raise ValueError(f"{served_name(source, who)}: {dict(figures.errors)}")
        found[who] = {
            "requests_per_s": four_digits(figures.requests_per_s),
            "rows_per_s": four_digits(figures.rows_per_s),
            "p50_ms": four_digits(figures.latency.p50_ms),
            "p99_ms": four_digits(figures.latency.p99_ms),
            "stable": figures.stable,
        }
    found["of_nothing"] = four_digits(found[OURS]["requests_per_s"] / found[NOTHING]["requests_per_s"])
    found["of_scikit_learn"] = four_digits(found[OURS]["requests_per_s"] / found[SKLEARN]["requests_per_s"])
    found["p50_over_nothing_us"] = four_digits((found[OURS]["p50_ms"] - found[NOTHING]["p50_ms"]) * 1e3)
    if READING in beside:
        found["reading_of_nothing"] = four_digits(found[READING]["requests_per_s"] / found[NOTHING]["requests_per_s"])
    print(
        f"  {source.title:<26} {load.rows:5} rows, {load!s:<11} {found[OURS]['requests_per_s']:9,.0f} requests/s, "
        f"{found['of_nothing']:.1%} of do-nothing, p50 {found['p50_over_nothing_us']:+,.0f} µs, "
        f"{found['of_scikit_learn']:.2f} × scikit-learn",
        flush=True,
    )
    return found


def four_digits(value: float) -> float:
    """Return a number rounded to four digits."""
    return float(f"{value:.4g}")


def median_point(load: Load, rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the round with the median share of the do-nothing model's requests, and the shares of all rounds."""
    shares = [found["of_nothing"] for found in rounds]
    middle = rounds[shares.index(median_low(shares))]
    over = sorted(found["p50_over_nothing_us"] for found in rounds)
    reading = sorted(found["reading_of_nothing"] for found in rounds if "reading_of_nothing" in found)
    return {
        "rows": load.rows,
        "clients": load.concurrency,
        **middle,
        "of_nothing_rounds": sorted(shares),
        "p50_over_nothing_us_rounds": over,
        **({"reading_of_nothing_rounds": reading} if reading else {}),
    }


def run(
    directory: Path,
    *,
    quick: bool = False,
    generator: str = "builtin",
    rounds: int | None = None,
    models: Sequence[str] = NAMES,
) -> Path:
    """Measure the models and write requests.json."""
    rounds = rounds or ROUNDS
    settings = QUICK if quick else Settings(max_windows=5)
    print(f"requests on {device_name()}")
    stated = {"quick": quick, "generator": generator, "rounds": rounds, "busy_at_start": busy()}
    sources = [source for source in SOURCES if source.name in models]
    found: dict[tuple[str, Load], list[dict[str, Any]]] = {}
    path = directory / "requests.json"
    with tempfile.TemporaryDirectory() as repository:
        write_repository(Path(repository), sources)
        with TritonServer([repository]) as server, measuring(server.grpc_url, settings, generator) as measure:
            for number in range(rounds):
                for source in sources:
                    beside = (NOTHING, SKLEARN, READING) if source is sources[0] else (NOTHING, SKLEARN)
                    for load in LOADS:
                        figures = measure_round(measure, source, load, number, beside)
                        found.setdefault((source.name, load), []).append(figures)
                    if number == rounds - 1:  # so that an interrupted run keeps its measured models
                        points = [median_point(load, found[source.name, load]) for load in LOADS]
                        result = {"model": source.name, "title": source.title, "points": points}
                        path = save_models(directory, "requests", stated, [result], NAMES)
    return path


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="short windows")
    parser.add_argument("--rounds", type=int, help=f"how often to measure everything; {ROUNDS}")
    parser.add_argument("--generator", choices=GENERATORS, default="builtin", help="what sends the requests")
    parser.add_argument("--models", nargs="+", choices=NAMES, default=NAMES, help="these alone; others' figures stay")
    parser.add_argument("--output", type=Path, default=None, help="directory of requests.json")
    arguments = parser.parse_args()
    directory = arguments.output or default_directory()
    options = {"quick": arguments.quick, "generator": arguments.generator, "rounds": arguments.rounds}
    run(directory, **options, models=arguments.models)


if __name__ == "__main__":
    main()
