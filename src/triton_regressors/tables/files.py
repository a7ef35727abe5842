"""Files of rows: what their first line is, and the tables in .npy, .csv and .parquet."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from triton_regressors.extras import require
from triton_regressors.tables.columns import in_words
from triton_regressors.tables.dates import written_dates
from triton_regressors.tables.errors import TableError, one_line
from triton_regressors.tables.values import WrongCell, WrongColumn, cell_numbers, number_in, wrong_columns

SUFFIXES = (".npy", ".csv", ".parquet")
FEW = 4
"""Below this many columns, a data row that looks like column numbers, such as 0,1, is common."""


class FirstLine(NamedTuple):
    """The first line of a .csv: whether it is a header, the columns' names, () if it has none, and their number."""

    header: bool
    names: tuple[str, ...]
    width: int


def read_table(path: Path, text: Mapping[str, Any] | Iterable[str] | None = None, names: Sequence[str] = ()) -> Any:
    """Return the content of a file of rows: a DataFrame, its columns numbered if they have no names, or a .npy's array.

    Args:
        path: .npy (one 2-D array), .csv (commas; see `first_line`) or .parquet. Empty cells are NaN.
        text: names of columns of a .csv that hold strings, or dates that `read_dates` is to read. They are taken as
            they are written, "NA" included. An empty cell is NaN, as pandas reads it, or the mapping's value for the
            column. With this argument the first line is always a header, and spaces after a comma belong to the cell.
        names: of columns that are looked for.

    Raises:
        TableError: the file cannot be read, is of another kind, or its header has a name twice.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise TableError(f"Cannot read rows from {path}: the suffix must be {', '.join(SUFFIXES)}.")
    if not path.is_file():  # reading a pipe may never end
        what = "it is not a regular file" if path.exists() else "there is no such file"
        raise TableError(f"Cannot read rows from {path}: {what}.")
    if suffix == ".csv":
        return _read_csv(path, text, names)
    return _read_npy(path) if suffix == ".npy" else _read_parquet(path)


def read_typed(path: Path) -> Any:
    """Return the content of a .csv with the types that its cells suggest: numbers, dates in ISO 8601, or strings.

    Raises:
        TableError: the file cannot be read, or its header has a name twice.
    """
    table = read_table(path)
    for name in table.columns:
        if holds_objects(table[name]):
            with suppress(ValueError, TypeError):  # strings
                table[name] = pd.to_datetime(table[name], format="ISO8601")
    return table


def read_dates(
    table: pd.DataFrame, path: Path, zones: Mapping[str, str | None], refused: dict[int, str] | None = None
) -> None:
    """Put dates in place of the strings that `read_table` has read from a .csv in columns of dates.

    Args:
        table: the content of the file.
        path: the file; one that is not a .csv has dates already.
        zones: the columns' time zones, by name, None for one without.
        refused: gets the reason for each row with another cell, which then is NaT; see `tables.dates.written_dates`.

    Raises:
        TableError: cells are not dates, and `refused` is not given.
    """
    wrong = dict[Any, WrongColumn]()
    for name in (name for name in zones if name in table.columns and path.suffix.lower() == ".csv"):
        try:
            table[name] = written_dates(table[name].tolist(), zones[name], name, refused)
        except WrongCell as error:
            wrong[name] = error
    if wrong:
        raise TableError(f"{path}: {wrong_columns(wrong)}")


def first_line(path: Path, names: Sequence[str] = (), *, text: bool = False) -> FirstLine:
    """Return what the first line of a .csv is.

    It is a header if any of its cells is not a number, or if it holds all of `names`. A line that counts the columns,
    0,1,2,3,4 as pandas writes for columns without names, or from 1, is also a header, which names none, if the line
    below holds anything but whole numbers. Otherwise, or with only a few columns counted from 0, the line may equally
    be a row, and is refused.

    Args:
        path: the file.
        names: of columns that are looked for.
        text: whether some of the columns hold strings: the line is then always a header, and spaces after a comma
            belong to the cell.

    Raises:
        TableError: the file cannot be read, or the header has a name twice.
    """
    options = _options(text)
    try:
        first = pd.read_csv(path, header=None, nrows=1, dtype=str, keep_default_na=False, **options)
        cells = first.iloc[0].tolist()
        header = text or (bool(names) and set(names) <= set(cells)) or any(number_in(cell) is None for cell in cells)
        if not header and _counts(cells):
            if len(cells) < FEW or _whole_numbers_below(path, options):
                raise TableError(
                    f"The first line of {path}, {','.join(cells[:3])}{',...' * (len(cells) > 3)}, may be a header of "
                    "column numbers or a row of data; write column names there, or give a .npy file."
                )
            return FirstLine(True, (), len(cells))
    except pd.errors.EmptyDataError:
        raise TableError(f"{path} has no rows.") from None
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    twice = [name for name, count in Counter(cells).items() if name and count > 1]
    if header and twice:
        raise TableError(f"The header of {path} has {in_words(twice)} more than once.")
    return FirstLine(header, tuple(cells) if header else (), len(cells))


def unreadable(path: Path | str, error: Exception) -> TableError:
    """Return the error of a file that numpy, pandas, pyarrow or the system cannot read; an own error as it is."""
    if isinstance(error, TableError):
        return error
    why = getattr(error, "strerror", None) or f"it is not a {Path(path).suffix} file ({one_line(error)})"
    return TableError(f"Cannot read rows from {path}: {why}.")


def nameless(path: Path | str, wanted: Sequence[str], model: str) -> TableError:
    """Return the error of a file without names of columns, which a model needs."""
    return TableError(f"{path} does not name its columns; model '{model}' needs {in_words(wanted)}.")


def _read_npy(path: Path) -> np.ndarray:
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError, MemoryError, OverflowError) as error:
        raise unreadable(path, error) from None
    if not isinstance(array, np.ndarray):
        raise TableError(f"{path} is an archive of arrays; one .npy array is expected.")
    return array


def _read_csv(path: Path, text: Mapping[str, Any] | Iterable[str] | None, names: Sequence[str]) -> Any:
    options, line = _options(text is not None), first_line(path, names, text=text is not None)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # cells that the header has no column for
            table = pd.read_csv(path, header=0 if line.header else None, low_memory=False, **options)
        if line.header and not line.names:
            table.columns = pd.RangeIndex(line.width)
        empty_cells = dict(text) if isinstance(text, Mapping) else dict.fromkeys(text or (), np.nan)
        strings = [name for name in empty_cells if name in table.columns]
        if strings:  # once more, now that the file is known to be regular: "NA" is a word, and 01234 keeps its 0
            words = pd.read_csv(path, usecols=strings, dtype=str, keep_default_na=False, na_values=[""], **options)
            for name in strings:
                table[name] = _filled(words[name], empty_cells[name])
    except pd.errors.ParserWarning:
        raise TableError(f"{path} has lines with more cells than its first.") from None
    except (OSError, ValueError) as error:  # pandas' parser errors are ValueErrors
        raise unreadable(path, error) from None
    for name in table.columns.difference(strings, sort=False):
        if holds_objects(table[name]):
            with suppress(WrongCell):  # not a column of numbers; a later check reports it if numbers are needed
                table[name] = cell_numbers(table[name].tolist(), written=True)
    return table


def _read_parquet(path: Path) -> Any:
    require("parquet", f"Reading {path}")
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:  # pyarrow raises either
        raise unreadable(path, error) from None


def holds_objects(column: pd.Series) -> bool:
    """Return whether a column holds Python objects, such as strings."""
    return bool(column.dtype == object or pd.api.types.is_string_dtype(column))


def _options(text: bool) -> dict[str, Any]:
    """Return how pandas reads a .csv; `text`: whether some columns hold strings."""
    return {"skipinitialspace": not text, "encoding": "utf-8-sig", "index_col": False}


def _filled(column: pd.Series, value: Any) -> pd.Series:
    """Return a column of strings with a value in place of NaN: "", None or NaN itself."""
    if value is None:
        column = column.astype(object)  # a column of strings has one missing value, NaN
        return column.where(column.notna(), None)
    return column if value != value else column.fillna(value)


def _counts(cells: Sequence[str]) -> bool:
    """Return whether the cells count the columns, from 0, or from 1 if there are more than a few."""
    from_0, from_1 = ([str(number + first) for number in range(len(cells))] for first in (0, 1))
    return cells == from_0 or (len(cells) >= FEW and cells == from_1)


def _whole_numbers_below(path: Path, options: dict[str, Any]) -> bool:
    """Return whether the second line of a .csv holds only whole numbers, as the first does, or is missing."""
    below = pd.read_csv(path, header=0, nrows=1, dtype=str, keep_default_na=False, **options)
    return all(cell.strip().lstrip("-").isdecimal() for cell in below.to_numpy().ravel())
