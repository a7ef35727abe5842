"""Pipelines with own code in expressions of polars, in the forms of public tutorials, each written anew."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs
from sklearn.base import BaseEstimator, RegressorMixin, TransformerMixin, clone
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder, StandardScaler

ROWS = 240


@functools.cache
def rides() -> tuple[pl.DataFrame, np.ndarray]:
    """Rides of bicycles: numbers, booleans, strings and dates, with nulls in most columns and NaN in one."""
    rng = np.random.default_rng(21)
    n = ROWS

    def some(values: Any, dtype: Any = None, share: float = 0.1) -> pl.Series:
        gone = rng.random(n) < share
        return pl.Series([None if g else v for v, g in zip(values, gone, strict=True)], dtype=dtype)

    start = pl.Series(dt.datetime(2023, 1, 1) + dt.timedelta(seconds=int(s)) for s in rng.integers(0, 6e7, n))
    minutes = rng.gamma(3.0, 8.0, n)
    table = pl.DataFrame(
        {
            "km": rng.gamma(2.0, 2.0, n),
            "minutes": some(minutes.tolist(), pl.Float64),
            "wind": np.where(rng.random(n) < 0.1, np.nan, rng.gamma(3.0, 4.0, n)),
            "riders": rng.integers(1, 5, n),
            "age": some(rng.integers(14, 80, n).tolist(), pl.Int64),
            "member": rng.random(n) < 0.6,
            "station": some(rng.choice(["Nord", " süd", "OST ", "West"], n).tolist(), pl.String),
            "kind": pl.Series(rng.choice(["city", "cargo", "e-bike"], n), dtype=pl.Enum(["city", "cargo", "e-bike"])),
            "start": start.cast(pl.Datetime("us")),
            "built": some(
                (start.dt.date() - pl.Series(rng.integers(10, 900, n)) * dt.timedelta(days=1)).to_list(), pl.Date
            ),
        }
    )
    y = 2 * table["km"].to_numpy() + 0.3 * minutes + 4 * table["member"].to_numpy() + rng.standard_normal(n)
    return table, y


MODELS: dict[str, Callable[[], Any]] = {}


def function(*strings: str, last: Any = None, fill: bool = True) -> Any:
    """Register a function in front of a model; columns of `strings` that it returns are one-hot encoded."""

    def register(own: Callable[..., Any]) -> Callable[..., Any]:
        def model() -> Any:
            steps: list[Any] = [FunctionTransformer(own)]
            if strings:
                hot = OneHotEncoder(handle_unknown="ignore")
                steps.append(ColumnTransformer([("hot", hot, list(strings))], remainder="passthrough"))
            return make_pipeline(*steps, *([SimpleImputer()] if fill else []), Ridge() if last is None else clone(last))

        MODELS[own.__name__] = model
        return own

    return register


def transformer(last: Any) -> Any:
    """Register a class in front of a model."""

    def register(own: type) -> type:
        MODELS[own.__name__] = lambda: make_pipeline(own(), clone(last))
        return own

    return register


@function()
def speeds(df):
    return df.select(
        "km",
        speed=pl.col("km") / (pl.col("minutes") / 60),
        per_rider=pl.col("km") / pl.col("riders"),
        long=pl.col("km") > 5,
        slow=pl.when(pl.col("minutes") > 40).then(1).when(pl.col("minutes") > 20).then(0.5).otherwise(0),
    )


@function(fill=False)
def filled(df):
    return df.with_columns(
        pl.col("minutes").fill_null(24.0),
        pl.col("wind").fill_nan(12.0),
        pl.col("age").fill_null(35),
        no_age=pl.col("age").is_null(),
    ).select("km", "minutes", "wind", "age", "no_age", "riders")


@function(fill=False, last=HistGradientBoostingRegressor(max_iter=10))
def missing_handed_on(df):
    return df.select(cs.numeric(), pl.col("age").clip(18, 70).alias("adult"))


@function("station", "size")
def words(df):
    return df.select(
        pl.col("station").str.strip_chars().str.to_lowercase().str.replace("ü", "ue").fill_null("unknown"),
        pl.when(pl.col("km") > 6).then(pl.lit("long")).otherwise(pl.lit("short")).alias("size"),
        "km",
    )


@function(last=RandomForestRegressor(10, max_depth=5, random_state=0))
def calendar(df):
    start = pl.col("start").dt
    return df.select(
        start.year().alias("year"),
        start.month().alias("month"),
        (start.weekday() >= 6).alias("weekend"),
        (start.hour() * 60 + start.minute()).alias("minute"),
        (2 * np.pi * start.ordinal_day() / 365).sin().alias("season"),
        (pl.col("start").dt.date() - pl.col("built")).dt.total_days().alias("age_of_bike"),
        (pl.col("start") >= dt.datetime(2023, 7, 1)).alias("after"),
    )


@function()
def scores(df):
    return df.select(
        pl.col("kind").replace_strict({"city": 1, "cargo": 2, "e-bike": 3}, return_dtype=pl.Int64),
        pl.col("station").replace_strict({"Nord": 0.5, "West": 1.5}, default=1.0).alias("price"),
        pl.col("kind").is_in(["cargo", "e-bike"]).alias("heavy"),
        pl.col("riders").replace({4: 3}),
        "km",
    )


@function("band")
def bands(df):
    band = pl.col("age").fill_null(35).cut([18, 30, 50, 65], labels=["a", "b", "c", "d", "e"])
    return df.lazy().with_columns(band=band.cast(pl.String)).select("band", "km", "riders").collect()


@function()
def horizontal(df):
    numbers = ["km", "minutes", "age"]
    return df.select(
        pl.sum_horizontal(numbers).alias("sum"),
        pl.mean_horizontal(numbers).alias("mean"),
        pl.max_horizontal(numbers).alias("max"),
        pl.sum_horizontal(pl.col(numbers).is_null().cast(pl.Int64)).alias("missing"),
        pl.coalesce("minutes", "age").alias("either"),
    )


@function(fill=False)
def arrays(df):
    table = df.select("km", "riders", "member").with_columns(pl.col("member").cast(pl.Int8))
    X = table.to_numpy()
    return np.column_stack([X, np.log1p(X[:, 0]), X[:, 0] / X[:, 1]])


@transformer(RandomForestRegressor(10, max_depth=5, random_state=0))
class MedianByGroup(TransformerMixin, BaseEstimator):
    """Fills missing minutes with the median of rides with as many riders."""

    def fit(self, X, y=None):
        medians = X.group_by("riders").agg(pl.col("minutes").median())
        self.medians_ = dict(medians.iter_rows())
        self.overall_ = X["minutes"].median()
        return self

    def transform(self, X):
        typical = pl.col("riders").replace_strict(self.medians_, default=self.overall_, return_dtype=pl.Float64)
        return X.select("km", "riders", pl.col("minutes").fill_null(typical))


@transformer(Ridge())
class Scaled(TransformerMixin, BaseEstimator):
    """Standardises columns by means and deviations of the fit, and caps them."""

    columns = ("km", "riders")

    def fit(self, X, y=None):
        self.mean_ = {name: X[name].mean() for name in self.columns}
        self.std_ = {name: X[name].std() for name in self.columns}
        return self

    def transform(self, X):
        assert isinstance(X, pl.DataFrame)
        return X.select(
            ((pl.col(name) - self.mean_[name]) / self.std_[name]).clip(-2, 2).alias(f"{name}_z")
            for name in self.columns
        )


class Residual(RegressorMixin, BaseEstimator):
    """A linear model, and a forest of what it leaves."""

    def fit(self, X, y):
        self.linear_ = Ridge().fit(self.columns(X), y)
        rest = y - self.linear_.predict(self.columns(X))
        self.forest_ = RandomForestRegressor(8, max_depth=4, random_state=0).fit(np.asarray(self.columns(X)), rest)
        return self

    @staticmethod
    def columns(X):
        return X.select("km", "riders", pl.col("minutes").fill_null(0).log1p())

    def predict(self, X):
        table = self.columns(X)
        return self.linear_.predict(table) + self.forest_.predict(np.asarray(table))


MODELS["Residual"] = Residual


def ratio(df):
    return df.with_columns((pl.col("km") / pl.col("minutes")).fill_nan(None).alias("ratio"))


def squares(df):
    return df.with_columns(pl.all().pow(2).name.suffix("_2"))


MODELS["polars_throughout"] = lambda: make_pipeline(
    ColumnTransformer(
        [
            ("ratio", FunctionTransformer(ratio), ["km", "minutes"]),
            ("kind", OrdinalEncoder(), ["kind"]),
            ("age", make_pipeline(SimpleImputer(), StandardScaler()), ["age"]),
        ],
        verbose_feature_names_out=False,
    ).set_output(transform="polars"),
    FunctionTransformer(lambda df: df.select(pl.all().fill_null(-1.0))),
    Ridge(),
)
MODELS["behind_a_scaler"] = lambda: make_pipeline(
    make_column_transformer((StandardScaler(), ["km", "riders"])).set_output(transform="polars"),
    FunctionTransformer(squares),
    Ridge(),
)
MODELS["two_functions"] = lambda: make_pipeline(
    FunctionTransformer(ratio),
    FunctionTransformer(lambda df: df.select("km", pl.col("ratio").fill_null(0), x=pl.col("age").is_null())),
    Ridge(),
)


# Functions of pandas' tables of houses


def house_numbers(df):
    area, age = pl.col("area"), pl.col("age")
    return pl.from_pandas(df).select(
        ((area + pl.col("basement")) / pl.col("rooms")).alias("per_room"),
        pl.when(age.is_null()).then(-1).when(age > 40).then(age * 2).otherwise(age // 3).alias("age"),
        pl.mean_horizontal("area", "basement", "age").alias("mean"),
        (pl.col("garden") | (area > 120)).cast(pl.Int8).alias("roomy"),
        (pl.col("built") % 100).cast(pl.Int8) * 2,
    )


def house_calendar(df):
    sold = pl.col("sold").dt
    return pl.from_pandas(df).select(
        sold.year().alias("year"),
        (sold.weekday() >= 6).alias("weekend"),
        sold.week().alias("week"),
        (sold.month() * 31 + sold.day()).alias("wraps"),
        (pl.col("sold") - pl.col("listed")).dt.total_days().alias("on_market"),
        sold.truncate("1mo").dt.ordinal_day().alias("month"),
    )


def house_words(df):
    return pl.from_pandas(df).select(
        pl.col("district").str.strip_chars().str.to_lowercase(),
        pl.col("quality").replace_strict({"Ex": 5, "Gd": 4, "TA": 3}, default=1).alias("score"),
        pl.col("seller").str.starts_with("Dr").alias("doctor"),
        pl.col("area").cut([60.0, 110.0], labels=["small", "medium", "large"]).cast(pl.String).alias("size"),
    )
