"""The ids of a fleet's models in several columns, such as a region and a shop, each a tensor of its own.

An id is a tuple with a string or a whole number for each column. A model whose id has fewer parts answers the rows that
begin with them, if no model has more of the row's parts: ("north",) answers ("north", "shop-999").
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class IdColumns:
    """BYTES or INT64 tensors `[rows, 1]` that name a row's model together.

    `names` are those of the tensors, and `whole` says which are INT64. Like those of other tensors, `columns` are the
    plan's columns, only its last one here, `categories` are the ids by the numbers of their models, and `closed` says
    whether unknown ids are refused.
    """

    names: tuple[str, ...]
    whole: tuple[bool, ...]
    columns: tuple[int, ...]
    categories: tuple[tuple[tuple[Any, ...], ...], ...]
    closed: tuple[bool, ...]

    def datatypes(self) -> dict[str, str]:
        """Return what the server calls the type of each tensor."""
        return {name: "INT64" if whole else "BYTES" for name, whole in zip(self.names, self.whole, strict=True)}

    def known(self, place: int) -> tuple[Any, ...]:
        """Return the parts of ids in a column, each once, in the order in which they come first."""
        return tuple(dict.fromkeys(name[place] for name in self.categories[0] if len(name) > place))

    def encode(self, tensors: Mapping[str, np.ndarray], unknown: float, max_bytes: float = np.inf) -> np.ndarray:
        """Return the numbers of the rows' models, float64 `[rows]`: `unknown` for an unknown id.

        An unknown id is NaN if a string of it is empty, which is a missing one, or has more than `max_bytes`.
        """
        given = [tensors[name][:, 0].tolist() for name in self.names]
        found = self._find(given, unknown)
        rows = (found == unknown).nonzero()[0]
        if len(rows):
            parts = [[column[row] for row in rows.tolist()] for column in given]
            found[rows] = self._find_starts(parts, unknown, max_bytes)
        return found

    def decode(self, numbers: np.ndarray) -> dict[str, np.ndarray]:
        """Return tensors that have these numbers, `[rows]`; parts that an id lacks are unknown ones."""
        ids = [self.categories[0][number] for number in numbers.astype(np.int64).tolist()]
        found = {}
        for place, (name, whole) in enumerate(zip(self.names, self.whole, strict=True)):
            other = self._unknown(place)
            parts = [each[place] if len(each) > place else other for each in ids]
            found[name] = np.array(
                parts if whole else [part.encode() for part in parts], dtype=np.int64 if whole else object
            )[:, None]
        return found

    @functools.cached_property
    def _numbers(self) -> dict[tuple[bytes | int, ...], float]:
        """The number of each id, with strings in UTF-8; ids share equal parts."""
        parts: dict[Any, bytes | int] = {}
        return {
            tuple(parts.setdefault(part, part.encode() if isinstance(part, str) else part) for part in name): float(at)
            for at, name in enumerate(self.categories[0])
        }

    @functools.cached_property
    def _shorter(self) -> list[int]:
        """The numbers of parts of ids that have some, but not all, the largest first."""
        return sorted({*map(len, self.categories[0])} - {0, len(self.names)}, reverse=True)

    def _find(self, parts: Sequence[list[Any]], unknown: float) -> np.ndarray:
        """Return the numbers of ids, or of their starts, given by columns."""
        each = map(self._numbers.get, zip(*parts, strict=True), itertools.repeat(unknown))
        return np.fromiter(each, dtype=np.float64, count=len(parts[0]))

    def _find_starts(self, parts: Sequence[list[Any]], unknown: float, max_bytes: float) -> np.ndarray:
        """Return the numbers of the longest starts of unknown ids, given by columns."""
        found = np.full(len(parts[0]), unknown)
        for length in self._shorter:
            found = np.where(found == unknown, self._find(parts[:length], unknown), found)
        for column in (column for column, whole in zip(parts, self.whole, strict=True) if not whole):
            found[[not 0 < len(text) <= max_bytes for text in column]] = np.nan
        return found

    def _unknown(self, place: int) -> Any:
        """Return a value that no id has in a column."""
        known = frozenset(self.known(place))
        if self.whole[place]:
            return next(number for number in range(len(known) + 1) if number not in known)
        text = "unknown"
        while text in known:
            text += "?"
        return text


def id_text(name: str | int | tuple[Any, ...]) -> str:
    """Return an id as text: its parts as a line of CSV if there are several columns, () for the id without parts."""
    if not isinstance(name, tuple):
        return str(name)
    return ",".join(_cell(str(part)) for part in name) or "()"


def _cell(text: str) -> str:
    escaped = text.replace('"', '""')
    return f'"{escaped}"' if set(text) & set(',"\r\n') else text
