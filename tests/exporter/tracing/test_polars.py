"""Own code in expressions of polars: its plan computes what polars itself does, null and NaN included."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import polars.selectors as cs
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tests.exporter.tracing.own_code_polars import MODELS, rides
from tests.exporter.tracing.plans import Traced
from tests.exporter.tracing.test_frames import table as of_pandas
from triton_regressors.exporter.compile import compile_estimator

ROWS = 400
CITIES = ["Bonn", "Köln ", " ulm", "San-Remo", ""]
START = dt.datetime(2023, 12, 30, 22, 58, 3, 123456)


def table() -> pl.DataFrame:
    """Numbers of every width, booleans, strings and dates; nulls in most columns, and NaN in one."""
    rng = np.random.default_rng(11)
    n = ROWS

    def some(values: Any, dtype: Any = None) -> pl.Series:
        missing = rng.random(n) < 0.15
        return pl.Series([None if gone else value for value, gone in zip(values, missing, strict=True)], dtype=dtype)

    seconds = [
        START + dt.timedelta(seconds=int(s), microseconds=int(u)) for s, u in rng.integers(-(10**9), 10**7, (n, 2))
    ]
    return pl.DataFrame(
        {
            "a": rng.normal(size=n),
            "b": some(np.round(rng.normal(size=n) * 4) / 2, pl.Float64),
            "nan": np.where(rng.random(n) < 0.2, np.nan, rng.gamma(2.0, 3.0, n)),
            "k": rng.integers(-3, 6, n),
            "i": some(rng.integers(-50, 50, n).tolist(), pl.Int64),
            "small": pl.Series(rng.integers(-120, 120, n), dtype=pl.Int8),
            "unsigned": some(rng.integers(0, 9, n).tolist(), pl.UInt32),
            "single": some(rng.normal(size=n).astype(np.float32).tolist(), pl.Float32),
            "flag": rng.random(n) < 0.4,
            "maybe": some((rng.random(n) < 0.5).tolist(), pl.Boolean),
            "city": some(rng.choice(CITIES, n).tolist(), pl.String),
            "grade": some(rng.choice(["low", "mid", "high"], n).tolist(), pl.Enum(["low", "mid", "high"])),
            "when": some(seconds, pl.Datetime("us")),
            "day": some([s.date() for s in seconds], pl.Date),
            "zoned": pl.Series(seconds, dtype=pl.Datetime("ms"))
            .dt.replace_time_zone("UTC")
            .dt.convert_time_zone("Europe/Berlin"),
        }
    )


a, b, nan, k, i, small, unsigned, single, flag, maybe, city, grade, when, day, zoned = (
    pl.col(name) for name in table().columns
)

Case = Callable[[pl.DataFrame], Any]


def select(*expressions: Any, **named: Any) -> Case:
    return lambda t: t.select(*expressions, **named)


EXACT: dict[str, Case] = {
    "arithmetic": select(x=a + b * 2, y=1 - a, z=-b, w=(a - b) * k, v=a / b, u=1 / a, q=k / 3),
    "division by a constant": select(x=a / 3, y=b // 0.3, z=b % 0.3, w=a // b, v=a % b),
    "integers": select(x=k // 2, y=k % 3, z=i // k, w=i % k, v=k**2, u=i * 3 - k, q=abs(i), p=-i),
    "narrow integers": select(
        x=small * 2, y=small + small, z=-small, w=unsigned - 5, v=small**2, u=small // 7, q=unsigned * 2
    ),
    "singles": select(x=single * 3, y=single + 0.1, z=single > 0.1, w=single / 3, v=single * a, u=single.round(2)),
    "comparisons": select(
        x=a > b, y=b == 0.5, z=b != 0.5, w=(a > 0) & ~flag, v=(b > 0) | maybe, u=maybe ^ flag, q=~maybe
    ),
    "comparisons of NaN": select(x=nan > 2, y=nan <= 2, z=nan == nan, w=nan != 1, v=nan < a, u=a >= nan, q=a < nan),
    "kleene": select(
        x=maybe & (b > 0), y=maybe | (b > 0), z=pl.any_horizontal(maybe, b > 0), w=pl.all_horizontal("maybe", "flag")
    ),
    "missing": select(
        x=b.is_null(),
        y=nan.is_nan(),
        z=nan.is_null(),
        w=b.is_not_null(),
        v=b.is_nan(),
        u=(b / b).is_nan(),
        q=nan.is_finite(),
    ),
    "filled": select(
        x=b.fill_null(7),
        y=nan.fill_nan(0),
        z=nan.fill_nan(None),
        w=b.fill_null(a),
        v=nan.fill_null(1),
        u=i.fill_null(-1),
    ),
    "coalesce": select(x=pl.coalesce(b, single, a), y=pl.coalesce(i, 0), z=pl.coalesce(maybe, flag)),
    "choice": select(
        x=pl.when(b > 0).then(a).otherwise(b),
        y=pl.when(maybe).then(1).when(k > 2).then(2).otherwise(None),
        z=pl.when(nan > 3).then(b),
        w=pl.when(flag).then(k).otherwise(0.5),
    ),
    "clip": select(
        x=b.clip(-0.5, 0.5), y=k.clip(0, 2), z=a.clip(lower_bound=b), w=nan.clip(1, 2), v=small.clip(upper_bound=10)
    ),
    "rounding": select(
        x=a.round(1), y=a.floor(), z=b.ceil(), w=a.round(), v=a.round(2, mode="half_away_from_zero"), u=k.round(1)
    ),
    "functions": select(x=a.abs().sqrt(), y=a.sign(), z=a**2, w=a.pow(3), v=b.abs()),
    "casts": select(
        x=a.cast(pl.Int64),
        y=k.cast(pl.Float64),
        z=flag.cast(pl.Int8),
        w=b.cast(pl.Boolean),
        v=i.cast(pl.UInt8, strict=False),
        u=nan.cast(pl.Int32, strict=False),
        q=a.cast(pl.Float32),
        p=maybe.cast(pl.Float64) + 1,
    ),
    "sets": select(
        x=k.is_in([1, 2]),
        y=b.is_in([0.5, 1.0]),
        z=nan.is_in([np.nan]),
        w=~i.is_in([3, 4, 5]),
        v=day.is_in([dt.date(2020, 1, 1)]),
    ),
    "between": select(
        x=a.is_between(-0.5, 0.5), y=k.is_between(0, 2, closed="left"), z=nan.is_between(1, 9), w=b.is_between(a, 1)
    ),
    "tables": select(
        x=k.replace({1: 10, 2: 20}),
        y=k.replace_strict({0: 1.5, 1: None}, default=-1),
        z=k.replace_strict({0: 5}, default=None),
        w=i.replace({None: 7, 3: 4}),
        v=b.replace([0.5, 1.0], [9.0, 8.0]),
        u=k.replace_strict({1: 100}, default=i),
    ),
    "horizontal": select(
        x=pl.sum_horizontal("a", "b"),
        y=pl.mean_horizontal("a", "b", "nan"),
        z=pl.max_horizontal("a", "nan"),
        w=pl.min_horizontal("b", "i"),
        v=pl.sum_horizontal("flag", "maybe"),
        u=pl.sum_horizontal(a, b, ignore_nulls=False),
        q=pl.mean_horizontal("small", "small"),
    ),
    "selectors": lambda t: t.select(
        cs.float().fill_null(0).fill_nan(0).name.suffix("_0"),
        pl.col("^.*k$") * 2,
        (cs.integer() - 1).name.prefix("less_"),
    ),
    "all but": lambda t: t.select((cs.numeric() - cs.by_name("k")).is_null().cast(pl.Int8)),
    "with columns": lambda t: (
        t.with_columns(r=a / b, s=k * 2).with_columns((pl.col("r") * pl.col("s")).alias("rs")).select("rs", "r", "b")
    ),
    "drop and rename": lambda t: t.select("a", "b", "k").rename({"a": "A"}).drop("k").with_columns(pl.col("A") + 1),
    "cast of a table": lambda t: t.select("a", "k", "flag").cast({"k": pl.Float32, "flag": pl.Int64}),
    "fill of a table": lambda t: t.select("a", "b", "i").fill_null(0),
    "lazy": lambda t: t.lazy().with_columns(x=a * 2).select("x", y=pl.col("x") + b).collect(),
    "pipe": lambda t: t.pipe(lambda u: u.select("a", "b")).pipe(lambda u: u.with_columns(c=pl.col("a") - pl.col("b"))),
    "columns": lambda t: t.select("a").with_columns(t["b"] * t["k"], t.get_column("a").abs().alias("x"), y=t["i"]),
    "concat": lambda t: pl.concat([t.select("a"), t.select(z=b * 2)], how="horizontal"),
    "hstack": lambda t: t.select("a").hstack([t["k"]]).hstack(t.select("b")),
    "loop": lambda t: t.select([(pl.col(p) * pl.col(q)).alias(f"{p}_{q}") for p in ("a", "b") for q in ("k", "i")]),
    "shared parts": lambda t: t.select(
        x=(a * 3 - b).clip(0, 1) + 1, y=(a * 3 - b).clip(0, 1) * 2, z=(a * 3 - b).clip(0, 1)
    ),
    "array": lambda t: t.select("a", "b", "k").to_numpy() * 2,
    "stacked": lambda t: np.column_stack([t["a"].to_numpy(), t["k"].to_numpy() ** 2]),
    "numpy of columns": lambda t: np.column_stack([t["a"], np.where(t["k"].to_numpy() > 1, t["a"].to_numpy(), 0.0)]),
    "numpy of a table": lambda t: np.hstack([np.asarray(t.select("a", "k")), np.clip(t.select("a").to_numpy(), 0, 1)]),
    "a table of columns": lambda t: pl.DataFrame({"x": t["a"] * 2, "y": t["b"], "z": t["a"].to_numpy() ** 2}),
    "sums of a table": lambda t: t.select(
        "a", x=t.select("a", "b").sum_horizontal(), y=t.select("k", "i").max_horizontal()
    ),
    "pandas": lambda t: t.select("a", "b", "i").to_pandas().assign(c=lambda u: u["a"] - u["b"].fillna(0)),
    "shape": lambda t: t.select(pl.lit(float(t.width)).alias("w"), x=a * t.shape[1], y=pl.lit(2)),
}
"""Functions of numbers, with polars' bits."""

