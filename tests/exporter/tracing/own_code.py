"""Functions and classes of the kind that people put in front of a regressor, in the forms of public tutorials.

Each is written anew for these tests. `PUBLISHED` names the table that it takes, and whether it can be exported: the
others do what depends on more than a row.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, RegressorMixin, TransformerMixin, clone
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, PolynomialFeatures, StandardScaler

ROWS = 240


@functools.cache
def houses() -> tuple[pd.DataFrame, np.ndarray]:
    """Houses for sale: numbers, strings, booleans and dates, some of them missing."""
    rng = np.random.default_rng(3)
    n = ROWS
    table = pd.DataFrame(
        {
            "rooms": rng.integers(1, 9, n),
            "area": rng.gamma(9.0, 12.0, n),
            "basement": np.where(rng.random(n) < 0.4, 0.0, rng.gamma(4.0, 10.0, n)),
            "built": rng.integers(1900, 2020, n),
            "age": np.where(rng.random(n) < 0.1, np.nan, rng.normal(40, 15, n).clip(1)),
            "latitude": rng.uniform(47, 55, n),
            "longitude": rng.uniform(6, 15, n),
            "quality": rng.choice(["Ex", "Gd", "TA", "Fa", "Po"], n),
            "district": rng.choice(["Nord", " süd", "OST ", "West"], n),
            "seller": rng.choice(["Mr. A Smith", "Mrs. B Jones", "Dr. C Klein", "Miss. D Weiss"], n),
            "garden": rng.random(n) < 0.5,
            "sold": pd.Timestamp("2021-01-01") + pd.to_timedelta(rng.integers(0, 3 * 365 * 86_400, n), unit="s"),
            "listed": pd.Timestamp("2020-10-01") + pd.to_timedelta(rng.integers(0, 90 * 86_400, n), unit="s"),
        }
    )
    table.loc[::23, "quality"] = None
    y = 3.0 * table["area"] + 20 * table["rooms"] + 40 * table["garden"] - 0.2 * (2021 - table["built"])
    return table, (y + 10 * rng.standard_normal(n)).to_numpy()


@functools.cache
def matrix() -> tuple[np.ndarray, np.ndarray]:
    """Numbers in an array: 240 × 5."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(ROWS, 5)) * [1, 2, 10, 1, 3] + [2, 0, 30, -1, 5]
    return X, X[:, 0] * 3 + np.abs(X[:, 1]) + np.sqrt(np.abs(X[:, 2])) + 0.1 * rng.standard_normal(ROWS)


@functools.cache
def holes() -> tuple[np.ndarray, np.ndarray]:
    """The same numbers with one in ten missing."""
    X, y = matrix()
    X = X.copy()
    X[np.random.default_rng(7).random(X.shape) < 0.1] = np.nan
    return X, y


@dataclass(frozen=True)
class Published:
    """A model with own code, its data, and the words of the refusal if it cannot be exported."""

    model: Callable[[], Any]
    data: Callable[[], tuple[Any, np.ndarray]]
    refused: tuple[str, ...] = ()


PUBLISHED: dict[str, Published] = {}


def function(data: Callable[[], Any], *refused: str, strings: tuple[str, ...] = (), **keywords: Any) -> Any:
    """Register a function in front of a linear model; columns of `strings` that it returns are one-hot encoded."""

    def register(own: Callable[..., Any]) -> Callable[..., Any]:
        steps: list[Any] = [FunctionTransformer(own, kw_args=keywords or None)]
        if strings:
            encoder = OneHotEncoder(handle_unknown="ignore")
            steps.append(ColumnTransformer([("hot", encoder, list(strings))], remainder="passthrough"))
        PUBLISHED[own.__name__] = Published(lambda: make_pipeline(*map(clone, steps), Ridge()), data, refused)
        return own

    return register


def transformer(data: Callable[[], Any], *refused: str, **parameters: Any) -> Any:
    """Register a transformer class in front of a forest."""

    def register(own: type) -> type:
        def model() -> Any:
            return make_pipeline(own(**parameters), RandomForestRegressor(10, max_depth=6, random_state=0))

        PUBLISHED[own.__name__] = Published(model, data, refused)
        return own

    return register


def regressor(data: Callable[[], Any], *refused: str) -> Any:
    """Register a regressor class."""

    def register(own: type) -> type:
        PUBLISHED[own.__name__] = Published(own, data, refused)
        return own

    return register


# Functions of arrays


@function(matrix)
def log_of_clipped(X):
    return np.log1p(np.clip(X, 0, None))


