"""Affine maps one after the other in plain torch, tile after tile: a neural network on a CPU.

The rows of a tile lie along the contiguous dimension, in which a matrix library's blocks are whole. The outputs of a
layer stay in the processor's cache for the next one.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

import numpy as np
import torch

from ...cpu.tiles import LARGEST_TRIAL, apply, row_tiles, sizes_alike
from ...numerics.functions import FUNCTIONS, IN_PLACE

SIZES = (384, 192, 144, 96, 72, 48, 36, 24, 12)
"""The possible numbers of rows of a tile."""


class PlainLayers:
    """Affine maps, each with a function of its elements: weights `[features, units]` and intercepts `[units]`."""

    def __init__(self, layers: Iterable[tuple[np.ndarray, np.ndarray]], functions: Iterable[str]) -> None:
        self._layers = [
            (torch.from_numpy(np.array(weight.T, order="C")), torch.from_numpy(np.array(intercept[:, None])), function)
            for (weight, intercept), function in zip(layers, functions, strict=True)
        ]

    def outputs(self, x: torch.Tensor) -> torch.Tensor:
        """Return the last layer of rows `[rows, features]`, float64 `[rows, units]`."""
        rows, features = x.shape
        answer = torch.empty(rows, len(self._layers[-1][0]), dtype=torch.float64)
        for start, count, size in row_tiles(rows, self._sizes):
            h = (torch.empty if count == size else torch.zeros)(features, size, dtype=torch.float64)
            h[:, :count] = x[start : start + count].T
            for weight, intercept, function in self._layers:
                h = torch.mm(weight, h).add_(intercept)
                if function == "relu":
                    h.relu_()
                elif function != "identity":
                    apply(IN_PLACE.get(function, FUNCTIONS[function]), h)
            answer[start : start + count] = h[:, :count].T
        return answer

    @functools.cached_property
    def _sizes(self) -> tuple[int, ...]:
        """Return the possible numbers of rows of a tile."""
        alike = [_sizes_alike(*weight.T.shape) for weight, _, _ in self._layers]
        return tuple(size for size in SIZES if all(size in found for found in alike)) or SIZES[:1]


@functools.lru_cache(maxsize=1024)
def _sizes_alike(features: int, units: int) -> tuple[int, ...]:
    """Return the tile sizes that give the same bits on this processor."""
    if features * units > LARGEST_TRIAL:
        return SIZES[:1]

    def multiply(tile: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.mm(weight.T.contiguous(), tile.T.contiguous()).T

    return sizes_alike(multiply, features, units, SIZES)
