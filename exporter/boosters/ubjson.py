"""UBJSON, the binary JSON in which XGBoost saves its models: https://ubjson.org, draft 12.

An array of numbers of one type becomes a big-endian numpy array, a view of the data.
"""

from __future__ import annotations

import struct
from mmap import mmap
from typing import Any

import numpy as np

_NUMBERS = {"i": ">i1", "U": ">u1", "I": ">i2", "l": ">i4", "L": ">i8", "d": ">f4", "D": ">f8"}
_FORMATS = {mark: struct.Struct(f">{code}") for mark, code in zip(_NUMBERS, "bBhiqfd", strict=True)}
_CONSTANTS = {"Z": None, "T": True, "F": False}


def parse_ubjson(data: bytes | bytearray | mmap) -> Any:
    """Return the value that `data` holds: dicts, lists, strings, numbers, and numpy arrays for typed arrays.

    Raises:
        ValueError: it is not UBJSON.
    """
    try:
        return _Reader(data).value()
    except (IndexError, KeyError, TypeError, struct.error, UnicodeDecodeError, RecursionError) as error:
        raise ValueError("it is not UBJSON, or its end is missing") from error


class _Reader:
    """Reads values one after the other."""

    def __init__(self, data: bytes | bytearray | mmap) -> None:
        self._data = data
        self._at = 0

    def value(self) -> Any:
        """Read the next value."""
        return self._value_of(self._mark())

    def _value_of(self, mark: str) -> Any:
        if mark in _FORMATS:
            return self._number(mark)
        if mark in _CONSTANTS:
            return _CONSTANTS[mark]
        if mark in "SH":
            return self._text()
        if mark == "C":
            return chr(self._number("U"))
        if mark == "[":
            return self._array()
        if mark == "{":
            return self._object()
        raise ValueError(f"it is not UBJSON: {mark!r} begins no value")

    def _array(self) -> Any:
        kind, count = self._size()
        if kind in _NUMBERS:
            dtype = np.dtype(_NUMBERS[kind])
            start = self._skip(count * dtype.itemsize)
            return np.frombuffer(self._data, dtype, count, start)
        if kind in _CONSTANTS:  # they take no bytes: a few could claim any number of items
            raise ValueError("it holds an array of constants without bytes, which XGBoost does not write")
        if count is None:
            items = []
            while not self._ends("]"):
                items.append(self.value())
            return items
        return [self._value_of(kind or self._mark()) for _ in range(count)]

    def _object(self) -> dict[str, Any]:
        kind, count = self._size()
        found: dict[str, Any] = {}
        while len(found) < count if count is not None else not self._ends("}"):
            name = self._text()
            found[name] = self._value_of(kind or self._mark())
        return found

    def _size(self) -> tuple[str, Any]:
        """Read the type of a container's items and their number; empty and None if the container does not state them.

        Each item takes a byte or more, so reading a count beyond the data stops at the end of the data.
        """
        kind = self._mark() if self._ends("$") else ""
        return kind, self._number(self._mark()) if self._ends("#") else None

    def _ends(self, mark: str) -> bool:
        """Read a mark if it comes next."""
        found = self._data[self._at] == ord(mark)
        self._at += found
        return found

    def _text(self) -> str:
        start = self._skip(self._number(self._mark()))
        return self._data[start : self._at].decode()

    def _skip(self, size: int) -> int:
        """Skip `size` bytes, and return the place of the first."""
        start, self._at = self._at, self._at + size
        if size < 0 or self._at > len(self._data):
            raise IndexError
        return start

    def _number(self, mark: str) -> Any:
        number = _FORMATS[mark]
        (value,) = number.unpack_from(self._data, self._at)
        self._at += number.size
        return value

    def _mark(self) -> str:
        self._at += 1
        return chr(self._data[self._at - 1])
