"""New matrices with contiguous columns, in memory that is reused.

Memory that a process has never touched can cost more than the writes to it: the system gives it page by page, and has
to clear each page. The memory of large matrices is therefore kept for the next ones.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

PAGE_NUMBERS = 1024
"""Numbers in a memory page. Columns that start a multiple of it apart share the same few sets of a core's cache."""

LINE_NUMBERS = 16
"""Numbers in a cache line. Each column starts this much further into a page than the column before."""

LEAST_BYTES = 2**20
"""The smallest matrix, in bytes, whose memory is kept; a smaller one is allocated anew each time."""

MOST_KEPT = 4
"""The most free matrices that are kept. One thread needs no more: one is computed while the next are converted."""


class Buffers:
    """A pool of free memory, for use by several threads."""

    def __init__(self) -> None:
        self._free: deque[np.ndarray] = deque(maxlen=MOST_KEPT)

    def by_columns(self, rows: int, columns: int, dtype: np.dtype[Any]) -> np.ndarray:
        """Return a matrix `[rows, columns]` with padding between its columns.

        A reader that goes row by row reads one cache line of each column. A core's cache can hold all of these lines
        unless their addresses are a power of two apart.
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
    """The owner of an array's memory for numpy: the memory returns to the pool with the last array over it."""

    def __init__(
        self, memory: np.ndarray, free: deque[np.ndarray], shape: tuple[int, int], dtype: np.dtype[Any]
    ) -> None:
        self._memory, self._free = memory, free
        (place, _) = memory.__array_interface__["data"]
        self.__array_interface__ = {"version": 3, "shape": shape, "typestr": dtype.str, "data": (place, False)}

    def __del__(self) -> None:
        self._free.append(self._memory)


def pinned_by_columns(rows: int, columns: int, dtype: np.dtype[Any]) -> np.ndarray:
    """Return a matrix `[rows, columns]` with contiguous columns in pinned memory, which a GPU copies fastest.

    torch keeps such memory for later requests, because pinning takes long.
    """
    import torch

    kind: torch.dtype = getattr(torch, dtype.name)
    matrix: np.ndarray = torch.empty(columns, rows, dtype=kind, pin_memory=True).numpy().T
    return matrix
