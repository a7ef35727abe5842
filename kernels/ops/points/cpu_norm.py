"""Products with a triangular weight, which plain torch computes by solving with the inverse of the weight.

A library's solver reads half of the matrix for all rows at once, and needs no blocks. The weight of a Gaussian process
is the inverse of a Cholesky factor whose pivots came in order of size. Solutions with such factors are exact to nearly
every digit, however near to singular their matrix is: the loss, as in the product, is less than that of solving with
the factor of the points in any other order. (Higham, The accuracy of solutions to triangular systems, 1989.)
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np
import torch

from ...cpu.blocked_weight import SIZES, LargeWeight, Source, filled_tiles
from ...cpu.tiles import Scratch, sizes_alike

LARGEST = 2**24
"""The most numbers of a weight that is tried out."""


class TriangularWeight:
    """A square upper triangular weight, stored as its inverse; products are zero in columns beyond its own."""

    def __init__(self, weight: np.ndarray, columns: int) -> None:
        lower = np.eye(columns)
        lower[: len(weight), : len(weight)] = weight.T
        identity = torch.eye(columns, dtype=torch.float64)
        inverse = torch.linalg.solve_triangular(torch.from_numpy(lower), identity, upper=False)
        self._tile, self._out = Scratch(), Scratch()
        self._inverse, self._sizes = inverse.contiguous(), _sizes_alike(columns)

    @staticmethod
    def suits(weight: np.ndarray, columns: int) -> bool:
        """Return whether this processor solves with a weight alike for any number of rows."""
        rows, targets = weight.shape
        if rows != targets or not LargeWeight.suits(weight) or columns**2 > LARGEST or not np.diag(weight).all():
            return False
        return bool(_sizes_alike(columns))

    def products(self, rows: int, source: Source) -> Iterator[tuple[int, torch.Tensor]]:
        """Yield the first row and the product of some rows at a time, float64 `[*, columns]`; callers may change it."""
        columns = len(self._inverse)
        for start, count, tile in filled_tiles(rows, source, columns, self._sizes, self._tile):
            out = self._out.rows(len(tile), columns)
            _solve(self._inverse, tile, out)
            yield start, out[:count]


def _solve(lower: torch.Tensor, tile: torch.Tensor, out: torch.Tensor) -> None:
    torch.linalg.solve_triangular(lower, tile.T, upper=False, out=out.T)


@functools.lru_cache(maxsize=64)
def _sizes_alike(columns: int) -> tuple[int, ...]:
    """Return the tile sizes that give the same bits on this processor; none if rows of the largest tile differ."""
    generator = torch.Generator().manual_seed(1)
    lower = torch.randn(columns, columns, dtype=torch.float64, generator=generator).tril_().div_(columns)
    lower.diagonal().fill_(1.0)

    def multiply(tile: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        found = torch.empty(len(tile), columns, dtype=torch.float64)
        _solve(lower, tile, found)
        return found

    return sizes_alike(multiply, columns, columns, SIZES)
