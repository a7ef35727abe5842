"""Large models: what their export costs, and how soon a Triton server is ready with them.

    python -m benchmarks.large [--quick] [--rounds N] [--output DIR]

Two models: a random forest grown out to 2.5 million nodes, fitted as it is served; and an SVR with 50,000 support
vectors. Fitting an SVR on that many rows takes hours, and neither the export nor the server looks at where its numbers
come from: it is fitted on a few rows and then given drawn support vectors and coefficients, with which libsvm predicts.

Each is exported in a process of its own, after a toy of its kind, so that neither loading libraries nor starting
threads counts. Memory is what the process held at most during the export beyond what it held before it had the model:
the model itself is in it, and what reading its pickle left behind is handed back first. Loading is measured on a real
Triton server, in turns with a do-nothing model, whose time is what the server needs to start any Python model that
imports torch. What the server then answers must be right.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import multiprocessing
import pickle
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.ensemble import RandomForestRegressor
from sklearn.svm import SVR

from benchmarks.checking import WrongAnswerError
from benchmarks.environment import busy, default_directory, device_name, save
from triton_regressors import export
from triton_regressors.clients.compare.session import FLOOR_SOURCE, floor_config
from triton_regressors.clients.infer import Client
from triton_regressors.clients.server import TritonServer
from triton_regressors.clients.verify import verify
from triton_regressors.defaults import DEFAULT_TOLERANCE
from triton_regressors.kernels.parity import measure, units
from triton_regressors.model_config import from_pbtxt

FEATURES = 32
SAMPLE_ROWS = 1024
FITTED_ROWS = 256  # of the SVR
TOY = 40
ROUNDS = 5
LOAD_TIMEOUT_S = 600.0
GONE_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class LargeModel:
    """A model under measurement: `make(size)` fits it."""

    name: str
    title: str
    make: Callable[[int], Any]
    size: int
    quick_size: int


def rows(count: int, seed: int) -> np.ndarray:
    """Return float32 rows `[count, FEATURES]`."""
    return np.random.default_rng(seed).standard_normal((count, FEATURES), dtype=np.float32)


def forest(count: int) -> RandomForestRegressor:
    """Return 100 trees grown out on `count` rows: about 1.26 nodes a row and tree."""
    X = rows(count, seed=1)
    rng = np.random.default_rng(2)
    y = X @ rng.standard_normal(FEATURES) + X[:, 0] * X[:, 1] + rng.standard_normal(count)
    return RandomForestRegressor(max_features=1 / 3, n_jobs=-1, random_state=0).fit(X, y)


def support_vectors(count: int) -> SVR:
    """Return an SVR with `count` support vectors: fitted on few rows, then given drawn vectors and coefficients."""
    X = rows(FITTED_ROWS, seed=1).astype(np.float64)
    rng = np.random.default_rng(2)
    model = SVR(gamma=1 / FEATURES).fit(X, X @ rng.standard_normal(FEATURES))
    coefficients = rng.uniform(-model.C, model.C, count)
    model.support_vectors_ = rows(count, seed=3).astype(np.float64)
    model.support_ = np.arange(count, dtype=np.int32)
    model.dual_coef_ = model._dual_coef_ = (coefficients - coefficients.mean())[None]
    model._n_support = np.full_like(model._n_support, count)
    model.shape_fit_ = model.support_vectors_.shape
    return model


MODELS = (
    LargeModel("forest", "RandomForestRegressor, 100 trees", forest, 20_000, 1_000),
    LargeModel("svr", "SVR, rbf", support_vectors, 50_000, 5_000),
)


def parts(estimator: Any) -> tuple[str, int]:
    """Return what a model is made of, and how many of these."""
    if isinstance(estimator, SVR):
        return "support vectors", len(estimator.support_vectors_)
    return "nodes", sum(tree.tree_.node_count for tree in estimator.estimators_)


def measure_export(name: str, pickled: Path, repository: Path) -> dict[str, float]:
    """Export a pickled model in this process, which nothing else was done in; return the seconds and the bytes."""
    source = next(found for found in MODELS if found.name == name)
    sample = rows(SAMPLE_ROWS, seed=4)
    with tempfile.TemporaryDirectory() as directory:
        export(source.make(TOY), directory, sample=sample)
    hand_back()
    empty = resident("VmRSS")
    with pickled.open("rb") as file:
        estimator = pickle.load(file)
    hand_back()
    loaded = resident("VmRSS")
    forget_peak()
    start = time.perf_counter()
    export(estimator, repository, name=name, sample=sample)
    seconds = time.perf_counter() - start
    peak = resident("VmHWM")
    return {"export_s": seconds, "peak_bytes": peak - empty, "peak_beyond_model_bytes": peak - loaded}


def hand_back() -> None:
    """Give memory back to the system that the C library keeps for later: unpickling held every array twice."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def forget_peak() -> None:
    """Have the kernel count this process's peak of resident memory anew."""
    Path("/proc/self/clear_refs").write_text("5")


