"""Operators of torch whose function is called directly where nothing needs the operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.library import CustomOpDef, custom_op


@dataclass(frozen=True)
class Operator:
    """A function of tensors, and the operator of torch that it is registered as.

    Gradients and torch.compile need the operator. Any other call skips torch's dispatcher, which takes 16 to 35 µs:
    as long as many kernels.
    """

    function: Callable[..., torch.Tensor]
    registered: CustomOpDef

    def __call__(self, *given: Any, **named: Any) -> torch.Tensor:
        """Return what the function returns."""
        needed = torch.is_grad_enabled() or torch.compiler.is_compiling()
        found: torch.Tensor = (self.registered if needed else self.function)(*given, **named)
        return found

    def register_fake(self, function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        """Register what returns a tensor of the answer's shape and type without its numbers."""
        return self.registered.register_fake(function)


def operator(name: str) -> Callable[[Callable[..., torch.Tensor]], Operator]:
    """Decorate a function of tensors that changes none of them: it becomes an `Operator` of this name."""
    return lambda function: Operator(function, custom_op(name, mutates_args=())(function))
