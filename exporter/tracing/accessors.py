"""The accessors `.str` and `.dt` of pandas' columns that hold cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from triton_regressors.exporter.tracing.cells import (
    algebra,
    holds_cells,
)
from triton_regressors.exporter.tracing.dates import METHODS_OF_DATES, Dates
from triton_regressors.exporter.tracing.expressions import (
    Expression,
)
from triton_regressors.exporter.tracing.frame_cells import each_cell
from triton_regressors.exporter.tracing.patches import StandingType
from triton_regressors.exporter.tracing.refusal import Untraceable
from triton_regressors.exporter.tracing.text_methods import Step, step_of


class Accessor:
    """Stands for an accessor of Series while a function is traced."""

    def __init__(self, original: Any, ours: Callable[[Any], Any]) -> None:
        self._original, self._ours = original, ours

    def __get__(self, series: Any, owner: Any) -> Any:
        if series is not None and holds_cells(series):
            return self._ours(series)
        return self._original.__get__(series, owner)


class Texts:
    """Methods of strings: steps of the entry, or functions that are evaluated on the strings known of a column."""

    def __init__(self, series: Any) -> None:
        self._series = series

    def __getitem__(self, key: Any) -> Any:
        shown = (key.start, key.stop, key.step) if isinstance(key, slice) else (key,)
        return self._call("[]", lambda series: series.str[key], shown, step_of("[]", (key,), {}))

    def cat(self, others: Any = None, sep: str | None = None, na_rep: str | None = None, join: Any = "left") -> Any:
        """Return the strings of several columns put together, with a separator between them."""
        if others is None or na_rep is not None or not (holds_cells(others) or isinstance(others, list | tuple)):
            raise Untraceable("it joins strings by .str.cat in another way than column by column", "Use a + '_' + b")
        found = self._series
        for other in others if isinstance(others, list | tuple) else [others]:
            found = (found + sep if sep else found) + other
        return found

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(pd.Series(["a"]).str, name):
            raise AttributeError(f"'StringMethods' has no attribute '{name}'")

        def method(*args: Any, **kwargs: Any) -> Any:
            if kwargs.get("expand") or name in ("get_dummies", "extractall", "partition", "rpartition"):
                raise Untraceable(f"it makes a table of strings (.str.{name})", "Take one part of them, by .str[0]")
            shown = (*map(repr, args), *map(repr, sorted(kwargs.items())))
            call, step = lambda series: getattr(series.str, name)(*args, **kwargs), step_of(name, args, kwargs)
            return self._call(name, call, shown, step)

        return method

    def _call(self, name: str, call: Callable[[Any], Any], shown: Any, step: Step | None) -> Any:
        def each(x: Any) -> Expression:
            own = algebra()
            return own.text_call(own.expression(x), f"str.{name}", call, shown, kind=None, step=step)

        return each_cell(self._series, each)


class Times:
    """Parts and methods of dates and durations."""

    def __init__(self, series: Any) -> None:
        self._series = series

    def _each(self, function: Callable[[Dates], Expression]) -> Any:
        own = algebra()
        return each_cell(self._series, lambda x: function(Dates(own, own.expression(x))))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._each(lambda dates: dates.part(name))

    def isocalendar(self) -> Any:
        """Return the year, week and day of ISO 8601."""
        day = self._each(lambda dates: dates._op("add", dates.dayofweek(), 1))
        return pd.DataFrame({"year": self._each(Dates.iso_year), "week": self._each(Dates.iso_week), "day": day})

    def total_seconds(self) -> Any:
        """Return durations in seconds."""
        return self._each(Dates.total_seconds)

    def normalize(self) -> Any:
        """Return dates at midnight."""
        return self._each(Dates.midnight)

    def floor(self, freq: str, *_: Any, **__: Any) -> Any:
        """Return dates rounded down."""
        return self._each(lambda dates: dates.rounded("floor", freq))

    def ceil(self, freq: str, *_: Any, **__: Any) -> Any:
        """Return dates rounded up."""
        return self._each(lambda dates: dates.rounded("ceil", freq))

    def round(self, freq: str, *_: Any, **__: Any) -> Any:
        """Return dates rounded to the nearest."""
        return self._each(lambda dates: dates.rounded("round", freq))

    def tz_convert(self, tz: Any) -> Any:
        """Return dates in another zone."""
        return self._each(lambda dates: dates.converted(None if tz is None else str(tz)))

    def tz_localize(self, tz: Any, *_: Any, **__: Any) -> Any:
        """Return local times as dates without a zone, or such dates in UTC."""
        return self._each(lambda dates: dates.localized(None if tz is None else str(tz)))

    def day_name(self, locale: Any = None) -> Any:
        """Return the names of days."""
        return self._each(METHODS_OF_DATES["day_name"])

    def month_name(self, locale: Any = None) -> Any:
        """Return the names of months."""
        return self._each(METHODS_OF_DATES["month_name"])

    def strftime(self, *_: Any) -> Any:
        """Refuse to write dates as text."""
        raise Untraceable("it writes dates as text (strftime)", "Use parts of dates, such as .dt.month")

    def to_period(self, *_: Any) -> Any:
        """Refuse periods."""
        raise Untraceable("it makes periods of dates (to_period)", "Use parts of dates, such as .dt.month")


class DatetimeIndex(metaclass=StandingType):
    """Stands for pandas.DatetimeIndex: a column of cells becomes its parts."""

    original = pd.DatetimeIndex

    def __new__(cls, data: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Return the parts of a column of cells, and otherwise an index."""
        return Times(data) if holds_cells(data) else pd.DatetimeIndex(data, *args, **kwargs)