DATES: dict[str, Case] = {
    "parts": select(
        when.dt.year(),
        m=when.dt.month(),
        d=when.dt.day(),
        h=when.dt.hour(),
        mi=when.dt.minute(),
        s=when.dt.second(),
        q=when.dt.quarter(),
        w=when.dt.week(),
        wd=when.dt.weekday(),
        o=when.dt.ordinal_day(),
        iy=when.dt.iso_year(),
        ms=when.dt.millisecond(),
        us=when.dt.microsecond(),
        leap=when.dt.is_leap_year(),
        long=when.dt.days_in_month(),
    ),
    "parts of days": select(
        day.dt.year(), m=day.dt.month(), w=day.dt.week(), wd=day.dt.weekday(), o=day.dt.ordinal_day()
    ),
    "parts in a zone": select(
        zoned.dt.hour(),
        d=zoned.dt.day(),
        utc=zoned.dt.convert_time_zone("UTC").dt.hour(),
        n=zoned.dt.replace_time_zone(None).dt.hour(),
    ),
    "wrapping parts": select(
        x=when.dt.month() * 31 + when.dt.day(), y=when.dt.year() - 2000, z=when.dt.hour() * 60 + when.dt.minute()
    ),
    "epochs": select(
        x=when.dt.epoch("s"),
        y=when.dt.timestamp("ms"),
        z=when.dt.epoch("d"),
        w=day.cast(pl.Int32),
        v=when.cast(pl.Int64),
    ),
    "differences": select(
        x=(when - day).dt.total_hours(),
        y=(when - dt.datetime(2020, 1, 1)).dt.total_days(),
        z=(day - dt.date(2021, 5, 1)).dt.total_days(),
        w=(when - zoned.dt.convert_time_zone("UTC").dt.replace_time_zone(None)).dt.total_seconds(),
        v=(dt.datetime(2024, 1, 1) - when).dt.total_minutes(),
    ),
    "comparisons": select(
        x=when > dt.datetime(2010, 3, 4),
        y=day >= dt.date(2015, 1, 1),
        z=when > day,
        w=day.is_null(),
        v=day == when.dt.date(),
    ),
    "dates of dates": select(
        x=(when.dt.truncate("1mo") - when).dt.total_hours(),
        y=(when - when.dt.truncate("1w")).dt.total_hours(),
        z=when.dt.truncate("6h").dt.hour(),
        w=when.dt.truncate("1y").dt.ordinal_day(),
        v=(when + dt.timedelta(hours=5)).dt.day(),
        u=when.dt.month_start().dt.day(),
        q=when.dt.date().dt.epoch("d"),
        p=when.fill_null(dt.datetime(2000, 1, 1)).dt.year(),
    ),
    "weekend": select(
        x=when.dt.weekday() > 5, y=day.dt.month().is_in([12, 1, 2]), z=pl.when(day.dt.month() <= 6).then(1).otherwise(2)
    ),
}
"""Functions of dates, with polars' bits."""

