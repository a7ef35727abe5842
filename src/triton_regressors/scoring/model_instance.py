"""An instance of an entry's model in this process: the code that the Triton server's Python backend would run.

The model is the entry's `model.py` with the kernels beside it, so that every rule, every message and every bit is the
same as a server's. `backend_stub.py` takes the place of the backend's module.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import math
import os
import sys
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from google.protobuf import json_format

from triton_regressors.clients.client.tensors import Tensors
from triton_regressors.clients.errors import InferenceError, InvalidRequest, ServerFault, plain_reason
from triton_regressors.kernels.cpu.tiles import one_thread
from triton_regressors.kernels.engine.staging import unlocked
from triton_regressors.kernels.entry import Entry
from triton_regressors.kernels.format.inputs import NUMBERS, ONLY_CPU_INPUTS
from triton_regressors.model_config import sent_inputs
from triton_regressors.scoring.backend_stub import UTILS, Error, Request, Response, utils
from triton_regressors.scoring.columns import rows_together
from triton_regressors.scoring.entry_choice import read_config
from triton_regressors.scoring.errors import ScoringError

_LOADING = threading.Lock()
_ON_GPU: dict[int, threading.RLock] = {}
"""A lock for each GPU: its models share streams, and one thread's launches must not go into another's CUDA graph."""

_MODELS: weakref.WeakSet[ModelInstance] = weakref.WeakSet()

CPU_ROWS, CPU_NUMBERS = 2**14, 2**20
"""The largest batch on a CPU, in rows and in numbers of the input.

With fewer rows a small model would spend most of its time in Python. More numbers would not fit into a core's cache.
"""

MANY_BYTES = 2**17
"""From this many bytes on, rows are copied to a GPU before the model is called; the model stages fewer itself."""

MOST_STAGED_BYTES = 2**21
"""An array that needs no conversion is staged up to so many bytes, and a larger one is copied to a GPU first.

