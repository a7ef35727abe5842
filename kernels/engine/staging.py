"""The buffer in CPU memory in which the rows of a batch lie one below the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

MANY_NUMBERS = 2**17

MAX_NUMBERS = 2**28
"""Rows × features that an entry may stage: 1 GiB of float32. A much larger buffer takes a whole server down."""

CHUNK_BYTES = 2 * 2**20
"""About the bytes of a large batch that are staged before the device begins."""


class Staging:
    """`[max_rows, n_features]` of a dtype, float32 or float64; `pinned` if a GPU is to read it across the bus.

    Its rows are whole chunks of `chunk_rows`, a power of two, unless a single one holds them all.
    """

    def __init__(self, max_rows: int, n_features: int, dtype: str, *, pinned: bool) -> None:
        kind: torch.dtype = getattr(torch, dtype)
        self.chunk_rows = chunk_rows(n_features * kind.itemsize, max_rows)
        total = -(-max_rows // self.chunk_rows) * self.chunk_rows
        self.tensor = torch.zeros(total, n_features, dtype=kind, pin_memory=pinned)
        self._rows = self.tensor.numpy()
        self._numbers = self._rows.reshape(-1)
        self._n_features = n_features

    def fill(self, parts: Sequence[np.ndarray], start: int, rows: int) -> None:
        """Copy matrices `[*, n_features]` of this dtype, `rows` in all, one below the other, from row `start` on."""
        stop = start + rows
        if len(parts) > 1:
            np.concatenate(parts, out=self._rows[start:stop])
        else:
            copy(parts[0], self._rows[start:stop])

    def numbers(self, rows: int) -> np.ndarray:
        """Return the numbers of the first `rows` rows, one row after the other, as they lie here."""
        return self._numbers[: rows * self._n_features]

    def rows(self, count: int) -> np.ndarray:
        """Return the first `count` rows as they lie here."""
        return self._rows[:count]


def copy(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Copy a matrix to a contiguous one of its shape and dtype, and return that.

    torch copies with several threads. numpy begins sooner and is faster with matrices whose columns are contiguous.
    """
    if source.size < MANY_NUMBERS or not source.flags.c_contiguous:
        target[:] = source
    else:
        torch.from_numpy(target).copy_(torch.from_numpy(unlocked(source)))
    return target


class _Unlocked:
    """An object that exposes an array's memory to numpy as writable."""

    def __init__(self, array: np.ndarray) -> None:
        pointer, _ = array.__array_interface__["data"]
        self.__array_interface__ = {**array.__array_interface__, "data": (pointer, False)}


def unlocked(array: np.ndarray) -> np.ndarray:
    """Return an array over the same numbers that torch takes without a warning; nothing may write to it."""
    return array if array.flags.writeable else np.asarray(_Unlocked(array))


def chunk_rows(row_bytes: int, max_rows: int) -> int:
    """Return the number of rows in a chunk: a power of two near `CHUNK_BYTES`, or `max_rows` if that is smaller.

    It is the nearest one by its ratio: rows of 33 numbers come in as few chunks as rows of 32.
    """
    rows = max(CHUNK_BYTES // row_bytes, 16)
    lower = 1 << (rows.bit_length() - 1)
    return min(2 * lower if rows * rows > 2 * lower * lower else lower, max_rows)


def split(parts: Sequence[np.ndarray], size: int) -> Iterator[list[np.ndarray]]:
    """Yield the rows of matrices in groups of `size` rows; the last group may have fewer."""
    group: list[np.ndarray] = []
    room = size
    for part in parts:
        while len(part) >= room:
            yield [*group, part[:room]]
            part, group, room = part[room:], [], size
        if len(part):
            group.append(part)
            room -= len(part)
    if group:
        yield group
