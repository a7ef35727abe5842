"""An entry's input tensors and the matrix that its plan reads.

Most plans read one tensor `X`, FP32 or FP64, which is that matrix. If a model was fitted on columns of strings, each
group of these columns is a BYTES tensor of its own. In place of a string the matrix has its number among the column's
categories. It has NaN for an empty string or another spelling of a missing value that is not a category, and −1 for any
other string. Columns of whole numbers that FP32 would round may be an INT64 tensor of their own, `integers`. If float64
would round a column's categories too, the matrix has the places of the numbers among the categories. Columns of dates
are in `integers` too: whole nanoseconds since 1970-01-01 UTC, which become whole microseconds in the matrix. `X` holds
the other columns in training order, without those that the model drops. A column in no tensor is 0, and no kernel reads
it. The matrix may end with columns that steps make of strings, see `text_steps.py`, and a fleet's ends with the places
of models among their ids, which are BYTES or INT64 tensors of their own.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .id_columns import IdColumns
    from .text_steps import MadeTexts, Texts

NUMBERS = "X"
"""Name of the tensor of numbers."""

INTEGERS = "integers"
"""Name of the tensor of whole numbers."""

ONLY_CPU_INPUTS = "FORCE_CPU_ONLY_INPUT_TENSORS"
"""The parameter of a configuration that lets the server leave tensors in place ("no"), even in a GPU's memory."""

NAT = -(2**63)
"""The nanoseconds of a missing date."""

PER_MICROSECOND = 1000
EXACT_BITS = 53
EXACT = 2**EXACT_BITS
"""Up to this size float64 holds every whole number, and up to twice this size every even one."""

UNKNOWN = -1.0

MAX_STRING_BYTES = 4096
"""The most bytes of a request's string that is not a category, unless a configuration says otherwise."""

TOO_LONG = np.inf
"""The number of a string that is too long; every model refuses infinity."""


@dataclass(frozen=True)
class TextInput:
    """A BYTES tensor `[rows, len(columns)]`.

    `columns` are the plan's columns, and `categories` are the strings of each column. `closed` says for each column
    whether a string outside its categories is refused, as scikit-learn refuses it. `missing` are strings that stand for
    a missing value, like an empty string, in each column that does not have them as a category.
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

        A string of more than `max_bytes` that is not a category is `TOO_LONG`.
        """
        found = np.empty(strings.shape)
        for column in range(strings.shape[1]):
            found[:, column] = self.numbered(column, strings[:, column].tolist(), max_bytes)
        return found

    def numbered(self, column: int, texts: Sequence[bytes], max_bytes: float = np.inf) -> np.ndarray:
        """Return the numbers of strings of one column, float64 `[rows]`, as `encode` does."""
        each = map(self.numbers[column].get, texts, itertools.repeat(UNKNOWN))
        found = np.fromiter(each, dtype=np.float64, count=len(texts))
        unknown = np.flatnonzero(found == UNKNOWN).tolist()
        if unknown:
            found[unknown] = [TOO_LONG if len(texts[row]) > max_bytes else UNKNOWN for row in unknown]
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
class DateColumn:
    """A column of dates: the `unit` that its model was fitted on, s, ms, us or ns, and its time zone or None."""

    unit: str
    zone: str | None = None


