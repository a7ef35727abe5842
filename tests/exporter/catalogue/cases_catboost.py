"""Cases of CatBoost's regressors: shapes of trees, losses, missing numbers, categories, and larger models."""

import functools
from typing import Any

import numpy as np
from catboost import CatBoostRegressor
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.ensemble import BaggingRegressor, StackingRegressor, VotingRegressor
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.multioutput import MultiOutputRegressor, RegressorChain
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from tests.exporter.catalogue.case import add
from tests.exporter.catalogue.cases_text import NUMERIC, TEXT, people
from tests.exporter.data import Data, counts, positive_counts, several_targets, small

CATEGORIES = ("city", "job", "floor")
"""A tuple, as all lists here are: an estimator copies a list, and scikit-learn's `clone` then refuses it."""


def catboost(**options: Any) -> CatBoostRegressor:
    """Return a small regressor, which leaves no files behind."""
    few = {"iterations": 12, "depth": 4, "learning_rate": 0.3, "random_seed": 0}
    return CatBoostRegressor(**few | {"verbose": 0, "allow_writing_files": False, "thread_count": 1} | options)


@functools.cache
def with_holes() -> Data:
    """`small` with missing numbers in three of the five columns, and zeros in another."""
    X, y = small()
    rng, X = np.random.default_rng(11), X.copy()
    X[:, :3][rng.random((len(X), 3)) < 0.2] = np.nan
    X[rng.random(len(X)) < 0.4, 3] = 0.0
    return X, y + 2.0 * np.isnan(X[:, 0]) - np.isnan(X[:, 1])


@functools.cache
def tenants() -> Data:
    """240 rows: numbers, strings, one of them for missing cities, and whole numbers as categories."""
    X, y = people(None)
    rng = np.random.default_rng(12)
    X = X[["city", "age", "job", "income"]].assign(floor=rng.integers(-1, 7, len(X)))
    X["city"] = X["city"].fillna("no city").astype(object)
    return X, y + np.cos(X["floor"]) * X["job"].str.len()


def mean_and_deviation(estimator: Any, rows: Any) -> dict[str, Any]:
    """Return what RMSEWithUncertainty's two columns, a mean and a variance, are."""
    mean, variance = estimator.predict(rows).T
    return {"y": mean, "std": np.sqrt(variance)}


def scaled(estimator: Any) -> Any:
    estimator.set_scale_and_bias(0.7, 1.25)
    return estimator


def shrunk(estimator: Any) -> Any:
    estimator.shrink(9, 2)
    return estimator


NUMBERS: dict[str, tuple[dict[str, Any], Any]] = {
    "holes": ({"depth": 6, "iterations": 20}, with_holes),
    "holes-on-top": ({"nan_mode": "Max", "border_count": 5, "boosting_type": "Ordered"}, with_holes),
    "depthwise": (
        {"grow_policy": "Depthwise", "min_data_in_leaf": 3, "eval_fraction": 0.2, "use_best_model": True},
        with_holes,
    ),
    "lossguide": ({"grow_policy": "Lossguide", "max_leaves": 9, "loss_function": "LogLinQuantile"}, positive_counts),
    "deep": ({"depth": 10, "iterations": 4, "loss_function": "Quantile:alpha=0.3"}, small),
    "poisson": ({"loss_function": "Poisson"}, counts),
    "multi-rmse": ({"loss_function": "MultiRMSE", "grow_policy": "Depthwise"}, several_targets),
    "multi-quantile": ({"loss_function": "MultiQuantile:alpha=0.1,0.5,0.9", "leaf_estimation_iterations": 3}, small),
}
for _name, (_options, _data) in NUMBERS.items():
    add(f"catboost-{_name}", "steps", catboost(**_options), _data)
add("catboost-uncertain", "steps", catboost(loss_function="RMSEWithUncertainty"), small, ask=mean_and_deviation)
add("catboost-shrunk", "steps", catboost(loss_function="Huber:delta=2"), with_holes, after_fit=shrunk)
add(
    "catboost-tweedie-scaled",
    "steps",
    catboost(loss_function="Tweedie:variance_power=1.4"),
    positive_counts,
    after_fit=scaled,
)

STRINGS: dict[str, dict[str, Any]] = {
    "one-hot": {"one_hot_max_size": 20},
    "ctr": {"max_ctr_complexity": 1, "one_hot_max_size": 1},
    "ctr-combined": {"max_ctr_complexity": 3, "one_hot_max_size": 4, "depth": 6, "iterations": 25},
    "ctr-types": {
        "simple_ctr": (
            "Borders:TargetBorderCount=3",
            "Buckets:TargetBorderCount=2:Prior=0.3",
            "BinarizedTargetMeanValue:TargetBorderCount=5",
            "Counter",
        ),
        "combinations_ctr": ("Buckets:TargetBorderCount=2", "BinarizedTargetMeanValue", "Counter"),
        "one_hot_max_size": 1,
        "iterations": 25,
    },
    "ctr-lossguide": {"grow_policy": "Lossguide", "counter_calc_method": "Full"},
}
for _name, _options in STRINGS.items():
    add(f"catboost-{_name}", "steps", catboost(cat_features=CATEGORIES, **_options), tenants, needs_sample=True)

add("catboost-scaled", "steps", make_pipeline(StandardScaler(), catboost()), with_holes)
add(
    "catboost-raw-strings",
    "steps",
    make_pipeline(
        ColumnTransformer(
            [("num", StandardScaler(), NUMERIC), ("cat", "passthrough", [*CATEGORIES])], verbose_feature_names_out=False
        ).set_output(transform="pandas"),
        catboost(cat_features=CATEGORIES),
    ),
    tenants,
    needs_sample=True,
)
add(
    "catboost-encoded",
    "steps",
    make_pipeline(
        ColumnTransformer([("cat", OneHotEncoder(handle_unknown="ignore"), TEXT)], remainder="passthrough"),
        GridSearchCV(catboost(), {"depth": [2, 3]}, cv=2),
    ),
    tenants,
)
add(
    "catboost-stacked",
    "steps",
    StackingRegressor(
        [("ctr", catboost(cat_features=CATEGORIES)), ("one", catboost(cat_features=CATEGORIES, one_hot_max_size=9))],
        catboost(iterations=5),
        cv=2,
    ),
    tenants,
    needs_sample=True,
)
add(
    "catboost-voting",
    "steps",
    TransformedTargetRegressor(
        VotingRegressor(
            [("cat", catboost()), ("bag", BaggingRegressor(catboost(), 2, random_state=0)), ("r", Ridge())]
        ),
        transformer=StandardScaler(),
    ),
    small,
)
add("catboost-targets", "steps", MultiOutputRegressor(catboost(iterations=4)), several_targets)
add("catboost-chain", "steps", RegressorChain(catboost(iterations=4), order=[1, 0, 3, 2]), several_targets)
