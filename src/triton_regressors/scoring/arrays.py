"""Conversion of rows and answers between the caller's library and the model: NumPy, torch, and any with DLPack.

DLPack is the protocol by which libraries hand over memory instead of copying it: `__dlpack_device__` gives a tensor's
device, and `__dlpack__(stream=...)` makes the named stream wait for the work that produces the tensor.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from triton_regressors.clients.client.tensors import InputTensor, check_shape
from triton_regressors.clients.errors import InvalidRequest
from triton_regressors.scoring.columns import check_tensors

if TYPE_CHECKING:
    import torch

EXACT = {
    "FP32": ("bool", "uint8", "int8", "int16", "float16", "bfloat16"),
    "FP64": ("bool", "uint8", "int8", "int16", "int32", "float16", "bfloat16", "float32"),
}
"""The torch types whose numbers an input's type holds exactly."""

DTYPES = {"FP32": "float32", "FP64": "float64"}


@dataclass(frozen=True)
class Given:
    """Rows as the model reads them, and the way back.

    `rows` are a torch tensor on a GPU, a mapping of names to `Given`, or else anything in CPU memory. `device` is the
    GPU that answers go to, None for the CPU. `give` converts torch's tensor of answers for the caller; None if the
    caller gets NumPy's array.
    """

    rows: Any
    device: torch.device | None = None
    give: Callable[[Any], Any] | None = None

    def answer(self, values: Any) -> Any:
        """Return answers, given as an array or a torch tensor on the GPU, on the rows' device and in their library."""
        if self.give is None:
            return values
        import torch

        tensor = torch.from_numpy(values) if isinstance(values, np.ndarray) else values
        return self.give(tensor if self.device is None else tensor.to(self.device))

    def matrix(self, name: str) -> torch.Tensor | None:
        """Return the rows if they are one tensor on a GPU, which a mapping may call `name`."""
        if isinstance(self.rows, Mapping):
            return self.rows[name].matrix(name) if list(self.rows) == [name] else None
        return None if self.device is None else self.rows

    def host(self) -> Any:
        """Return the rows in CPU memory."""
        if isinstance(self.rows, Mapping):
            return {name: each.host() for name, each in self.rows.items()}
        return self.rows if self.device is None else _array(self.rows)


def given(X: Any) -> Given:
    """Return the caller's rows as `Given`.

    Answers to a mapping follow its first tensor on a GPU, or else its first tensor that is not NumPy's.

    Raises:
        InvalidRequest: a tensor cannot be read, with its name.
    """
    if isinstance(X, Mapping):
        rows = {name: _given(values, str(name)) for name, values in X.items()}
        likes = sorted((each for each in rows.values() if each.give), key=lambda each: each.device is None)
        return Given(rows, likes[0].device, likes[0].give) if likes else Given(rows)
    return _given(X, "X")


def on_gpu(X: torch.Tensor, tensor: InputTensor, model: str) -> torch.Tensor | None:
    """Return rows on a GPU in the type of a model's input, or None if the CPU has to check them.

    A number beyond float32 becomes infinity, which no model takes. A number that is compared with categories is not
    rounded.

    Raises:
        InvalidRequest: they are not a matrix as wide as the input, or not numbers.
    """
    import torch

    if X.is_complex():
        kind = str(X.dtype).removeprefix("torch.")
        raise InvalidRequest(f"{tensor.name} has dtype {kind}; accepted: floats, integers and booleans.")
    check_shape(tuple(X.shape), tensor.name)
    check_tensors({tensor.name: X}, [tensor], model)
    dtype: torch.dtype = getattr(torch, DTYPES[tensor.datatype])
    if X.dtype == dtype:
        return X
    rows = X.to(dtype)
    if tensor.categories and str(X.dtype).removeprefix("torch.") not in EXACT[tensor.datatype]:
        before, after = X[:, list(tensor.categories)], rows[:, list(tensor.categories)]
        if not X.is_floating_point() or not bool(((after.to(X.dtype) == before) | before.isnan()).all()):
            return None
    return rows


def _given(X: Any, name: str) -> Given:
    library = sys.modules.get("torch")
    if library is not None and isinstance(X, library.Tensor):
        return _of_torch(X, name, lambda answer: answer)
    speaks = hasattr(X, "__dlpack__") and hasattr(X, "__dlpack_device__")
    if not speaks or isinstance(X, np.ndarray) or hasattr(X, "__arrow_c_array__"):
        return Given(X)
    from torch.utils.dlpack import from_dlpack

    try:
        tensor = from_dlpack(X)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        why = " ".join(str(error).split()).rstrip(".")
        raise InvalidRequest(f"{name}, {_kind(X)}, cannot be read by DLPack: {why}.") from None
    return _of_torch(tensor, name, _library(X))


def _of_torch(X: torch.Tensor, name: str, give: Callable[[Any], Any]) -> Given:
    import torch

    if X.device.type not in ("cpu", "cuda"):
        raise InvalidRequest(f"{name} lies on {X.device}; rows are taken from CPU memory and CUDA GPUs.")
    if X.layout != torch.strided:
        raise InvalidRequest(f"{name} is sparse ({X.layout}); use .to_dense().")
    if X.requires_grad and torch.is_grad_enabled():
        raise InvalidRequest(f"{name} requires a gradient, which answers do not have; give {name}.detach().")
    X = X.detach().resolve_neg()
    if X.is_cuda:
        return Given(X, X.device, give)
    return Given(_array(X), give=give)


def _array(X: torch.Tensor) -> np.ndarray:
    """Return a tensor as an array, over the same memory if it is on the CPU."""
    import torch

    X = X.cpu().resolve_conj()
    return np.asarray((X.float() if X.dtype == torch.bfloat16 else X).numpy())


def _library(X: Any) -> Callable[[Any], Any]:
    """Return the function with which a tensor's library takes one from torch; without one, torch's tensor is kept."""
    space = X.__array_namespace__() if hasattr(X, "__array_namespace__") else None
    space = space or sys.modules.get(type(X).__module__.partition(".")[0])
    take: Callable[[Any], Any] = getattr(space, "from_dlpack", lambda answer: answer)
    return take


def _kind(X: Any) -> str:
    return f"{type(X).__module__}.{type(X).__qualname__}"
