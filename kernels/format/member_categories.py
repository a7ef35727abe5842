"""The categories that each member of a fleet knows of a column, among those of all members together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .inputs import UNKNOWN, Inputs, TextInput

MISSING = -2
"""The answer to a category that is a missing value to a member; to one that is unknown to it, it is `UNKNOWN`."""

MOST_BYTES = 2**27
"""The largest table of such answers."""


@dataclass(frozen=True)
class OwnCategories:
    """The categories that each member knows, in the columns whose categories differ between members.

    A tensor's categories are those of all members together. A member's plan reads a category's place among the member's
    own. Categories may be appended to those of a tensor: a member does not know them.

    `columns`: int32 `[C]`, columns of the plan's matrix. `lists`: int32 `[members, C]`, the number of each member's
    list of categories. `starts`: int64 `[lists + 1]`, the places of the lists in `numbers`. `numbers`: int32 `[N]`, the
    lists one after the other, those of one column after those of another: places among a tensor's categories, in the
    member's order.
    """

    columns: np.ndarray
    lists: np.ndarray
    starts: np.ndarray
    numbers: np.ndarray

    def of_member(self, number: int) -> dict[int, np.ndarray]:
        """Return a member's categories as places among those of the tensor, by column."""
        bounds = [self.starts[each : each + 2] for each in self.lists[number]]
        return {int(column): self.numbers[slice(*ends)] for column, ends in zip(self.columns, bounds, strict=True)}

    def shared(self, matrix: np.ndarray) -> np.ndarray:
        """Return rows of members' plans with the places of categories among those of the tensor."""
        found: np.ndarray = matrix.copy()
        given = matrix[:, self.columns]
        known = given >= 0
        place = np.where(known, given, 0).astype(np.int64) + self.starts[self.lists[matrix[:, -1].astype(np.int64)]]
        last = max(len(self.numbers) - 1, 0)
        found[:, self.columns] = np.where(known, np.append(self.numbers, 0)[place.clip(max=last)], given)
        return found


class OwnPlaces:
    """Turns the places of categories among those of a tensor into those among the categories of a row's member.

    A category that the member does not know is a missing value if it is spelt like one, and an unknown string if not.
    Each list has a key for each category of its column's tensor, the first of which are `bases`. The answers to all
    keys are a table, or are searched among the keys of known categories if there are too many.
    """

    def __init__(self, own: OwnCategories, inputs: Inputs, most_bytes: int = MOST_BYTES) -> None:
        self._columns = own.columns.astype(np.int64)
        shared = _categories_of(inputs)
        absent = [_absent(*shared[column]) for column in own.columns.tolist()]
        self._widths = np.array([len(each) for each in absent])
        first_list, last_list = own.lists.min(axis=0), own.lists.max(axis=0)
        counts, lengths = last_list - first_list + 1, np.diff(own.starts)
        of_list = np.repeat(np.arange(len(counts)), counts)  # the column of each list
        bases = np.cumsum([0, *self._widths[of_list]])
        self._bases = np.ascontiguousarray(bases[own.lists])
        keys = np.repeat(bases[:-1], lengths) + own.numbers
        places = np.arange(len(keys)) - np.repeat(own.starts[:-1], lengths)
        kind = np.dtype(np.int16 if lengths.max() < 2**15 else np.int32)
        self._table = None
        if bases[-1] * kind.itemsize <= most_bytes:
            parts = [np.tile(each.astype(kind), count) for each, count in zip(absent, counts, strict=True)]
            self._table = np.concatenate(parts)
            self._table[keys] = places
        else:
            order = np.argsort(keys, kind="stable")
            self._keys = np.append(keys[order], np.iinfo(np.int64).max)  # a search may end behind the last
            self._places = np.append(places[order], 0)
        self._absent, self._first_absent = np.concatenate(absent), np.cumsum([0, *self._widths[:-1]])
        self._missing = bool((self._absent == MISSING).any())

    def __call__(self, matrix: np.ndarray) -> np.ndarray:
        """Change rows of a plan's matrix, whose last column has the numbers of members, and return them.

        A row that names no member gets any answer.
        """
        given = matrix[:, self._columns]
        coded = (given >= 0) & (given < self._widths)  # neither unknown nor missing nor too long
        place = np.where(coded, given, 0).astype(np.int64)
        number = np.fmin(np.fmax(matrix[:, -1], 0), len(self._bases) - 1).astype(np.int64)
        own = self._find(self._bases.take(number, axis=0) + place, place)
        if self._missing:
            own = np.where(own == MISSING, np.nan, own)
        matrix[:, self._columns] = np.where(coded, own, given)
        return matrix

    def _find(self, keys: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Return the answers to keys `[rows, C]`, whose categories have these places among those of a tensor."""
        if self._table is not None:
            return self._table.take(keys)
        at, order = np.empty_like(keys), np.argsort(keys, axis=None)
        at.ravel()[order] = np.searchsorted(
            self._keys, keys.ravel()[order]
        )  # of sorted keys it is several times faster
        absent = self._absent[self._first_absent + places]
        return np.where(self._keys.take(at) == keys, self._places.take(at), absent)


def _absent(categories: tuple[Any, ...], missing: tuple[str, ...]) -> np.ndarray:
    """Return the answer to each category of a member that does not know it."""
    return np.array([MISSING if category in missing else int(UNKNOWN) for category in categories])


def _categories_of(inputs: Inputs) -> dict[int, tuple[tuple[Any, ...], tuple[str, ...]]]:
    """Return each column's categories, and the strings that are a missing value to a model without this category."""
    return {
        column: (known, ("", *group.missing) if isinstance(group, TextInput) else ())
        for group in inputs.groups
        for column, known in zip(group.columns, group.categories, strict=True)
    }
