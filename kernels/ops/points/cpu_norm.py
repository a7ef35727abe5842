"""Products with a triangular weight, which plain torch makes by solving with its inverse.

A library reads half of that for all rows at once, and needs no blocks. The weight of a Gaussian process is the inverse
of a Cholesky factor whose pivots came in order of size. Such factors are solved with to nearly every digit, however
near to singular their matrix is: what is lost, as in the product, is less than what solving with the factor of the
points in any other order loses. (Higham, The accuracy of solutions to triangular systems, 1989.)
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np
import torch

from ...cpu.blocked_weight import SIZES, LargeWeight, Source, filled_tiles
from ...cpu.tiles import Scratch, sizes_alike

LARGEST = 2**24
"""A weight of more numbers is not tried out."""


class TriangularWeight:
    """A square upper triangular weight, as its inverse, of which more columns than it has are zero."""

    def __init__(self, weight: np.ndarray, columns: int) -> None:
        lower = np.eye(columns)
        lower[: len(weight), : len(weight)] = weight.T
        identity = torch.eye(columns, dtype=torch.float64)
        inverse = torch.linalg.solve_triangular(torch.from_numpy(lower), identity, upper=False)
        self._tile, self._out = Scratch(), Scratch()
        self._inverse, self._sizes = inverse.contiguous(), _sizes_alike(columns)

    @staticmethod
    def suits(weight: np.ndarray, columns: int) -> bool:
        """Whether a weight is one that this processor solves with alike for any number of rows."""
        rows, targets = weight.shape
        if rows != targets or not LargeWeight.suits(weight) or columns**2 > LARGEST or not np.diag(weight).all():
            return False
        return bool(_sizes_alike(columns))

    def products(self, rows: int, source: Source) -> Iterator[tuple[int, torch.Tensor]]:
        """Yield the first row and the product of some rows at a time, float64 `[*, columns]`, to be changed at will."""
        columns = len(self._inverse)
        for start, count, tile in filled_tiles(rows, source, columns, self._sizes, self._tile):
            out = self._out.rows(len(tile), columns)
            _solve(self._inverse, tile, out)
            yield start, out[:count]


def _solve(lower: torch.Tensor, tile: torch.Tensor, out: torch.Tensor) -> None:
    torch.linalg.solve_triangular(lower, tile.T, upper=False, out=out.T)


@functools.lru_cache(maxsize=64)
def _sizes_alike(columns: int) -> tuple[int, ...]:
    """Return the sizes of tiles that have the same bits on this processor, none where the largest's rows have not."""
    generator = torch.Generator().manual_seed(1)
    lower = torch.randn(columns, columns, dtype=torch.float64, generator=generator).tril_().div_(columns)
    lower.diagonal().fill_(1.0)

    def multiply(tile: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        found = torch.empty(len(tile), columns, dtype=torch.float64)
        _solve(lower, tile, found)
        return found

    return sizes_alike(multiply, columns, columns, SIZES)
