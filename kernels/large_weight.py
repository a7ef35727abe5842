"""Products with weights too large for a processor's cache, which plain torch makes block by block."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from .tiles import product

LARGE = 2**17
"""Weights of which a processor's cache does not hold so many beside what they are multiplied with."""

BLOCK_ROWS, BLOCK_COLUMNS = 192, 256


class LargeWeight:
    """A weight `[features, columns]` as blocks of columns, of which each has the features it needs.

    These are the first ones of an order, that of the first column for which a feature has a weight: of a triangular
    matrix, whatever the order of its rows, half is left out.
    """

    def __init__(self, weight: np.ndarray) -> None:
        nonzero = weight != 0
        first = np.where(nonzero.any(axis=1), nonzero.argmax(axis=1), weight.shape[1])
        order = np.argsort(first, kind="stable")
        self._order, self._columns = torch.from_numpy(order), weight.shape[1]
        self._blocks = []
        for start in range(0, weight.shape[1], BLOCK_COLUMNS):
            block = weight[order, start : start + BLOCK_COLUMNS]
            end = max(np.flatnonzero(block.any(axis=1)), default=0) + 1
            self._blocks.append(torch.from_numpy(np.array(block[:end], order="C")))

    @staticmethod
    def suits(weight: np.ndarray) -> bool:
        """Whether a weight is so large."""
        return weight.size >= LARGE and weight.shape[1] > BLOCK_COLUMNS

    def product(self, x: torch.Tensor, finish: Callable[[torch.Tensor], object]) -> torch.Tensor:
        """Return the product with `x` `[rows, features]`, float64; `finish` changes some rows at a time in place."""
        answer = torch.empty(len(x), self._columns, dtype=torch.float64)
        for start in range(0, len(x), BLOCK_ROWS):
            part = answer[start : start + BLOCK_ROWS]
            ordered = x[start : start + BLOCK_ROWS].gather(1, self._order.expand(len(part), -1))
            for out, block in zip(torch.split(part, BLOCK_COLUMNS, 1), self._blocks, strict=True):
                out.copy_(product(ordered[:, : len(block)], block))
            finish(part)
        return answer
