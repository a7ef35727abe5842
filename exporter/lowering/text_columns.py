"""Columns of strings: the categories that a model knows for each, and the tensors of requests that hold them.

In a plan a string is its number among its column's categories, see `kernels/format/inputs.py`. Encoders and imputers
that read the column are lowered to work on these numbers.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from triton_regressors.exporter.errors import ExportError
from triton_regressors.kernels.format.inputs import INTEGERS, NUMBERS, UNKNOWN, Inputs, IntegerInput, TextInput
from triton_regressors.kernels.format.text_steps import MadeColumn, MadeTexts, Texts, TextStep, function, run
from triton_regressors.kernels.ops.columns.columns import Columns
from triton_regressors.kernels.ops.columns.concatenate import Concatenate
from triton_regressors.kernels.ops.columns.expression import Expression
from triton_regressors.kernels.ops.columns.impute import Impute
from triton_regressors.kernels.ops.columns.lookup import Lookup
from triton_regressors.kernels.ops.linear.piecewise import Piecewise
from triton_regressors.kernels.plan.plan import INPUT, Operation, Plan
from triton_regressors.tables.columns import in_words
from triton_regressors.tables.frames import is_table
from triton_regressors.tables.values import is_missing

UNKNOWN_TEXT = "\N{REPLACEMENT CHARACTER}"
UNKNOWN_SHARE = 0.05
RESERVED = (NUMBERS, INTEGERS, "y", "std", "lower", "upper")


Made = tuple[Any, ...]
"""What a column is made of: a step's name, its arguments, and what it reads; `("column", number)` is a column."""


