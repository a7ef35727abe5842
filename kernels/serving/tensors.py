"""A request's tensors as arrays, and answers as the Triton server's tensors, without copying either.

Tensors go in and out as DLPack capsules, because `as_numpy` and `Tensor(name, array)` are wrong on some servers with
numpy 2. numpy takes a capsule in faster than torch. torch makes the outgoing capsules: the server marks a used capsule
by a name of its own, and numpy then raises an error when it releases the capsule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import triton_python_backend_utils
from torch.utils.dlpack import from_dlpack, to_dlpack  # type: ignore[attr-defined]

if TYPE_CHECKING:
    from ..engine.gather import Part
    from .backend_types import Request, ServerTensor, Utils

pb_utils: Utils = triton_python_backend_utils

NUMBERS = "X"


def tensors_in(request: Request) -> dict[str, ServerTensor]:
    """Return a request's tensors by their names; one call for all is faster than one for each name."""
    return {tensor.name(): tensor for tensor in request.inputs()}


def numbers_in(tensor: ServerTensor) -> np.ndarray:
    """Return a tensor of numbers, read-only."""
    numbers: np.ndarray = np.from_dlpack(_Capsule(tensor.to_dlpack()))
    return numbers


def numbers_in_place(tensor: ServerTensor) -> Part:
    """Return a tensor of numbers, as a torch tensor if the server has it in a GPU's memory."""
    if tensor.is_cpu():
        return numbers_in(tensor)
    numbers: torch.Tensor = from_dlpack(tensor.to_dlpack())
    return numbers


class _Capsule:
    """An object that gives numpy a DLPack capsule in CPU memory."""

    __slots__ = ("_capsule",)

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None
    ) -> Any:
        return self._capsule  # a dictionary of the arguments would take longer

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def strings_in(tensor: ServerTensor) -> np.ndarray:
    """Return a tensor of strings, bytes in an object array `[rows, columns]`."""
    return tensor.as_numpy()


def check_strings() -> None:
    """Raise `ValueError` if strings cannot be read: with numpy 2, servers made for numpy 1 crash."""
    probe = torch.arange(2, dtype=torch.uint8)
    if pb_utils.Tensor.from_dlpack("probe", to_dlpack(probe)).as_numpy().tolist() != probe.tolist():
        raise ValueError(
            f"This Triton server's Python backend cannot read strings with numpy {np.__version__}: give its models "
            "numpy below 2, as `triton-regressors serve` does where the repository holds such an entry when it starts."
        )


def tensor_out(name: str, values: torch.Tensor) -> ServerTensor:
    """Return the server's tensor for rows of an output."""
    return pb_utils.Tensor.from_dlpack(name, to_dlpack(values))
