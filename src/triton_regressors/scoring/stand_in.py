"""What the Triton server's Python backend gives a model, where a model runs without it.

An entry's model imports the module `triton_python_backend_utils` and takes requests as the backend makes them: this is
both, as far as an entry asks for it (see `kernels/serving/backend_types.py`).
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
    """A tensor of a request, an array or torch's on a GPU, or of an answer, torch's over the model's own memory."""

    name: str
    values: Any

    def as_numpy(self) -> Any:
        """Return the array."""
        return self.values if isinstance(self.values, np.ndarray) else self.values.numpy()

    def is_cpu(self) -> bool:
        """Whether it lies in the memory of the CPU."""
        return isinstance(self.values, np.ndarray) or not self.values.is_cuda

    def to_dlpack(self) -> Any:
        """Return a capsule over its memory; numpy makes none over an array that must not be written to."""
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

    def requested_output_names(self) -> list[str]:
        """Return the outputs that it asks for."""
        return list(self.outputs)

    def parameters(self) -> str:
        """Return its parameters, of which it has none, as JSON."""
        return "{}"

    def is_cancelled(self) -> bool:
        """Whether it was cancelled, which it never is."""
        return False


@dataclass(frozen=True)
class Error:
    """Why a request was not answered."""

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
    """Return the module that an entry imports, with `more` attributes, or others."""
    module = types.ModuleType(UTILS)
    vars(module).update(
        Tensor=Tensor,
        TritonError=Error,
        InferenceResponse=Response,
        get_input_tensor_by_name=lambda request, name: Tensor(name, request.tensors[name]),
    )
    vars(module).update(more)
    return module
