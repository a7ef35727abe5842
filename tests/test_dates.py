"""Dates of users' tables, for the exporter, clients and scoring alike: what is one, and the nanoseconds of each."""

import datetime as dt
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from triton_regressors.kernels.format.inputs import NAT, DateColumn
from triton_regressors.tables.dates import as_dates, column_dates, dates, written_dates
from triton_regressors.tables.errors import TableError
from triton_regressors.tables.values import WrongCell, WrongColumn

SECONDS = np.array([-(10**9), -1, 0, 1, 1_700_000_000])
WANTED = np.append(SECONDS * 10**9, NAT)
NAIVE = pd.Series(np.append(SECONDS, NAT).astype("datetime64[s]"))
BERLIN = NAIVE.dt.tz_localize("UTC").dt.tz_convert("Europe/Berlin")
CELLS = [None if date is pd.NaT else date.to_pydatetime() for date in NAIVE]
AWARE = [pd.NaT if date is pd.NaT else date for date in BERLIN]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin", "America/New_York"])
def test_columns_of_every_unit_and_zone(unit: str, zone: str | None) -> None:
    column = NAIVE.dt.as_unit(unit)
    if zone is not None:
        column = column.dt.tz_localize("UTC").dt.tz_convert(zone)
    assert column_dates(column, zone).tolist() == WANTED.tolist()
    assert column_dates(column.astype(object), zone).tolist() == WANTED.tolist()
    assert column_dates(column.astype(pd.ArrowDtype(pa.timestamp(unit, zone))), zone).tolist() == WANTED.tolist()
    assert column_dates(pa.table({"a": column}).to_pandas()["a"], zone).tolist() == WANTED.tolist()
    index = as_dates(WANTED, DateColumn(unit, zone))
    assert (pd.Series(index).dtype, pd.Series(index).isna().sum()) == (column.dtype, 1)
    assert column_dates(pd.Series(index), zone).tolist() == WANTED.tolist()