@dataclass(frozen=True)
class IntegerInput:
    """An INT64 tensor `[rows, len(columns)]`, called `integers` unless it has a `name`, as ids of a fleet do.

    `columns` are the plan's columns. `categories` holds the ordered categories of each column whose categories float64
    does not tell apart, and nothing for a column of numbers. `closed` says for each column whether a number outside its
    categories is refused. `dates` says for each column whether it is one of dates; None if no column is.
    """

    columns: tuple[int, ...] = ()
    categories: tuple[tuple[int, ...], ...] = ()
    closed: tuple[bool, ...] = ()
    dates: tuple[DateColumn | None, ...] | None = None
    name: str | None = None

    @property
    def tensor(self) -> str:
        """The tensor's name."""
        return self.name or INTEGERS

    def encode(self, integers: np.ndarray) -> np.ndarray:
        """Return int64 `[rows, columns]` as the plan's numbers, float64 of the same shape."""
        found: np.ndarray = integers.astype(np.float64)
        for column in self._dates:
            found[:, column] = microseconds(integers[:, column])
        for column, (known, places) in self._known.items():
            given = integers[:, column]
            near = known[:-1].searchsorted(given)
            found[:, column] = np.where(known[near] == given, places[near], UNKNOWN)
        return found

    def decode(self, numbers: np.ndarray) -> np.ndarray:
        """Return int64 that have these numbers, `[rows, columns]`."""
        integers = np.empty(numbers.shape, dtype=np.int64)
        for column, categories in enumerate(self.categories):
            if categories:
                among = set(categories)
                unknown = next(number for number in range(len(categories) + 1) if number not in among)
                known = np.array([*categories, unknown], dtype=np.int64)  # UNKNOWN is the last
                integers[:, column] = known[numbers[:, column].astype(np.int64)]
            elif column in self.date_places():
                integers[:, column] = nanoseconds(numbers[:, column])
            else:
                integers[:, column] = numbers[:, column]
        return integers

    def date_places(self) -> dict[int, DateColumn]:
        """Return the places of the columns of dates in this tensor."""
        return dict(self._dates)

    @functools.cached_property
    def _dates(self) -> dict[int, DateColumn]:
        return {place: date for place, date in enumerate(self.dates or ()) if date is not None}

    @functools.cached_property
    def _known(self) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """Return, for each column with categories, its sorted categories and their places among them as given.

        The last category comes twice, so that a number above all of them has a place in the arrays too.
        """
        found = {}
        for column, categories in enumerate(self.categories):
            if categories:
                given = np.array(categories, dtype=np.int64)
                places = np.argsort(given, kind="stable")
                places = np.append(places, places[-1])
                found[column] = given[places], places.astype(np.float64)
        return found


