"""Which numbers a request may hold: no infinity anywhere, NaN only in the columns whose NaN the model answers, and no
unknown category in the columns where scikit-learn refuses it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .inputs import UNKNOWN


class Allowed:
    """Looks for numbers that a model with `n_features` columns cannot take.

    NaN may stand in `nan_columns`, and `UNKNOWN` not in `closed_columns`.
    """

    def __init__(self, n_features: int, nan_columns: Sequence[int], closed_columns: Sequence[int] = ()) -> None:
        self._closed = list(closed_columns)
        self._others = np.setdiff1d(np.arange(n_features), nan_columns)
        self._all_finite = not self._closed and len(self._others) == n_features
        self._n_features = n_features
        self._zeros = np.zeros(2**20, dtype=np.float32)

    def holds(self, numbers: np.ndarray) -> bool:
        """Whether all of float32 `[rows * n_features]`, one row after the other, are allowed."""
        if self._all_finite:
            return self._finite(numbers)
        rows = numbers.reshape(-1, self._n_features)
        if self._closed and (rows[:, self._closed] == UNKNOWN).any():
            return False
        return not np.isinf(numbers).any() and not np.isnan(rows[:, self._others]).any()

    def first_wrong(self, rows: np.ndarray) -> tuple[int, int] | None:
        """Return the row and column of the first number that is not allowed, or None."""
        wrong = np.isinf(rows)
        wrong[:, self._others] |= np.isnan(rows[:, self._others])
        wrong[:, self._closed] |= rows[:, self._closed] == UNKNOWN
        if not wrong.any():
            return None
        row, column = np.argwhere(wrong)[0]
        return int(row), int(column)

    def _finite(self, numbers: np.ndarray) -> bool:
        """Whether no number is NaN or infinite: only then is 0 · x = 0 throughout."""
        step = len(self._zeros)
        if len(numbers) <= step:
            return bool(numbers.dot(self._zeros[: len(numbers)]) == 0)
        pieces = (numbers[start : start + step] for start in range(0, len(numbers), step))
        return all(piece.dot(self._zeros[: len(piece)]) == 0 for piece in pieces)
