"""An entry's own model in this process: what the Triton server's Python backend would run, and nothing else.

The model is the entry's `model.py` with the kernels that lie beside it, so that every rule, every message and every bit
is what a server gives. What the backend's process gives a model comes from `stand_in.py`.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from google.protobuf import json_format

from triton_regressors.clients.errors import InferenceError, InvalidRequest, ServerFault, plain_reason
from triton_regressors.clients.tensors import Tensors
from triton_regressors.kernels.entry import Entry
from triton_regressors.kernels.inputs import ONLY_CPU_INPUTS
from triton_regressors.kernels.staging import unlocked
from triton_regressors.kernels.tiles import one_thread
from triton_regressors.scoring.columns import rows_together
from triton_regressors.scoring.errors import ScoringError
from triton_regressors.scoring.found import read_config
from triton_regressors.scoring.stand_in import UTILS, Error, Request, Response, utils

LOADING = threading.Lock()

CPU_ROWS, CPU_NUMBERS = 2**14, 2**20
"""Fewer rows of a light model cost Python more time than the CPU, and more numbers a core does not keep near."""

MANY_BYTES = 2**17
"""From so many on rows are brought to a GPU before the model is asked; fewer it stages itself."""


class LocalModel:
    """A version of an entry on a device of this process, for one thread at a time.

    `engine` is what computes, `where` the device in words, `max_rows` how many rows a batch may have, and
    `reads_gpu` whether the model takes rows that lie in a GPU's memory.
    """

    def __init__(self, entry: Entry, on_gpu: bool, number: int) -> None:
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
            with LOADING, one_thread(), np.errstate(all=None):  # loading sets both for the whole process
                self._model: Any = _model_class(entry.version_directory)()
                self._model.initialize(arguments)
        except Exception as error:  # whatever stands in the way: the entry's own classes of errors among them
            raise ScoringError(f"{self._name} does not load: {plain_reason(str(error))}.") from error
        self.engine: str = self._model.runner.engine
        self._device = device = self._model.runner.device
        self.reads_gpu: bool = device.type == "cuda" and self._model.inputs.plain_matrix
        self.where = torch.cuda.get_device_name(device) if device.type == "cuda" else "the CPU"

    def execute(
        self, requests: Sequence[Tensors], outputs: Sequence[str]
    ) -> list[dict[str, np.ndarray] | InferenceError]:
        """Answer requests as one batch: output name → array [rows, width] for each, or why it is refused."""
        with one_thread(), np.errstate(over="ignore", invalid="ignore"):
            sent: Sequence[Mapping[str, Any]] = requests
            if self.reads_gpu and sum(X.nbytes for tensors in requests for X in tensors.values()) >= MANY_BYTES:
                sent = [{name: self._brought(X) for name, X in tensors.items()} for tensors in requests]
            responses = self._model.execute([Request(tensors, outputs) for tensors in sent])
            return [self._answer(response) for response in responses]

    def _brought(self, X: np.ndarray) -> torch.Tensor:
        """Return a matrix in the memory of the GPU, row by row."""
        by_columns = X.T.flags.c_contiguous and not X.flags.c_contiguous
        piece = torch.from_numpy(unlocked(np.ascontiguousarray(X.T if by_columns else X)))
        there = piece.to(self._device, non_blocking=True)
        rows = there.T.contiguous() if by_columns else there
        torch.cuda.current_stream(self._device).synchronize()  # the model reads them on streams of its own
        return rows

    def _answer(self, response: Response) -> dict[str, np.ndarray] | InferenceError:
        if response.error is None:
            return {tensor.name: tensor.as_numpy().copy() for tensor in response.output_tensors}
        kind = InvalidRequest if response.error.code == Error.INVALID_ARG else ServerFault
        return kind(f"{plain_reason(response.error.message)}.")


def rows_at_once(config: Any, *, on_gpu: bool) -> int:
    """Return how many rows are computed at once: as many as on a server, or more, on a GPU all that are converted.

    A server's limit keeps requests from waiting for each other. No answer depends on it.
    """
    asked: int = config.max_batch_size
    width = sum(int(tensor.dims[0]) for tensor in config.input)
    return max(asked, rows_together(width) if on_gpu else min(CPU_ROWS, CPU_NUMBERS // width))


@functools.lru_cache(maxsize=4)
def load(entry: Entry, on_gpu: bool, number: int, digest: str) -> LocalModel:
    """Return the model, which this process loads once; `digest` tells an entry from one that took its place."""
    return LocalModel(entry, on_gpu, number)


def _model_class(version: Path) -> Any:
    """Import a version's `model.py` under a name of its own; nothing is written beside it."""
    package = f"triton_regressors_entry_{hashlib.sha256(str(version.resolve()).encode()).hexdigest()[:16]}"
    for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
        del sys.modules[name]  # of an entry that lay there before
    spec = ModuleSpec(package, None, is_package=True)
    spec.submodule_search_locations = [str(version.resolve())]
    with _importing():
        sys.modules[package] = importlib.util.module_from_spec(spec)
        importlib.invalidate_caches()
        return importlib.import_module(f"{package}.model").TritonPythonModel


@contextmanager
def _importing() -> Iterator[None]:
    """Have the module there that the backend gives a model, and no caches written into the repository."""
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
