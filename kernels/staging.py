"""The buffer in CPU memory in which the rows of a batch lie one below the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

MANY_NUMBERS = 2**17

MAX_NUMBERS = 2**28
"""Rows × features that an entry may stage: 1 GiB of float32. What asks for much more takes a whole server down."""


class Staging:
    """`[max_rows, n_features]` of a dtype, float32 or float64; `pinned` if a GPU is to read it across the bus."""

    def __init__(self, max_rows: int, n_features: int, dtype: str, *, pinned: bool) -> None:
        self.tensor = torch.zeros(max_rows, n_features, dtype=getattr(torch, dtype), pin_memory=pinned)
        self._rows = self.tensor.numpy()
        self._numbers = self._rows.reshape(-1)
        self._n_features = n_features

    def gather(self, parts: Sequence[np.ndarray], rows: int) -> None:
        """Copy matrices `[*, n_features]` of this dtype, `rows` in all, one below the other."""
        if len(parts) == 1:
            self.copy(parts[0])
        else:
            np.concatenate(parts, out=self._rows[:rows])

    def copy(self, X: np.ndarray) -> None:
        """Copy rows: torch copies with several threads, numpy begins sooner."""
        if X.size < MANY_NUMBERS or not X.flags.writeable:  # torch warns of arrays that it cannot write to
            self._rows[: len(X)] = X
        else:
            self.tensor[: len(X)].copy_(torch.from_numpy(np.ascontiguousarray(X)))

    def numbers(self, rows: int) -> np.ndarray:
        """Return the numbers of the first `rows` rows, one row after the other, as they lie here."""
        return self._numbers[: rows * self._n_features]
