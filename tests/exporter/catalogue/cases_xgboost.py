"""Cases of XGBoost's regressors: what they are made of, how they answer, and where they stand in a model."""

import functools
from typing import Any

import numpy as np
import pandas as pd
import xgboost
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.ensemble import BaggingRegressor, StackingRegressor, VotingRegressor
from sklearn.feature_selection import SelectKBest
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.multioutput import MultiOutputRegressor, RegressorChain
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, OneHotEncoder, StandardScaler
from xgboost import XGBRegressor, XGBRFRegressor

from tests.exporter.catalogue.case import add
from tests.exporter.data import (
    Data,
    counts,
    far_from_zero,
    positive_counts,
    several_targets,
    small,
    targets_between,
)

IN_FLOAT32 = ("aft", "cox", "gamma", "logistic", "poisson", "scaled", "tweedie", "vote")
"""Cases in which more than the trees' sums is computed in float32: a function, products, a mean."""

CODES = ("q", "c", "c", "q")
"""The types of the features of `coded`."""


@functools.cache
def coded(categories: int = 300) -> Data:
    """480 × 4: a number, codes of many categories, codes of six, a number."""
    rng = np.random.default_rng(7)
    many, few = rng.integers(0, categories, 480), rng.integers(0, 6, 480)
    X = np.column_stack([rng.standard_normal(480), many, few, 3 * rng.standard_normal(480)])
    return X, X[:, 0] + 3 * np.sin(7.0 * many) + np.cos(3.0 * few) + 0.1 * X[:, 3] ** 2


def coded_targets() -> Data:
    X, y = coded()
    return X, np.column_stack([y, X[:, 0] - 2 * y])


@functools.cache
def partly_missing() -> Data:
    """480 × 5, a tenth of the numbers missing."""
    rng = np.random.default_rng(8)
    X = rng.standard_normal((480, 5)) * [1, 3, 0.5, 10, 1e-39]
    y = 20 + X[:, 0] + 0.2 * X[:, 1] ** 2 + X[:, 2] * X[:, 3]
    return np.where(rng.random(X.shape) < 0.1, np.nan, X), y


@functools.cache
def mostly_zero() -> Data:
    """240 × 5, two thirds of the numbers 0."""
    X, y = np.random.default_rng(9).standard_normal((240, 5)), np.arange(240) % 7
    X[np.arange(1200).reshape(240, 5) % 3 > 0] = 0
    return X, y + X @ [1.0, -2.0, 3.0, 0.5, 0.1] + (X[:, 1] == 0)


@functools.cache
def shops() -> Data:
    """240 rows of pandas' categories, strings and numbers, and of numbers; some strings are missing."""
    rng = np.random.default_rng(10)
    town, kind = rng.integers(0, 9, 240), rng.integers(0, 4, 240)
    names = [f"town {number}" for number in (5, 3, 8, 1, 0, 7, 2, 6, 4)]
    X = pd.DataFrame(
        {
            "size": rng.normal(50, 10, 240),
            "town": pd.Categorical.from_codes(np.where(rng.random(240) < 0.1, -1, town), categories=names),
            "kind": pd.Categorical.from_codes(kind, categories=[30, 10, 40, 20]),
            "age": rng.normal(8, 2, 240),
        }
    )
    return X, 0.1 * X["size"] + np.sin(5.0 * town) + kind - 0.3 * X["age"]


@functools.cache
def words() -> Data:
    """240 rows of strings and of numbers, a third of them 0."""
    rng = np.random.default_rng(11)
    X = pd.DataFrame(
        {
            "word": pd.Series(rng.choice([f"word {number}" for number in range(12)], 240), dtype=object),
            "weight": np.where(np.arange(240) % 3 == 0, 0.0, rng.standard_normal(240)),
            "height": rng.normal(3, 1, 240),
        }
    )
    return X, X["word"].str[5:].astype(float) % 5 + X["weight"] + X["height"] ** 2


def stopped_early(estimator: Any) -> Any:
    """Fit again until other rows are answered worse, some rounds past the best one."""
    X, y = small()
    noisy = y[::2] + np.random.default_rng(0).normal(0, 4, len(y[::2]))
    return estimator.set_params(early_stopping_rounds=3).fit(X, y, eval_set=[(X[::2], noisy)], verbose=False)


