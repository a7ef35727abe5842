"""Pipelines fitted on float32 tables, in which a decision follows what scikit-learn computes in float32.

`FLOAT32` maps a name to a case. A case is fitted on the first rows of its table and asked all of them: the rows of
training, whose numbers are the thresholds of bins and trees themselves, and others.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from scipy import special
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    SplineTransformer,
    StandardScaler,
)
from xgboost import XGBRegressor

FITTED, ROWS = 900, 1500
NAMES = list("abcdef")


@cache
def numbers() -> np.ndarray:
    """Return skewed positive float32 numbers, `[ROWS, 6]`, each column on its own scale."""
    rng = np.random.default_rng(0)
    found: np.ndarray = (rng.gamma(2, 1, (ROWS, 6)) * np.geomspace(0.3, 300, 6) + 0.1).astype(np.float32)
    return found


@cache
def holed() -> np.ndarray:
    """Return these numbers with NaN in a tenth of them."""
    missing = np.random.default_rng(1).random((ROWS, 6)) < 0.1
    found: np.ndarray = np.where(missing, np.float32(np.nan), numbers())
    return found


@cache
def mixed() -> pd.DataFrame:
    """Return a table whose columns are float32, but for one of float64 and ones of whole numbers."""
    rng = np.random.default_rng(2)
    table = pd.DataFrame(numbers(), columns=NAMES)
    return table.assign(
        e=np.round(rng.lognormal(12, 1, ROWS), 2),
        f=rng.integers(0, 50, ROWS).astype(np.int16),
        g=rng.integers(0, 9, ROWS),
    )


@cache
def targets() -> np.ndarray:
    """Return targets of the table's rows, `[ROWS]`."""
    z = numbers() / numbers().std(axis=0)
    noise = np.random.default_rng(3).normal(0, 0.1, ROWS)
    found: np.ndarray = np.sin(z[:, 0]) + z[:, 1] * z[:, 2] / 5 + np.abs(z[:, 3] - 2) + z[:, 4] / (1 + z[:, 5]) + noise
    return found


@dataclass(frozen=True)
class Float32Case:
    """An estimator and its table; `single` says that the entry answers the estimator's own float32."""

    name: str
    estimator: Any
    table: Callable[[], Any] = numbers
    single: bool = True

    def fitted(self) -> Any:
        """Return the fitted estimator; the same one at each call."""
        return _fitted(self.name)

    def expected(self) -> np.ndarray:
        """Return predict on the table as it is, `[ROWS, 1]`."""
        return np.asarray(self.fitted().predict(self.table()), dtype=np.float64).reshape(-1, 1)


def boosted() -> Any:
    return HistGradientBoostingRegressor(max_iter=30)


def forest() -> Any:
    return RandomForestRegressor(15, random_state=0)


def columns(*members: tuple[Any, list[str]], rest: Any = "passthrough", **options: Any) -> ColumnTransformer:
    named = [(f"{place}", member, chosen) for place, (member, chosen) in enumerate(members)]
    return ColumnTransformer(named, remainder=rest, **options)


def quantiles(**options: Any) -> QuantileTransformer:
    return QuantileTransformer(n_quantiles=200, **options)


def bins(**options: Any) -> KBinsDiscretizer:
    return KBinsDiscretizer(8, quantile_method="averaged_inverted_cdf", **options)


LOG1P = FunctionTransformer(np.log1p)

