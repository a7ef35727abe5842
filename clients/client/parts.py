"""Tables that are larger than a request: cut into parts, asked one by one, and joined again."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from triton_regressors.clients.client.tensors import Tensors, row_count, take
from triton_regressors.clients.errors import InferenceError, ModelNotFound, ServerUnavailable

ROW = re.compile(r"(?<=\brow )\d+|(?<=^Row )\d+|(?<=\[)\d+(?=, \d+\])")
"""The forms in which a message names the first wrong row: row 3, Row 3 of column, X[3, 1]."""

_ROW = re.compile(r"(^|: )row (\d+)\b")
"""The form in which a model's error names a row of its request: at the start, or after the name of an input."""


@dataclass(frozen=True)
class Answer:
    """A model's answer to one request, and the version that gave it. outputs: name → array [rows, width]."""

    version: str
    outputs: dict[str, np.ndarray]

    @property
    def origin(self) -> tuple[object, ...]:
        """The version and the shape of a row; answers may be joined only if these are equal."""
        return self.version, *((name, array.shape[1:]) for name, array in self.outputs.items())


class Answers(dict[str, np.ndarray]):
    """Output name → float32 [rows, width]; `refused` has the reason for each row that was refused, by its number.

    `column` says that the estimator's `predict` answers one target as [rows, 1].
    """

    refused: dict[int, str]
    column: bool

    def __init__(
        self, outputs: Mapping[str, np.ndarray], refused: Mapping[int, str] | None = None, column: bool = False
    ) -> None:
        super().__init__(outputs)
        self.refused, self.column = dict(refused or {}), column

    def among(self, rows: np.ndarray, refused: Mapping[int, str]) -> "Answers":
        """Return the answers to a whole table, from these answers to `rows` and the refused other rows."""
        whole = {}
        for name, array in self.items():
            whole[name] = np.full((len(rows) + len(refused), array.shape[1]), np.nan, array.dtype)
            whole[name][rows] = array
        own = {int(rows[row]): renumbered(why, int(rows[row]) - row) for row, why in self.refused.items()}
        return Answers(whole, dict(sorted({**own, **refused}.items())), self.column)

    def as_predicted(self, name: str) -> np.ndarray:
        """Return an output in the shape of the estimator's `predict`."""
        return as_predicted(self[name], self.column)


@dataclass(frozen=True)
class Part:
    """The rows first, first + 1, ..., stop − 1 of a table of `total` rows."""

    first: int
    stop: int
    total: int

    def of(self, tensors: Tensors) -> Tensors:
        """Return these rows of the table."""
        return take(tensors, slice(self.first, self.stop))

    def error(self, error: InferenceError) -> InferenceError:
        """Return the error of the part's request, with the row that it names counted in the whole table.

        An error that names no row gets the part's range of rows, unless the server or the model is missing.
        """
        if self.stop - self.first == self.total or isinstance(error, (ModelNotFound, ServerUnavailable)):
            return error
        text, named = _ROW.subn(lambda row: f"{row[1]}row {int(row[2]) + self.first}", str(error), count=1)
        rows = f"row {self.first}" if self.stop - self.first == 1 else f"rows {self.first} to {self.stop - 1}"
        return type(error)(text if named else f"{text.removesuffix('.')} ({rows} of {self.total:,}).")


def cut(tensors: Tensors, max_rows: int, max_bytes: int, answer_bytes: int) -> list[Part]:
    """Cut a table into parts of at most `max_rows` rows and, except for parts of one row, `max_bytes` bytes.

    Args:
        tensors: the table.
        max_rows: 0: the table stays whole, whatever its size.
        max_bytes: of a part's tensors, and of its answer.
        answer_bytes: of one row's answer.
    """
    total = row_count(tensors)
    if not max_rows:
        return [Part(0, total, total)]
    numbers = sum(array.nbytes // total for array in tensors.values() if array.dtype != object)
    strings = [array for array in tensors.values() if array.dtype == object]
    if not strings:
        rows = min(max_rows, max(max_bytes // max(numbers, answer_bytes, 1), 1))
        return [Part(first, min(first + rows, total), total) for first in range(0, total, rows)]
    sizes = numbers + sum(_string_bytes(array) for array in strings)  # [total]
    ends, parts, first = np.cumsum(np.maximum(sizes, answer_bytes)), list[Part](), 0
    while first < total:
        before = ends[first - 1] if first else 0
        fit = int(np.searchsorted(ends, before + max_bytes, side="right"))
        stop = min(max(fit, first + 1), first + max_rows, total)
        parts.append(Part(first, stop, total))
        first = stop
    return parts


def joined(answers: Sequence[Answer]) -> dict[str, np.ndarray]:
    """Return the answers to a table's parts as one: output name → array [rows, width]."""
    first = answers[0].outputs
    if len(answers) == 1:
        return first
    return {name: np.concatenate([answer.outputs[name] for answer in answers]) for name in first}


def named_row(sentence: str) -> int | None:
    """Return the row that a sentence names first, or None if it names none."""
    found = ROW.search(sentence)
    return int(found[0]) if found else None


def renumbered(sentence: str, first: int) -> str:
    """Return a message about rows that begin at another table's row `first`, with the row counted in that table."""
    return ROW.sub(lambda row: str(int(row[0]) + first), sentence, count=1)


def as_predicted(answer: np.ndarray, column: bool) -> np.ndarray:
    """Return an output `[rows, width]` in the shape of the estimator's `predict`.

    One target is `[rows]`, or `[rows, 1]` with `column`. Several targets are `[rows, n_targets]`.
    """
    return answer.reshape(-1) if answer.shape[1:] == (1,) and not column else answer


def _string_bytes(array: np.ndarray) -> np.ndarray:
    """Return the bytes that each row of strings takes in a request: those of each string, and four for its length."""
    lengths = np.fromiter(map(len, array.ravel()), np.int64, array.size)
    return np.asarray((lengths + 4).reshape(array.shape).sum(axis=1))
