"""The dates of users' tables, as nanoseconds since 1970-01-01 UTC.

A cell is a date if it is a datetime of numpy, pandas, pyarrow or Python, or Python's date; None, NaN and pandas'
missing values are a missing date. Strings and numbers are not dates. A column must have a time zone if the model's has
one, and only then: no naive column is taken for one in UTC. A .csv holds only text, so its cells have a separate rule,
`written_dates`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime, timezone
from typing import Any

import numpy as np

from triton_regressors.kernels.format.inputs import NAT, DateColumn
from triton_regressors.tables.values import (
    MISSING_WORDS,
    WrongCell,
    WrongColumn,
    each_column,
    is_missing,
    wrong_columns,
)

UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
"""The units of pandas' dates, each with its nanoseconds."""

LARGEST = 2**63 - 1
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

BEYOND = ", and nanoseconds hold only the years 1678 to 2261"
OF_STRING = ", a string: pd.to_datetime makes dates of strings"
SPELT = "; a .csv holds dates as 2026-01-31 or 2026-01-31 14:05:09.25"

WRITTEN = re.compile(
    r"(?P<year>\d{4})-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(?P<zone>Z|[+-]\d\d:?\d\d)?)?", re.ASCII
)
"""A date in a .csv."""


def dates(rows: Any, called: str, names: Sequence[Any], zones: Sequence[str | None]) -> np.ndarray:
    """Return a DataFrame or a matrix of dates as nanoseconds since 1970-01-01 UTC, int64 of the same shape.

    Args:
        rows: the DataFrame or the matrix.
        called: what the rows are called in errors.
        names: those of a matrix's columns, if it has any.
        zones: the time zone of each of the model's columns, None for one without.

    Raises:
        TableError: columns hold something else, with their names.
    """
    matrix, wrong = np.empty(rows.shape, dtype=np.int64), dict[Any, WrongColumn]()
    for place, (name, column) in enumerate(each_column(rows, names)):
        try:
            matrix[:, place] = column_dates(column, zones[place])
        except WrongColumn as error:
            wrong.setdefault(name, error)
    if wrong:
        raise wrong_columns(wrong, called)
    return matrix


def column_dates(column: Any, zone: str | None) -> np.ndarray:
    """Return a column, of a DataFrame or an array, as nanoseconds since 1970-01-01 UTC, int64 `[rows]`.

    Raises:
        WrongColumn: it holds something else, or has a time zone although the model's column has none, or the reverse.
    """
    dtype = column.dtype
    if isinstance(dtype, np.dtype):
        if dtype.kind != "M":
            return _of_cells(column.tolist(), zone)
        found = _of_array(np.asarray(column))
        if zone is not None and (found != NAT).any():
            raise _wrong_zone(None, zone)
        return found
    if getattr(dtype, "tz", None) is not None:  # pandas' own dates with a time zone
        if zone is None and column.notna().any():
            raise _wrong_zone(str(dtype.tz), zone)
        return _of_array(column.dt.tz_convert(None).to_numpy())
    return _of_cells(column.to_numpy(dtype=object).tolist(), zone)


def as_dates(nanoseconds: np.ndarray, kind: DateColumn) -> Any:
    """Return int64 nanoseconds since 1970-01-01 UTC as pandas' dates, rounded down to the column's unit."""
    import pandas as pd

    whole = nanoseconds // UNITS[kind.unit]
    whole[nanoseconds == NAT] = NAT
    index = pd.DatetimeIndex(whole.view(f"datetime64[{kind.unit}]"))
    return index if kind.zone is None else index.tz_localize("UTC").tz_convert(kind.zone)


