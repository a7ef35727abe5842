"""A stand-in for the Triton server's Python backend, for a model that runs without the server.

An entry's model imports the module `triton_python_backend_utils` and takes the backend's requests: this file provides
both, as far as an entry needs them (see `kernels/serving/backend_types.py`).
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch.utils.dlpack import from_dlpack

from triton_regressors.kernels.engine.staging import unlocked

UTILS = "triton_python_backend_utils"


@dataclass(frozen=True)
class Tensor:
    """A request's tensor (an array, or torch's on a GPU) or an answer's (torch's over the model's own memory)."""

    label: str
    values: Any

    def name(self) -> str:
        """Return its name."""
        return self.label

    def as_numpy(self) -> Any:
        """Return the array."""
        return self.values if isinstance(self.values, np.ndarray) else self.values.numpy()

    def is_cpu(self) -> bool:
        """Return whether the tensor is in CPU memory."""
        return isinstance(self.values, np.ndarray) or not self.values.is_cuda

    def to_dlpack(self) -> Any:
        """Return a capsule over the tensor's memory; numpy makes none over a read-only array."""
        return (unlocked(self.values) if isinstance(self.values, np.ndarray) else self.values).__dlpack__()

    @classmethod
    def from_dlpack(cls, name: str, capsule: Any) -> Tensor:
        """Return the tensor over a capsule's memory."""
        return cls(name, from_dlpack(capsule))


@dataclass(frozen=True)
class Request:
    """The rows of a request and the outputs that it asks for."""

    tensors: Mapping[str, Any]
    outputs: Sequence[str]

    def inputs(self) -> list[Tensor]:
        """Return its tensors."""
        return list(map(Tensor, self.tensors, self.tensors.values()))

    def requested_output_names(self) -> list[str]:
        """Return the outputs that it asks for."""
        return list(self.outputs)

    def parameters(self) -> str:
        """Return the parameters as JSON; there are none."""
        return "{}"

    def is_cancelled(self) -> bool:
        """Return whether the request was cancelled: never."""
        return False


@dataclass(frozen=True)
class Error:
    """The reason why a request was not answered."""

    message: str
    code: str

    INVALID_ARG = "INVALID_ARG"
    INTERNAL = "INTERNAL"
    CANCELLED = "CANCELLED"


@dataclass(frozen=True)
class Response:
    """The answer to a request."""

    output_tensors: Sequence[Tensor] = ()
    error: Error | None = None


def utils(**more: Any) -> types.ModuleType:
    """Return the module that an entry imports, with `more` attributes added or replaced."""
    module = types.ModuleType(UTILS)
    vars(module).update(
        Tensor=Tensor,
        TritonError=Error,
        InferenceResponse=Response,
    )
    vars(module).update(more)
    return module