STRINGS: dict[str, Case] = {
    "equal": select(
        x=city == "Bonn", y=city != "Köln ", z=(city == " ulm") | flag, w=city.eq_missing("Bonn"), v=grade == "low"
    ),
    "missing": select(x=city.is_null(), y=city.fill_null("none") == "none", z=city.is_not_null() & flag),
    "lengths": select(
        x=city.str.len_chars(),
        y=city.str.strip_chars().str.len_bytes(),
        z=city.str.len_chars() - 3,
        w=city.str.count_matches("o"),
    ),
    "tests": select(
        x=city.str.contains("o"),
        y=city.str.starts_with("B"),
        z=city.str.to_lowercase().str.ends_with("n"),
        w=city.str.contains("-", literal=True),
    ),
    "sets": select(x=city.is_in(["Bonn", " ulm"]), y=~city.is_in(["Bonn"]), z=grade.is_in(["low", "high"])),
    "tables": select(
        x=city.replace_strict({"Bonn": 3, " ulm": 4}, default=0),
        y=city.replace_strict({"Bonn": 1.5}, default=None),
        z=city.replace({"Bonn": "x"}) == "x",
        w=grade.replace_strict({"low": 1, "mid": 2, "high": 3}, default=None),
        v=city.replace_strict({"Bonn": 1.0}, default=b),
    ),
    "chains": select(
        x=city.str.strip_chars().str.to_uppercase().replace_strict({"BONN": 1, "ULM": 2}, default=-1),
        y=city.str.replace_all("o", "0").str.slice(0, 2) == "B0",
        z=city.str.split("-").list.get(0) == "San",
        w=city.str.head(1) + "!" == "B!",
        v=pl.concat_str(pl.lit("c:"), city) == "c:Bonn",
    ),
    "choice": select(
        x=pl.when(city == "Bonn").then(a).otherwise(b), y=pl.when(a > 0).then(pl.lit("up")).otherwise(city) == "up"
    ),
    "numbers of strings": select(
        x=city.str.extract(r"(\d+)").cast(pl.Float64, strict=False), y=grade.cast(pl.String).str.len_chars()
    ),
    "bins": select(
        x=a.cut([-1.0, 0.0, 1.0], labels=["p", "q", "r", "s"]) == "q",
        y=b.cut([0.0], labels=["n", "p"], left_closed=True).cast(pl.String) == "p",
    ),
    "names": select(
        x=k.replace_strict({1: "one", 2: "two"}, default="many") == "many", y=flag.cast(pl.String) == "true"
    ),
}
"""Functions of strings with numbers as results."""

