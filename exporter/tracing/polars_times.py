"""Dates and durations of polars: their parts, differences and casts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import polars as pl

from triton_regressors.exporter.tracing.dates import DAY, SECOND, Dates
from triton_regressors.exporter.tracing.expressions import BOOLEAN, FLOAT, INTEGER, Expression
from triton_regressors.exporter.tracing.polars_values import Bounds, Nullable, Values, kind_of, unknown
from triton_regressors.exporter.tracing.refusal import Untraceable

PER_UNIT = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND, "d": DAY}
"""The microseconds of polars' units of time."""

YEARS = (1677.0, 2263.0)

PARTS: dict[str, tuple[Callable[[Dates], Expression], Bounds]] = {
    "Year": (Dates.year, YEARS),
    "IsoYear": (Dates.iso_year, YEARS),
    "Quarter": (Dates.quarter, (1, 4)),
    "Month": (Dates.month, (1, 12)),
    "Week": (Dates.iso_week, (1, 53)),
    "WeekDay": (lambda dates: dates._op("add", dates.dayofweek(), 1), (1, 7)),
    "Day": (Dates.day, (1, 31)),
    "OrdinalDay": (Dates.dayofyear, (1, 366)),
    "DaysInMonth": (Dates.days_in_month, (28, 31)),
    "IsLeapYear": (Dates.is_leap_year, (0, 1)),
    "Hour": (lambda dates: dates.of_day(3600 * SECOND, 24), (0, 23)),
    "Minute": (lambda dates: dates.of_day(60 * SECOND, 60), (0, 59)),
    "Second": (lambda dates: dates.of_day(SECOND, 60), (0, 59)),
    "Millisecond": (lambda dates: dates.of_day(1000.0, 1000.0), (0, 999)),
    "Microsecond": (lambda dates: dates.of_day(1.0, SECOND), (0, 999_999)),
}
"""Parts of dates by their names in plans of polars, and the numbers that they are."""

TOTALS = {
    "TotalDays": "d",
    "TotalHours": "h",
    "TotalMinutes": "m",
    "TotalSeconds": "s",
    "TotalMilliseconds": "ms",
    "TotalMicroseconds": "us",
}
"""Durations in units of time."""


class Times:
    """Computes with dates and durations, which are microseconds."""

    def __init__(self, values: Values) -> None:
        self._values = values

    def _op(self, name: str, *arguments: Expression | float, kind: Any = INTEGER) -> Expression:
        values = self._values
        found = [each if isinstance(each, Expression) else values.number(each) for each in arguments]
        return values.make(name, *found, kind=kind)

    def dates(self, x: Nullable) -> Dates:
        """Return the parts of a value."""
        return Dates(self._values.own, self._values.value(x))

    def date(self, x: Nullable) -> Nullable:
        """Return the day of a date."""
        local = self.dates(x).local
        return self._made(pl.Date(), self._op("multiply", self._op("floor_divide", local, DAY), DAY), x)

    def _made(self, dtype: Any, raw: Expression, *inputs: Nullable, **more: Any) -> Nullable:
        """Return a value in the kind of its dtype."""
        kind = kind_of(dtype)
        raw = raw if raw.kind == kind else self._values.make("identity", raw, kind=kind)
        return self._values.computed(dtype, raw, *inputs, **more)

    def count(self, value: Expression, unit: str) -> Expression:
        """Return whole units of time, rounded down."""
        size = PER_UNIT[unit]
        if size < 1:
            return self._op("multiply", value, 1 / size)
        return self._op("floor_divide", value, size) if size > 1 else self._op("identity", value)

    def total(self, value: Expression, unit: str) -> Expression:
        """Return whole units of time, rounded towards zero."""
        if PER_UNIT[unit] <= 1:
            return self.count(value, unit)
        size = self._op("floor_divide", self._op("absolute", value), PER_UNIT[unit])
        return self._op("multiply", size, self._op("sign", value))

    def arithmetic(self, operator: str, x: Nullable, y: Nullable, dtype: Any) -> Nullable:
        """Return an operation of which one value is a date or a duration."""
        values, a, b = self._values, self._values.value(x), self._values.value(y)
        temporal = x.dtype.is_temporal() and y.dtype.is_temporal()
        if operator in ("Plus", "Minus") and temporal:
            found = self._op("add" if operator == "Plus" else "subtract", a, b)
            if dtype == pl.Date():
                found = self._op("multiply", self._op("floor_divide", found, DAY), DAY)
            return self._made(dtype, found, x, y)
        if operator == "Multiply" and not temporal and dtype.base_type() == pl.Duration:
            if x.dtype.is_float() or y.dtype.is_float():
                return self._made(dtype, self._op("trunc", self._op("multiply", a, b, kind=FLOAT)), x, y)
            return self._made(dtype, self._op("multiply", a, b), x, y)
        if operator == "TrueDivide" and temporal and dtype.is_float():
            if y.constant:
                return values.computed(dtype, self._op("multiply", a, 1.0 / y.constant, kind=FLOAT), x, y)
            return values.computed(dtype, self._op("divide", a, b, kind=FLOAT), x, y, finite=False)
        raise Untraceable(f"it computes {operator} of {x.dtype} and {y.dtype} columns")

    def part(self, name: str, inputs: Sequence[Nullable], more: Sequence[Any], dtype: Any) -> Nullable:
        """Return a part of a date or a duration by its name in plans of polars."""
        values, x = self._values, inputs[0]
        if name in TOTALS:
            if more and more[0]:
                seconds = self._op("multiply", values.value(x), 1 / PER_UNIT[TOTALS[name]], kind=FLOAT)
                if PER_UNIT[TOTALS[name]] > 1:
                    seconds = self._op("divide", values.value(x), PER_UNIT[TOTALS[name]], kind=FLOAT)
                return values.computed(dtype, seconds, x)
            return values.computed(dtype, self.total(values.value(x), TOTALS[name]), x)
        if name in PARTS:
            part, bounds = PARTS[name]
            raw = part(self.dates(x))
            return values.truth(raw, x) if raw.kind.name == BOOLEAN else values.computed(dtype, raw, x, bounds=bounds)
        match name:
            case "TimeStamp":
                return values.computed(dtype, self.count(values.value(x), str(more[0])), x)
            case "Date":
                return self.date(x)
            case "ConvertTimeZone" if x.dtype.time_zone is not None:
                return values.computed(dtype, self.dates(x).converted(more[0]), x)
            case "ReplaceTimeZone":
                return values.computed(dtype, self.dates(x).localized(more[0]), x)
            case "CastTimeUnit":
                return cast_time(values, x, dtype)
            case "Truncate":
                return self._made(dtype, self._truncated(x, inputs[1].constant), x)
            case "MonthStart":
                days = self._op("subtract", self.dates(x).day(), 1)
                return self._made(dtype, self._op("subtract", values.value(x), self._op("multiply", days, DAY)), x)
        raise unknown(f"dt.{name}")

    def _truncated(self, x: Nullable, every: Any) -> Expression:
        found = re.fullmatch(r"(\d+)(us|ms|s|m|h|d|w|mo|y)", str(every))
        if (
            found is None
            or x.dtype.base_type() == pl.Duration
            or getattr(x.dtype, "time_zone", None) not in (None, "UTC")
        ):
            raise unknown(f"dt.truncate by {every}, or in a time zone")
        count, unit, dates = int(found[1]), found[2], self.dates(x)
        if unit in PER_UNIT:
            step = count * PER_UNIT[unit]
            return self._op("multiply", self._op("floor_divide", self._values.value(x), step), step)
        if count > 1:
            raise unknown(f"dt.truncate by {every}")
        if unit == "y":
            day = dates.first_day(dates.year())
        else:
            before = dates.dayofweek() if unit == "w" else self._op("subtract", dates.day(), 1)
            day = self._op("subtract", dates.day_number, before)
        return self._op("multiply", day, DAY)


