"""Products with weights too large for a processor's cache, which plain torch makes block by block."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import torch

from .tiles import LARGEST_TRIAL, Scratch, matmul, row_tiles, sizes_alike, tile_sizes

LARGE = 2**17
"""The number of weights that a processor's cache does not hold beside the numbers to multiply them with."""

BLOCK_ROWS, BLOCK_COLUMNS = 192, 128

SIZES = tuple(sorted({*tile_sizes(BLOCK_ROWS), 128, 64, 32, 16, 8}, reverse=True))
"""The row counts of tiles; a processor uses those sizes that give the bits of the largest tile."""

Source = Callable[[int, int], Iterable[tuple[int, torch.Tensor]]]
"""Given a first row and a count, yields these rows in pieces `[*, features]`, each with its place among the rows."""

EIGHT = 8
"""Rows whose length is a multiple of this many float64 numbers each begin at a vector boundary."""


class LargeWeight:
    """A weight `[features, columns]` as blocks of columns, each with the features that it needs.

    Features are ordered by the first column in which they have a weight, and a block holds the first features of this
    order. Half of a triangular matrix is left out this way, whatever the order of its rows. Blocks are stored column
    by column, so that a library multiplies them without a copy of the rows.
    """

    def __init__(self, weight: np.ndarray) -> None:
        (features, self._columns), nonzero = weight.shape, weight != 0
        first = np.where(nonzero.any(axis=1), nonzero.argmax(axis=1), self._columns)
        order = np.argsort(first, kind="stable")
        self._order = None if (order == np.arange(features)).all() else torch.from_numpy(order)
        self._features, self._tile, self._out = _eights(features), Scratch(), Scratch()
        self._blocks = []
        for start in range(0, self._columns, BLOCK_COLUMNS):
            block = weight[order, start : start + BLOCK_COLUMNS]
            end = max(np.flatnonzero(block.any(axis=1)), default=0) + 1
            columns = np.zeros((_eights(block.shape[1]), _eights(end)))
            columns[: block.shape[1], :end] = block[:end].T
            self._blocks.append(torch.from_numpy(columns))

    @staticmethod
    def suits(weight: np.ndarray) -> bool:
        """Return whether a weight is large enough for blocks."""
        return weight.size >= LARGE and weight.shape[1] > 2 * BLOCK_COLUMNS

    def products(self, rows: int, source: Source) -> Iterator[tuple[int, torch.Tensor]]:
        """Yield the first row and the product of some rows at a time; the caller may change the product.

        Each product, float64 `[*, columns]`, reuses the memory of the previous one. The distance between its rows is a
        multiple of eight numbers.
        """
        direct, sizes = self._way
        filled = filled_tiles(rows, self._ordered(source), self._features, sizes, self._tile)
        for start, count, tile in filled:
            out = self._out.rows(len(tile), _eights(self._columns))
            for number, columns in enumerate(self._blocks):
                first = number * BLOCK_COLUMNS
                part = out[:, first : first + len(columns)]
                if direct:
                    torch.mm(tile[:, : columns.shape[1]], columns.T, out=part)
                else:
                    part.copy_(matmul(tile[:, : columns.shape[1]], columns.T))
            yield start, out[:count, : self._columns]

    def _ordered(self, source: Source) -> Source:
        """Return the source of rows with their features in order."""
        order = self._order
        return source if order is None else lambda *rows: ((first, piece[:, order]) for first, piece in source(*rows))

    @functools.cached_property
    def _way(self) -> tuple[bool, tuple[int, ...]]:
        """Return whether products can be left to the library as they are, and how many rows tiles may have."""
        shapes = {tuple(block.shape) for block in self._blocks}
        alike = [_sizes_alike(features, units, self._features) for units, features in shapes]
        if not all(alike):
            return False, SIZES[:1]
        return True, tuple(size for size in SIZES if all(size in found for found in alike))


def rows_of(x: torch.Tensor) -> Source:
    """Return the source of a matrix's rows."""
    return lambda start, count: [(0, x[start : start + count])]


def filled_tiles(
    rows: int, source: Source, width: int, sizes: Sequence[int], room: Scratch
) -> Iterator[tuple[int, int, torch.Tensor]]:
    """Yield the first row, the number of rows and a tile of one of the sizes, float64 `[size, width]`, that holds them.

    The part of a tile that the source does not fill is zero or holds rows of an earlier tile.
    """
    for start, count, size in row_tiles(rows, sizes):
        block = room.rows(size, width)
        for first, piece in source(start, count):
            block[first : first + len(piece), : piece.shape[1]] = piece
        yield start, count, block


@functools.lru_cache(maxsize=1024)
def _sizes_alike(features: int, columns: int, width: int) -> tuple[int, ...]:
    """Return the sizes of tiles, cut out of rows of that width, that have the same bits on this processor."""
    if features * columns > LARGEST_TRIAL:
        return ()

    def multiply(tile: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        block = torch.zeros(len(tile), width, dtype=torch.float64)
        block[:, :features] = tile
        return torch.mm(block[:, :features], weight.T.contiguous().T)

    return sizes_alike(multiply, features, columns, SIZES)


def _eights(size: int) -> int:
    """Return the size rounded up to a multiple of eight."""
    return -(-size // EIGHT) * EIGHT