NEAR: dict[str, Case] = {
    "logarithms": select(x=a.abs().log(), y=a.abs().log10(), z=a.abs().log1p(), w=a.exp(), v=a.abs().log(2), u=b.log()),
    "circle": select(
        x=a.sin(), y=a.cos(), z=a.tanh(), w=a.arctan(), v=pl.arctan2("a", "b"), u=a.radians(), q=a.clip(-1, 1).arcsin()
    ),
    "powers": select(x=a.abs() ** 0.5, y=a.abs() ** 1.7, z=a.cbrt(), w=b**4, v=2**a, u=b.pow(a)),
    "cycle": select(x=(2 * np.pi * when.dt.month() / 12).sin(), y=(zoned.dt.hour() * (2 * np.pi / 24)).cos()),
    "numpy": lambda t: t.select(x=np.sqrt(pl.col("a").abs()), y=np.log1p(pl.col("a").abs())),
    "durations": select(
        x=(when - day).dt.total_seconds(fractional=True), y=(when - dt.datetime(2020, 1, 1)) / dt.timedelta(days=1)
    ),
}
"""Functions whose last digits may differ."""


FROM_PANDAS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "numbers": lambda t: pl.from_pandas(t).select(x=pl.col("a") / 3, y=pl.col("c").fill_null(-1), z=pl.col("k") // 2),
    "nan": lambda t: pl.from_pandas(t, nan_to_null=False).select(x=pl.col("c").fill_nan(2), y=pl.col("c") > 1),
    "strings": lambda t: pl.from_pandas(t).select(x=pl.col("city").str.len_chars(), y=pl.col("city") == "Bonn"),
    "and back": lambda t: pl.from_pandas(t).select(pl.col("a") * 2, pl.col("c").is_null()).to_pandas() * 2,
}
"""Functions that take a table of pandas and compute in polars."""


