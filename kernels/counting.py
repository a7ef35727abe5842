"""What is counted of the rows that a model answers: NaN, numbers outside the profile, and answers by their bin.

A request's thread copies rows and answers into rings. Another thread counts what lies there, by columns at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .inputs import UNKNOWN, Inputs
from .row_profile import AnswerProfile, RowProfile

RING_BYTES = 2**20
RING_ROWS = 4096
PIECE_NUMBERS = 2**16
"""How many numbers are counted at once: some tens of microseconds in which a request's thread may have to wait."""


OF_COLUMNS = ("nan_total", "below_range_total", "above_range_total", "unknown_category_total")
"""The metrics of what `ColumnCounts` counts."""

REASONS = (
    "not_finite",
    "unknown_category",
    "missing",
    "too_long",
    "empty",
    "wrong_columns",
    "cancelled",
    "failed",
)
"""Why a request is refused, with all of its rows; one without rows counts as one."""


class Ring:
    """Rows `[*, width]` on their way from one thread, which calls `lay` and `keep`, to another, which calls `take`."""

    def __init__(self, width: int, dtype: np.dtype) -> None:
        self._size = max(min(RING_ROWS, RING_BYTES // (width * dtype.itemsize)), 64)
        self._piece = max(PIECE_NUMBERS // width, 1)
        self._rows = np.empty((self._size, width), dtype)
        self._written = self._read = 0  # each changed by one thread alone

    def lay(self, rows: np.ndarray) -> int:
        """Copy rows, as far as there is room; return how many. `take` does not see them before `keep`."""
        count, written = len(rows), self._written
        room = self._size - written + self._read
        if count > room:
            if not room:
                return 0
            rows, count = rows[:room], room
        start = written % self._size
        stop = start + count
        if stop <= self._size:
            self._rows[start:stop] = rows
        else:
            head = self._size - start
            self._rows[start:] = rows[:head]
            self._rows[: count - head] = rows[head:]
        return count

    def keep(self, count: int) -> None:
        """Hand over the first `count` rows of those that `lay` copied last."""
        self._written += count

    def filling(self) -> bool:
        """Whether more than half of the room is taken."""
        return 2 * (self._written - self._read) > self._size

    def take(self, count_rows: Callable[[np.ndarray], None]) -> int:
        """Call a function with the rows that are there, piece by piece; return how many they were."""
        first, stop = self._read, self._written
        while self._read < stop:
            start = self._read % self._size
            piece = self._rows[start : start + min(self._piece, stop - self._read)]
            count_rows(piece)
            self._read += len(piece)
        return stop - first


class ColumnCounts:
    """How many numbers of each column were NaN, below or above the profile's range, or no known category.

    Each is int64 `[n_features]`. Without a profile there are no ranges, and of categories those alone that come as
    strings, or as places among whole numbers. `rows` is how many rows were looked at.
    """

    def __init__(self, inputs: Inputs, nan_columns: Sequence[int], profile: RowProfile | None) -> None:
        n_features = inputs.n_features
        self.nan, self.below, self.above, self.unknown = (np.zeros(n_features, np.int64) for _ in range(4))
        self.rows = 0
        self._nan = list(nan_columns)
        self._coded = [column for column in inputs.coded if column not in inputs.closed]
        self._known = {} if profile is None else profile.known
        nowhere = np.full(n_features, np.nan)
        dtype = inputs.matrix_dtype
        self._low = (nowhere if profile is None else profile.low).astype(dtype)
        self._high = (nowhere if profile is None else profile.high).astype(dtype)
        taken = {column for columns in inputs.columns().values() for column in columns}
        self._ranged = [column for column in np.flatnonzero(~np.isnan(self._low)).tolist() if column in taken]

    def by_name(self) -> list[tuple[str, np.ndarray, list[int]]]:
        """Return the four by their metric's name, and in which columns each can be anything but 0."""
        unknown = sorted([*self._coded, *self._known])
        places = (self._nan, self._ranged, self._ranged, unknown)
        return list(zip(OF_COLUMNS, (self.nan, self.below, self.above, self.unknown), places, strict=True))

    def count(self, rows: np.ndarray) -> None:
        """Count rows of the plan's matrix, `[*, n_features]`."""
        self.rows += len(rows)
        if self._nan:
            _add(np.isnan(rows), self.nan)
        if self._ranged:
            _add(rows < self._low, self.below)
            _add(rows > self._high, self.above)
        if self._coded:
            self.unknown[self._coded] += (rows[:, self._coded] == UNKNOWN).sum(axis=0)
        for column, known in self._known.items():
            numbers = rows[:, column]
            self.unknown[column] += int(np.count_nonzero(~np.isin(numbers, known) & (numbers == numbers)))


class AnswerCounts:
    """How many answers lay in each bin of a profile, int64 `[bins]`. NaN is in none."""

    def __init__(self, profile: AnswerProfile) -> None:
        self.bins = np.zeros(len(profile.shares), np.int64)
        self._edges = profile.edges

    def count(self, answers: np.ndarray) -> None:
        """Count the first column of answers `[*, width]`."""
        numbers = answers[:, 0]
        found = np.searchsorted(self._edges, numbers[numbers == numbers])
        self.bins += np.bincount(found, minlength=len(self.bins))


@dataclass
class Counts:
    """What was counted since the model was loaded: each number grows and never shrinks."""

    columns: ColumnCounts
    answers: Mapping[str, AnswerCounts]
    rows: int
    refused: dict[str, int]


def pieces(rows: np.ndarray) -> Iterator[np.ndarray]:
    """Yield rows some at a time, few enough for a cache."""
    size = max(PIECE_NUMBERS // rows.shape[1], 1)
    return (rows[start : start + size] for start in range(0, len(rows), size))


def _add(found: np.ndarray, counts: np.ndarray) -> None:
    """Add to counts how often each column was found, which is seldom: a sum would go through all of them again."""
    at = np.flatnonzero(found)
    if len(at):
        counts += np.bincount(at % found.shape[1], minlength=len(counts))
