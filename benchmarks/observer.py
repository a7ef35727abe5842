"""What observing costs a request: an entry in this process with `observe` off, sampled and on, in turns.

    python -m benchmarks.observer make DIR       fits, exports; needs what exporting needs
    python -m benchmarks.observer measure DIR    times `execute`; needs what an entry needs

A request's rows lie in shared memory, as the server's do. The metrics are stand-ins that wait a while each, so that
what the thread that hands counts over takes from requests is measured too.
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

FEATURES = 64
ROWS = (1, 65_536)
MODES = ("off", "sampled", "on")
ROUNDS = 12
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


class _Tensor:
    def __init__(self, name: str, values: Any) -> None:
        self.name, self.values = name, values

    def is_cpu(self) -> bool:
        return True

    def to_dlpack(self) -> Any:
        return self.values.__dlpack__()

    @classmethod
    def from_dlpack(cls, name: str, capsule: Any) -> _Tensor:
        return cls(name, capsule)


class _Request:
    def __init__(self, X: np.ndarray) -> None:
        self.X = torch.from_numpy(X)

    def parameters(self) -> str:
        return "{}"

    def requested_output_names(self) -> list[str]:
        return ["y"]

    def is_cancelled(self) -> bool:
        return False


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


def load(directory: Path, name: str, mode: str) -> Any:
    """Load an entry as the Python backend does, under a module's name of its own."""
    utils = types.ModuleType("triton_python_backend_utils")
    vars(utils).update(
        Tensor=_Tensor,
        TritonError=types.SimpleNamespace(INTERNAL=0, INVALID_ARG=1, CANCELLED=2),
        InferenceResponse=lambda tensors: tensors,
        MetricFamily=_Family,
        Logger=types.SimpleNamespace(log_warn=print),
        get_input_tensor_by_name=lambda request, name: _Tensor(name, request.X),
    )
    sys.modules[utils.__name__] = utils
    package = f"{name}_{mode}"
    spec = ModuleSpec(package, None, is_package=True)
    spec.submodule_search_locations = [str(directory / name / "1")]
    sys.modules[package] = importlib.util.module_from_spec(spec)
    model = importlib.import_module(f"{package}.model").TritonPythonModel()
    config = json.loads((directory / f"{name}.json").read_text())
    config["parameters"]["observe"] = {"string_value": mode}
    kind = "GPU" if torch.cuda.is_available() else "CPU"
    model.initialize({"model_config": json.dumps(config), "model_instance_kind": kind, "model_instance_device_id": "0"})
    return model


def measure(directory: Path) -> None:
    """Time requests of each size for each model in each mode, and print microseconds."""
    print(torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU", torch.__version__)
    for name in ("ridge", "forest"):
        models = {mode: load(directory, name, mode) for mode in MODES}
        given = {mode: _in_shared_memory(f"{name}_{mode}") for mode in MODES}
        for rows in ROWS:
            _compare(name, rows, models, {mode: [_Request(X[:rows])] for mode, X in given.items()})
        for mode, model in models.items():
            counts = getattr(model.observer, "counts", None)
            print(f"  {mode}: {'' if counts is None else (counts.rows, counts.columns.rows)}")
            model.finalize()


def _in_shared_memory(name: str) -> np.ndarray:
    """Return rows in shared memory of their own: a GPU's driver takes one for one model of a process alone."""
    file = Path(f"/dev/shm/triton_regressors_{name}")
    X = np.memmap(file, np.float32, "w+", shape=(max(ROWS), FEATURES))
    file.unlink()  # the mapping keeps the memory
    X[:] = np.random.default_rng(1).standard_normal(X.shape, dtype=np.float32)
    return np.asarray(X)


def _compare(name: str, rows: int, models: dict[str, Any], given: dict[str, list[_Request]]) -> None:
    wall: dict[str, list[float]] = {mode: [] for mode in MODES}
    cpu: dict[str, list[float]] = {mode: [] for mode in MODES}
    for turn in range(ROUNDS):
        for mode in MODES[turn % 3 :] + MODES[: turn % 3]:
            execute, requests, times = models[mode].execute, given[mode], []
            execute(requests)
            stop, before, count = time.perf_counter() + SECONDS, time.thread_time(), 0
            while (start := time.perf_counter()) < stop or not count:
                execute(requests)
                times.append(time.perf_counter() - start)
                count += 1
            cpu[mode].append((time.thread_time() - before) / count * 1e6)
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