class TextColumns:
    """The columns of a model's input that the plan reads as category numbers; false while there is none.

    These are the columns of strings, and columns of whole numbers whose categories float64 cannot tell apart. They are
    found while the model is lowered.
    """

    def __init__(self, missing_strings: Sequence[str] = (), n_features: int = 0) -> None:
        """Take the strings that stand for a missing value in columns that do not have them as categories.

        The columns from `n_features` on are made of strings.
        """
        self._n_features = n_features
        self._made: dict[tuple[Made, bool], int] = {}
        self._spellings = tuple(missing_strings)
        self._categories: dict[int, dict[Any, int]] = {}
        self._whole: set[int] = set()
        self._closed: set[int] = set()
        self._open: set[int] = set()
        self._dropped: set[int] = set()
        self._missing: dict[int, Any] = {}
        self._groups: dict[int, str] = {}
        self._tabled: dict[int, int] = {}
        self.digits: dict[str, None] = {}  # whole numbers whose texts an encoder behind own code knows, in order

    def __bool__(self) -> bool:
        return bool(self._categories)

    def columns(self) -> list[int]:
        """Return the columns that hold strings."""
        return sorted(self._own().keys() - self._whole)

    def _own(self) -> dict[int, dict[Any, int]]:
        """Return the categories of the columns that are the user's."""
        return {column: known for column, known in self._categories.items() if column < self._n_features}

    def make(self, made: Made, text: bool) -> int:
        """Return the column of the plan's matrix that steps make of strings: a string's number if `text`."""
        return self._made.setdefault((made, text), self._n_features + len(self._made))

    def make_again(self, other: TextColumns) -> None:
        """Give columns that are made of strings the places that they had when the same model was lowered before."""
        self._made = dict(other._made)

    def found(self, made: Made) -> int | None:
        """Return the column of strings that these steps make; None if no step of the plan reads it by now."""
        return self._made.get((made, True))

    def made_of(self, column: int) -> Made:
        """Return what a column is made of: itself, if it is the user's."""
        return next((made for (made, _), place in self._made.items() if place == column), ("column", column))

    @property
    def made_count(self) -> int:
        """The number of columns that steps make of strings."""
        return len(self._made)

    @property
    def made(self) -> MadeTexts | None:
        """The columns that steps make of strings, None if there are none."""
        if not self._made:
            return None
        places: dict[Made, int] = {}
        steps: list[TextStep] = []

        def place(made: Made) -> int:
            if made not in places:
                name, *rest = made
                of = tuple(place(each) for each in (rest[1:] if name != "column" else ()))
                steps.append(TextStep(name, of, tuple(rest) if name == "column" else rest[0]))
                places[made] = len(steps) - 1
            return places[made]

        columns = tuple(
            MadeColumn(
                column,
                place(made),
                tuple(self._categories.get(column, ())) if text else None,
                column in self._closed,
            )
            for (made, text), column in self._made.items()
        )
        return MadeTexts(tuple(steps), columns)

    def completed(self, X: np.ndarray) -> np.ndarray:
        """Return rows of the plan's matrix with the columns that steps make of their strings."""
        made = self.made
        if made is None:
            return X
        given = X[:, : self._n_features]
        texts = {}
        for source in made.all_sources:
            known = [*self._categories[source], UNKNOWN_TEXT]
            numbers = given[:, source].tolist()
            texts[source] = Texts.of([None if number != number else known[int(number)] for number in numbers])
        found = run(made, texts, UNKNOWN)
        return np.column_stack([given, *(found[column.column] for column in made.columns)]).astype(X.dtype)

    def known(self, column: int) -> list[Any]:
        """Return the categories of a column that were found so far."""
        return list(self._categories.get(column, ()))

    def table(self, column: int, strings: Sequence[str]) -> None:
        """Record that a step has an answer for each of these strings, the first categories of a column, and no others.

        The other categories, if an estimator adds some later, are `untabled`.
        """
        self.numbers(column, strings)
        self._tabled[column] = len(strings)

    @property
    def untabled(self) -> dict[int, list[str]]:
        """The categories of columns for which some step has no answer; no column without such is named."""
        return {column: self.known(column) for column, count in self._tabled.items() if len(self.known(column)) > count}

    def missing(self, column: int) -> Any:
        """Return a column's missing value during the fit, None or NaN; NaN if the column had none."""
        return self._missing.get(column, np.nan)

    def group(self, columns: Iterable[int], name: str) -> None:
        """Name the tensor for these columns, unless they have one, in case they hold strings."""
        for column in (column for column in columns if column >= 0):
            self._groups.setdefault(int(column), name)

    def numbers(self, column: int, values: Sequence[Any]) -> np.ndarray:
        """Return the category numbers of a column's strings, NaN for a missing one; new strings become categories.

        Raises:
            ValueError: a value is neither a string nor None or NaN.
        """
        known = self._categories.setdefault(column, {})
        found = np.full(len(values), np.nan)
        for place, value in enumerate(values):
            if isinstance(value, str):
                found[place] = known.setdefault(str(value), len(known))
            elif is_missing(value):
                if not isinstance(self._missing.setdefault(column, value), type(value)):
                    raise ValueError("both None and NaN")
            else:
                raise ValueError(f"{value!r}, of type {type(value).__name__}, beside strings")
        return found

    def places(self, column: int, integers: Sequence[int]) -> np.ndarray:
        """Return the places of whole numbers among a column's categories; new numbers become categories."""
        self._whole.add(column)
        known = self._categories.setdefault(column, {})
        return np.array([known.setdefault(integer, len(known)) for integer in integers], dtype=np.float64)

    def close(self, column: int) -> None:
        """Have requests with an unknown category in this column refused, as scikit-learn refuses them."""
        if column not in self._open:
            self._closed.add(column)

    def open(self, column: int) -> None:
        """Have unknown categories in this column taken: a step in front of those that follow replaces them."""
        self._open.add(column)

    def drop(self, columns: Iterable[int]) -> None:
        """Say that a step drops columns of the input, which may hold anything; another step may still read them."""
        self._dropped |= {column for column in columns if column >= 0}

    def inputs(self, plan: Plan, numeric: Collection[int]) -> Inputs:
        """Return the input tensors of a lowered plan, before any pass; `numeric` are its columns if it has no strings.

        If there are columns of strings, the columns of numbers are those that a step of the plan reads.
        """
        dead = self._dropped - _columns_used(plan) if self._dropped else set()
        read = {column for column in _columns_read(plan) if column < self._n_features}
        if not self:
            return dataclasses.replace(Inputs.plain(plan.n_features), numeric=tuple(sorted(set(numeric) - dead)))
        numeric = sorted(read - self._categories.keys() - dead)
        groups: dict[str, list[int]] = {}
        for column in self.columns():
            groups.setdefault(self._groups.get(column, "text"), []).append(column)
        text: list[TextInput] = []
        for group, columns in groups.items():
            categories = tuple(tuple(self._categories[column]) for column in columns)
            closed = tuple(column in self._closed for column in columns)
            text.append(TextInput(_tensor_name(group, text), tuple(columns), categories, closed, self._spellings))
        whole = sorted(self._whole)
        known = tuple(tuple(self._categories[column]) for column in whole)
        integers = IntegerInput(tuple(whole), known, tuple(column in self._closed for column in whole))
        made = self.made
        if made is not None:
            made = dataclasses.replace(made, unread=tuple(each for each in made.all_sources if each not in read))
        return Inputs(plan.n_features, tuple(numeric), tuple(text), integers=integers, made=made)

    def draw(self, X: np.ndarray, rng: np.random.Generator) -> None:
        """Put random category numbers, some of them unknown if that is allowed, into rows `[rows, n_features]`."""
        for column, known in sorted(self._own().items()):
            X[:, column] = rng.integers(0, len(known), len(X)) if known else UNKNOWN
            if column not in self._closed:
                X[rng.random(len(X)) < UNKNOWN_SHARE, column] = UNKNOWN

    def fill(self, X: np.ndarray, table: Any, called: str = "The sample") -> None:
        """Put the category numbers of a table, a DataFrame or a matrix, into the plan's matrix `X`.

        `called` begins the sentence of an error.

        Raises:
            ExportError: the entry takes a string for a missing value, and the estimator does not.
        """
        for column, known in self._own().items():
            values = (table.iloc[:, column] if is_table(table) else table[:, column]).tolist()
            number = _place if column in self._whole else _number
            X[:, column] = [number(known, value) for value in values]
            spelt = {value for value in values if isinstance(value, str)} & set(self._spellings) - set(known)
            if spelt:
                name = table.columns[column] if is_table(table) else column
                raise ExportError(
                    f"{called}'s {in_words([name])} holds the string {min(spelt)!r}, which is not a category of "
                    "the model and which its entry takes for a missing value: give None, NaN or an empty string, or "
                    f"leave {min(spelt)!r} out of missing_strings (--missing-string)."
                )

    def asked(
        self,
        X: np.ndarray,
        names: Sequence[str] | None,
        integers: Iterable[int] = (),
        dates: Mapping[int, Any] = MappingProxyType({}),
    ) -> Any:
        """Return rows of the plan's matrix as `predict` takes them: with strings, in a DataFrame if it has names.

        Whole numbers in the columns `integers` become integers. `dates` are the columns of dates.
        """
        whole = {column: X[:, column] for column in integers if (X[:, column] == np.round(X[:, column])).all()}
        if not self and not whole and not dates and names is None:
            return X
        import pandas as pd

        columns: dict[int, Any] = {column: numbers.astype(np.int64) for column, numbers in whole.items()} | dict(dates)
        columns |= {column: self._values(column, X[:, column]) for column in self._own()}
        if names is None:
            if len(dates) == X.shape[1] and all(isinstance(values.dtype, np.dtype) for values in dates.values()):
                return np.column_stack([dates[column] for column in range(X.shape[1])])
            cells = X.astype(object)
            for column, values in columns.items():
                cells[:, column] = values.astype(object)
            return cells
        series = {name: columns.get(column, X[:, column]) for column, name in enumerate(names)}
        return pd.DataFrame({name: pd.Series(values, dtype=values.dtype) for name, values in series.items()})

    def _values(self, column: int, numbers: np.ndarray) -> np.ndarray:
        """Return the values of a column, given their category numbers."""
        known, missing = self._categories[column], self.missing(column)
        if column in self._whole:
            unknown = next(number for number in range(len(known) + 1) if number not in known)
            return np.array([*known, unknown], dtype=np.int64)[numbers.astype(np.int64)]  # −1 is the last
        texts = [*known, UNKNOWN_TEXT]
        values = np.empty(len(numbers), dtype=object)
        values[:] = [missing if np.isnan(number) else texts[int(number)] for number in numbers]
        return values


