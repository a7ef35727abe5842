"""New matrices whose columns lie in one piece each, in memory that is used again.

Memory that a process has never touched can cost more than what is written to it: the system gives it page by page, and
each has to be cleared. What large matrices lie in is therefore kept for the next ones.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

PAGE_NUMBERS = 1024
"""Where columns begin a multiple of so many numbers apart, their first numbers share few places of a core's cache."""

LINE_NUMBERS = 16

LEAST_BYTES = 2**20
"""What is smaller lies in memory of its own."""

MOST_KEPT = 4
"""As many as one thread's rows take: some are computed, and those that come next are converted or wait."""


class Buffers:
    """Memory that is not in use at present; several threads may ask for it."""

    def __init__(self) -> None:
        self._free: deque[np.ndarray] = deque(maxlen=MOST_KEPT)

    def by_columns(self, rows: int, columns: int, dtype: np.dtype[Any]) -> np.ndarray:
        """Return a matrix `[rows, columns]`, each of whose columns lies at some distance from the next.

        What reads it row by row meets as many places of memory as there are columns, and a core's cache can hold them
        all unless they are a power of two apart.
        """
        apart = rows if rows < PAGE_NUMBERS else rows + (LINE_NUMBERS - rows) % PAGE_NUMBERS
        matrix: np.ndarray = self._array(columns, apart, dtype)[:, :rows].T
        return matrix

    def _array(self, rows: int, columns: int, dtype: np.dtype[Any]) -> np.ndarray:
        needed = rows * columns * dtype.itemsize
        if needed < LEAST_BYTES:
            return np.empty((rows, columns), dtype)
        try:
            memory = self._free.popleft()
        except IndexError:
            memory = np.empty(needed, np.uint8)
        if memory.nbytes < needed:
            memory = np.empty(needed, np.uint8)
        return np.asarray(_Lent(memory, self._free, (rows, columns), dtype))


class _Lent:
    """Memory as the object that numpy asks for it: arrays over it keep it, and with the last of them it is free."""

    def __init__(
        self, memory: np.ndarray, free: deque[np.ndarray], shape: tuple[int, int], dtype: np.dtype[Any]
    ) -> None:
        self._memory, self._free = memory, free
        (place, _) = memory.__array_interface__["data"]
        self.__array_interface__ = {"version": 3, "shape": shape, "typestr": dtype.str, "data": (place, False)}

    def __del__(self) -> None:
        self._free.append(self._memory)


def pinned_by_columns(rows: int, columns: int, dtype: np.dtype[Any]) -> np.ndarray:
    """Return a matrix `[rows, columns]` whose columns lie one below the other in memory that a GPU copies soonest.

    torch keeps such memory for the next that is asked for, as pinning it takes long.
    """
    import torch

    kind: torch.dtype = getattr(torch, dtype.name)
    matrix: np.ndarray = torch.empty(columns, rows, dtype=kind, pin_memory=True).numpy().T
    return matrix
