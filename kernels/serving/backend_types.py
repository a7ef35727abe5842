"""What the process of a Python-backend model, the server's stub, gives it: the types of `triton_python_backend_utils`.

That module can be imported there alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np


class ServerTensor(Protocol):
    """A named tensor of a request or of a response."""

    def as_numpy(self) -> np.ndarray:
        """Return it as an array; strings are bytes in an object array."""

    def is_cpu(self) -> bool:
        """Return whether it lies in CPU memory."""

    def to_dlpack(self) -> Any:
        """Return it as a DLPack capsule."""


class TensorType(Protocol):
    """What makes tensors."""

    def from_dlpack(self, name: str, tensor: Any) -> ServerTensor:
        """Return a tensor over the memory of a DLPack capsule."""


class Trace(Protocol):
    """What the server's tracing knows of a request."""

    def get_context(self) -> str | None:
        """Return its context as JSON where the server traces by OpenTelemetry, such as {"traceparent": "00-..."}."""


class Request(Protocol):
    """One request of a batch."""

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
    """What makes errors."""

    INVALID_ARG: ErrorCode
    INTERNAL: ErrorCode
    CANCELLED: ErrorCode

    def __call__(self, message: str, code: ErrorCode) -> Error:
        """Return an error with the server's status."""


class Response(Protocol):
    """The answer to one request."""


class ResponseType(Protocol):
    """What makes responses."""

    def __call__(self, output_tensors: Sequence[ServerTensor], error: Error | None = None) -> Response:
        """Return a response: tensors, or none of them and an error."""


class Metric(Protocol):
    """One number of the server's metrics."""

    def increment(self, value: float) -> None:
        """Add to a counter."""

    def set(self, value: float) -> None:
        """Set a gauge."""


class MetricFamily(Protocol):
    """Numbers of one name, which their labels tell apart."""

    def Metric(self, *, labels: dict[str, str]) -> Metric:  # noqa: N802
        """Return the number with these labels, which no other process may have."""


class MetricFamilyType(Protocol):
    """What makes families of metrics."""

    COUNTER: MetricKind
    GAUGE: MetricKind

    def __call__(self, *, name: str, description: str, kind: MetricKind) -> MetricFamily:
        """Return the family of this name, which may be there already."""


class MetricKind(Protocol):
    """Whether a metric counts or is set."""


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

    def get_input_tensor_by_name(self, request: Request, name: str) -> ServerTensor:
        """Return an input of a request; the server has checked that it is there."""