@dataclass(frozen=True)
class Inputs:
    """The input tensors of a plan of `n_features` columns: `X` holds the columns `numeric`, each of `text` its own.

    `dtype` is that of `X`, float32 or float64. `integers` is the INT64 tensor of that name, which may have no columns.
    `categorical` are the columns of numbers that are compared with categories for equality. A client must not round
    these columns unless the rows behind the entry had float32 there. `float32` are the columns with float32, in which
    the entry answers the estimator's own float32; None if there are none. `made` are the columns that steps make of
    strings; None if there are none. `numbered` is the name of a tensor, INT32 `[rows, 1]`, that a request for a fleet
    may have in place of its models' ids: their places among the ids, which are the categories of the last column.
    `default` is the place of the model that answers rows with an unknown id; None: they are refused. `whole_ids` is the
    INT64 tensor of a fleet's ids, and `id_columns` are its tensors if there are several; both are None if they are
    strings in one tensor.
    """

    n_features: int
    numeric: tuple[int, ...]
    text: tuple[TextInput, ...] = ()
    dtype: str = "float32"
    integers: IntegerInput = IntegerInput()
    categorical: tuple[int, ...] = ()
    float32: tuple[int, ...] | None = None
    made: MadeTexts | None = None
    numbered: str | None = None
    default: int | None = None
    whole_ids: IntegerInput | None = None
    id_columns: IdColumns | None = None

    @staticmethod
    def plain(n_features: int, dtype: str = "float32") -> Inputs:
        """Return the inputs of a plan whose columns are all numbers of that type."""
        return Inputs(n_features, tuple(range(n_features)), dtype=dtype)

    @property
    def plain_matrix(self) -> bool:
        """Return whether `X` alone, unchanged, is the plan's matrix."""
        return not self.groups and len(self.numeric) == self.n_features

    @functools.cached_property
    def matrix_dtype(self) -> str:
        """The dtype of the plan's matrix: float64 if a tensor may hold numbers that float32 does not."""
        return "float64" if self.integers.columns else self.dtype

    @property
    def n_given(self) -> int:
        """The number of columns of the user's own; those that steps make of strings follow them."""
        return self.n_features - (len(self.made.columns) if self.made is not None else 0)

    @functools.cached_property
    def ids(self) -> tuple[str, ...]:
        """The names of the tensors with the ids of a fleet's models; none for a single model."""
        last = self.n_features - 1
        return tuple(name for name, columns in self.columns().items() if self.numbered and last in columns)

    @functools.cached_property
    def models(self) -> tuple[Any, ...]:
        """The ids of a fleet's models in the order of their numbers; none for a single model."""
        groups = self.groups if self.numbered else ()
        return next((each.categories[-1] for each in groups if self.n_features - 1 in each.columns), ())

    @functools.cached_property
    def _numeric(self) -> slice | list[int]:
        """The columns of `X` in the matrix."""
        return _index(self.numeric)

    @functools.cached_property
    def whole(self) -> tuple[IntegerInput, ...]:
        """The INT64 tensors."""
        return tuple(each for each in (self.integers, self.whole_ids) if each is not None and each.columns)

    @functools.cached_property
    def groups(self) -> tuple[IntegerInput | TextInput | IdColumns, ...]:
        """The tensors other than `X`."""
        return (*self.whole, *self.text, *(() if self.id_columns is None else (self.id_columns,)))

    def columns(self) -> dict[str, tuple[int, ...]]:
        """Return each tensor's columns of the plan's matrix."""
        numbers = {NUMBERS: self.numeric} if self.numeric else {}
        whole = {each.tensor: each.columns for each in self.whole}
        ids = {} if self.id_columns is None else dict.fromkeys(self.id_columns.names, self.id_columns.columns)
        return {**numbers, **whole, **{each.name: each.columns for each in self.text}, **ids}

    def datatypes(self) -> dict[str, str]:
        """Return what the server calls the type of each tensor."""
        numbers = {each.tensor: "INT64" for each in self.whole}
        numbers[NUMBERS] = "FP64" if self.dtype == "float64" else "FP32"
        if self.id_columns is not None:
            numbers |= self.id_columns.datatypes()
        return {name: numbers.get(name, "BYTES") for name in self.columns()}

    def encode(self, tensors: Mapping[str, np.ndarray], max_string_bytes: float = np.inf) -> np.ndarray:
        """Return the plan's matrix, `[rows, n_features]` of `matrix_dtype`, for the tensors of a request.

        A string of more than `max_string_bytes` that is not a category is `TOO_LONG`. A fleet's models are NaN without
        their ids and numbers.
        """
        rows = len(next(iter(tensors.values())))
        matrix = np.zeros((rows, self.n_features), dtype=self.matrix_dtype)
        if self.numeric:
            matrix[:, self._numeric] = tensors[NUMBERS]
        given = self.text
        if self.numbered is not None and self.ids[0] not in tensors:
            matrix[:, -1] = np.nan
            if self.numbered in tensors:
                numbers = tensors[self.numbered][:, 0]
                matrix[:, -1] = np.where((numbers >= 0) & (numbers < len(self.models)), numbers, UNKNOWN)
            given = tuple(group for group in given if group.name in tensors)
        elif self.id_columns is not None:
            matrix[:, -1] = self.id_columns.encode(tensors, UNKNOWN, max_string_bytes)
        for whole in self.whole:
            if whole.tensor in tensors:
                matrix[:, _index(whole.columns)] = whole.encode(tensors[whole.tensor])
        sources = () if self.made is None else self.made.all_sources
        read: dict[int, Texts] = {}
        refused: dict[int, np.ndarray] = {}
        for group in given:
            for place, column in enumerate(group.columns):
                texts = tensors[group.name][:, place].tolist()
                if column in sources:
                    from .text_steps import read_texts

                    numbered = functools.partial(group.numbered, place, max_bytes=max_string_bytes)
                    matrix[:, column], read[column], refused[column] = read_texts(numbered, texts, TOO_LONG)
                else:
                    matrix[:, column] = group.numbered(place, texts, max_string_bytes)
        if self.made is not None:
            from .text_steps import fill_columns

            fill_columns(matrix, self.made, read, refused, UNKNOWN, TOO_LONG)
        if self.default is not None:
            ids = matrix[:, -1]
            ids[ids == UNKNOWN] = self.default
        return matrix

    def decode(self, matrix: np.ndarray) -> dict[str, np.ndarray]:
        """Return tensors that `encode` turns into this matrix: numbers of their types, and bytes in object arrays."""
        tensors = {}
        if self.numeric:
            tensors[NUMBERS] = np.ascontiguousarray(matrix[:, list(self.numeric)].astype(self.dtype))
        for whole in self.whole:
            tensors[whole.tensor] = whole.decode(matrix[:, whole.columns])
        if self.id_columns is not None:
            tensors |= self.id_columns.decode(matrix[:, -1])
        return {**tensors, **{group.name: group.decode(matrix[:, group.columns]) for group in self.text}}

    def rounded(self, X: np.ndarray) -> np.ndarray:
        """Return rows of the plan's matrix, float64, with each number as its tensor holds it."""
        rounded: np.ndarray = X.copy()
        with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinity
            rounded[:, self.numeric] = X[:, self.numeric].astype(self.dtype)
        return rounded

    def place(self, column: int) -> tuple[str, int]:
        """Return the tensor that a column of the plan's matrix comes from, and its column there."""
        column = self.source(column)
        return next((name, columns.index(column)) for name, columns in self.columns().items() if column in columns)

    def source(self, column: int) -> int:
        """Return the user's column that a column of the matrix is, or is made of; the first of several."""
        if self.made is None or column < self.n_given:
            return column
        return self.made.sources(self.made.columns[column - self.n_given])[0]

    @property
    def closed(self) -> list[int]:
        """The columns of the matrix that hold no `UNKNOWN`."""
        pairs = [pair for group in self.groups for pair in zip(group.columns, group.closed, strict=True)]
        made = self.made.columns if self.made is not None else ()
        return [column for column, closed in pairs if closed] + [each.column for each in made if each.closed]

    @property
    def dates(self) -> dict[int, DateColumn]:
        """The columns of the matrix that hold dates."""
        return {self.integers.columns[place]: date for place, date in self.integers.date_places().items()}

    @property
    def coded(self) -> list[int]:
        """The columns of the matrix that hold the places of categories, or `UNKNOWN`, and those made of strings."""
        of = [(group, *pair) for group in self.groups for pair in zip(group.columns, group.categories, strict=True)]
        made = range(self.n_given, self.n_features)
        return [column for group, column, known in of if known or group is not self.integers] + [*made]

    @property
    def choosing(self) -> list[int]:
        """The columns of `coded` whose `UNKNOWN` is an unknown category of the model."""
        unread = self.made.unread if self.made is not None else ()
        return [column for column in self.coded if column not in unread]


