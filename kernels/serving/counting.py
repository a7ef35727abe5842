"""Counts for the rows that a model answers: NaN, numbers outside the profile, and answers by their bin.

A request's thread copies rows and answers into rings. Another thread counts the rings' rows, whole columns at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..format.inputs import UNKNOWN, Inputs
from ..format.row_profile import AnswerProfile, RowProfile

if TYPE_CHECKING:
    from .member_counts import MemberCounts

RING_BYTES = 2**20
RING_ROWS = 4096
PIECE_NUMBERS = 2**16
"""The numbers that are counted at once: a request's thread may wait some tens of microseconds for them."""


OF_COLUMNS = ("nan_total", "below_range_total", "above_range_total", "unknown_category_total")
"""The metrics of the counts in `ColumnCounts`."""

REASONS = ("not_finite", "unknown_category", "missing", "too_long", "empty", "wrong_columns", "cancelled", "failed")
"""The reasons to refuse a request with all of its rows; a request without rows counts as one row."""


Take = Callable[[np.ndarray, np.ndarray], None]
"""Takes rows `[*, width]` and int64 `[*]`, the number of rows that each of them stands for."""


class Ring:
    """Rows `[*, width]` on their way from one thread, which calls `lay` and `keep`, to another, which calls `take`.

    Each row has a weight, the number of rows of its batch that it stands for.
    """

    def __init__(self, width: int, dtype: np.dtype) -> None:
        self._size = max(min(RING_ROWS, RING_BYTES // (width * dtype.itemsize)), 64)
        self._piece = max(PIECE_NUMBERS // width, 1)
        self._rows = np.empty((self._size, width), dtype)
        self._weights = np.ones(self._size, np.int64)
        self._written = self._read = 0  # each changed by one thread alone

    def lay(self, rows: np.ndarray, weight: int = 1) -> int:
        """Copy rows of one weight while there is room; return how many were copied. `take` sees them after `keep`."""
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
            self._weights[start:stop] = weight
        else:
            head = self._size - start
            self._rows[start:] = rows[:head]
            self._rows[: count - head] = rows[head:]
            self._weights[start:] = self._weights[: count - head] = weight
        return count

    def keep(self, count: int) -> None:
        """Hand over the first `count` rows of those that `lay` copied last."""
        self._written += count

    def filling(self) -> bool:
        """Return whether more than half of the room is taken."""
        return 2 * (self._written - self._read) > self._size

    def take(self, count_rows: Take) -> int:
        """Call a function with the waiting rows and their weights, piece by piece; return the number of rows."""
        first, stop = self._read, self._written
        while self._read < stop:
            start = self._read % self._size
            part = slice(start, start + min(self._piece, stop - self._read))
            piece = self._rows[part]
            count_rows(piece, self._weights[part])
            self._read += len(piece)
        return stop - first


class ColumnCounts:
    """The counts for each column of NaN, numbers below and above the profile's range, and unknown categories.

    Each count is int64 `[n_given]`: an unknown category that is made of strings counts for the column of its strings.
    Without a profile there are no ranges, and only categories that come as strings or as places among whole
    numbers are counted.

    Each row counts for the number of rows that it stands for, its weight w. `rows` is the sum of the weights, and
    `squares` is the sum of their squares: rows of unequal weights give as much information about a share as
    (Σ w)² / Σ w² rows of equal weight (Kish, "Survey Sampling" (1965), section 11.7). `ranged` are the columns that
    have a range.
    """

    def __init__(self, inputs: Inputs, nan_columns: Sequence[int], profile: RowProfile | None) -> None:
        n_features = self._given = inputs.n_given
        self.nan, self.below, self.above, self.unknown = (np.zeros(n_features, np.int64) for _ in range(4))
        self.rows = self.squares = 0
        self._nan = list(nan_columns)
        self._coded = [column for column in inputs.choosing if column not in inputs.closed]
        self._named = [inputs.source(column) for column in self._coded]
        self._places = sorted(set(self._named))
        self._several = self._named != self._places
        self._known = {} if profile is None else profile.known
        nowhere = np.full(n_features, np.nan)
        dtype = inputs.matrix_dtype
        self._low = (nowhere if profile is None else profile.low[:n_features]).astype(dtype)
        self._high = (nowhere if profile is None else profile.high[:n_features]).astype(dtype)
        taken = {column for columns in inputs.columns().values() for column in columns}
        self.ranged = [column for column in np.flatnonzero(~np.isnan(self._low)).tolist() if column in taken]

    def by_name(self) -> list[tuple[str, np.ndarray, list[int]]]:
        """Return each count with its metric's name and the columns in which it can differ from 0."""
        unknown = sorted({*self._named, *self._known})
        places = (self._nan, self.ranged, self.ranged, unknown)
        return list(zip(OF_COLUMNS, (self.nan, self.below, self.above, self.unknown), places, strict=True))

    def count(self, rows: np.ndarray, weights: np.ndarray) -> None:
        """Count rows of the plan's matrix, `[*, n_features]`, which stand for `weights` rows, int64 `[*]`."""
        self.rows += int(weights.sum())
        self.squares += int(weights @ weights)
        given = rows[:, : self._given]
        if self._nan:
            _add(np.isnan(given), weights, self.nan)
        if self.ranged:
            _add(given < self._low, weights, self.below)
            _add(given > self._high, weights, self.above)
        if self._coded:
            unknown = rows[:, self._coded] == UNKNOWN
            if self._several:  # a row counts once for a column of which several are made
                unknown = np.stack([unknown[:, np.equal(self._named, each)].any(axis=1) for each in self._places], 1)
            self.unknown[self._places] += weights @ unknown
        for column, known in self._known.items():
            numbers = rows[:, column]
            self.unknown[column] += int(weights[~np.isin(numbers, known) & (numbers == numbers)].sum())


class AnswerCounts:
    """The counts of answers in each bin of a profile, int64 `[bins]`. NaN is in no bin.

    An answer counts for the number of answers that it stands for, its weight. `squares` is the sum of the squared
    weights, see `ColumnCounts`.
    """

    def __init__(self, profile: AnswerProfile) -> None:
        self.bins = np.zeros(len(profile.shares), np.int64)
        self.squares = 0
        self._edges = profile.edges

    def count(self, answers: np.ndarray, weights: np.ndarray) -> None:
        """Count the first column of answers `[*, width]`, which stand for `weights` answers, int64 `[*]`."""
        numbers = answers[:, 0]
        known = numbers == numbers
        found, weights = np.searchsorted(self._edges, numbers[known]), weights[known]
        self.bins += _weighted(found, weights, len(self.bins))
        self.squares += int(weights @ weights)


@dataclass
class Counts:
    """The counts since the model was loaded: no number ever shrinks. `members` are those of a fleet's models."""

    columns: ColumnCounts
    answers: Mapping[str, AnswerCounts]
    rows: int
    refused: dict[str, int]
    members: MemberCounts | None = None
    explained: int = 0


def pieces(rows: np.ndarray) -> Iterator[np.ndarray]:
    """Yield rows some at a time, few enough for a cache."""
    size = max(PIECE_NUMBERS // rows.shape[1], 1)
    return (rows[start : start + size] for start in range(0, len(rows), size))


def _add(found: np.ndarray, weights: np.ndarray, counts: np.ndarray) -> None:
    """Add each column's weighted finds to the counts; finds are rare, and a sum would read the whole mask again."""
    at = np.flatnonzero(found)
    if len(at):
        row, column = np.divmod(at, found.shape[1])
        counts += _weighted(column, weights[row], len(counts))


def _weighted(places: np.ndarray, weights: np.ndarray, count: int) -> np.ndarray:
    """Return the sum of the weights at each of `count` places, int64: float64 adds whole numbers below 2⁵³ exactly."""
    return np.bincount(places, weights, minlength=count).astype(np.int64)