def values(found: Any) -> np.ndarray:
    if isinstance(found, pl.DataFrame):
        found = found.select(pl.all().cast(pl.Float64)).to_numpy()
    return np.asarray(found, dtype=np.float64)


def compare(function: Any, rows: Any, same: Callable[..., None] = assert_array_equal) -> None:
    expected = function(rows)
    traced = Traced(function, rows)
    same(traced.transform(rows), values(expected))
    if isinstance(expected, pl.DataFrame):
        assert list(traced.names) == expected.columns


@pytest.mark.parametrize("name", EXACT)
def test_bits_of_polars(name: str) -> None:
    compare(EXACT[name], table())


@pytest.mark.parametrize("name", DATES)
def test_dates(name: str) -> None:
    compare(DATES[name], table())


@pytest.mark.parametrize("name", STRINGS)
def test_strings(name: str) -> None:
    compare(STRINGS[name], table())


@pytest.mark.parametrize("name", NEAR)
def test_last_digits(name: str) -> None:
    compare(NEAR[name], table(), lambda x, y: assert_allclose(x, y, rtol=1e-12, atol=1e-12))


@pytest.mark.parametrize("name", FROM_PANDAS)
def test_tables_of_pandas_computed_in_polars(name: str) -> None:
    compare(FROM_PANDAS[name], of_pandas())


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str) -> None:
    X, y = rides()
    model = MODELS[name]().fit(X, y)
    compilation = compile_estimator(model, sample=X)
    assert compilation.report.within, compilation.report.cause
    assert all(np.isfinite(parity.max_error) for parity in compilation.report.judged.values())
