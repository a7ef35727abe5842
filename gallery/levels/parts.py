"""The five levels, and each level's parts of models: the same functions, computed in the level's way."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from gallery.levels import attention, extension, layer_norm, linear, messages, polynomial

EAGER, SCRIPT, COMPILE, TRITON, CUDA = LEVELS = (
    "torch eager",
    "TorchScript",
    "torch.compile",
    "Triton language",
    "CUDA C++",
)


@dataclass(frozen=True)
class Parts:
    """The parts of models; each is documented in the file of its name."""

    layer_norm: Callable[..., torch.Tensor]
    linear: Callable[..., torch.Tensor]
    attention: Callable[..., torch.Tensor]
    messages: Callable[..., torch.Tensor]
    polynomial: Callable[..., torch.Tensor]


_OPERATIONS = (layer_norm, linear, attention, messages, polynomial)
IN_TORCH = Parts(*(operation.reference for operation in _OPERATIONS))
IN_TRITON_LANGUAGE = Parts(*(operation.in_triton_language for operation in _OPERATIONS))
IN_CUDA = Parts(*(operation.in_cuda for operation in _OPERATIONS))


def parts_of(level: str) -> Parts:
    """Return a level's parts: three levels share torch's parts, and differ in the way they are run."""
    return {TRITON: IN_TRITON_LANGUAGE, CUDA: IN_CUDA}.get(level, IN_TORCH)


def raised(made: Callable[..., Any], level: str) -> Callable[..., Any]:
    """Return a function or module built from `parts_of(level)` as the level runs it."""
    if level == SCRIPT:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # torch advises torch.compile, the next level
            return torch.jit.script(made)  # type: ignore[no-any-return]
    return torch.compile(made, dynamic=False) if level == COMPILE else made


def missing(level: str) -> str:
    """Return why a level does not run here, or nothing."""
    return extension.missing() if level == CUDA else ""
