"""The types of `triton_python_backend_utils`, which the server's stub, the process of a Python-backend model, provides.

Only that process can import the module.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np


class ServerTensor(Protocol):
    """A named tensor of a request or of a response."""

    def name(self) -> str:
        """Return its name."""

    def as_numpy(self) -> np.ndarray:
        """Return it as an array; strings are bytes in an object array."""

    def is_cpu(self) -> bool:
        """Return whether it lies in CPU memory."""

    def to_dlpack(self) -> Any:
        """Return it as a DLPack capsule."""


class TensorType(Protocol):
    """The class that makes tensors."""

    def from_dlpack(self, name: str, tensor: Any) -> ServerTensor:
        """Return a tensor over the memory of a DLPack capsule."""


class Trace(Protocol):
    """The server's trace of a request."""

    def get_context(self) -> str | None:
        """Return its context as JSON where the server traces by OpenTelemetry, such as {"traceparent": "00-..."}."""


class Request(Protocol):
    """One request of a batch."""

    def inputs(self) -> list[ServerTensor]:
        """Return its tensors, in any order; optional ones may be missing, and the server checks the others."""

    def requested_output_names(self) -> list[str]:
        """Return the outputs that the client wants."""

    def parameters(self) -> str:
        """Return the request's parameters as a JSON object."""

    def trace(self) -> Trace:
        """Return its trace."""

    def is_cancelled(self) -> bool:
        """Ask the server whether the client has cancelled it."""


class ErrorCode(Protocol):
    """A status of the server."""


class Error(Protocol):
    """An error that a response carries."""


class ErrorType(Protocol):
    """The class that makes errors."""

    INVALID_ARG: ErrorCode
    INTERNAL: ErrorCode
    CANCELLED: ErrorCode

    def __call__(self, message: str, code: ErrorCode) -> Error:
        """Return an error with the server's status."""


class Response(Protocol):
    """The answer to one request."""


class ResponseType(Protocol):
    """The class that makes responses."""

    def __call__(self, output_tensors: Sequence[ServerTensor], error: Error | None = None) -> Response:
        """Return a response: tensors, or none of them and an error."""


class Metric(Protocol):
    """One number of the server's metrics."""

    def increment(self, value: float) -> None:
        """Add to a counter."""

    def set(self, value: float) -> None:
        """Set a gauge."""


class MetricFamily(Protocol):
    """Numbers with one name and different labels."""

    def Metric(self, *, labels: dict[str, str]) -> Metric:  # noqa: N802
        """Return the number with these labels; no other process may use the same labels."""


class MetricFamilyType(Protocol):
    """The class that makes families of metrics."""

    COUNTER: MetricKind
    GAUGE: MetricKind

    def __call__(self, *, name: str, description: str, kind: MetricKind) -> MetricFamily:
        """Return the family of this name, which may exist already."""


class MetricKind(Protocol):
    """The kind of a metric: a counter or a gauge."""


class LoggerType(Protocol):
    """The server's log."""

    @staticmethod
    def log_warn(message: str) -> None:
        """Log a warning."""


class Utils(Protocol):
    """The module `triton_python_backend_utils`."""

    Tensor: TensorType
    TritonError: ErrorType
    InferenceResponse: ResponseType
    MetricFamily: MetricFamilyType
    Logger: LoggerType
