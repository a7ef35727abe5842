"""The models whose export `large.py` measures: forests, support vectors, and trees of boosting libraries.

Fitting an SVR on 50,000 rows takes hours, and neither the export nor the server looks at where its numbers come from:
it is fitted on a few rows and then given drawn support vectors and coefficients, with which libsvm predicts. Boosters
are fitted to noise, so slowly that all of their trees grow out; two of them with an eighth of the features at a time,
which takes seconds.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestRegressor
from sklearn.svm import SVR

FEATURES = 32
SAMPLE_ROWS = 1024
FITTED_ROWS = 256  # of the SVR
BOOSTED_ROWS = 1024
CATEGORIES = 2000
SLOWLY = {"learning_rate": 0.0005, "random_state": 0}

BOOSTERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "xgboost": (
        "xgboost",
        "XGBRegressor",
        {"max_depth": 8, "min_child_weight": 0, "reg_lambda": 0, "max_bin": 64, "colsample_bytree": 0.125, "n_jobs": 1},
    ),
    "lightgbm": (
        "lightgbm",
        "LGBMRegressor",
        {
            "max_depth": 8,
            "num_leaves": 256,
            "min_child_samples": 1,
            "min_child_weight": 0,
            "min_data_per_group": 1,
            "max_bin": 63,
            "colsample_bytree": 0.125,
            "n_jobs": 1,
            "verbose": -1,
        },
    ),
    "catboost": (
        "catboost",
        "CatBoostRegressor",
        {"depth": 8, "border_count": 64, "thread_count": 1, "allow_writing_files": False, "verbose": 0},
    ),
}
"""The module and class of each library's regressor, and what makes its trees grow out to depth 8."""


@dataclass(frozen=True)
class LargeModel:
    """A model under measurement: `make(size)` fits it, and `sample` makes what it is asked; it needs a library.

    It is exported from a pickle, or from the library's own file, which ends in `suffix`.
    """

    name: str
    title: str
    make: Callable[[int], Any]
    size: int
    quick_size: int
    sample: Callable[[], Any]
    needs: str = "sklearn"
    suffix: str = "pickle"


def rows(count: int, seed: int) -> np.ndarray:
    """Return float32 rows `[count, FEATURES]`."""
    return np.random.default_rng(seed).standard_normal((count, FEATURES), dtype=np.float32)


def table(count: int, seed: int) -> pd.DataFrame:
    """Return such rows as a table, in which a column holds one of 2,000 strings instead."""
    found = pd.DataFrame(rows(count, seed), columns=[f"x{column}" for column in range(FEATURES)])
    numbers = np.arange(count) % CATEGORIES
    names = [f"category {number}" for number in range(CATEGORIES)]
    return found.assign(x0=pd.Categorical.from_codes(numbers, categories=names))


def forest(count: int) -> RandomForestRegressor:
    """Return 100 trees grown out on `count` rows: about 1.26 nodes a row and tree."""
    X = rows(count, seed=1)
    rng = np.random.default_rng(2)
    y = X @ rng.standard_normal(FEATURES) + X[:, 0] * X[:, 1] + rng.standard_normal(count)
    return RandomForestRegressor(max_features=1 / 3, n_jobs=-1, random_state=0).fit(X, y)


def support_vectors(count: int) -> SVR:
    """Return an SVR with `count` support vectors: fitted on few rows, then given drawn vectors and coefficients."""
    X = rows(FITTED_ROWS, seed=1).astype(np.float64)
    rng = np.random.default_rng(2)
    model = SVR(gamma=1 / FEATURES).fit(X, X @ rng.standard_normal(FEATURES))
    coefficients = rng.uniform(-model.C, model.C, count)
    model.support_vectors_ = rows(count, seed=3).astype(np.float64)
    model.support_ = np.arange(count, dtype=np.int32)
    model.dual_coef_ = model._dual_coef_ = (coefficients - coefficients.mean())[None]
    model._n_support = np.full_like(model._n_support, count)
    model.shape_fit_ = model.support_vectors_.shape
    return model


def boosted(library: str, with_categories: bool, count: int) -> Any:
    """Return a library's regressor with `count` trees of depth 8, of numbers alone or beside a column of strings."""
    module, name, options = BOOSTERS[library]
    if with_categories:
        options = options | {"catboost": {"cat_features": ["x0"]}, "xgboost": {"enable_categorical": True}}.get(
            library, {}
        )
    X = table(2 * CATEGORIES, seed=1) if with_categories else rows(BOOSTED_ROWS, seed=1)
    regressor = getattr(importlib.import_module(module), name)(n_estimators=count, **SLOWLY, **options)
    return regressor.fit(X, np.random.default_rng(2).standard_normal(len(X)))


def rows_asked() -> np.ndarray:
    """Return what a model of numbers is asked."""
    return rows(SAMPLE_ROWS, seed=4)


def table_asked() -> pd.DataFrame:
    """Return what a model of numbers and strings is asked: each string is there."""
    return table(CATEGORIES, seed=4)


def of_library(library: str) -> tuple[LargeModel, LargeModel]:
    """Return a library's two models."""
    regressor = BOOSTERS[library][1]
    plain = functools.partial(boosted, library, False)
    mixed = functools.partial(boosted, library, True)
    title = f"{regressor}, depth 8, a column of {CATEGORIES:,} categories"
    return (
        LargeModel(library, f"{regressor}, depth 8", plain, 10_000, 200, rows_asked, library),
        LargeModel(f"{library}_categories", title, mixed, 1_000, 100, table_asked, library),
    )


def from_file(model: LargeModel, suffix: str) -> LargeModel:
    """Return a model as who has its library's file exports it."""
    title = f"{model.title}, from a .{suffix} file"
    return dataclasses.replace(model, name=f"{model.name}_file", title=title, suffix=suffix)


MODELS = (
    LargeModel("forest", "RandomForestRegressor, 100 trees", forest, 20_000, 1_000, rows_asked),
    LargeModel("svr", "SVR, rbf", support_vectors, 50_000, 5_000, rows_asked),
    *itertools.chain.from_iterable(map(of_library, BOOSTERS)),
    from_file(of_library("catboost")[0], "cbm"),
)


def parts(estimator: Any) -> tuple[str, int]:
    """Return what a model is made of, and how many of these."""
    if isinstance(estimator, SVR):
        return "support vectors", len(estimator.support_vectors_)
    if isinstance(estimator, RandomForestRegressor):
        return "nodes", sum(tree.tree_.node_count for tree in estimator.estimators_)
    return "trees", estimator.get_params()["n_estimators"]
