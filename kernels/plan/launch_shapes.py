"""Launch shapes: how much of its work a program of a kernel does at a time, by how many warps, in how many stages.

An operation names a default for every model, which any GPU can launch. `launch_shapes.json` holds what a GPU measured
to be faster: by its compute capability, the operation and the model's shape class. `python -m benchmarks.launch_shapes`
measures and writes the part of the GPU that it runs on. On other GPUs the defaults hold; nothing is measured while
serving.

No shape of the table changes a bit of an answer. What fixes the order of a sum of floats follows from the model alone
and is not in the table: there stand the rows of a program, its warps and its stages, and of these only such with which
the GPU gave the default's bits. So a shape may follow the number of rows too, where an operation asks for it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

TABLE = Path(__file__).with_suffix(".json")

Shape = Mapping[str, Any]
"""What a kernel is launched with beside its arguments: block sizes and the compiler's options, by name."""


class LaunchShapes:
    """An operation's launch shapes, by the GPU and the model's shape class.

    `of(device, *shape_class)` returns a shape. It looks once for each device and class: a launch costs a look into a
    cache, and what a batch is launched with was looked up when its entry was loaded.
    """

    def __init__(self, default: Callable[..., Shape]) -> None:
        self.operation = default.__name__.removesuffix("_shape")
        self.default = default
        self.of = functools.cache(self._find)
        self._trial: Shape = {}

    def _find(self, device: torch.device, *shape_class: int | str) -> Shape:
        found = table().get(capability(device), {}).get(self.operation, {}).get(key(*shape_class), {})
        return {**self.default(*shape_class), **found, **self._trial}

    @contextmanager
    def trying(self, shape: Shape) -> Iterator[None]:
        """Launch within the block as `shape` says, whatever the table does, for whoever measures."""
        self._trial = shape
        self.of.cache_clear()
        try:
            yield
        finally:
            self._trial = {}
            self.of.cache_clear()


def launch_shapes(default: Callable[..., Shape]) -> LaunchShapes:
    """Return the launch shapes of an operation whose defaults `default(*shape_class)` gives, for use as a decorator.

    The operation's name is the function's, without `_shape` at the end.
    """
    return LaunchShapes(default)


def key(*shape_class: int | str) -> str:
    """Return the name of a shape class in the table."""
    return " ".join(map(str, shape_class))


def capability(device: torch.device) -> str:
    """Return a GPU's compute capability, such as "9.0"; nothing for a CPU."""
    return "{}.{}".format(*torch.cuda.get_device_capability(device)) if device.type == "cuda" else ""


@functools.cache
def table() -> dict[str, dict[str, dict[str, dict[str, Any]]]]:
    """Return the shapes that were measured, by compute capability, operation and shape class."""
    found: dict[str, dict[str, dict[str, dict[str, Any]]]] = json.loads(TABLE.read_bytes())
    return found
