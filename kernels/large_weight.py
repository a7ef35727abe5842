"""Products with weights too large for a processor's cache, which plain torch makes block by block."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np
import torch

from .tiles import LARGEST_TRIAL, matmul, row_tiles, sizes_alike, tile_sizes

LARGE = 2**17
"""Weights of which a processor's cache does not hold so many beside what they are multiplied with."""

BLOCK_ROWS, BLOCK_COLUMNS = 192, 128

EIGHT = 8
"""Of rows of so many float64 numbers, each begins where a vector does."""


class LargeWeight:
    """A weight `[features, columns]` as blocks of columns, of which each has the features it needs.

    These are the first ones of an order, that of the first column for which a feature has a weight: of a triangular
    matrix, whatever the order of its rows, half is left out. Blocks are kept column by column, which a library
    multiplies without a copy of the rows.
    """

    def __init__(self, weight: np.ndarray) -> None:
        (features, self._columns), nonzero = weight.shape, weight != 0
        first = np.where(nonzero.any(axis=1), nonzero.argmax(axis=1), self._columns)
        order = np.argsort(first, kind="stable")
        self._order = None if (order == np.arange(features)).all() else torch.from_numpy(order)
        self._features = _eights(features)
        self._blocks = []
        for start in range(0, self._columns, BLOCK_COLUMNS):
            block = weight[order, start : start + BLOCK_COLUMNS]
            end = max(np.flatnonzero(block.any(axis=1)), default=0) + 1
            columns = np.zeros((_eights(block.shape[1]), _eights(end)))
            columns[: block.shape[1], :end] = block[:end].T
            self._blocks.append(torch.from_numpy(columns))

    @staticmethod
    def suits(weight: np.ndarray) -> bool:
        """Whether a weight is so large."""
        return weight.size >= LARGE and weight.shape[1] > 2 * BLOCK_COLUMNS

    def products(self, x: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
        """Yield the first row and the product of some rows of `x` `[rows, features]` at a time, to be changed at will.

        Each of them, float64 `[*, columns]`, lies where the one before lay. Its rows are whole eights of numbers apart.
        """
        direct, sizes = self._way
        block = out = torch.empty(0)
        for start, count, size in row_tiles(len(x), sizes):
            if len(block) < size:
                block = torch.zeros(size, self._features, dtype=torch.float64)
                out = torch.empty(size, _eights(self._columns), dtype=torch.float64)
            rows = x[start : start + count]
            block[:count, : x.shape[1]] = rows if self._order is None else rows[:, self._order]
            for number, columns in enumerate(self._blocks):
                first = number * BLOCK_COLUMNS
                tile, part = block[:size, : columns.shape[1]], out[:size, first : first + len(columns)]
                if direct:
                    torch.mm(tile, columns.T, out=part)
                else:
                    part.copy_(matmul(tile, columns.T))
            yield start, out[:count, : self._columns]

    @functools.cached_property
    def _way(self) -> tuple[bool, tuple[int, ...]]:
        """Return whether products can be left to the library as they are, and how many rows tiles may have."""
        sizes = tile_sizes(BLOCK_ROWS)
        shapes = {tuple(block.shape) for block in self._blocks}
        alike = [_sizes_alike(features, units, self._features) for units, features in shapes]
        if not all(alike):
            return False, sizes[:1]
        return True, tuple(size for size in sizes if all(size in found for found in alike))


@functools.lru_cache(maxsize=1024)
def _sizes_alike(features: int, columns: int, width: int) -> tuple[int, ...]:
    """Return the sizes of tiles, cut out of rows of that width, that have the same bits on this processor."""
    if features * columns > LARGEST_TRIAL:
        return ()

    def multiply(tile: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        block = torch.zeros(len(tile), width, dtype=torch.float64)
        block[:, :features] = tile
        return torch.mm(block[:, :features], weight.T.contiguous().T)

    return sizes_alike(multiply, features, columns, tile_sizes(BLOCK_ROWS))


def _eights(size: int) -> int:
    """Return the size rounded up to a multiple of eight."""
    return -(-size // EIGHT) * EIGHT
