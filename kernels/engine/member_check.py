"""Checks the numbers of a request for a fleet, whose models take NaN and unknown categories in columns of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ..format.inputs import UNKNOWN
from .input_check import Allowed

FEW = 64
"""The numbers of so few rows are looked at by Python's own functions, which take less time than NumPy's calls."""

OfMembers = tuple[np.ndarray, np.ndarray, Callable[[np.ndarray], np.ndarray]]


class MemberAllowed(Allowed):
    """Looks for numbers that the members of a fleet cannot take.

    A row's last number is that of its member, a whole number below `members`. `refused` says in which columns a member
    takes no NaN, and `closed` in which it takes no `UNKNOWN`, bool `[members, n_features]`; `closed` is None if members
    do not differ.
    """

    def __init__(
        self,
        n_features: int,
        nan_columns: Sequence[int],
        closed_columns: Sequence[int],
        members: int,
        refused: np.ndarray,
        closed: np.ndarray | None = None,
    ) -> None:
        super().__init__(n_features, nan_columns, [column for column in closed_columns if column != n_features - 1])
        self._members = members
        self._of_members: list[OfMembers] = []
        for table, is_wrong in ((refused if self.nan_columns else None, np.isnan), (closed, _is_unknown)):
            if table is not None:
                columns = np.flatnonzero(table.any(axis=0) & ~table.all(axis=0))
                if len(columns):
                    self._of_members.append((columns, table[:, columns], is_wrong))

    def _holds(self, numbers: np.ndarray, finite: bool) -> bool:
        last = slice(self._n_features - 1, None, self._n_features)
        if not (super()._holds(numbers, finite) and self._all_members(numbers[last])):
            return False
        if not self._of_members:
            return True
        rows = numbers.reshape(-1, self._n_features)
        return not any(wrong.any() for _, wrong in self._wrong_for_members(rows, finite))

    def wrong(self, rows: np.ndarray) -> np.ndarray:  # noqa: D102
        wrong = super().wrong(rows)
        numbers = rows[:, -1]
        wrong[:, -1] |= ~((numbers >= 0) & (numbers < self._members) & (numbers % 1 == 0))
        for columns, refused in self._wrong_for_members(rows):
            wrong[:, columns] |= refused
        return wrong

    def _all_members(self, numbers: np.ndarray) -> bool:
        """Return whether all numbers are those of members."""
        if len(numbers) <= FEW:
            few = numbers.tolist()
            return min(few, default=0) >= 0 and max(few, default=0) < self._members and all(map(float.is_integer, few))
        whole = numbers.astype(np.int32)  # a number that int32 does not hold becomes another one
        return bool(whole.min() >= 0 and whole.max() < self._members and (whole == numbers).all())

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


def _is_unknown(numbers: np.ndarray) -> np.ndarray:
    """Return where numbers are `UNKNOWN`."""
    found: np.ndarray = numbers == UNKNOWN
    return found