def _index(columns: tuple[int, ...]) -> slice | list[int]:
    """Return columns as an index of arrays: a slice, which is copied faster, if they are neighbours in order."""
    if columns and columns == tuple(range(columns[0], columns[0] + len(columns))):
        return slice(columns[0], columns[0] + len(columns))
    return list(columns)


def microseconds(dates: np.ndarray) -> np.ndarray:
    """Return nanoseconds since 1970, int64, as a plan's float64: microseconds rounded down, NaN for `NAT`.

    Beyond `EXACT`, before 1684 and after 2255, they are rounded down to even microseconds, which float64 holds.
    """
    whole = dates // PER_MICROSECOND
    whole -= whole & (np.abs(whole) >> EXACT_BITS)  # 1 for an odd number beyond: none is as large as 2 ** 54
    found: np.ndarray = whole.astype(np.float64)
    found[dates == NAT] = np.nan
    return found


def nanoseconds(numbers: np.ndarray) -> np.ndarray:
    """Return int64 nanoseconds that `microseconds` turns into these numbers, which are whole or NaN."""
    missing = np.isnan(numbers)
    whole = np.where(missing, 0, numbers).astype(np.int64)
    found: np.ndarray = np.maximum(whole, NAT // PER_MICROSECOND + 1) * PER_MICROSECOND  # the earliest date is above
    found[missing] = NAT
    return found
