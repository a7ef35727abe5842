"""Large models: the cost of their export, and the time until a Triton server is ready with them.

    python -m benchmarks.served.large_exports [--quick] [--models NAME ...] [--rounds N] [--output DIR]

The models (`large_models.py`): a random forest grown out to 2.5 million nodes, an SVR with 50,000 support vectors,
10,000 trees of depth 8 of each of XGBoost, LightGBM and CatBoost, and 1,000 trees of each that also read a column of
2,000 categories; one of these also as a file that its library wrote.

Each is exported in a process of its own, after a toy of its kind, so that neither loading libraries nor starting
threads counts. Memory is the process's peak during the export less its memory before it had the model: the model itself
is included, and memory left over from reading its pickle is handed back first. The figure is a multiple of the pickled
model's size, or of the file's, and beside it stands the model's size in the process once it is read. Loading is
measured on a real Triton server, in turns with a do-nothing model, whose time is the server's own for any Python model
that imports torch. The server's answers must then be right.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import pickle
import statistics
import tempfile
import time
from collections.abc import Callable, Collection
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.checking import WrongAnswerError
from benchmarks.environment import busy, default_directory, device_name, save
from benchmarks.served.large_models import FEATURES, MODELS, LargeModel, parts
from triton_regressors import export
from triton_regressors.clients.client.client import Client
from triton_regressors.clients.compare.session.session import FLOOR_SOURCE, floor_config
from triton_regressors.clients.server.triton_server import TritonServer
from triton_regressors.clients.verify import verify
from triton_regressors.defaults import DEFAULT_TOLERANCE
from triton_regressors.exporter.files.loading import load_estimator
from triton_regressors.exporter.lowering import memory
from triton_regressors.kernels.format.parity import measure, units
from triton_regressors.model_config import from_pbtxt

TOY = 40
ROUNDS = 5
LOAD_TIMEOUT_S = 600.0
GONE_TIMEOUT_S = 60.0


def measure_export(name: str, held: Path, repository: Path) -> dict[str, float]:
    """Export the model in a file in this otherwise unused process; return the seconds and the bytes."""
    source = next(found for found in MODELS if found.name == name)
    sample = source.sample()
    with tempfile.TemporaryDirectory() as directory:
        toy = Path(directory, f"toy.{source.suffix}")
        write(source.make(TOY), toy)
        export(read(toy), directory, sample=sample)
    hand_back()
    empty = resident("VmRSS")
    estimator = read(held)
    hand_back()
    loaded = resident("VmRSS")
    forget_peak()
    start = time.perf_counter()
    export(estimator, repository, name=name, sample=sample)
    seconds = time.perf_counter() - start
    peak = resident("VmHWM")
    return {
        "export_s": seconds,
        "peak_bytes": peak - empty,
        "peak_beyond_model_bytes": peak - loaded,
    }


def write(estimator: Any, path: Path) -> None:
    """Write an estimator to a pickle, or to a file of its library."""
    if path.suffix != ".pickle":
        estimator.save_model(str(path))
        return
    with path.open("wb") as file:
        pickle.dump(estimator, file, protocol=5)


def read(path: Path) -> Any:
    """Return the estimator that was written."""
    if path.suffix != ".pickle":
        return load_estimator(path)
    with path.open("rb") as file:
        return pickle.load(file)


def hand_back() -> None:
    """Give memory back to the system that the C library keeps: unpickling held every array twice."""
    gc.collect()
    memory.hand_back()


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


def check(client: Client, entry: Path, sample: Any, expected: np.ndarray) -> float:
    """Return the largest error of the served answers in standard deviations, or raise `WrongAnswerError`."""
    verification = verify(client, entry)
    parity = measure(client.infer(entry.name, sample)["y"], expected, units(expected))
    if not verification.passed or not parity.within(DEFAULT_TOLERANCE):
        raise WrongAnswerError(f"The served {entry.name} is {parity.max_error:.1e} std off: {verification}.")
    return parity.max_error


def measure_model(source: LargeModel, *, quick: bool, rounds: int) -> dict[str, Any]:
    """Fit, export, serve and check one model; return its JSON."""
    print(f"{source.title}: fitting", flush=True)
    estimator = source.make(source.quick_size if quick else source.size)
    kind, count = parts(estimator)
    sample = source.sample()
    start = time.perf_counter()
    asked = sample.astype(np.float64) if isinstance(sample, np.ndarray) else sample
    expected = np.asarray(estimator.predict(asked), dtype=np.float64)[:, None]
    predict_s = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as directory:
        held, repository = Path(directory) / f"model.{source.suffix}", Path(directory) / "repository"
        write(estimator, held)
        model_bytes = held.stat().st_size
        del estimator
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            exported = process.submit(measure_export, source.name, held, repository).result()
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
        "sample_rows": len(sample),
        "predict_s": predict_s,
        **exported,
        "peak_over_model": exported["peak_bytes"] / model_bytes,
        "entry_bytes": entry_bytes,
        **loads,
        "max_error": error,
    }


def table(results: list[dict[str, Any]]) -> Table:
    """Return the results as a table."""
    columns: dict[str, Callable[[dict[str, Any]], str]] = {
        "pickled": lambda result: megabytes(result["model_bytes"]),
        "in memory": lambda result: megabytes(result["peak_bytes"] - result["peak_beyond_model_bytes"]),
        "export": lambda result: f"{result['export_s']:.2f} s",
        "its predict": lambda result: f"{result['predict_s']:.2f} s",
        "memory": lambda result: f"{megabytes(result['peak_bytes'])}, {result['peak_over_model']:.1f} ×",
        "entry": lambda result: megabytes(result["entry_bytes"]),
        "load": lambda result: f"{result['load_s']:.2f} s",
        "do-nothing": lambda result: f"{result['floor_load_s']:.2f} s",
        "error": lambda result: f"{result['max_error']:.0e}",
    }
    shown = Table(title=f"Large models on {device_name()}", title_justify="left")
    shown.add_column("model")
    for name in columns:
        shown.add_column(name, justify="right")
    for result in results:
        shown.add_row(result["title"], *(value(result) for value in columns.values()))
    return shown


def megabytes(count: float) -> str:
    """Return a number of bytes in MB."""
    return f"{count / 1e6:,.0f} MB"


def rounded(results: dict[str, Any]) -> dict[str, Any]:
    """Return the results with their fractions to four digits."""

    def four_digits(value: Any) -> Any:
        if isinstance(value, list):
            return [four_digits(each) for each in value]
        return float(f"{value:.4g}") if isinstance(value, float) else value

    return {name: four_digits(value) for name, value in results.items()}


def run(directory: Path, *, quick: bool = False, models: Collection[str] = (), rounds: int | None = None) -> Path:
    """Measure the models of these names, or all whose library is installed, and write large.json.

    The file's results of other models stay, unless one of the runs is quick.
    """
    rounds = rounds or (1 if quick else ROUNDS)
    settings = {"quick": quick, "rounds": rounds, "busy_at_start": busy()}
    chosen = [source for source in MODELS if (source.name in models if models else find_spec(source.needs))]
    results = [rounded(measure_model(source, quick=quick, rounds=rounds)) for source in chosen]
    Console().print(table(results))
    path, names = directory / "large.json", [source.name for source in MODELS]
    held = json.loads(path.read_text(encoding="utf-8")) if models and path.exists() else {}
    if held and held["settings"]["quick"] == quick:
        settings["busy_at_start"] |= held["settings"]["busy_at_start"]
        results += [result for result in held["models"] if result["model"] not in models]
        results.sort(key=lambda result: names.index(result["model"]))
    return save(directory, "large", settings, {"models": results})


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="smaller models, one round")
    names = [source.name for source in MODELS]
    parser.add_argument(
        "--models", nargs="+", default=[], choices=names, metavar="NAME", help=f"some of {', '.join(names)}"
    )
    parser.add_argument("--rounds", type=int, help=f"how often to load each model; {ROUNDS}, or 1 if quick")
    parser.add_argument("--output", type=Path, default=None, help="directory of large.json")
    arguments = parser.parse_args()
    run(
        arguments.output or default_directory(), quick=arguments.quick, models=arguments.models, rounds=arguments.rounds
    )


if __name__ == "__main__":
    main()