STEPS: dict[str, Any] = {
    "standard": StandardScaler(),
    "standard-mean": StandardScaler(with_std=False),
    "min-max": MinMaxScaler(),
    "min-max-clip": MinMaxScaler((0.1, 0.7), clip=True),
    "max-abs": MaxAbsScaler(),
    "robust": RobustScaler(),
    "binarizer": Binarizer(threshold=float(numbers()[7, 2])),
    "bins": bins(encode="ordinal"),
    "bins-onehot": bins(encode="onehot-dense"),
    "power-yeo-johnson": PowerTransformer(),
    "power-box-cox": PowerTransformer("box-cox", standardize=False),
    "quantile-uniform": quantiles(),
    "quantile-normal": quantiles(output_distribution="normal"),
    "splines": SplineTransformer(4),
    "splines-linear": SplineTransformer(3, degree=2, extrapolation="linear", include_bias=False),
    "splines-periodic": SplineTransformer(5, extrapolation="periodic"),
    "polynomial-2": PolynomialFeatures(2),
    "polynomial-4": PolynomialFeatures((2, 4), interaction_only=True, include_bias=False),
    "normalizer-max": Normalizer("max"),
    "clip": FunctionTransformer(np.clip, kw_args={"a_min": 0.7, "a_max": 33.3}),
    "square": FunctionTransformer(np.square),
    "sqrt": FunctionTransformer(np.sqrt),
    "log": FunctionTransformer(np.log),
    "log1p": LOG1P,
    "exp-of-scaled": make_pipeline(RobustScaler(), FunctionTransformer(np.expm1)),
    "tanh": FunctionTransformer(np.tanh),
    "arctan-scaled": make_pipeline(FunctionTransformer(np.arctan), StandardScaler()),
    "expit": FunctionTransformer(special.expit),
    "rint": FunctionTransformer(np.rint),
}
"""One of each elementwise transformer, and of its options that compute otherwise."""

FOLLOWED: dict[str, tuple[Any, Callable[[], Any]]] = {
    "standard-xgboost": (make_pipeline(StandardScaler(), XGBRegressor(n_estimators=30)), numbers),
    "standard-forest": (make_pipeline(StandardScaler(), forest()), numbers),
    "standard-bins-ridge": (make_pipeline(StandardScaler(), bins(encode="onehot-dense"), Ridge()), numbers),
    "standard-neighbors": (make_pipeline(StandardScaler(), KNeighborsRegressor(5)), numbers),
    "log-bins-ridge": (make_pipeline(LOG1P, bins(encode="onehot-dense"), Ridge()), numbers),
    "power-forest": (make_pipeline(PowerTransformer(), forest()), numbers),
    "imputer-scaler": (make_pipeline(SimpleImputer(add_indicator=True), StandardScaler(), boosted()), holed),
    "imputer-median": (make_pipeline(SimpleImputer(strategy="median"), RobustScaler(), boosted()), holed),
    "scaler-nan": (make_pipeline(MinMaxScaler(), boosted()), holed),
    "log-nan": (make_pipeline(FunctionTransformer(np.log), boosted()), holed),
    "indicator": (
        make_pipeline(FeatureUnion([("z", MaxAbsScaler()), ("holes", MissingIndicator(features="all"))]), boosted()),
        holed,
    ),
    "union-weights": (
        make_pipeline(
            FeatureUnion([("z", StandardScaler()), ("u", MinMaxScaler())], transformer_weights={"z": 0.3}), boosted()
        ),
        numbers,
    ),
    "columns-mixed": (
        make_pipeline(
            columns((StandardScaler(), ["a", "b"]), (LOG1P, ["c"]), (RobustScaler(), ["d", "f"])),
            boosted(),
        ),
        mixed,
    ),
    "columns-pandas": (
        make_pipeline(
            columns((MinMaxScaler(), ["a", "e"]), (StandardScaler(), ["b", "c"])).set_output(transform="pandas"),
            forest(),
        ),
        mixed,
    ),
    "whole-table": (make_pipeline(StandardScaler(), boosted()), mixed),
    "columns-bins": (
        Pipeline([("c", columns((bins(encode="ordinal"), ["a", "b"]), rest=StandardScaler())), ("y", boosted())]),
        mixed,
    ),
}
"""The steps around them: other decisions, missing numbers, joins of several dtypes."""

FLOAT32 = {
    case.name: case
    for case in (
        *(Float32Case(name, make_pipeline(step, boosted())) for name, step in STEPS.items()),
        *(Float32Case(name, estimator, table) for name, (estimator, table) in FOLLOWED.items()),
    )
}


@cache
def _fitted(name: str) -> Any:
    case = FLOAT32[name]
    return case.estimator.fit(case.table()[:FITTED], targets()[:FITTED])