@pytest.mark.parametrize(
    ("column", "zone", "wanted"),
    [
        (np.array(["1969-12-31", "2026-01-31"], "datetime64[D]"), None, [-86_400 * 10**9, 1_769_817_600 * 10**9]),
        (np.array([-1, 1500], "datetime64[ps]"), None, [-1, 1]),
        (np.array([None, None]), None, [NAT, NAT]),
        (np.array([np.nan, np.nan]), "UTC", [NAT, NAT]),
        (pd.Series([pd.NaT, pd.NaT]), "UTC", [NAT, NAT]),
        (np.array([np.datetime64("NaT"), None]), "UTC", [NAT, NAT]),
        (pd.Series([None, dt.date(1970, 1, 2)]), None, [NAT, 86_400 * 10**9]),
        (pd.Series(CELLS, dtype=object), None, WANTED),
        (pd.Series(AWARE, dtype=object), "UTC", WANTED),
        (pd.Series([pd.Timestamp(123), np.datetime64(-1, "ns"), pd.NA], dtype=object), None, [123, -1, NAT]),
        (pd.Series([dt.datetime(1970, 1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1)))]), "UTC", [0]),
        (pd.Series([2**63 - 1, -(2**63) + 1]).astype("datetime64[ns]"), None, [2**63 - 1, -(2**63) + 1]),
    ],
)
def test_dates(column: Any, zone: str | None, wanted: Any) -> None:
    assert column_dates(column, zone).tolist() == list(wanted)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_dates_are_rounded_down_to_the_unit(unit: str) -> None:
    times = np.random.default_rng(0).integers(-(2**62), 2**62, 1000)
    found = as_dates(times, DateColumn(unit))
    per_unit = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[unit]
    assert found.astype(np.int64).tolist() == [time // per_unit for time in times.tolist()]


@pytest.mark.parametrize(
    ("column", "zone", "holds"),
    [
        (pd.Series(["2026-01-31", None]), None, "holds '2026-01-31' in row 0, a string: pd.to_datetime makes dates of"),
        (pd.Series([1, 2]), None, "holds 1 in row 0$"),
        (pd.Series([np.nan, 2.5]), None, "holds 2.5 in row 1$"),
        (pd.Series([dt.timedelta(1)]), None, "holds .* in row 0"),
        (pd.Series([None, dt.time(1)]), None, "holds datetime.time.* in row 1"),
        (NAIVE, "Europe/Berlin", r"has no time zone, and .* in Europe/Berlin: \.dt\.tz_localize\('Europe/Berlin'\)"),
        (pd.Series(CELLS, dtype=object), "UTC", "has no time zone"),
        (BERLIN, None, r"has the time zone Europe/Berlin, .* \.dt\.tz_localize\(None\) .* \.dt\.tz_convert\(None\)"),
        (pd.Series(AWARE, dtype=object), None, "has the time zone Europe/Berlin"),
        (pd.Series(["1970", "9999-12-31"]).astype("datetime64[s]"), None, "row 1, and .* only the years 1678 to 2261"),
        (np.array([None, np.datetime64("2300", "D")]), None, "holds '2300-01-01' in row 1, and nanoseconds"),
        (pd.Series([dt.datetime(1, 1, 1)], dtype=object), None, "holds '0001-01-01 00:00:00' in row 0, and nanosec"),
    ],
)
def test_what_is_no_date(column: Any, zone: str | None, holds: str) -> None:
    with pytest.raises(WrongColumn, match=holds):
        column_dates(column, zone)


def test_a_table_names_every_column_that_holds_something_else() -> None:
    table = pd.DataFrame({"a": NAIVE, "b": BERLIN, "c": range(6)})
    with pytest.raises(TableError, match=r"^It's columns 'b', 'c' must be dates: 'b' has the time zone"):
        dates(table, "It", (), [None, None, None])
    assert dates(table[["a", "b"]], "It", (), [None, "UTC"]).T.tolist() == [WANTED.tolist()] * 2


def test_the_dates_of_a_csv() -> None:
    cells = [
        "2026-01-31",
        " 1969-12-31 23:59 ",
        "2026-01-31T14:05:09",
        "1970-01-01 00:00:00.123456789",
        "",
        np.nan,
        "NaT",
    ]
    found = column_dates(written_dates(cells, None), None)
    assert found.tolist() == [1_769_817_600 * 10**9, -60 * 10**9, 1_769_868_309 * 10**9, 123456789, NAT, NAT, NAT]
    cells = ["2026-01-31 14:05:09Z", "2026-01-31T15:05:09+01:00", "2026-01-31 09:05:09-0500", None]
    found = column_dates(written_dates(cells, "Europe/Berlin"), "Europe/Berlin")
    assert found.tolist() == [1_769_868_309 * 10**9] * 3 + [NAT]


@pytest.mark.parametrize(
    ("cell", "zone", "why"),
    [
        ("31.01.2026", None, "; a .csv holds dates as 2026-01-31 or 2026-01-31 14:05:09.25"),
        ("20260131", None, "; a .csv holds"),
        ("1769868309", None, "; a .csv holds"),
        ("2026-01-31T14:05:09Z", None, ", with an offset from UTC, and the model's dates have no time zone"),
        ("2026-01-31 14:05:09", "UTC", ", without an offset from UTC such as [+]01:00, and .* are in UTC"),
        ("2026-01-31", "UTC", ", without an offset"),
        ("2026-02-30", None, ", which no calendar has"),
        ("9999-12-31", None, ", and nanoseconds hold only the years 1678 to 2261"),
    ],
)
def test_what_is_no_date_in_a_csv(cell: str, zone: str | None, why: str) -> None:
    with pytest.raises(WrongCell, match=f"holds '{cell}' in row 1{why}".replace("+0", "[+]0")):
        written_dates(["", cell], zone)
    refused = {0: "kept"}
    assert written_dates([cell, cell, ""], zone, "when", refused).isna().all()
    assert (refused[0], list(refused)) == ("kept", [0, 1])
    assert refused[1].startswith(f"Row 1 of column 'when' holds '{cell}'")
