"""An entry's input tensors and the matrix that its plan reads.

Most plans read one float32 tensor `X`, which is that matrix. Where a model was fitted on columns of strings, each group
of these is a BYTES tensor of its own, `X` holds the other columns, in training order, and the matrix has for a string
its number among the column's categories: −1 if it is none of them, NaN for an empty string, or another spelling of a
missing value, that is none of them. What `X` leaves out and no group has is read by no kernel, and 0.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

NUMBERS = "X"
"""Name of the tensor of numbers."""

UNKNOWN = -1.0

MAX_STRING_BYTES = 4096
"""How long a string of a request may be that is no category, unless a configuration says otherwise."""

TOO_LONG = np.inf
"""Of a string that is longer than a request's may be; no model takes infinity."""


@dataclass(frozen=True)
class TextInput:
    """A BYTES tensor `[rows, len(columns)]`.

    `columns` are the plan's columns, `categories` are the strings of each, and `closed` says of each whether a string
    that is none of its categories is refused, as scikit-learn refuses it. `missing` are strings that stand for a
    missing value, as an empty one does, in each column of which they are no category.
    """

    name: str
    columns: tuple[int, ...]
    categories: tuple[tuple[str, ...], ...]
    closed: tuple[bool, ...]
    missing: tuple[str, ...] = ()

    @functools.cached_property
    def numbers(self) -> list[dict[bytes, float]]:
        """Return, for each column, the number of each of its strings in UTF-8."""
        missing = {text.encode(): np.nan for text in ("", *self.missing)}
        return [
            {**missing, **{text.encode(): float(number) for number, text in enumerate(categories)}}
            for categories in self.categories
        ]

    def encode(self, strings: np.ndarray, max_bytes: float = np.inf) -> np.ndarray:
        """Return the numbers of strings, bytes `[rows, columns]`, as float64 of the same shape.

        A string of more than `max_bytes` that is no category is `TOO_LONG`.
        """
        found = np.empty(strings.shape)
        for column, numbers in enumerate(self.numbers):
            found[:, column] = [numbers.get(text, UNKNOWN) for text in strings[:, column].tolist()]
        unknown = found == UNKNOWN
        if unknown.any():
            found[unknown] = [TOO_LONG if len(text) > max_bytes else UNKNOWN for text in strings[unknown].tolist()]
        return found

    def decode(self, numbers: np.ndarray) -> np.ndarray:
        """Return strings, bytes in an object array, that have these numbers, `[rows, columns]`."""
        strings = np.empty(numbers.shape, dtype=object)
        for column, categories in enumerate(self.categories):
            unknown = "unknown"
            while unknown in categories:
                unknown += "?"
            for row, number in enumerate(numbers[:, column]):
                text = "" if np.isnan(number) else unknown if number < 0 else categories[int(number)]
                strings[row, column] = text.encode()
        return strings


@dataclass(frozen=True)
class Inputs:
    """The input tensors of a plan of `n_features` columns: `X` holds the columns `numeric`, each of `text` its own."""

    n_features: int
    numeric: tuple[int, ...]
    text: tuple[TextInput, ...] = ()

    @staticmethod
    def plain(n_features: int) -> Inputs:
        """Return the inputs of a plan whose every column is a number."""
        return Inputs(n_features, tuple(range(n_features)))

    def columns(self) -> dict[str, tuple[int, ...]]:
        """Return each tensor's columns of the plan's matrix."""
        return {**({NUMBERS: self.numeric} if self.numeric else {}), **{each.name: each.columns for each in self.text}}

    def encode(self, tensors: Mapping[str, np.ndarray], max_string_bytes: float = np.inf) -> np.ndarray:
        """Return the plan's matrix, float32 `[rows, n_features]`, for the tensors of a request.

        A string of more than `max_string_bytes` that is no category is `TOO_LONG`.
        """
        rows = len(next(iter(tensors.values())))
        matrix = np.zeros((rows, self.n_features), dtype=np.float32)
        if self.numeric:
            matrix[:, self.numeric] = tensors[NUMBERS]
        for group in self.text:
            matrix[:, group.columns] = group.encode(tensors[group.name], max_string_bytes)
        return matrix

    def decode(self, matrix: np.ndarray) -> dict[str, np.ndarray]:
        """Return tensors that `encode` makes this matrix of: float32, and bytes in object arrays."""
        tensors = {NUMBERS: np.ascontiguousarray(matrix[:, list(self.numeric)])} if self.numeric else {}
        return {**tensors, **{group.name: group.decode(matrix[:, group.columns]) for group in self.text}}

    def place(self, column: int) -> tuple[str, int]:
        """Return the tensor that a column of the plan's matrix comes from, and its column there."""
        return next((name, columns.index(column)) for name, columns in self.columns().items() if column in columns)

    @property
    def closed(self) -> list[int]:
        """The columns of the matrix that hold no `UNKNOWN`."""
        return [
            column for group in self.text for column, closed in zip(group.columns, group.closed, strict=True) if closed
        ]

    def to_json(self) -> dict[str, Any] | None:
        """Return the inputs as `plan.json` holds them under "inputs"; None where `X` is the plan's matrix."""
        return {"numeric": list(self.numeric), "text": [asdict(group) for group in self.text]} if self.text else None

    @staticmethod
    def from_json(n_features: int, document: Mapping[str, Any] | None) -> Inputs:
        """Return the inputs that `to_json` wrote for a plan of `n_features` columns."""
        if document is None:
            return Inputs.plain(n_features)
        return Inputs(n_features, tuple(document["numeric"]), tuple(map(_text_input, document["text"])))


def _text_input(document: Mapping[str, Any]) -> TextInput:
    fields: dict[str, Sequence[Any]] = {
        name: tuple(document.get(name, ())) for name in ("columns", "closed", "missing")
    }
    return TextInput(document["name"], categories=tuple(map(tuple, document["categories"])), **fields)  # type: ignore[arg-type]
