"""What observing costs a request: an entry in this process with `observe` off, sampled and on, in turns.

One model is loaded and given an observer of each kind in turn: two copies of a model differ by more than they cost.

    python -m benchmarks.observer make DIR       fits, exports; needs what exporting needs
    python -m benchmarks.observer measure DIR    times `execute`; needs what an entry needs

A request's rows lie in shared memory, as the server's do. The metrics are stand-ins that wait a while each, so that
what the thread that hands counts over takes from requests is measured too. The rings are emptied when
they are half full: in a server as busy as this they would be full most of the time, and nothing would be copied.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
import types
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from triton_regressors.scoring.stand_in import Request, utils

FEATURES = 64
ROWS = (1, 65_536)
MODES = ("off", "sampled", "on")
ROUNDS = 9
SECONDS = 0.03
"""How long one mode is timed in a round."""

METRIC_S = 30e-6


def make(directory: Path) -> None:
    """Export the models with a profile, and write down their configurations."""
    from google.protobuf.json_format import MessageToDict
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.linear_model import Ridge

    from triton_regressors import export
    from triton_regressors.model_config import from_pbtxt

    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, FEATURES)).astype(np.float32)
    y = X @ rng.standard_normal(FEATURES) + rng.standard_normal(len(X))
    models = {"ridge": Ridge(), "forest": RandomForestRegressor(50, max_depth=8, random_state=0)}
    for name, model in models.items():
        entry = export(model.fit(X, y), directory, name=name, sample=X, input="fp32", max_batch_size=max(ROWS)).entry
        config = MessageToDict(
            from_pbtxt((entry.directory / "config.pbtxt").read_text()), preserving_proto_field_name=True
        )
        (directory / f"{name}.json").write_text(json.dumps(config))


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


def load(directory: Path, name: str) -> dict[str, Any]:
    """Load an entry as the Python backend does; return an observer of each kind for it, and itself as "model"."""
    module = utils(MetricFamily=_Family, Logger=types.SimpleNamespace(log_warn=print))
    sys.modules[module.__name__] = module
    spec = ModuleSpec(name, None, is_package=True)
    spec.submodule_search_locations = [str(directory / name / "1")]
    sys.modules[name] = importlib.util.module_from_spec(spec)
    model = importlib.import_module(f"{name}.model").TritonPythonModel()
    config = json.loads((directory / f"{name}.json").read_text())
    kind = "GPU" if torch.cuda.is_available() else "CPU"
    found: dict[str, Any] = {}
    observers = importlib.import_module(f"{name}.kernels.observer")
    start = observers.start

    def start_all(subject: Any, mode: str, *others: Any) -> Any:
        found.update({each: start(subject, each, *others) for each in MODES})
        return found[mode]

    observers.start = start_all
    arguments = {"model_config": json.dumps(config), "model_instance_kind": kind, "model_instance_device_id": "0"}
    model.initialize(arguments)
    return {**found, "model": model}


def measure(directory: Path) -> None:
    """Time requests of each size for each model in each mode, and print microseconds."""
    print(torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU", torch.__version__)
    X = _in_shared_memory("observer")
    for name in ("ridge", "forest"):
        loaded = load(directory, name)
        for rows in ROWS:
            _compare(name, rows, loaded, [Request({"X": X[:rows]}, ("y",))])
        for mode in MODES[1:]:
            counts = loaded[mode].counts
            print(f"  {mode}: {counts.rows:,} rows, {counts.columns.rows:,} looked at")
            loaded[mode].close()


def _in_shared_memory(name: str) -> np.ndarray:
    """Return rows in shared memory."""
    file = Path(f"/dev/shm/triton_regressors_{name}")
    X = np.memmap(file, np.float32, "w+", shape=(max(ROWS), FEATURES))
    file.unlink()  # the mapping keeps the memory
    X[:] = np.random.default_rng(1).standard_normal(X.shape, dtype=np.float32)
    return np.asarray(X)


def _compare(name: str, rows: int, loaded: dict[str, Any], requests: list[Request]) -> None:
    wall: dict[str, list[float]] = {mode: [] for mode in MODES}
    cpu: dict[str, list[float]] = {mode: [] for mode in MODES}
    model = loaded["model"]
    for turn in range(ROUNDS):
        for mode in MODES[turn % 3 :] + MODES[: turn % 3]:
            model.observer, times, cpu_times = loaded[mode], [], []
            rings = [] if mode == "off" else [model.observer._ring, *model.observer._rings.values()]
            model.execute(requests)
            stop = time.perf_counter() + SECONDS
            while not times or time.perf_counter() < stop:
                before, start = time.thread_time(), time.perf_counter()
                model.execute(requests)
                times.append(time.perf_counter() - start)
                cpu_times.append(time.thread_time() - before)
                for ring in rings if mode == "sampled" else []:
                    if ring.filling():
                        ring._read = ring._written
            cpu[mode].append(float(np.median(cpu_times)) * 1e6)
            wall[mode].append(float(np.median(times)) * 1e6)
    for mode in MODES:
        more = np.array(wall[mode]) - np.array(wall["off"])
        more_cpu = np.array(cpu[mode]) - np.array(cpu["off"])
        print(
            f"{name} {rows:6} rows {mode:8} median {np.median(wall[mode]):9.2f} us, more by {np.median(more):+8.2f} "
            f"({100 * np.median(more) / np.median(wall['off']):+.2f} %); thread's CPU {np.median(cpu[mode]):9.2f}, "
            f"more by {np.median(more_cpu):+8.2f}",
            flush=True,
        )


if __name__ == "__main__":
    {"make": make, "measure": measure}[sys.argv[1]](Path(sys.argv[2]))
