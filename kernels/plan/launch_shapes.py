"""Launch shapes: the block sizes, warps and pipeline stages of a kernel's programs.

An operation names a default for every model, which any GPU can launch. `launch_shapes.json` holds shapes that were
measured to be faster, by compute capability, operation and the model's shape class. `python -m
benchmarks.gpu.launch_shapes` measures and writes the part of the GPU that it runs on, which all GPUs of its compute
capability use. On other GPUs the defaults hold; nothing is measured while serving.

No shape of the table changes a bit of an answer. The values that fix the order of a sum of floats follow from the model
alone and are not in the table. The table holds the rows of a program, its warps and its stages, and only values with
which the GPU gave the default's bits. A shape may therefore depend on the number of rows too, if an operation asks for
it.
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
"""The launch options of a kernel beside its arguments: block sizes and the compiler's options, by name."""


class LaunchShapes:
    """An operation's launch shapes, by the GPU and the model's shape class.

    `of(device, *shape_class)` returns a shape. It searches once for each device and class; a later launch costs one
    cache look-up. The shapes of a batch were looked up when its entry was loaded.
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
        """Launch with `shape` within the block, whatever the table says; measurements use this."""
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
