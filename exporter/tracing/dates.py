"""Dates of cells: their parts, roundings and zones, as pandas has them.

A date is the microseconds since 1970 in UTC, a local time the same number plus the zone's offset. The calendar is the
proleptic Gregorian one. A day of the year follows from the number of days before the year, by Richards' counting of
leap years; the civil date of a day is an instruction of its own.
"""

from __future__ import annotations

import zoneinfo
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from triton_regressors.exporter.tracing.algebra import Algebra, misused
from triton_regressors.exporter.tracing.expressions import (
    BOOLEAN,
    DATE,
    DURATION,
    FLOAT,
    INTEGER,
    TEXT,
    Expression,
    Kind,
)
from triton_regressors.exporter.tracing.refusal import Untraceable

SECOND = 1_000_000.0
DAY = 86_400 * SECOND
FIRST_YEAR, LAST_YEAR = 1677, 2263
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


class Dates:
    """The parts of a date or a duration."""

    def __init__(self, algebra: Algebra, value: Expression) -> None:
        self._own, self._value = algebra, value
        if value.kind.name not in (DATE, DURATION):
            raise misused(value, "dates")

    def part(self, name: str) -> Expression:
        """Return a part by its name in pandas."""
        parts = DATE_PARTS if self._value.kind.name == DATE else DURATION_PARTS
        if name not in parts:
            raise Untraceable(f"it uses .dt.{name}, which no plan computes")
        return parts[name](self)

    # Arithmetic of whole numbers

    def _op(self, name: str, *values: Any, kind: str = INTEGER) -> Expression:
        own = self._own
        found = [
            value if isinstance(value, Expression) else own.graph.constant(float(value), Kind(INTEGER))
            for value in values
        ]
        return own.graph.make(name, *found, kind=Kind(kind))

    def _floor(self, value: Any, divisor: float) -> Expression:
        return self._op("floor_divide", value, divisor)

    def _within(self, value: Any, divisor: float) -> Expression:
        return self._op("remainder", value, divisor)

    def _is(self, name: str, left: Any, right: Any) -> Expression:
        return self._op(name, left, right, kind=BOOLEAN)

    # Local time and its day

    @property
    def local(self) -> Expression:
        """Local time in microseconds."""
        value, zone = self._value, self._value.kind.zone
        if zone is None or zone == "UTC":
            return self._op("identity", value)
        offset = self._own.graph.make("zone_offset", value, zone, kind=Kind(INTEGER))
        return self._op("add", value, offset)

    @property
    def day_number(self) -> Expression:
        """Days since 1970-01-01."""
        return self._floor(self.local, DAY)

    def year(self) -> Expression:
        """Return the year."""
        return self._op("civil_year", self.day_number)

    def month(self) -> Expression:
        """Return the month, 1 to 12."""
        return self._op("civil_month", self.day_number)

    def day(self) -> Expression:
        """Return the day of the month."""
        return self._op("civil_day", self.day_number)

    def of_day(self, unit: float, count: float) -> Expression:
        """Return the local time in units, within `count` of them: the hour of the day, the minute of the hour."""
        return self._within(self._floor(self.local, unit), count)

    def dayofweek(self) -> Expression:
        """Return the day of the week: 0 for Monday."""
        return self._within(self._op("add", self.day_number, 3), 7)  # 1970-01-01 was a Thursday

    def first_day(self, year: Expression) -> Expression:
        """Return the day number of January 1st of a year."""
        before = self._op("subtract", year, 1)
        leaps = self._op("subtract", self._floor(before, 4), self._floor(before, 100))
        leaps = self._op("add", leaps, self._floor(before, 400))
        days = self._op("add", self._op("multiply", before, 365), leaps)
        return self._op("subtract", days, 719_162)  # the days from 0001-01-01 to 1970-01-01

    def dayofyear(self) -> Expression:
        """Return the day of the year, from 1."""
        return self._op("add", self._op("subtract", self.day_number, self.first_day(self.year())), 1)

    def quarter(self) -> Expression:
        """Return the quarter, 1 to 4."""
        return self._op("add", self._floor(self._op("subtract", self.month(), 1), 3), 1)

    def is_leap_year(self) -> Expression:
        """Return whether the year is a leap year."""
        year = self.year()
        fourth, century, fourth_century = (self._is("equal", self._within(year, n), 0) for n in (4, 100, 400))
        common = self._op("logical_and", fourth, self._op("logical_not", century, kind=BOOLEAN), kind=BOOLEAN)
        return self._op("logical_or", common, fourth_century, kind=BOOLEAN)

    def days_in_month(self) -> Expression:
        """Return the number of days of the month."""
        month = self.month()
        longer = self._op("add", month, self._is("greater_equal", month, 8))
        usual = self._op("add", self._within(longer, 2), 30)
        february = self._op("add", self._op("identity", self.is_leap_year()), 28)
        return self._op("where", self._is("equal", month, 2), february, usual)

    def at(self, day: str, months: tuple[int, ...]) -> Expression:
        """Return whether the date is the first or the last day of one of these months."""
        of_month = self._is("equal", self.day(), 1 if day == "first" else self.days_in_month())
        if len(months) == 12:
            return of_month
        month = self.month()
        found = [self._is("equal", month, each) for each in months]
        return self._op("logical_and", self._own.folded("logical_or", found), of_month, kind=BOOLEAN)

    def _thursday(self) -> Expression:
        """Return the day number of the Thursday of the date's week."""
        return self._op("add", self._op("subtract", self.day_number, self.dayofweek()), 3)

    def iso_year(self) -> Expression:
        """Return the year of the week of ISO 8601."""
        return self._op("civil_year", self._thursday())

    def iso_week(self) -> Expression:
        """Return the week of ISO 8601."""
        thursday = self._thursday()
        return self._op("add", self._floor(self._op("subtract", thursday, self.first_day(self.iso_year())), 7), 1)

    def isoweekday(self) -> Expression:
        """Return the day of the week of ISO 8601: 1 for Monday."""
        return self._op("add", self.dayofweek(), 1)

    def toordinal(self) -> Expression:
        """Return the number of the day, 1 for 0001-01-01."""
        return self._op("add", self.day_number, 719_163)

    def timestamp(self) -> Expression:
        """Return the seconds since 1970 in UTC; a date without a zone is taken as one in UTC."""
        return self._op("divide", self._value, SECOND, kind=FLOAT)

    # Dates of dates

    def date(self) -> Expression:
        """Return the day, as midnight without a zone."""
        return Dates(self._own, self.localized(None)).midnight()

    def midnight(self) -> Expression:
        """Return the date at midnight."""
        return self.rounded("floor", "D")

    def rounded(self, how: str, frequency: str) -> Expression:
        """Return the date rounded to a fixed frequency in local time: "floor", "ceil" or "round" (half to even)."""
        value = self._value
        try:
            step = float(pd.Timedelta(pd.tseries.frequencies.to_offset(frequency)).as_unit("ns").value) / 1000
        except (TypeError, ValueError):
            raise Untraceable(f"it rounds dates to {frequency!r}, which is no fixed span") from None
        if value.kind.zone not in (None, "UTC"):
            raise Untraceable("it rounds dates in a time zone", "Convert them by .dt.tz_convert(None) before")
        if how == "floor":
            steps = self._floor(value, step)
        elif how == "ceil":
            steps = self._op("negative", self._floor(self._op("negative", value), step))
        else:
            steps = self._op("rint", self._op("divide", value, step, kind=FLOAT))
        found = self._op("multiply", steps, step)
        return self._own.graph.make("identity", found, kind=value.kind)

    def converted(self, zone: str | None) -> Expression:
        """Return the same instant in another zone; with None in UTC without a zone."""
        value = self._value
        if value.kind.zone is None:
            raise Untraceable("it converts a date without a time zone (tz_convert)")
        if zone is not None:
            check_zone(zone)
        return self._own.graph.make("identity", value, kind=Kind(DATE, value.kind.unit, zone))

    def localized(self, zone: str | None) -> Expression:
        """Return local time as a date without a zone, or a date without a zone as one in UTC."""
        value = self._value
        if zone is None:
            return self._own.graph.make("identity", self.local, kind=Kind(DATE, value.kind.unit))
        if value.kind.zone is not None or zone != "UTC":
            raise Untraceable(
                f"it takes local times for times in {zone}, where some hours exist twice or never",
                "Give the column with its time zone",
            )
        return self._own.graph.make("identity", value, kind=Kind(DATE, value.kind.unit, "UTC"))

    def named(self, number: Expression, names: tuple[str, ...]) -> Expression:
        """Return the name of a day or a month."""
        return self._own.graph.make("text_of", number, names, kind=Kind(TEXT, "object"))

    # Durations

    def total_seconds(self) -> Expression:
        """Return the float64 nearest to the seconds, as pandas does from version 3 on."""
        return self._op("divide", self._value, SECOND, kind=FLOAT)

    def days(self) -> Expression:
        """Return whole days of a duration, rounded down."""
        return self._floor(self._value, DAY)

    def seconds(self) -> Expression:
        """Return the seconds of a duration's last day."""
        return self._within(self._floor(self._value, SECOND), 86_400)

    def microseconds(self) -> Expression:
        """Return the microseconds of a duration's last second."""
        return self._within(self._value, SECOND)


