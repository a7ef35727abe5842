"""FlatBuffers, the binary form of tables in which CatBoost saves its models: https://flatbuffers.dev/internals.

A table identifies its fields by numbers; a field that it lacks has the default value. Numbers are little-endian, and an
array is a view of the data.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

_OFFSET = struct.Struct("<I")
_SIGNED = struct.Struct("<i")
_SHORT = struct.Struct("<H")


class Table:
    """A table that begins at a place of the data."""

    def __init__(self, data: memoryview, place: int) -> None:
        self._data, self._place = data, place
        layout = place - self._read(_SIGNED, place)
        count = self._read(_SHORT, layout) // 2 - 2
        self._fields = [self._read(_SHORT, layout + 4 + 2 * field) for field in range(count)]

    @classmethod
    def root(cls, data: memoryview) -> Table:
        """Return the data's root table.

        Raises:
            ValueError: the data is not a table.
        """
        return cls(data, _at(data, _OFFSET, 0))

    def number(self, field: int, form: str, default: Any) -> Any:
        """Return a number, of a form that `struct` knows."""
        place = self._place_of(field)
        return default if place is None else self._read(struct.Struct("<" + form), place)

    def array(self, field: int, dtype: Any) -> np.ndarray:
        """Return an array of numbers, which is empty if the field is missing."""
        start, count = self._vector(field)
        found: np.ndarray = np.frombuffer(self._data, dtype, count, start) if count else np.zeros(0, dtype)
        return found

    def table(self, field: int) -> Table:
        """Return a table.

        Raises:
            ValueError: there is none.
        """
        place = self._place_of(field)
        if place is None:
            raise ValueError("a part of it is missing")
        return Table(self._data, place + self._read(_OFFSET, place))

    def tables(self, field: int) -> list[Table]:
        """Return a list of tables."""
        start, count = self._vector(field)
        places = range(start, start + 4 * count, 4)
        return [Table(self._data, place + self._read(_OFFSET, place)) for place in places]

    def count(self, field: int) -> int:
        """Return how many items a list or an array has."""
        return self._vector(field)[1]

    def _vector(self, field: int) -> tuple[int, int]:
        """Return an array's beginning and its number of items."""
        place = self._place_of(field)
        if place is None:
            return 0, 0
        start = place + self._read(_OFFSET, place)
        return start + 4, self._read(_OFFSET, start)

    def _place_of(self, field: int) -> int | None:
        offset = self._fields[field] if field < len(self._fields) else 0
        return self._place + offset if offset else None

    def _read(self, number: struct.Struct, place: int) -> Any:
        return _at(self._data, number, place)


def _at(data: memoryview, number: struct.Struct, place: int) -> Any:
    """Return the number at a place of the data.

    Raises:
        ValueError: it is beyond the data.
    """
    if not 0 <= place <= len(data) - number.size:
        raise ValueError("a part of it lies beyond its end")
    (found,) = number.unpack_from(data, place)
    return found
