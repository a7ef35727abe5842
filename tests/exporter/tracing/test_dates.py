"""Dates of traced functions against pandas: drawn timestamps, in four units and three zones."""

import datetime
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.exporter.tracing.plans import Traced

COUNT = 20_000
UNITS = ("s", "ms", "us", "ns")
ZONES = ("UTC", "Europe/Berlin", "America/St_Johns")
YEARS = ("1690-01-01", "2250-12-31")
"""The range in which whole microseconds are exact."""


def drawn(unit: str, zone: str | None = None, first: str = YEARS[0], last: str = YEARS[1]) -> pd.DataFrame:
    """Return dates of a unit: half of them within a day of the ends of months, some missing."""
    rng = np.random.default_rng(UNITS.index(unit))
    low, high = (int(pd.Timestamp(day).timestamp()) for day in (first, last))
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    counts = rng.integers(low * per_second, high * per_second, COUNT)
    months = pd.date_range(first, last, freq="MS", unit="s").as_unit(unit).asi8
    near = rng.integers(-86_400 * per_second, 86_400 * per_second, COUNT // 2)
    counts[: COUNT // 2] = np.clip(months[rng.integers(1, len(months) - 1, COUNT // 2)] + near, low * per_second, None)
    dates = pd.Series(counts.astype(f"datetime64[{unit}]"))
    dates[::1009] = pd.NaT
    if zone is not None:
        dates = dates.dt.tz_localize("UTC").dt.tz_convert(zone)
    return pd.DataFrame({"when": dates})


PARTS = (
    *("year", "month", "day", "hour", "minute", "second", "microsecond", "day_of_week", "day_of_year", "quarter"),
    *("is_month_start", "is_month_end", "is_quarter_start", "is_quarter_end", "is_year_start", "is_year_end"),
    *("is_leap_year", "days_in_month"),
)


def parts(table: pd.DataFrame) -> pd.DataFrame:
    when = table["when"].dt
    week = when.isocalendar()
    found = {name: getattr(when, name) for name in PARTS}
    return pd.DataFrame({**found, "iso_year": week["year"], "iso_week": week["week"], "iso_day": week["day"]})


def expected(function: Callable[[pd.DataFrame], Any], table: pd.DataFrame) -> np.ndarray:
    """Return pandas' own answers in float64."""
    found = pd.DataFrame(function(table))
    columns = [
        found.iloc[:, place].astype("Float64").to_numpy(np.float64, na_value=np.nan) for place in range(found.shape[1])
    ]
    return np.column_stack(columns)


def check(function: Callable[[pd.DataFrame], Any], table: pd.DataFrame) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_array_equal(Traced(function, table.head(60)).transform(table), expected(function, table))


@pytest.mark.parametrize("unit", UNITS)
def test_parts_of_every_unit(unit: str) -> None:
    check(parts, drawn(unit))


@pytest.mark.parametrize("zone", ZONES)
def test_parts_of_every_zone(zone: str) -> None:
    check(parts, drawn("us", zone))


def singles(table: pd.DataFrame) -> pd.DataFrame:
    when, day = table["when"], pd.Timestamp("2000-02-29")
    return pd.DataFrame(
        {
            "hour": when.apply(lambda date: date.hour),
            "late": when.map(lambda date: 1 if date.weekday() >= 5 or date.hour > 20 else 0),
            "week": when.apply(lambda date: date.week + date.isocalendar()[2] + date.isoweekday()),
            "ordinal": when.map(pd.Timestamp.toordinal),
            "same": [date.toordinal() + date.days_in_month for date in when],
            "days": when.apply(lambda date: (date - day).days),
            "leap day": (when.dt.date == datetime.date(2000, 2, 29)) | (when.dt.date > datetime.date(2100, 1, 1)),
            "rows": table.apply(lambda row: row["when"].month if row["when"] < day else row["when"].dayofyear, axis=1),
            "index": np.asarray(pd.DatetimeIndex(when).dayofweek, dtype=np.float64),
        }
    )


def test_single_dates_and_their_methods() -> None:
    check(singles, drawn("us").dropna().iloc[::7].reset_index(drop=True))


@pytest.mark.parametrize("unit", UNITS)
def test_seconds_since_1970_as_integers(unit: str) -> None:
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    table = drawn(unit, first="1900-01-01", last="2100-01-01").dropna()
    check(lambda t: (t["when"].astype("int64") // per_second).to_frame(), table)


@pytest.mark.parametrize("unit", ["us", "ns"])
def test_differences_of_dates_and_to_a_constant(unit: str) -> None:
    years = {"first": "1900-01-01", "last": "2100-01-01"}
    table = drawn(unit, **years).rename(columns={"when": "first"})
    table["first"] = table["first"].dt.floor("us")  # an entry rounds nanoseconds down
    table["last"] = drawn("ms", **years)["when"].dt.as_unit(unit)

    def differences(t: pd.DataFrame) -> pd.DataFrame:
        between, since = t["last"] - t["first"], t["first"] - pd.Timestamp("1999-12-31 23:59:59.5")
        return pd.DataFrame(
            {
                "days": between.dt.days,
                "seconds": between.dt.seconds,
                "later": t["last"] > t["first"],
                "after": t["first"] >= pd.Timestamp("2000-01-01"),
                "since": since.dt.days,
                "ratio": since / pd.Timedelta(days=7),
                "shifted": (t["first"] + pd.Timedelta(hours=36)).dt.day,
                "midnight": (t["first"] - t["first"].dt.normalize()).dt.seconds,
                "quarter_hour": t["first"].dt.floor("15min").dt.minute,
            }
        )

    check(differences, table)


@pytest.mark.parametrize("unit", UNITS)
def test_total_seconds(unit: str) -> None:
    table = drawn(unit, first="1900-01-01", last="2100-01-01")
    table["when"] = table["when"].dt.floor("us")
    traced = Traced(lambda t: (t["when"] - pd.Timestamp("2000-01-01")).dt.total_seconds().to_frame(), table.head(60))
    seconds = (table["when"] - pd.Timestamp("2000-01-01")).dt.total_seconds().to_numpy()
    # pandas before version 3 rounds nanoseconds twice
    np.testing.assert_allclose(traced.transform(table)[:, 0], seconds, rtol=2.3e-16 if pd.__version__ < "3" else 0.0)


@pytest.mark.parametrize("zone", ZONES)
def test_local_time_and_other_zones(zone: str) -> None:
    table = drawn("us", zone)

    def hours(t: pd.DataFrame) -> pd.DataFrame:
        when = t["when"].dt
        return pd.DataFrame(
            {
                "local": when.tz_localize(None).dt.hour,
                "utc": when.tz_convert(None).dt.hour,
                "tokyo": when.tz_convert("Asia/Tokyo").dt.day,
                "weekday": (when.day_of_week >= 5).astype(int),
            }
        )

    check(hours, table)