DATE_PARTS: dict[str, Callable[[Dates], Expression]] = {
    "year": Dates.year,
    "month": Dates.month,
    "day": Dates.day,
    "hour": lambda dates: dates.of_day(3600 * SECOND, 24),
    "minute": lambda dates: dates.of_day(60 * SECOND, 60),
    "second": lambda dates: dates.of_day(SECOND, 60),
    "microsecond": lambda dates: dates.of_day(1, SECOND),
    "date": Dates.date,
    **dict.fromkeys(("dayofweek", "weekday", "day_of_week"), Dates.dayofweek),
    **dict.fromkeys(("dayofyear", "day_of_year"), Dates.dayofyear),
    "quarter": Dates.quarter,
    "is_leap_year": Dates.is_leap_year,
    **dict.fromkeys(("days_in_month", "daysinmonth"), Dates.days_in_month),
    "is_month_start": lambda dates: dates.at("first", tuple(range(1, 13))),
    "is_month_end": lambda dates: dates.at("last", tuple(range(1, 13))),
    "is_quarter_start": lambda dates: dates.at("first", (1, 4, 7, 10)),
    "is_quarter_end": lambda dates: dates.at("last", (3, 6, 9, 12)),
    "is_year_start": lambda dates: dates.at("first", (1,)),
    "is_year_end": lambda dates: dates.at("last", (12,)),
}
"""The parts of a date by their names in pandas."""

