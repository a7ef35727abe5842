"""Launches that are repeated: Python decides once for each layout of tensors, and then only hands tensors over.

A check of arguments, a grid and the language's search take Python longer than many kernels run. All of them depend on
the tensors' layouts, not on their numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import torch
import triton
from triton.compiler import CompiledKernel

from gallery.descriptors import ALIGNMENT

Found = TypeVar("Found")
Grid = tuple[int, ...] | Callable[[dict[str, Any]], tuple[int, ...]]
MOST_LAYOUTS = 1024
"""The layouts for which a function's answers are kept."""


def by_layout(function: Callable[..., Found]) -> Callable[..., Found]:
    """Decorate a function whose answer depends on the layouts of its tensors: it is called once for each of them.

    A layout is all that decides about a launch: shape, strides, type, device, and whether 16 divides the address.
    Arguments that are no tensors count by value. The answer must hold no tensor, which would stay in memory.
    """
    known: dict[tuple[Any, ...], Found] = {}

    @wraps(function)
    def answer(*given: Any) -> Found:
        layouts = tuple([_layout(each) if isinstance(each, torch.Tensor) else each for each in given])
        found = known.get(layouts)
        if found is None:
            if len(known) >= MOST_LAYOUTS:
                known.clear()
            found = known[layouts] = function(*given)
        return found

    return answer


def _layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device, tensor.data_ptr() % ALIGNMENT == 0


class Launch:
    """A kernel's launch whose numbers never change, on tensors that may, all of the same layouts (`by_layout`).

    By itself the language looks the choice of tuning and the compiled kernel up by texts that it makes of all
    arguments, and looks for hooks of profilers. Here it does both once: in the first launch, and anew where the
    current device or the list of choices is another. In the interpreter every launch is the language's own.
    """

    def __init__(
        self,
        kernel: Any,
        grid: tuple[int, ...] | Callable[[dict[str, Any]], tuple[int, ...]],
        *numbers: Any,
        **options: Any,
    ) -> None:
        """Keep a kernel, its grid, the arguments behind the tensors, and options like `num_warps`."""
        self._kernel, self._grid, self._numbers, self._options = kernel, grid, numbers, options
        self._held: _Held | None = None

    def __call__(self, *tensors: Any) -> None:
        """Launch the kernel on tensors or tensor descriptors, its first arguments."""
        held = self._held
        if held is not None:
            active, configs = triton.runtime.driver.active, getattr(self._kernel, "configs", None)
            if held.configs is configs and held.device == active.get_current_device():
                if configs is not None:
                    self._kernel.best_config = held.config  # as `gallery.tuning.chosen` reports
                run, stream = held.compiled.run, active.get_current_stream(held.device)
                run(*held.grid, stream, held.compiled.function, held.compiled.packed_metadata, None, None, None,
                    *tensors, *held.numbers)  # fmt: skip
                return
        self._search(tensors)

    def _search(self, tensors: tuple[Any, ...]) -> None:
        kernel, arguments = self._kernel, (*tensors, *self._numbers)
        compiled = kernel[self._grid](*arguments, **self._options)
        config = getattr(kernel, "best_config", None)
        if not isinstance(compiled, CompiledKernel) or (config is not None and config.pre_hook is not None):
            return
        chosen = {} if config is None else config.kwargs
        values = [*arguments, *[chosen[name] for name in kernel.arg_names[len(arguments) :]]]
        grid = self._grid(dict(zip(kernel.arg_names, values, strict=True))) if callable(self._grid) else self._grid
        device = triton.runtime.driver.active.get_current_device()
        numbers = tuple(values[len(tensors) :])
        self._held = _Held(compiled, (*grid, 1, 1)[:3], numbers, config, getattr(kernel, "configs", None), device)


@dataclass(frozen=True)
class _Held:
    """A compiled kernel with its grid and the arguments behind the tensors, and what they were chosen for."""

    compiled: CompiledKernel
    grid: tuple[int, ...]
    numbers: tuple[Any, ...]
    config: triton.Config | None
    configs: list[triton.Config] | None
    device: int