The CPU searches staged rows for numbers that are refused, which a GPU does faster with many rows.
"""


class ModelInstance:
    """A version of an entry on a device of this process; threads wait for each other.

    `engine` is the engine's name, `device` is torch's device, `where` is the device in words, `max_rows` is the largest
    batch in rows, and `reads_gpu` is whether the model takes rows in a GPU's memory.
    """

    def __init__(self, entry: Entry, on_gpu: bool, number: int) -> None:
        self._process = os.getpid()
        self._lock = _ON_GPU.setdefault(number, threading.RLock()) if on_gpu else threading.RLock()
        self._gpu = number if on_gpu else -1
        _MODELS.add(self)
        self._name = f"{entry.directory.name} version {entry.version}"
        config = read_config(entry.directory)
        config.max_batch_size = self.max_rows = rows_at_once(config, on_gpu=on_gpu)
        config.parameters[ONLY_CPU_INPUTS].string_value = "no" if on_gpu else "yes"
        arguments = {
            "model_config": json_format.MessageToJson(config, preserving_proto_field_name=True),
            "model_instance_kind": "GPU" if on_gpu else "CPU",
            "model_instance_device_id": str(number),
        }
        try:
            # Loading sets the thread's current GPU, and for the whole process the threads and NumPy's warnings.
            with self._exclusive(), one_thread(), np.errstate(all=None):
                self._model: Any = _model_class(entry.version_directory)()
                self._model.initialize(arguments)
        except Exception as error:  # any failure, including the entry's own error classes
            raise ScoringError(f"{self._name} does not load: {plain_reason(str(error))}.") from error
        runner = self._model.runner
        self.engine: str = runner.engine
        self.device: torch.device = runner.device
        self.reads_gpu: bool = self.device.type == "cuda" and self._model.inputs.plain_matrix
        self._width: int = self._model.inputs.n_features
        self._kind: torch.dtype = getattr(torch, self._model.inputs.dtype)
        self._array_kind = np.dtype(self._model.inputs.dtype)
        # Entries of earlier releases have neither of the two.
        self._prepared: Any = getattr(runner, "prepared", None) if self.reads_gpu else None
        stages = self._model.inputs.plain_matrix and hasattr(runner.executor, "stage")
        self._executor: Any = runner.executor if stages else None
        self._most_bytes = MOST_STAGED_BYTES if on_gpu else math.inf
        self.where = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "the CPU"

    def execute(
        self, requests: Sequence[Tensors], outputs: Sequence[str]
    ) -> list[dict[str, np.ndarray] | InferenceError]:
        """Answer requests as one batch: output name → array [rows, width] for each, or the reason for its refusal."""
        with self._exclusive(), one_thread(), np.errstate(over="ignore", invalid="ignore"):
            sent: Sequence[Mapping[str, Any]] = requests
            if self.reads_gpu and sum(X.nbytes for tensors in requests for X in tensors.values()) >= MANY_BYTES:
                sent = [{name: self._to_gpu(X) for name, X in tensors.items()} for tensors in requests]
            responses = self._model.execute([Request(tensors, outputs) for tensors in sent])
            return [self._answer_of(response) for response in responses]

    def takes(self, X: Any) -> bool:
        """Return whether X is a tensor in this GPU's memory, or an array in the CPU's, that needs no conversion.

        Only its numbers may be refused.
        """
        if type(X) is torch.Tensor:
            return (
                self._prepared is not None
                and X.dtype is self._kind
                and X.layout is torch.strided
                and X.device == self.device
                and X.dim() == 2
                and X.shape[1] == self._width
                and X.shape[0] > 0
                and X.is_contiguous()
                and not (X.requires_grad or X.is_neg())
            )
        return (
            self._executor is not None
            and type(X) is np.ndarray
            and X.dtype == self._array_kind
            and X.ndim == 2
            and X.shape[1] == self._width
            and 0 < X.shape[0] <= self.max_rows
            and X.nbytes <= self._most_bytes
        )

    def answer(self, X: Any, outputs: tuple[str, ...], *, flat: bool = False) -> dict[str, Any] | None:
        """Return outputs of rows that `takes` accepts, on their device; None if a number is refused.

        On a GPU a known number of rows runs as one CUDA graph. The caller's settings of torch do not affect it; only
        inference mode would affect its answers, by making them tensors that autograd refuses.

        Args:
            X: the rows.
            outputs: their names.
            flat: return an output of one column as `[rows]`.

        Raises:
            ServerFault: the model failed.
        """
        found: dict[str, Any] | None
        if type(X) is np.ndarray:
            found = self._of_host(X, outputs)
        else:
            with self._lock:
                here = self._process == os.getpid() and torch.cuda.current_device() == self._gpu
                prepared = self._prepared(X.shape[0], outputs) if here else None
                if prepared is not None:
                    if not torch.is_inference_mode_enabled():
                        found = prepared(X, flat)
                        return found
                    with torch.inference_mode(mode=False):
                        found = prepared(X, flat)
                        return found
                if here and _is_plain():
                    found = self._model.runner.predict_on_device(X, outputs)
                else:
                    found = self.on_device(X, outputs)
        if flat and found is not None:
            return {name: each.reshape(-1) if each.shape[1] == 1 else each for name, each in found.items()}
        return found

    def _of_host(self, X: np.ndarray, outputs: tuple[str, ...]) -> dict[str, np.ndarray] | None:
        with self._exclusive(), one_thread(), np.errstate(over="ignore", invalid="ignore"):
            try:
                answers = self._executor.stage((X,), len(X), outputs).arrays
                allowed = self._executor.allowed(len(X), self._model.allowed.holds)
            except Exception as error:
                raise ServerFault(f"The model failed on this batch: {type(error).__name__}: {error}.") from error
            return {name: answer.copy() for name, answer in answers.items()} if allowed else None

    def on_device(self, X: torch.Tensor, outputs: Sequence[str]) -> dict[str, torch.Tensor] | None:
        """Return outputs of a matrix in this GPU's memory as new tensors there; None if a number is refused.

        Args:
            X: `[rows, width]` of the model's only input in its type; torch's current stream has made it.
            outputs: their names.

        Raises:
            ServerFault: the model failed.
        """
        with self._exclusive(), np.errstate(over="ignore", invalid="ignore"):
            runner = self._model.runner
            if hasattr(runner, "predict_on_device"):
                found: dict[str, torch.Tensor] | None = runner.predict_on_device(X, tuple(outputs))
                return found
            return self._through_host(X.contiguous(), outputs)

    def _through_host(self, X: torch.Tensor, outputs: Sequence[str]) -> dict[str, torch.Tensor] | None:
        """Return the outputs of an entry of an earlier release, which reads rows on the GPU and answers on the CPU."""
        torch.cuda.current_stream(self.device).synchronize()  # the model reads the rows on streams of its own
        found = []
        for first in range(0, len(X), self.max_rows):
            piece = X[first : first + self.max_rows]
            (response,) = self._model.execute([Request({NUMBERS: piece}, outputs)])
            answer = self._answer_of(response)
            if isinstance(answer, InvalidRequest):
                return None
            if isinstance(answer, InferenceError):
                raise answer
            found.append(answer)
        joined = {name: np.concatenate([answer[name] for answer in found]) for name in outputs}
        return {name: torch.from_numpy(answer).to(self.device) for name, answer in joined.items()}

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Hold the model's lock, with its device current in this thread and torch in its default state."""
        if self._gpu >= 0 and self._process != os.getpid():
            raise ScoringError(
                f"{self._name} was loaded on a GPU before this process was forked, and CUDA does not work after a "
                "fork: start processes by 'spawn', or load the model only in these processes."
            )
        with self._lock, torch.cuda.device(self._gpu), _plain_torch():
            yield

    def _to_gpu(self, X: np.ndarray) -> torch.Tensor:
        """Return a matrix in the memory of the GPU, row by row."""
        by_columns = X.T.flags.c_contiguous and not X.flags.c_contiguous
        piece = torch.from_numpy(unlocked(np.ascontiguousarray(X.T if by_columns else X)))
        there = piece.to(self.device, non_blocking=True)
        rows = there.T.contiguous() if by_columns else there
        torch.cuda.current_stream(self.device).synchronize()  # the model reads them on streams of its own
        return rows

    def _answer_of(self, response: Response) -> dict[str, np.ndarray] | InferenceError:
        if response.error is None:
            return {tensor.name(): tensor.as_numpy().copy() for tensor in response.output_tensors}
        kind = InvalidRequest if response.error.code == Error.INVALID_ARG else ServerFault
        return kind(f"{plain_reason(response.error.message)}.")