def made_rows(made: Made, given: Callable[[int], list[Any]]) -> list[Any]:
    """Return what steps make of the rows of a sample, None for a missing value; `given` returns a column of it."""
    name, *rest = made
    if name == "column":
        return [value if isinstance(value, str) else None for value in given(rest[0])]
    parts = [made_rows(each, given) for each in rest[1:]]
    if name == "join":
        return [None if None in pair else "".join(pair) for pair in zip(*parts, strict=True)]
    return [*map(function(TextStep(name, (0,), rest[0])), parts[0])]


def without_other_strings(inputs: Inputs, X: np.ndarray) -> tuple[Inputs, np.ndarray]:
    """Return inputs and rows of their matrix without the strings that neither a step of the plan nor a row holds.

    An entry does not need every name that its sample held if it only reads what steps make of names.
    """
    unread = () if inputs.made is None else inputs.made.unread
    if not unread:
        return inputs, X
    X, groups = X.copy(), []
    for group in inputs.text:
        categories = list(group.categories)
        for place, column in enumerate(group.columns):
            if column in unread:
                known, numbers = categories[place], X[:, column]
                used = {int(number) for number in numbers[numbers >= 0]}
                kept = sorted(used | {known.index(text) for text in ("", *group.missing) if text in known})
                found = np.array([*(kept.index(each) if each in kept else -1 for each in range(len(known))), -1])
                present = ~np.isnan(numbers)
                X[present, column] = found[numbers[present].astype(np.int64)]
                categories[place] = tuple(known[each] for each in kept)
        groups.append(dataclasses.replace(group, categories=tuple(categories)))
    return dataclasses.replace(inputs, text=tuple(groups)), X


