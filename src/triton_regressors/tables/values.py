"""The values of users' tables and matrices: which are numbers, which are strings, and which are missing.

A cell is a number if it is a float, an integer, a boolean or a Decimal; None, NaN and pandas' missing values are a
missing number. Strings and dates are not numbers. A cell is a string if it is str, or bytes in UTF-8; a missing one is
None, NaN or pandas' own. A .csv holds only text, so its cells have a separate rule, `number_in`: a number, a boolean or
nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import numpy as np

from triton_regressors.tables.columns import in_words, quoted
from triton_regressors.tables.errors import TableError
from triton_regressors.tables.frames import is_table

NUMERIC_KINDS = "fiub"
"""The kinds of numpy's dtypes that are numbers."""

PLAIN_NUMBERS = frozenset(map(np.dtype, ("int64", "float64", "bool")))
"""The dtypes of categories that are converted by their codes."""

MISSING_WORDS = frozenset(
    {"", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"}
    | {"<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"}
)
"""The cells of a .csv that are a missing number, the same as in pandas."""

BOOLEAN_WORDS = {"True": True, "TRUE": True, "true": True, "False": False, "FALSE": False, "false": False}
"""The cells of a .csv that are a boolean."""

FEW = 512
"""The values of a column that tell whether strings are often the same."""

MOST_DIGITS = 20
"""Integers with more digits than this are read as floats: int64 cannot hold them."""


class WrongColumn(ValueError):  # noqa: N818
    """A column is not of the wanted `kind`, "number", "string" or "date"; `holds` says what it is instead."""

    def __init__(self, kind: str, holds: str) -> None:
        super().__init__(f"it {holds}")
        self.kind, self.holds = kind, holds


class WrongCell(WrongColumn):
    """A column holds a value that is not of the wanted kind: `value` in `row`; `why` ends the clause."""

    def __init__(self, kind: str, row: int, value: object, why: str = "") -> None:
        super().__init__(kind, f"holds {value!r} in row {row}{why}")
        self.row, self.value, self.why = row, value, why

    def of_row(self, column: object) -> str:
        """Return the message about this row of a column."""
        what = self.why or f", which is not a {self.kind}"
        return f"Row {self.row} of column {quoted(column)} holds {self.value!r}{what}."


def wrong_columns(wrong: Mapping[Any, WrongColumn], called: str = "The table") -> TableError:
    """Return the error of columns that are not of the wanted kind, by name; `called` begins its sentence."""
    (first, error), *others = wrong.items()
    who = quoted(first) if others else "it"
    return TableError(f"{called}'s {in_words(list(wrong))} must be {error.kind}s: {who} {error.holds}.")


def numbers(rows: Any, called: str, names: Sequence[Any] = (), *, whole: bool = False) -> np.ndarray:
    """Return a DataFrame or a matrix of any dtype as a matrix of numbers; a missing one is NaN.

    A matrix of numbers is returned as it is. Anything else becomes float64, or with `whole` int64 or uint64 if all
    columns are of integers, so that the array holds them exactly. `called` begins the sentence of an error, and `names`
    are those of a matrix's columns, if it has any.

    Raises:
        TableError: columns hold something else, with their names.
    """
    if is_table(rows):
        dtypes = set(rows.dtypes)
        dtype = next(iter(dtypes)) if len(dtypes) == 1 and not whole else None
        if isinstance(dtype, np.dtype) and dtype.kind in NUMERIC_KINDS:
            return np.asarray(rows.to_numpy(dtype=np.float64))
    elif rows.dtype.kind in NUMERIC_KINDS:
        return np.asarray(rows)
    found = _converted(rows, column_numbers, called, names)
    exact = whole and bool(found) and all(column.dtype.kind in "iub" for column in found)
    large = exact and any(column.dtype.kind == "u" and (column >= 2**63).any() for column in found)
    matrix = np.empty(rows.shape, dtype=np.uint64 if large else np.int64 if exact else np.float64)
    for place, column in enumerate(found):
        matrix[:, place] = column
    return matrix


def strings(rows: Any, called: str, names: Sequence[Any] = ()) -> np.ndarray:
    """Return a DataFrame or a matrix of objects as strings: bytes in UTF-8 `[rows, columns]`; a missing one is empty.

    The arguments are those of `numbers`.

    Raises:
        TableError: columns hold something else, with their names.
    """
    matrix = np.empty(rows.shape, dtype=object)
    for place, column in enumerate(_converted(rows, column_strings, called, names)):
        matrix[:, place] = column
    return matrix


def _converted(rows: Any, convert: Callable[[Any], np.ndarray], called: str, names: Sequence[Any]) -> list[np.ndarray]:
    """Return every column of a DataFrame or a matrix, converted; raise `TableError` with all that cannot be."""
    found, wrong = list[np.ndarray](), dict[Any, WrongColumn]()
    for name, column in each_column(rows, names):
        try:
            found.append(convert(column))
        except WrongCell as error:
            wrong.setdefault(name, error)
    if wrong:
        raise wrong_columns(wrong, called)
    return found


def each_column(rows: Any, names: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield each column of a DataFrame or a matrix with its name, or its number if it has none."""
    for place in range(rows.shape[1]):
        if is_table(rows):
            yield rows.columns[place], rows.iloc[:, place]
        else:
            yield names[place] if place < len(names) else place, rows[:, place]


def column_numbers(column: Any) -> np.ndarray:
    """Return a column, of a DataFrame or an array, as numbers `[rows]`; a missing one is NaN.

    Integers and booleans keep their type if none is missing, and Decimals that are whole numbers become int64.

    Raises:
        WrongCell: it holds something else.
    """
    dtype = column.dtype
    if isinstance(dtype, np.dtype):
        if dtype.kind in NUMERIC_KINDS:
            return np.asarray(column)
        return _of_cells(list(column) if dtype.kind in "mM" else column.tolist())  # tolist makes integers of dates
    if dtype.kind in NUMERIC_KINDS:
        if column.isna().any():
            return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
        return np.asarray(column.to_numpy(dtype={"b": np.bool_, "i": np.int64, "u": np.uint64}.get(dtype.kind, float)))
    if dtype.kind == "O" and getattr(getattr(dtype, "categories", None), "dtype", None) in PLAIN_NUMBERS:
        codes, categories = column.cat.codes.to_numpy(), np.asarray(dtype.categories)
        if (codes >= 0).all():
            return np.asarray(categories[codes])
        return np.asarray(np.append(categories.astype(np.float64), np.nan)[codes])
    return _of_cells(column.to_numpy(dtype=object).tolist())


def column_strings(column: Any) -> np.ndarray:
    """Return a column, of a DataFrame or an array, as bytes in UTF-8 `[rows]`; a missing string is empty.

    If strings are often the same, there is one object for each that differs: it is made and hashed once.

    Raises:
        WrongCell: it holds something else.
    """
    if getattr(column.dtype, "storage", None) == "pyarrow":
        return arrow_strings(column.array.__arrow_array__())
    found = np.empty(len(column), dtype=object)
    values = np.asarray(column, dtype=object).tolist()
    try:
        distinct = dict.fromkeys(values) if 2 * len(set(values[:FEW])) <= len(values[:FEW]) else None
    except TypeError:  # what cannot be hashed is no string
        distinct = None
    if distinct is not None:
        texts = {value: _utf8(value) for value in distinct}
        if None not in texts.values():
            found[:] = [*map(texts.__getitem__, values)]
            return found
    for row, value in enumerate(values):
        text = _utf8(value)
        if text is None:
            raise WrongCell("string", row, value)
        found[row] = text
    return found


def arrow_strings(column: Any) -> np.ndarray:
    """Return an array of pyarrow's strings, in chunks or not, as bytes in UTF-8, a missing one empty.

    There is one object for each string that differs.
    """
    chunks = getattr(column, "chunks", [column])
    return np.concatenate([_of_chunk(chunk) for chunk in chunks]) if chunks else np.empty(0, dtype=object)


def _of_chunk(chunk: Any) -> np.ndarray:
    coded = chunk.dictionary_encode()
    words = [b"" if word is None else word.encode() for word in coded.dictionary.to_pylist()]
    known = np.array([*words, b""], dtype=object)  # the last for those that are missing
    places = coded.indices.fill_null(len(words)) if coded.indices.null_count else coded.indices
    return np.asarray(known[places.to_numpy(zero_copy_only=False)])


def is_missing(value: object) -> bool:
    """Return whether a value is missing: None, NaN, or one of pandas' own."""
    if isinstance(value, float | np.floating):
        return bool(value != value)
    return value is None or is_na(value)


def is_na(value: object) -> bool:
    """Return whether a value is one of pandas' own missing values."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and (value is pandas.NA or value is pandas.NaT)


def number_in(cell: str) -> float | None:
    """Return the number in a cell of a .csv, an integer exactly; NaN if it is missing, None if it is not a number."""
    word = cell.strip()
    if word in MISSING_WORDS:
        return np.nan
    if word in BOOLEAN_WORDS:
        return BOOLEAN_WORDS[word]
    if "_" in word or not word.isascii():  # Python reads 1_000 and other scripts' digits
        return None
    try:
        return int(word) if len(word) <= MOST_DIGITS and word.lstrip("+-").isdecimal() else float(word)
    except ValueError:
        return None


def cell_numbers(
    cells: Sequence[Any], column: object = None, refused: dict[int, str] | None = None, *, written: bool
) -> np.ndarray:
    """Return cells of a column as numbers `[rows]`, NaN for a missing one.

    With `refused` a cell that is not a number also becomes NaN, and `refused` gets a sentence about its row if it has
    none. With `written` the cells are a .csv's, and strings are read by `number_in`; otherwise no string is a number.

    Raises:
        WrongCell: a cell is not a number, and `refused` is not given.
    """
    found: list[Any] = []
    for row, cell in enumerate(cells):
        number = number_in(cell) if written and isinstance(cell, str) else cell
        if (number is None and cell is not None) or not _is_number(number):
            error = WrongCell("number", row, cell)
            if refused is None:
                raise error
            number = np.nan
            refused.setdefault(row, error.of_row(column))
        found.append(number)
    numbers = _of_cells(found)
    return numbers.astype(np.bool_) if found and all(isinstance(number, bool) for number in found) else numbers


def _of_cells(values: list[Any]) -> np.ndarray:
    """Return Python's numbers as an array, exact if all of them are whole."""
    kinds = set(map(type, values))
    missing = {kind for kind in kinds if kind is type(None) or kind.__name__ in ("NAType", "NaTType")}
    if not all(map(_of_numbers, kinds - missing)):
        wrong = [(row, value) for row, value in enumerate(values) if not _is_number(value)]
        raise WrongCell("number", *next((each for each in wrong if not _reads_as_number(each[1])), wrong[0]))
    if missing:
        values = [np.nan if type(value) in missing else value for value in values]
    elif not any(issubclass(kind, float | np.floating) for kind in kinds) and all(map(_is_whole, values)):
        with suppress(OverflowError):
            return np.array([int(value) for value in values], dtype=np.int64)
    try:
        return np.array([float(value) for value in values], dtype=np.float64)
    except (OverflowError, ValueError):  # an integer above 1.8e308, or Decimal's signalling NaN
        row = next(row for row, value in enumerate(values) if not _has_float(value))
        raise WrongCell("number", row, values[row]) from None


def _is_whole(value: Any) -> bool:
    """Return whether a number other than a float is whole."""
    if isinstance(value, Decimal):
        return value.is_finite() and value == int(value)
    return isinstance(value, Integral | np.bool_)


def _is_number(value: object) -> bool:
    """Return whether a cell is a number or missing."""
    return is_missing(value) or (_of_numbers(type(value)) and _has_float(value))


def _of_numbers(kind: type) -> bool:
    """Return whether a type is one of numbers; numpy calls its durations integers."""
    return issubclass(kind, Real | Decimal | np.bool_) and not issubclass(kind, np.timedelta64)


def _reads_as_number(value: object) -> bool:
    """Return whether a value is a string such as "3.5" or "True", a less helpful example in an error than others."""
    return isinstance(value, str) and value != "" and number_in(value) is not None


def _has_float(value: Any) -> bool:
    """Return whether float64 can hold a number of this size."""
    try:
        float(value)
    except (OverflowError, ValueError):
        return False
    return True


def _utf8(value: object) -> bytes | None:
    """Return a string's bytes in UTF-8, empty for a missing value; None for any other value."""
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:  # half of a surrogate pair
            return None
    if isinstance(value, bytes):
        return bytes(value)  # numpy's own kind of bytes too
    return b"" if is_missing(value) else None