def rows_at_once(config: Any, *, on_gpu: bool) -> int:
    """Return how many rows are computed at once: at least a server's limit, and on a GPU all rows converted at once.

    A server's limit keeps requests from waiting for each other. No answer depends on this number.
    """
    asked: int = config.max_batch_size
    width = sum(int(tensor.dims[0]) for tensor in sent_inputs(config))
    return max(asked, rows_together(width) if on_gpu else min(CPU_ROWS, CPU_NUMBERS // width))


def load(entry: Entry, on_gpu: bool, number: int, digest: str) -> ModelInstance:
    """Return the model, which this process loads once; `digest` distinguishes an entry from one that replaced it."""
    with _LOADING:
        return _loaded(entry, on_gpu, number, digest)


@functools.lru_cache(maxsize=4)
def _loaded(entry: Entry, on_gpu: bool, number: int, _digest: str) -> ModelInstance:
    return ModelInstance(entry, on_gpu, number)


def _after_fork() -> None:
    """Give a forked process new locks: the threads that held the old ones do not exist in it."""
    global _LOADING
    _LOADING = threading.Lock()
    _ON_GPU.clear()
    for model in _MODELS:
        model._lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


def _is_plain() -> bool:
    """Return whether torch is in its default state: no mode is on, and every default is torch's own."""
    return (
        torch.get_default_dtype() is torch.float32
        and not torch.is_inference_mode_enabled()
        and not torch.is_autocast_enabled("cpu")
        and torch.get_float32_matmul_precision() == "highest"
        and torch.get_default_device().type == "cpu"
    )


@contextmanager
def _plain_torch() -> Iterator[None]:
    """Undo the caller's settings of torch that would affect the model: modes, autocast and defaults."""
    if _is_plain():
        yield
        return
    dtype, precision = torch.get_default_dtype(), torch.get_float32_matmul_precision()
    on_cpu = torch.get_default_device().type == "cpu"
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(mode=False))
        stack.enter_context(torch.autocast("cpu", enabled=False))
        if not on_cpu:
            stack.enter_context(torch.device("cpu"))
        stack.callback(torch.set_default_dtype, dtype)
        torch.set_default_dtype(torch.float32)
        stack.callback(torch.set_float32_matmul_precision, precision)
        torch.set_float32_matmul_precision("highest")
        yield


def _model_class(version: Path) -> Any:
    """Import a version's `model.py` under a name of its own; nothing is written beside it."""
    package = f"triton_regressors_entry_{hashlib.sha256(str(version.resolve()).encode()).hexdigest()[:16]}"
    for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
        del sys.modules[name]  # from an earlier entry at this path
    spec = ModuleSpec(package, None, is_package=True)
    spec.submodule_search_locations = [str(version.resolve())]
    with _importing():
        sys.modules[package] = importlib.util.module_from_spec(spec)
        importlib.invalidate_caches()
        return importlib.import_module(f"{package}.model").TritonPythonModel


@contextmanager
def _importing() -> Iterator[None]:
    """Provide the module that the backend gives a model, and keep caches out of the repository."""
    before, wrote = sys.modules.get(UTILS), sys.dont_write_bytecode
    sys.modules[UTILS], sys.dont_write_bytecode = utils(), True
    try:
        yield
    finally:
        sys.dont_write_bytecode = wrote
        if before is None:
            del sys.modules[UTILS]
        else:
            sys.modules[UTILS] = before