def _number(known: dict[Any, int], value: Any) -> float:
    """Return the number of a string among a column's categories."""
    return np.nan if is_missing(value) else known.get(str(value), np.nan if value == "" else UNKNOWN)


def _place(known: dict[Any, int], value: Any) -> float:
    """Return the number of a whole number among a column's categories."""
    return known.get(value, UNKNOWN)  # 3.0 finds 3


def _columns_read(plan: Plan) -> set[int]:
    """Return the columns that a plan's steps select from its input; all of them if a step reads the whole input."""
    read: set[int] = set()
    for step in plan.steps:
        if INPUT in step.inputs:
            read |= _selected(step.operation, plan.n_features)
    return read


def chosen_columns(operation: Operation) -> np.ndarray | None:
    """Return the columns of its input that an operation names; None if it reads the whole input."""
    match operation:
        case Columns():
            return operation.indices
        case Expression() | Lookup():
            return operation.columns
        case Piecewise():
            return operation.source
    return None


def _selected(operation: Operation, width: int) -> set[int]:
    """Return the columns of its input that an operation reads."""
    columns = chosen_columns(operation)
    return set(range(width)) if columns is None else set(columns.tolist())


def _columns_used(plan: Plan) -> set[int]:
    """Return the columns of a plan's input that an output depends on, without those that are only passed on."""
    widths = plan.widths()
    used = {value: set(range(widths[value])) for value in plan.outputs.values()}
    for step in reversed(plan.steps):
        wanted, first = np.array(sorted(used.get(step.output, ())), dtype=np.int64), 0
        for name in step.inputs:
            taken: Any = range(widths[name]) if len(wanted) else ()
            match step.operation:
                case Columns(indices=indices):
                    taken = indices[wanted].tolist()
                case Impute(columns=columns, indicators=indicators):
                    taken = np.concatenate([columns, indicators])[wanted].tolist()
                case Expression() | Lookup():
                    taken = _selected(step.operation, widths[name]) if len(wanted) else ()
                case Piecewise(source=source):
                    taken = source[wanted].tolist()
                case Concatenate(columns=None):
                    taken = (wanted[(wanted >= first) & (wanted < first + widths[name])] - first).tolist()
                    first += widths[name]
            used[name] = used.get(name, set()) | set(taken)
    return used.get(INPUT, set())


def _tensor_name(group: str, others: Sequence[TextInput]) -> str:
    """Return a name for a group's tensor that no other tensor of the entry has."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", group)
    while name in RESERVED or any(name == other.name for other in others):
        name += "_text"
    return name
