"""Checks the numbers of a request.

A request may hold no infinity, NaN only in the columns whose NaN the model answers, and no unknown category in the
columns where scikit-learn refuses it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from ..format.inputs import UNKNOWN

THREADED_DOT = 2**13
"""Below this many numbers use `dot`; OpenBLAS computes `dot` in threads from 10,000 numbers on."""


class Allowed:
    """Looks for numbers that a model with `n_features` columns cannot take.

    The columns `nan_columns` may hold NaN, and `closed_columns` may not hold `UNKNOWN`. In a fleet, `refused` says in
    which columns a member takes no NaN, and `closed` in which it takes no `UNKNOWN`, bool `[members, n_features]`; a
    row's last number is that of its member. `closed` is None if members do not differ.
    """

    def __init__(
        self,
        n_features: int,
        nan_columns: Sequence[int],
        closed_columns: Sequence[int] = (),
        refused: np.ndarray | None = None,
        closed: np.ndarray | None = None,
    ) -> None:
        self.nan_columns = list(nan_columns)
        self._closed = list(closed_columns)
        self._others = np.setdiff1d(np.arange(n_features), nan_columns)
        self._any_closed = bool(self._closed) or closed is not None
        self._all_finite = not self._any_closed and len(self._others) == n_features
        self._n_features = n_features
        self._of_members: list[tuple[np.ndarray, np.ndarray, Callable[[np.ndarray], np.ndarray]]] = []
        for table, wrong in ((refused if self.nan_columns else None, np.isnan), (closed, _is_unknown)):
            if table is not None:
                columns = np.flatnonzero(table.any(axis=0) & ~table.all(axis=0))
                if len(columns):
                    self._of_members.append((columns, table[:, columns], wrong))

    def holds(self, numbers: np.ndarray) -> bool:
        """Return whether all of `[rows * n_features]`, one row after the other, are allowed."""
        finite = _finite(numbers)
        if finite and not self._any_closed:
            return True
        if self._all_finite:
            return False
        rows = numbers.reshape(-1, self._n_features)
        if any((rows[:, column] == UNKNOWN).any() for column in self._closed):
            return False
        if not finite and (np.isinf(numbers).any() or np.isnan(rows[:, self._others]).any()):
            return False
        return not any(wrong.any() for _, wrong in self._wrong_for_members(rows, finite))

    def _wrong_for_members(self, rows: np.ndarray, finite: bool = False) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield columns, and where the rows hold there what their members do not take, bool `[rows, columns]`."""
        for columns, refused, is_wrong in self._of_members:
            if finite and is_wrong is np.isnan:
                continue
            wrong = is_wrong(rows[:, columns])
            found = np.flatnonzero(wrong.any(axis=1))
            numbers = np.nan_to_num(rows[found, -1], nan=0.0).astype(np.int64)
            wrong[found] &= refused[np.clip(numbers, 0, len(refused) - 1)]
            yield columns, wrong

    def first_wrong(self, rows: np.ndarray) -> tuple[int, int] | None:
        """Return the row and column of the first number that is not allowed, or None."""
        wrong = np.isinf(rows)
        wrong[:, self._others] |= np.isnan(rows[:, self._others])
        wrong[:, self._closed] |= rows[:, self._closed] == UNKNOWN
        for columns, refused in self._wrong_for_members(rows):
            wrong[:, columns] |= refused
        if not wrong.any():
            return None
        row, column = np.argwhere(wrong)[0]
        return int(row), int(column)


def _is_unknown(numbers: np.ndarray) -> np.ndarray:
    """Return where numbers are `UNKNOWN`."""
    found: np.ndarray = numbers == UNKNOWN
    return found


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