@function(matrix)
def ratios(X):
    return np.c_[X, X[:, 0] / (np.abs(X[:, 1]) + 1), X[:, [2]] / X[:, [4]] ** 2]


@function(matrix)
def pairwise_products(X):
    columns = [X]
    for i in range(X.shape[1]):
        for j in range(i + 1, X.shape[1]):
            columns.append((X[:, i] * X[:, j]).reshape(-1, 1))
    return np.hstack(columns)


@function(holes)
def zeros_and_indicators(X):
    missing = np.isnan(X)
    X = X.copy()
    X[missing] = 0
    return np.concatenate([X, missing.astype(float)], axis=1)


@function(matrix)
def row_statistics(X):
    return np.column_stack([X.mean(axis=1), X.std(axis=1), X.min(axis=1), np.max(X, axis=1), np.ptp(X, axis=1)])


@function(matrix)
def bands(X):
    level = np.select([X[:, 0] < 1, X[:, 0] < 2.5], [0.0, 1.0], default=2.0)
    return np.column_stack([level, np.digitize(X[:, 2], [10, 20, 30, 40]), X[:, 1:]])


@function(matrix, degree=3)
def powers(X, degree=2):
    return np.hstack([X**k for k in range(1, degree + 1)])


@function(matrix)
def angles(X):
    phase = 2 * np.pi * np.mod(X[:, 2], 24) / 24
    out = np.zeros((X.shape[0], 3))
    out[:, 0] = np.sin(phase)
    out[:, 1] = np.cos(phase)
    out[:, 2] = np.hypot(X[:, 0], X[:, 1])
    return out


def _grade(value):
    if value > 3:
        return 2.0
    if value > 1.5:
        return 1.0
    return 0.0


@function(matrix)
def graded(X):
    return np.column_stack([np.vectorize(_grade)(X[:, 0]), X[:, 1:]])


@function(matrix, "line", "mean", "fit")
def centred_by_batch(X):
    return X - X.mean(axis=0)


@function(matrix)
def logs_by_hand(X):
    return np.array([[math.log(abs(value) + 1) for value in row] for row in X])


# Functions of tables


@function(houses)
def areas(df):
    df = df.copy()
    df["total"] = df["area"] + df["basement"]
    df["per_room"] = df["total"] / df["rooms"]
    df["house_age"] = df["sold"].dt.year - df["built"]
    df["has_basement"] = (df["basement"] > 0).astype(int)
    return df[["total", "per_room", "house_age", "has_basement"]]


@function(houses, strings=("band",))
def age_bands(df):
    out = df[["rooms", "area"]].copy()
    age = df["age"].fillna(38.5)
    out["band"] = pd.cut(age, bins=[0, 18, 35, 60, 200], labels=["young", "adult", "middle", "old"]).astype(str)
    return out


@function(houses)
def quality_scores(df):
    scale = {"Ex": 5, "Gd": 4, "TA": 3, "Fa": 2, "Po": 1}
    return df.assign(score=df["quality"].map(scale).fillna(0), bright=df.quality.isin(["Ex", "Gd"])).loc[
        :, ["score", "bright", "area", "rooms"]
    ]


@function(houses, strings=("district",))
def tidy_strings(df):
    out = df[["area", "rooms", "district"]].copy()
    out["district"] = out["district"].str.strip().str.lower().str.replace("ü", "ue")
    return out


@function(houses, strings=("title",))
def titles(df):
    title = df["seller"].str.split(".").str[0].str.strip()
    return pd.DataFrame({"title": title.replace({"Mrs": "Ms", "Miss": "Ms"}), "area": df["area"]})


@function(houses, strings=("who",))
def sellers_and_districts(df):
    district = df["district"].str.strip().str.casefold()
    return pd.DataFrame(
        {
            "who": df["seller"].str.split(".").str[0] + "/" + district,
            "letters": df["seller"].str.rsplit(" ", n=1).str[-1].str.len(),
            "south": (district == "süd").astype(float) * df["area"],
            "good": df["quality"].fillna("?").str.startswith("G").astype(int),
        }
    )


@function(houses)
def calendar(df):
    when = df["sold"].dt
    return pd.DataFrame(
        {
            "year": when.year,
            "month": when.month,
            "hour": when.hour,
            "weekend": (when.weekday >= 5).astype(int),
            "month_sin": np.sin(2 * np.pi * when.month / 12),
            "month_cos": np.cos(2 * np.pi * when.month / 12),
            "days_on_market": (df["sold"] - df["listed"]).dt.days,
            "since": (df["sold"] - pd.Timestamp("2020-01-01")).dt.total_seconds() / 86_400,
        }
    )