def written_dates(
    cells: Sequence[Any], zone: str | None, column: object = None, refused: dict[int, str] | None = None
) -> Any:
    """Return the cells of a .csv's column as pandas' dates, in UTC if the model's column has a time zone.

    A cell is an ISO 8601 date, `2026-01-31`, or date and time, `2026-01-31 14:05:09.25` or with a T between them. It
    ends with Z or an offset from UTC, `+01:00`, if the model's column has a time zone, and only then. With `refused`
    any other cell becomes NaT, and `refused` gets a sentence about its row if it has none.

    Raises:
        WrongCell: a cell is not such a date, and `refused` is not given.
    """
    import pandas as pd

    words = [cell.strip() if isinstance(cell, str) else cell for cell in cells]
    words = [None if is_missing(word) or word in MISSING_WORDS or word == "NaT" else word for word in words]
    why = [None if word is None else _why_not(word, zone) for word in words]
    kept = [None if reason else word for word, reason in zip(words, why, strict=True)]
    found = pd.to_datetime(pd.Series(kept, dtype=object), format="ISO8601", utc=zone is not None, errors="coerce")
    for row, (word, lost) in enumerate(zip(words, found.isna().tolist(), strict=True)):
        if word is not None and lost:
            error = WrongCell("date", row, cells[row], why[row] or ", which no calendar has")
            if refused is None:
                raise error
            refused.setdefault(row, error.of_row(column))
    return found


def _why_not(word: str, zone: str | None) -> str | None:
    """Return why a .csv's word is not a date of a column in this time zone; None if it may be one."""
    found = WRITTEN.fullmatch(word)
    if found is None:
        return SPELT
    if zone is None and found["zone"]:
        return ", with an offset from UTC, and the model's dates have no time zone"
    if zone is not None and not found["zone"]:
        return f", without an offset from UTC such as +01:00, and the model's dates are in {zone}"
    return None if "1678" <= found["year"] <= "2261" else BEYOND


def _of_array(given: np.ndarray) -> np.ndarray:
    """Return numpy's dates of any unit as nanoseconds; finer ones are rounded down."""
    unit, count = np.datetime_data(given.dtype)
    if unit not in UNITS or count != 1:
        unit = "ns" if unit in ("ps", "fs", "as") else "s"
        given = given.astype(f"datetime64[{unit}]")
    numbers, factor = given.astype(np.int64), UNITS[unit]
    missing = numbers == NAT
    wrong = (np.abs(numbers) > LARGEST // factor) & ~missing
    if wrong.any():
        row = int(np.argmax(wrong))
        raise WrongCell("date", row, str(given[row]), BEYOND)
    found: np.ndarray = numbers * factor
    found[missing] = NAT
    return found


def _of_cells(cells: Sequence[Any], zone: str | None) -> np.ndarray:
    """Return Python's dates as nanoseconds."""
    found = np.full(len(cells), NAT, dtype=np.int64)
    for row, cell in enumerate(cells):
        if is_missing(cell) or (isinstance(cell, np.datetime64) and np.isnat(cell)):
            continue
        if not isinstance(cell, date | np.datetime64):  # every datetime is a date
            raise WrongCell("date", row, cell, OF_STRING if isinstance(cell, str) else "")
        of_cell, number = _of_cell(cell)
        if (of_cell is None) != (zone is None):
            raise _wrong_zone(of_cell, zone)
        if abs(number) > LARGEST:
            raise WrongCell("date", row, str(cell), BEYOND)
        found[row] = number
    return found


def _of_cell(cell: date | np.datetime64) -> tuple[str | None, int]:
    """Return the time zone of one of Python's, pandas' or numpy's dates, None without one, and its nanoseconds.

    They are more than `LARGEST` if int64 does not hold them.
    """
    if isinstance(cell, np.datetime64):
        try:
            return None, int(_of_array(np.array([cell]))[0])
        except WrongCell:
            return None, LARGEST + 1
    if not isinstance(cell, datetime):
        return None, (cell - EPOCH.date()).days * 86_400 * 10**9
    zone = None if cell.tzinfo is None or cell.utcoffset() is None else str(cell.tzinfo)
    if hasattr(cell, "value"):  # pandas' nanoseconds in UTC
        try:
            return zone, int(cell.value)
        except OverflowError:
            return zone, LARGEST + 1
    since = cell - (EPOCH.replace(tzinfo=None) if zone is None else EPOCH)
    return zone, ((since.days * 86_400 + since.seconds) * 10**6 + since.microseconds) * 1000


def _wrong_zone(given: str | None, zone: str | None) -> WrongColumn:
    """Return the error of a column with a time zone where the model's has none, or without where it has one."""
    if given is None:
        holds = f"has no time zone, and the model's dates are in {zone}: .dt.tz_localize({zone!r}) states it"
    else:
        holds = (
            f"has the time zone {given}, and the model's dates have none: .dt.tz_localize(None) keeps the local time, "
            ".dt.tz_convert(None) that of UTC"
        )
    return WrongColumn("date", holds)