def times(values: Values, *inputs: Nullable) -> Times:
    """Return what computes with dates and durations; refuse times of a day."""
    if any(each.dtype == pl.Time() for each in inputs):
        raise Untraceable("it computes with times of a day (pl.Time)")
    return Times(values)


def part_of_time(values: Values, name: str, inputs: Sequence[Nullable], more: Sequence[Any], dtype: Any) -> Nullable:
    """Return a part of a date or a duration by its name in plans of polars."""
    return times(values, *inputs).part(name, inputs, more, dtype)


def cast_time(values: Values, x: Nullable, dtype: Any) -> Nullable:
    """Return a date or a duration cast to another type, or a number of units as one of these."""
    own, raw = times(values, x), values.value(x)
    if not x.dtype.is_temporal():
        unit = "d" if dtype == pl.Date() else getattr(dtype, "time_unit", None)
        if not x.dtype.is_integer() or unit is None:
            raise Untraceable(f"it casts {x.dtype} columns to {dtype}")
        return own._made(dtype, own._op("multiply", raw, PER_UNIT[unit]), x)
    if x.dtype.base_type() == pl.Duration and dtype.is_temporal() and dtype.base_type() != pl.Duration:
        raise Untraceable(f"it casts {x.dtype} columns to {dtype}")
    if dtype == pl.Date():
        return own.date(x)
    if dtype.is_temporal():
        unit = getattr(dtype, "time_unit", None)
        if unit is None:
            raise Untraceable(f"it casts {x.dtype} columns to {dtype}")
        size = PER_UNIT[unit]
        if size > 1 and x.dtype != pl.Date() and PER_UNIT[x.dtype.time_unit] < size:
            raw = own._op("multiply", own._op("floor_divide", raw, size), size)
        return own._made(dtype, raw, x)
    unit = "d" if x.dtype == pl.Date() else x.dtype.time_unit
    if dtype.is_float():
        return values.computed(dtype, values.own.cast(own.count(raw, unit), kind_of(dtype).name), x)
    if not dtype.is_integer():
        raise Untraceable(f"it casts {x.dtype} columns to {dtype}")
    return values.wrapped(
        values.computed(
            dtype,
            own.count(raw, unit),
            x,
            bounds=(-math.inf, math.inf) if dtype == pl.Int64() else (-200_000.0, 200_000.0),
        )
    )
