"""Columns of strings: which categories a model knows of each, and the tensors that requests bring them in.

In a plan a string is its number among its column's categories, see `kernels/inputs.py`. Whatever reads the column,
encoder or imputer, is lowered to work on these numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from triton_regressors.exporter.errors import ExportError
from triton_regressors.kernels.inputs import NUMBERS, UNKNOWN, Inputs, TextInput
from triton_regressors.kernels.ops.columns import Columns
from triton_regressors.kernels.plan import INPUT, Plan

UNKNOWN_TEXT = "\N{REPLACEMENT CHARACTER}"
UNKNOWN_SHARE = 0.05
RESERVED = (NUMBERS, "y", "std")

MISSING_STRINGS = ("None", "nan", "NaN", "<NA>", "NaT")
"""What clients that make a string of every value, as tritonclient does, send for None, NaN and pandas' own."""


class TextColumns:
    """The columns of a model's input that hold strings, found while it is lowered; false while there is none."""

    def __init__(self) -> None:
        self._categories: dict[int, dict[str, int]] = {}
        self._closed: set[int] = set()
        self._missing: dict[int, Any] = {}
        self._groups: dict[int, str] = {}

    def __bool__(self) -> bool:
        return bool(self._categories)

    def columns(self) -> list[int]:
        """Return the columns that hold strings."""
        return sorted(self._categories)

    def group(self, columns: Iterable[int], name: str) -> None:
        """Name the tensor that these columns come in, unless they have one, in case they hold strings."""
        for column in columns:
            self._groups.setdefault(int(column), name)

    def numbers(self, column: int, values: Sequence[Any]) -> np.ndarray:
        """Return the numbers of strings of a column, which learns those that it does not know; NaN for a missing one.

        Raises `ValueError` for a value that is neither a string nor None or NaN.
        """
        known = self._categories.setdefault(column, {})
        found = np.full(len(values), np.nan)
        for place, value in enumerate(values):
            if isinstance(value, str):
                found[place] = known.setdefault(str(value), len(known))
            elif _is_missing(value):
                if not isinstance(self._missing.setdefault(column, value), type(value)):
                    raise ValueError("both None and NaN")
            else:
                raise ValueError(f"{value!r}, of type {type(value).__name__}, beside strings")
        return found

    def close(self, column: int) -> None:
        """Have requests refused whose string is none of the column's categories, as scikit-learn refuses it."""
        self._closed.add(column)

    def inputs(self, plan: Plan, missing: tuple[str, ...] = ()) -> Inputs:
        """Return the input tensors of a lowered plan, before any pass. Columns that nothing reads are in none.

        `missing` are strings that stand for a missing value where they are no category.
        """
        if not self:
            return Inputs.plain(plan.n_features)
        numeric = sorted(_columns_read(plan) - self._categories.keys())
        groups: dict[str, list[int]] = {}
        for column in sorted(self._categories):
            groups.setdefault(self._groups.get(column, "text"), []).append(column)
        text: list[TextInput] = []
        for group, columns in groups.items():
            categories = tuple(tuple(self._categories[column]) for column in columns)
            closed = tuple(column in self._closed for column in columns)
            text.append(TextInput(_tensor_name(group, text), tuple(columns), categories, closed, missing))
        return Inputs(plan.n_features, tuple(numeric), tuple(text))

    def draw(self, X: np.ndarray, rng: np.random.Generator) -> None:
        """Put numbers of categories, and now and then of none where that is allowed, into rows `[rows, n_features]`."""
        for column, known in sorted(self._categories.items()):
            X[:, column] = rng.integers(0, len(known), len(X)) if known else UNKNOWN
            if column not in self._closed:
                X[rng.random(len(X)) < UNKNOWN_SHARE, column] = UNKNOWN

    def rows(self, table: Any, names: Sequence[str] | None, inputs: Inputs) -> np.ndarray:
        """Return a table of numbers and strings, a DataFrame or a matrix, as the plan's matrix, float64.

        `names` are the columns to take from a DataFrame, in order. What no tensor of `inputs` holds becomes 0.
        Raises `ExportError` where something does not fit.
        """
        if names is not None and hasattr(table, "columns"):
            absent = [name for name in names if name not in table.columns]
            if absent:
                raise ExportError(f"The sample lacks the column '{absent[0]}'.")
            table = table[list(names)]
        cells = np.asarray(table, dtype=object)
        width = inputs.n_features
        if cells.ndim != 2 or cells.shape[1] != width or not len(cells):
            raise ExportError(f"The sample must be [rows, {width}] with at least one row, not {list(cells.shape)}.")
        X = np.zeros(cells.shape)
        for column in inputs.numeric:
            try:
                X[:, column] = cells[:, column].astype(np.float64)
            except (TypeError, ValueError) as error:
                name = "" if names is None else f" ('{names[column]}')"
                raise ExportError(f"The sample's column {column}{name} must be numbers: {error}.") from None
        for group in inputs.text:
            for column in group.columns:
                known = self._categories[column]
                strings = ["" if _is_missing(value) else str(value) for value in cells[:, column]]
                misspelt = next((text for text in strings if text in group.missing and text not in known), None)
                if misspelt is not None:
                    name = "" if names is None else f" ('{names[column]}')"
                    raise ExportError(
                        f"The sample's column {column}{name} holds the string {misspelt!r}, which is no category of "
                        "the model and which its entry takes for a missing value: give None, NaN or an empty string, "
                        f"or leave {misspelt!r} out of missing_strings (--missing-string)."
                    )
                numbers = {"": np.nan, **known}
                X[:, column] = [numbers.get(text, UNKNOWN) for text in strings]
        return X

    def asked(self, X: np.ndarray, names: Sequence[str] | None) -> Any:
        """Return rows of the plan's matrix as the estimator is asked: with strings, in a DataFrame if it has names."""
        import pandas as pd

        cells = X.astype(object)
        for column, known in self._categories.items():
            texts = [*known, UNKNOWN_TEXT]  # −1 is the last
            missing = self._missing.get(column, np.nan)
            cells[:, column] = [missing if np.isnan(number) else texts[int(number)] for number in X[:, column]]
        if names is None:
            return cells
        columns = {
            name: pd.Series(cells[:, column], dtype=object if column in self._categories else np.float64)
            for column, name in enumerate(names)
        }
        return pd.DataFrame(columns)


def _is_missing(value: Any) -> bool:
    """Whether a value stands for a missing string: None, NaN, or pandas' own."""
    return value is None or type(value).__name__ == "NAType" or value != value


def _columns_read(plan: Plan) -> set[int]:
    """Return the columns that a plan's steps select of its input; all of them where a step reads it as it is."""
    readers = [step.operation for step in plan.steps if INPUT in step.inputs]
    read: set[int] = set()
    for operation in readers:
        read |= set(operation.indices.tolist() if isinstance(operation, Columns) else range(plan.n_features))
    return read


def _tensor_name(group: str, others: Sequence[TextInput]) -> str:
    """Return a name for a group's tensor that no other tensor of the entry has."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", group)
    while name in RESERVED or any(name == other.name for other in others):
        name += "_text"
    return name