HOLIDAYS = pd.to_datetime(["2021-12-24", "2021-12-25", "2022-01-01", "2022-12-24", "2022-12-25", "2023-01-01"])


@function(houses)
def holidays(df):
    out = df[["area", "rooms"]].copy()
    out["holiday"] = df["sold"].dt.normalize().isin(HOLIDAYS)
    out["month_end"] = df["sold"].dt.is_month_end
    return out


def _season(month):
    if month in (12, 1, 2):
        return "winter"
    if month in (3, 4, 5):
        return "spring"
    return "summer" if month <= 8 else "autumn"


@function(houses, strings=("season",))
def seasons(df):
    return pd.DataFrame({"season": df["sold"].dt.month.apply(_season), "area": df["area"]})


@function(houses)
def distance_to_centre(df, latitude=52.52, longitude=13.405):
    phi1, phi2 = np.radians(df["latitude"]), np.radians(latitude)
    d_phi, d_lambda = phi2 - phi1, np.radians(longitude - df["longitude"])
    a = np.sin(d_phi / 2) ** 2 + np.cos(phi1) * np.cos(phi2) * np.sin(d_lambda / 2) ** 2
    return df[["area", "rooms"]].assign(km=2 * 6371 * np.arcsin(np.sqrt(a)))


@function(houses)
def rules_by_row(df):
    def price_class(row):
        if row["rooms"] > 5 and row["area"] > 120:
            return 2
        if row["garden"]:
            return 1
        return 0

    out = df[["area", "built"]].copy()
    out["class"] = df.apply(price_class, axis=1)
    return out


@function(houses)
def corrected(df):
    df = df.copy()
    df.loc[df["area"] > 200, "area"] = 200
    df.loc[df["built"] < 1950, "rooms"] = df["rooms"] + 1
    df["built"] = df["built"].clip(1945, 2015)
    return df[["area", "rooms", "built"]]


@function(houses)
def numbers_only(df):
    return df.select_dtypes(include="number").fillna(-1).astype("float64")


@function(houses)
def by_hand_one_hot(df):
    out = df[["area"]].copy()
    for level in ("Ex", "Gd", "TA"):
        out[f"quality_{level}"] = (df["quality"] == level).astype(int)
    out["both"] = ((df["quality"] == "Ex") & df["garden"]).astype(int)
    return out


@function(houses)
def row_sums(df):
    parts = df[["area", "basement", "age"]]
    return pd.concat([parts.sum(axis=1), parts.mean(axis=1), parts.isna().sum(axis=1), parts.max(axis=1)], axis=1)


@function(houses, strings=("size",))
def sizes(df):
    df = df.copy()
    df["size"] = np.where(df["area"] > 130, "large", np.where(df["area"] > 90, "medium", "small"))
    return df[["size", "rooms"]]


@function(houses, "line", "other rows")
def difference_to_group(df):
    out = df[["area"]].copy()
    out["above"] = df["area"] - df.groupby("rooms")["area"].transform("mean")
    return out


@function(houses, "line", "other rows")
def lags(df):
    return df[["area"]].assign(before=df["area"].shift(1).fillna(0))


@function(houses, "line", "rows")
def without_outliers(df):
    return df[["area", "rooms"]][df["area"] > 0]


# Transformer classes


@transformer(matrix)
class CombinedAttributes(TransformerMixin, BaseEstimator):
    def __init__(self, add_third=True):
        self.add_third = add_third

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        first = X[:, 2] / (1 + X[:, 0] ** 2)
        second = X[:, 4] / (1 + X[:, 3] ** 2)
        if self.add_third:
            return np.c_[X, first, second, X[:, 1] - X[:, 0]]
        return np.c_[X, first, second]


@transformer(matrix)
class Winsorizer(TransformerMixin, BaseEstimator):
    def __init__(self, low=0.05, high=0.95):
        self.low, self.high = low, high

    def fit(self, X, y=None):
        self.low_, self.high_ = np.quantile(X, [self.low, self.high], axis=0)
        return self

    def transform(self, X):
        return np.minimum(np.maximum(X, self.low_), self.high_)


@transformer(houses, columns=["area", "rooms", "built"])
class ColumnSelector(TransformerMixin, BaseEstimator):
    def __init__(self, columns):
        self.columns = columns

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        assert isinstance(X, pd.DataFrame)
        return X[self.columns].values


