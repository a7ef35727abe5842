"""Cost of observing a request: an entry in this process with `observe` off, sampled and on, in turns.

    python -m benchmarks.cpu.observer [--quick] [--output DIR]

One model is loaded and given an observer of each kind in turn: two copies of a model differ by more than observers
cost. A request's rows lie in shared memory, like the server's. The metrics are stand-ins that wait a while each, so
that the time that the publishing thread takes from requests is measured too. The rings are emptied when they are half
full: in a server as busy as this one they would be full most of the time, and nothing would be copied.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import time
import types
from importlib.machinery import ModuleSpec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from google.protobuf import json_format

from benchmarks.environment import busy, default_directory, device_name, save
from benchmarks.models import model
from benchmarks.timing import rotated
from triton_regressors import export
from triton_regressors.kernels.entry import Entry
from triton_regressors.scoring.backend_stub import UTILS, Request, utils
from triton_regressors.scoring.entry_choice import read_config

NAMES = ("ridge", "scaled_forest")
ROWS = (1, 65_536)
OFF, SAMPLED, _ = MODES = ("off", "sampled", "on")
ROUNDS, QUICK_ROUNDS = 15, 5
BLOCK_S = 0.03
"""The time for which one mode is timed in a round."""

METRIC_S = 30e-6
"""The assumed time of a metric's round trip to the server, in seconds."""


class _Metric:
    def increment(self, value: float) -> None:
        time.sleep(METRIC_S)

    def set(self, value: float) -> None:
        pass


class _Family:
    COUNTER, GAUGE = 0, 1

    def __init__(self, **_: Any) -> None:
        pass

    def Metric(self, labels: dict[str, str]) -> _Metric:  # noqa: N802
        return _Metric()


def load(entry: Entry) -> tuple[Any, dict[str, Any]]:
    """Load an entry as the Python backend does; return its model, and an observer of each kind by mode."""
    sys.modules[UTILS] = utils(MetricFamily=_Family, Logger=types.SimpleNamespace(log_warn=print))
    package = f"observed_{entry.name}"
    spec = ModuleSpec(package, None, is_package=True)
    spec.submodule_search_locations = [str(entry.version_directory)]
    sys.modules[package] = importlib.util.module_from_spec(spec)
    loaded = importlib.import_module(f"{package}.model").TritonPythonModel()
    observers = importlib.import_module(f"{package}.kernels.serving.observer")
    start, found = observers.start, dict[str, Any]()

    def start_all(subject: Any, mode: str, *others: Any) -> Any:
        found.update({each: start(subject, each, *others) for each in MODES})
        return found[mode]

    observers.start = start_all
    loaded.initialize(
        {
            "model_config": json_format.MessageToJson(read_config(entry.directory), preserving_proto_field_name=True),
            "model_instance_kind": "GPU" if torch.cuda.is_available() else "CPU",
            "model_instance_device_id": "0",
        }
    )
    return loaded, found


def in_shared_memory(X: np.ndarray) -> np.ndarray:
    """Return a copy of rows in shared memory."""
    file = Path(f"/dev/shm/triton-regressors-observer-{id(X)}")
    rows = np.memmap(file, X.dtype, "w+", shape=X.shape)
    file.unlink()  # the mapping keeps the memory
    rows[:] = X
    return np.asarray(rows)


def block_us(loaded: Any, observer: Any, request: Request) -> float:
    """Return the median microseconds of a request under one observer."""
    loaded.observer, times = observer, list[float]()
    rings = [observer._ring, *observer._rings.values()] if hasattr(observer, "_ring") and not observer._all else []
    loaded.execute([request])
    stop = time.perf_counter() + BLOCK_S
    while not times or time.perf_counter() < stop:
        begin = time.perf_counter()
        loaded.execute([request])
        times.append(time.perf_counter() - begin)
        for ring in rings:
            if ring.filling():
                ring._read = ring._written
    return median(times) * 1e6


def compare(loaded: Any, observers: dict[str, Any], X: np.ndarray, rounds: int) -> dict[str, Any]:
    """Return a request's microseconds without an observer, and each observer's addition: median and quartiles."""
    request, found = Request({"X": X}, ("y",)), dict[str, list[float]]((mode, []) for mode in MODES)
    for number in range(rounds):
        for mode in rotated(MODES, number):
            found[mode].append(block_us(loaded, observers[mode], request))
    point: dict[str, Any] = {"rows": len(X), "off_us": round(median(found[OFF]), 2)}
    for mode in MODES[1:]:
        added = np.subtract(found[mode], found[OFF])
        point[f"{mode}_adds_us"] = [round(float(value), 2) for value in np.quantile(added, (0.25, 0.5, 0.75))]
    return point


def run(directory: Path, *, quick: bool = False) -> Path:
    """Measure and write observer.json."""
    print(f"observing on {device_name()}")
    settings, results = {"quick": quick, "busy_at_start": busy()}, []
    for source in map(model, NAMES):
        X = in_shared_memory(source.rows(max(ROWS), seed=5).astype(np.float32))
        with tempfile.TemporaryDirectory() as repository:
            options = {"name": source.name, "sample": source.sample(), "max_batch_size": max(ROWS)}
            loaded, observers = load(export(source.estimator, repository, input="fp32", **options).entry)
            points = [compare(loaded, observers, X[:rows], QUICK_ROUNDS if quick else ROUNDS) for rows in ROWS]
            for observer in observers.values():
                observer.close()
        print(f"  {source.title}: {points}", flush=True)
        results.append({"model": source.name, "title": source.title, "points": points})
    return save(directory, "observer", settings, {"models": results})


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--output", type=Path, default=None, help="directory of observer.json")
    arguments = parser.parse_args()
    run(arguments.output or default_directory(), quick=arguments.quick)


if __name__ == "__main__":
    main()