OF_TIMESTAMP = {"week": Dates.iso_week, "weekofyear": Dates.iso_week}
"""Attributes of a pandas.Timestamp that `.dt` does not have."""

METHODS_OF_DATES: dict[str, Callable[..., Expression]] = {
    "date": Dates.date,
    "day_name": lambda dates, locale=None: dates.named(dates.dayofweek(), DAYS),
    "isoweekday": Dates.isoweekday,
    "month_name": lambda dates, locale=None: dates.named(dates._op("subtract", dates.month(), 1), MONTHS),
    "normalize": Dates.midnight,
    "timestamp": Dates.timestamp,
    "toordinal": Dates.toordinal,
    "total_seconds": Dates.total_seconds,
    "tz_convert": lambda dates, tz: dates.converted(None if tz is None else str(tz)),
    "tz_localize": lambda dates, tz: dates.localized(None if tz is None else str(tz)),
    "weekday": Dates.dayofweek,
}
"""Methods of a pandas.Timestamp or a pandas.Timedelta."""

DURATION_PARTS: dict[str, Callable[[Dates], Expression]] = {
    "days": Dates.days,
    "seconds": Dates.seconds,
    "microseconds": Dates.microseconds,
}
"""The parts of a duration by their names in pandas."""


def check_zone(zone: str) -> None:
    """Raise `Untraceable` unless a time zone is one of the IANA database's."""
    try:
        zoneinfo.ZoneInfo(zone)
    except (ValueError, zoneinfo.ZoneInfoNotFoundError):
        raise Untraceable(f"it uses the time zone {zone!r}, which the IANA database does not have") from None


def zone_offsets(zone: str) -> tuple[np.ndarray, np.ndarray]:
    """Return a zone's offsets from UTC: the instants at which one begins, and the offsets before and from these.

    Both are in microseconds; the offsets are one more than the instants. The instants lie between 1677 and 2263, the
    range of nanosecond timestamps. They are those of the pandas that is installed: versions before 3 know no summer
    time after 2037.
    """
    hours = pd.date_range(f"{FIRST_YEAR}-09-22", "2262-04-11", freq="12h", tz="UTC", unit="s")
    seconds = hours.asi8

    def offset(moments: np.ndarray) -> np.ndarray:
        local = pd.DatetimeIndex(moments.astype("datetime64[s]"), tz="UTC").tz_convert(zone).tz_localize(None)
        found: np.ndarray = local.as_unit("s").asi8 - moments
        return found

    at = offset(seconds)
    changed = np.flatnonzero(at[1:] != at[:-1])
    low, high = seconds[changed], seconds[changed + 1]
    while (high - low > 1).any():  # the second at which the offset changes
        middle = (low + high) // 2
        as_low = offset(middle) == at[changed]
        low, high = np.where(as_low, middle, low), np.where(as_low, high, middle)
    return high * SECOND, np.append(at[:1], at[changed + 1]) * SECOND