@transformer(houses)
class FrequencyEncoder(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        self.frequencies_ = {name: X[name].value_counts(normalize=True).to_dict() for name in ("quality", "district")}
        return self

    def transform(self, X):
        X = X.copy()
        for name, frequencies in self.frequencies_.items():
            X[name] = X[name].map(frequencies).fillna(0)
        return X[["quality", "district", "area"]]


@transformer(houses)
class MeanTargetEncoder(TransformerMixin, BaseEstimator):
    def fit(self, X, y):
        self.overall_ = float(np.mean(y))
        self.means_ = pd.Series(y, index=X.index).groupby(X["district"]).mean()
        return self

    def transform(self, X):
        encoded = X["district"].map(self.means_).fillna(self.overall_)
        return np.column_stack([encoded, X["area"], X["rooms"]])


@transformer(houses)
class GroupImputer(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        self.medians_ = X.groupby("rooms")["age"].median().to_dict()
        return self

    def transform(self, X):
        filled = X["age"].fillna(X["rooms"].map(self.medians_))
        return pd.DataFrame({"age": filled, "area": X["area"]}).fillna(0)


@transformer(matrix)
class ScaledPolynomials(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        self.scaler_ = StandardScaler().fit(X)
        self.polynomials_ = PolynomialFeatures(2, include_bias=False).fit(X)
        return self

    def transform(self, X):
        return self.polynomials_.transform(self.scaler_.transform(X))


@transformer(matrix)
class BoxCox(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        self.lambdas_ = np.array([0.0, 0.5, 1.0, 2.0, 0.3])
        return self

    def transform(self, X):
        positive = np.abs(X) + 1
        columns = []
        for j, exponent in enumerate(self.lambdas_):
            if exponent == 0:
                columns.append(np.log(positive[:, j]))
            else:
                columns.append((positive[:, j] ** exponent - 1) / exponent)
        return np.stack(columns, axis=1)


@transformer(matrix, "line", "ClusterSimilarity", "rbf_kernel")
class ClusterSimilarity(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        self.kmeans_ = KMeans(4, n_init=1, random_state=0).fit(X)
        return self

    def transform(self, X):
        return rbf_kernel(X, self.kmeans_.cluster_centers_, gamma=0.1)


# Regressor classes


@regressor(matrix)
class LogTarget(RegressorMixin, BaseEstimator):
    def fit(self, X, y):
        self.least_ = y.min() - 1
        self.model_ = Ridge().fit(X, np.log(y - self.least_))
        return self

    def predict(self, X):
        return np.exp(self.model_.predict(X)) + self.least_


@regressor(matrix)
class Blend(RegressorMixin, BaseEstimator):
    def fit(self, X, y):
        models = [Ridge(), RandomForestRegressor(10, random_state=0), HistGradientBoostingRegressor(max_iter=10)]
        self.models_ = [model.fit(X, y) for model in models]
        self.weights_ = np.array([0.2, 0.3, 0.5])
        return self

    def predict(self, X):
        predictions = np.column_stack([model.predict(X) for model in self.models_])
        return np.clip(predictions @ self.weights_, 0, 30)


@regressor(matrix)
class ResidualForest(RegressorMixin, BaseEstimator):
    def fit(self, X, y):
        self.trend_ = LinearRegression().fit(X[:, :2], y)
        self.forest_ = RandomForestRegressor(10, random_state=0).fit(X, y - self.trend_.predict(X[:, :2]))
        return self

    def predict(self, X):
        return self.trend_.predict(X[:, :2]) + self.forest_.predict(X)


@regressor(matrix)
class TwoRegimes(RegressorMixin, BaseEstimator):
    def fit(self, X, y):
        low = X[:, 0] < 2
        self.models_ = {"low": Ridge().fit(X[low], y[low]), "high": Ridge().fit(X[~low], y[~low])}
        return self

    def predict(self, X):
        return np.where(X[:, 0] < 2, self.models_["low"].predict(X), self.models_["high"].predict(X))


@regressor(matrix)
class CappedForest(RandomForestRegressor):
    def predict(self, X):
        return np.minimum(super().predict(X), 12.0)


def to_logs(y):
    return np.log(y + 5)


def from_logs(z):
    return np.exp(z) - 5


@function(houses)
def local_hours(df):
    sold = df["sold"].dt
    return pd.DataFrame(
        {
            "hour": sold.hour,
            "weekday": sold.weekday,
            "month_end": sold.is_month_end,
            "days": (df["sold"].dt.tz_localize(None) - df["listed"]).dt.days,
        }
    )
