"""Checks the numbers of a request.

A request may hold no infinity, NaN only in the columns whose NaN the model answers, and no unknown category in the
columns where scikit-learn refuses it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from ..format.inputs import UNKNOWN

THREADED_DOT = 2**13
"""Below this many numbers use `dot`; OpenBLAS computes `dot` in threads from 10,000 numbers on."""


class Allowed:
    """Looks for numbers that a model with `n_features` columns cannot take.

    The columns `nan_columns` may hold NaN, and `closed_columns` may not hold `UNKNOWN`.
    """

    def __init__(self, n_features: int, nan_columns: Sequence[int], closed_columns: Sequence[int] = ()) -> None:
        self.nan_columns = list(nan_columns)
        self._closed = list(closed_columns)
        self._others = np.setdiff1d(np.arange(n_features), nan_columns)
        self._all_finite = not self._closed and len(self._others) == n_features
        self._n_features = n_features

    def holds(self, numbers: np.ndarray) -> bool:
        """Return whether all of `[rows * n_features]`, one row after the other, are allowed."""
        return self._holds(numbers, _finite(numbers))

    def _holds(self, numbers: np.ndarray, finite: bool) -> bool:
        if finite and not self._closed:
            return True
        if self._all_finite:
            return False
        rows = numbers.reshape(-1, self._n_features)
        if any((rows[:, column] == UNKNOWN).any() for column in self._closed):
            return False
        return finite or not (np.isinf(numbers).any() or np.isnan(rows[:, self._others]).any())

    def first_wrong(self, rows: np.ndarray) -> tuple[int, int] | None:
        """Return the row and column of the first number that is not allowed, or None."""
        wrong = self.wrong(rows)
        if not wrong.any():
            return None
        row, column = np.argwhere(wrong)[0]
        return int(row), int(column)

    def wrong(self, rows: np.ndarray) -> np.ndarray:
        """Return where rows hold a number that is not allowed, bool of the same shape."""
        wrong: np.ndarray = np.isinf(rows)
        wrong[:, self._others] |= np.isnan(rows[:, self._others])
        wrong[:, self._closed] |= rows[:, self._closed] == UNKNOWN
        return wrong


def _finite(numbers: np.ndarray) -> bool:
    """Return whether no number is NaN or infinite; the sum of finite numbers is finite too, unless it overflows.

    Few numbers are squared and added by NumPy's `dot`, which starts fastest. For more numbers a BLAS uses threads,
    which wait for each other while other programs occupy the cores. torch adds these up in its configured number of
    threads.
    """
    if numbers.size < THREADED_DOT:
        total = float(numbers.dot(numbers))
    elif numbers.flags.writeable:  # torch warns of arrays that it cannot write to
        total = float(torch.from_numpy(numbers).sum())
    else:
        total = float(numbers.sum())
    return math.isfinite(total) or bool(np.isfinite(numbers).all())