def survival_times(estimator: Any) -> Any:
    """Give the model of another training: bounds of survival times are no targets of `fit`."""
    X, y = positive_counts()
    times = xgboost.DMatrix(X)
    times.set_float_info("label_lower_bound", y)
    times.set_float_info("label_upper_bound", np.where(np.arange(len(y)) % 4, y, np.inf))
    booster = xgboost.train({"objective": "survival:aft", "max_depth": 3, "base_score": 2.5}, times, 12)
    estimator.load_model(booster.save_raw())
    return estimator


def own_error(name: str) -> float:
    """Return what a case loses of the exact answer, in standard deviations; sums of trees are XGBoost's own."""
    return 5e-7 if name in IN_FLOAT32 else 0.0


SIZE = {"n_estimators": 20, "max_depth": 4, "n_jobs": 1, "random_state": 0}
shares = targets_between(0.02, 0.98)

for _name, _options, _data in (
    ("missing", {}, partly_missing),
    ("missing-zero", {"missing": 0}, mostly_zero),
    ("exact", {"tree_method": "exact", "gamma": 2, "base_score": 7}, small),
    (
        "leaves",
        {"max_depth": 0, "max_leaves": 9, "grow_policy": "lossguide", "monotone_constraints": (1, 0, -1, 0, 0)},
        small,
    ),
    ("far", {"num_parallel_tree": 2, "subsample": 0.5, "colsample_bynode": 0.6}, far_from_zero),
    ("targets", {}, several_targets),
    ("vector-leaves", {"multi_strategy": "multi_output_tree"}, several_targets),
    ("dart", {"booster": "dart", "rate_drop": 0.3}, several_targets),
    ("linear", {"booster": "gblinear"}, several_targets),
    ("quantiles", {"objective": "reg:quantileerror", "quantile_alpha": [0.1, 0.5, 0.9]}, small),
    ("absolute", {"objective": "reg:absoluteerror"}, small),
    ("huber", {"objective": "reg:pseudohubererror", "huber_slope": 2.0}, small),
    ("squared-log", {"objective": "reg:squaredlogerror"}, positive_counts),
    ("logistic", {"objective": "reg:logistic", "base_score": 0.3}, shares),
    ("gamma", {"objective": "reg:gamma"}, positive_counts),
    ("tweedie", {"objective": "reg:tweedie", "tweedie_variance_power": 1.3}, counts),
    ("poisson", {"objective": "count:poisson", "booster": "dart", "rate_drop": 0.2}, counts),
    ("cox", {"objective": "survival:cox"}, positive_counts),
    ("codes", {"enable_categorical": True, "max_cat_to_onehot": 1, "feature_types": CODES}, coded_targets),
    ("codes-one-hot", {"enable_categorical": True, "max_cat_to_onehot": 1000, "feature_types": CODES}, coded),
    ("categories", {"enable_categorical": True, "max_cat_to_onehot": 5}, shops),
):
    add(f"xgboost-{_name}", "steps", XGBRegressor(**{**SIZE, **_options}), _data, own_error=own_error(_name))
add("xgboost-early", "steps", XGBRegressor(**{**SIZE, "n_estimators": 200}), small, after_fit=stopped_early)
add("xgboost-aft", "steps", XGBRegressor(**SIZE), positive_counts, after_fit=survival_times, own_error=own_error("aft"))
add("xgboost-forest", "steps", XGBRFRegressor(n_estimators=8, max_depth=5, n_jobs=1), several_targets)

model = XGBRegressor(**SIZE)
encoded = ColumnTransformer([("word", OneHotEncoder(handle_unknown="ignore"), ["word"])], remainder="passthrough")
for _name, _model, _data in (
    ("sparse-pipeline", make_pipeline(encoded, MaxAbsScaler(), SelectKBest(k=10), model), words),
    (
        "scaled",
        TransformedTargetRegressor(make_pipeline(StandardScaler(), model), func=np.cbrt, inverse_func=np.sinh),
        small,
    ),
    (
        "stack",
        StackingRegressor([("trees", model), ("linear", Ridge())], XGBRegressor(n_estimators=5, n_jobs=1), cv=2),
        small,
    ),
    ("vote", VotingRegressor([("trees", model), ("bag", BaggingRegressor(model, 2, max_features=0.8))]), small),
    ("several", MultiOutputRegressor(GridSearchCV(model, {"max_depth": [2, 3]}, cv=2)), several_targets),
    ("chain", RegressorChain(model, order=[2, 0, 1, 3]), several_targets),
):
    add(f"xgboost-{_name}", "steps", _model, _data, own_error=own_error(_name))