def resident(what: str) -> int:
    """Return a line of /proc/self/status in bytes: VmRSS is this process's resident memory, VmHWM its peak."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith(f"{what}:"))


def measure_loads(client: Client, entry: Path, rounds: int) -> dict[str, Any]:
    """Load the entry and a do-nothing model in turns, the entry last; return the seconds until each was ready."""
    floor = floor_config(from_pbtxt((entry / "config.pbtxt").read_bytes()))
    files = {"1/model.py": FLOOR_SOURCE.read_bytes()}
    loads: list[float] = []
    floor_loads: list[float] = []
    for _ in range(rounds):
        unload(client, entry.name)
        floor_loads.append(seconds_of(lambda: client.load(floor.name, config=floor, files=files)))
        unload(client, floor.name)
        loads.append(seconds_of(lambda: client.load(entry.name)))
    return {
        "load_s": statistics.median(loads),
        "load_s_rounds": loads,
        "floor_load_s": statistics.median(floor_loads),
        "floor_load_s_rounds": floor_loads,
    }


def seconds_of(call: Callable[[], object]) -> float:
    """Return how long a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def unload(client: Client, model: str) -> None:
    """Unload a model, if it is loaded, and wait until its process has ended."""
    client.unload(model)
    deadline = time.monotonic() + GONE_TIMEOUT_S
    while any(row["name"] == model and row["state"] not in ("", "UNAVAILABLE") for row in client.index()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{model} was not unloaded within {GONE_TIMEOUT_S:g} s.")
        time.sleep(0.02)


def check(client: Client, entry: Path, sample: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest error of the served answers in standard deviations, or raise `WrongAnswerError`."""
    verification = verify(client, entry)
    parity = measure(client.predict(entry.name, sample), expected, units(expected))
    if not verification.passed or not parity.within(DEFAULT_TOLERANCE):
        raise WrongAnswerError(f"The served {entry.name} is {parity.max_error:.1e} std off: {verification}.")
    return parity.max_error


def measure_model(source: LargeModel, *, quick: bool, rounds: int) -> dict[str, Any]:
    """Fit, export, serve and check one model; return its JSON."""
    print(f"{source.title}: fitting", flush=True)
    estimator = source.make(source.quick_size if quick else source.size)
    kind, count = parts(estimator)
    sample = rows(SAMPLE_ROWS, seed=4)
    start = time.perf_counter()
    expected = estimator.predict(sample.astype(np.float64))[:, None]
    predict_s = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as directory:
        pickled, repository = Path(directory) / "model.pickle", Path(directory) / "repository"
        with pickled.open("wb") as file:
            pickle.dump(estimator, file, protocol=5)
        model_bytes = pickled.stat().st_size
        del estimator
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            exported = process.submit(measure_export, source.name, pickled, repository).result()
        entry = repository / source.name
        with (
            TritonServer([repository], models=[]) as server,
            Client(server.grpc_url, timeout_s=LOAD_TIMEOUT_S, load_timeout_s=LOAD_TIMEOUT_S) as client,
        ):
            loads = measure_loads(client, entry, rounds)
            error = check(client, entry, sample, expected)
        entry_bytes = sum(path.stat().st_size for path in entry.rglob("*") if path.is_file())
    return {
        "model": source.name,
        "title": f"{source.title}, {count:,} {kind}",
        "n_features": FEATURES,
        kind.replace(" ", "_"): count,
        "model_bytes": model_bytes,
        "sample_rows": SAMPLE_ROWS,
        "predict_s": predict_s,
        **exported,
        "peak_over_model": exported["peak_bytes"] / model_bytes,
        "entry_bytes": entry_bytes,
        **loads,
        "max_error": error,
    }


def table(results: list[dict[str, Any]]) -> Table:
    """Return the results as a table."""
    shown = Table(title=f"Large models on {device_name()}", title_justify="left")
    shown.add_column("")
    for result in results:
        shown.add_column(result["title"], justify="right")

    def line(what: str, value: Callable[[dict[str, Any]], str]) -> None:
        shown.add_row(what, *(value(result) for result in results))

    line("the model, pickled", lambda result: megabytes(result["model_bytes"]))
    line("export", lambda result: f"{result['export_s']:.2f} s")
    line("  of which its own predict", lambda result: f"{result['predict_s']:.2f} s")
    line("memory, model included", lambda result: megabytes(result["peak_bytes"]))
    line("  times the model", lambda result: f"{result['peak_over_model']:.1f} ×")
    line("the entry on disk", lambda result: megabytes(result["entry_bytes"]))
    line("load until ready", lambda result: f"{result['load_s']:.2f} s")
    line("  a do-nothing model", lambda result: f"{result['floor_load_s']:.2f} s")
    line("largest error / std", lambda result: f"{result['max_error']:.0e}")
    return shown


def megabytes(count: float) -> str:
    """Return a number of bytes in MB."""
    return f"{count / 1e6:,.1f} MB"


def rounded(results: dict[str, Any]) -> dict[str, Any]:
    """Return the results with their fractions to four digits."""

    def four_digits(value: Any) -> Any:
        if isinstance(value, list):
            return [four_digits(each) for each in value]
        return float(f"{value:.4g}") if isinstance(value, float) else value

    return {name: four_digits(value) for name, value in results.items()}


def run(directory: Path, *, quick: bool = False, rounds: int | None = None) -> Path:
    """Measure the models and write large.json."""
    rounds = rounds or (1 if quick else ROUNDS)
    settings = {"quick": quick, "rounds": rounds, "busy_at_start": busy()}
    results = [rounded(measure_model(source, quick=quick, rounds=rounds)) for source in MODELS]
    Console().print(table(results))
    return save(directory, "large", settings, {"models": results})


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="smaller models, one round")
    parser.add_argument("--rounds", type=int, help=f"how often to load each model; {ROUNDS}, or 1 if quick")
    parser.add_argument("--output", type=Path, default=None, help="directory of large.json")
    arguments = parser.parse_args()
    run(arguments.output or default_directory(), quick=arguments.quick, rounds=arguments.rounds)


if __name__ == "__main__":
    main()
