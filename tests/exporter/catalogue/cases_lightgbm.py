"""Cases of LightGBM's regressors: objectives, boosting types, missing numbers, categories, and larger models."""

import functools
from typing import Any

import numpy as np
import pandas as pd
from lightgbm import LGBMRegressor, early_stopping
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.ensemble import BaggingRegressor, StackingRegressor, VotingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.multioutput import MultiOutputRegressor, RegressorChain
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

from tests.exporter.catalogue.case import add
from tests.exporter.catalogue.cases_text import COMPLETE, NUMERIC, people
from tests.exporter.data import Data, counts, positive_counts, several_targets, small, targets_between


def lgbm(**options: Any) -> LGBMRegressor:
    """Return a small regressor; its trees are the same wherever they are fitted."""
    few = {"n_estimators": 8, "num_leaves": 9, "min_child_samples": 5}
    return LGBMRegressor(**few | {"verbose": -1, "n_jobs": 1, "deterministic": True, "force_row_wise": True} | options)


@functools.cache
def with_missing() -> Data:
    """`small` with missing numbers, zeros, and numbers of about 1e-35, which LightGBM takes for zeros."""
    X, y = small()
    rng = np.random.default_rng(7)
    X = X.copy()
    X[rng.random(X.shape) < 0.15] = np.nan
    X[rng.random(len(X)) < 0.4, 2] = 0.0
    X[:, 3] = rng.choice([-3e-35, -1e-35, 0.0, 1e-35, 3e-35], len(X))
    return X, y + np.sign(X[:, 3].round(35)) + np.where(np.isnan(X[:, 0]), 2.0, 0.0)


@functools.cache
def with_codes() -> Data:
    """240 × 4: a number, codes of 60 categories, codes with fractions and some missing, a number."""
    rng = np.random.default_rng(8)
    kind, share = rng.integers(0, 60, 240), rng.integers(0, 7, 240) + rng.choice([0.0, 0.5], 240)
    share[::9] = np.nan
    X = np.column_stack([rng.standard_normal(240), kind, share, 3 * rng.standard_normal(240)])
    return X, X[:, 0] + 2 * np.sin(3.0 * kind) + 2 * np.cos(9 * np.nan_to_num(share).astype(int)) + 0.1 * X[:, 3]


@functools.cache
def with_pandas_categories() -> Data:
    """240 rows: numbers, and columns of pandas' categories: strings, some missing; ordered strings; numbers."""
    rng, rows = np.random.default_rng(9), 240
    sizes = pd.CategoricalDtype(["small", "medium", "large"], ordered=True)
    X = pd.DataFrame(
        {
            "age": rng.normal(40, 10, rows),
            "city": pd.Categorical(rng.choice(["Rome", "Paris", "東京", "Bonn"], rows)),
            "size": pd.Series(rng.choice(sizes.categories, rows)).astype(sizes),
            "zone": pd.Categorical(rng.choice([10, 35, 20, 7], rows)),
            "income": rng.normal(3e4, 8e3, rows),
        }
    )
    X.loc[::7, "city"] = np.nan
    codes = X[["city", "size", "zone"]].apply(lambda column: column.cat.codes)
    return X, 0.1 * X["age"] + codes @ [1.0, 2.0, -1.0] + 1e-4 * X["income"]


def shares() -> Data:
    """Targets between 0 and 1."""
    return targets_between(0.05, 0.95)()


def squared_error(target: np.ndarray, found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return gradients and Hessians."""
    return found - target, np.ones_like(target)


def stopped_early(estimator: Any) -> Any:
    """Return the estimator fitted again until other rows get no better, which is long before its last tree."""
    X, y = with_missing()
    stopping = early_stopping(2, verbose=False)
    more = clone(estimator).set_params(n_estimators=60, learning_rate=0.5)
    more.fit(X[:100], y[:100], eval_X=X[100:], eval_y=y[100:], callbacks=[stopping])
    if not 0 < more.best_iteration_ < 60:
        raise ValueError("It has not stopped early.")
    return more


LINKS = {
    "poisson": (lgbm(objective="poisson", data_sample_strategy="goss"), counts),
    "gamma": (lgbm(objective="gamma", colsample_bytree=0.6), positive_counts),
    "tweedie": (lgbm(objective="tweedie", boosting_type="dart", drop_rate=0.5), counts),
    "root": (lgbm(reg_sqrt=True, objective="regression_l1"), small),
    "cross-entropy": (lgbm(objective="cross_entropy"), shares),
    "cross-entropy-lambda": (lgbm(objective="cross_entropy_lambda"), shares),
    "custom": (lgbm(objective=squared_error), small),
    "forest": (lgbm(boosting_type="rf", subsample=0.6, subsample_freq=1, objective="huber"), small),
    "quantile": (lgbm(objective="quantile", alpha=0.3, extra_trees=True), small),
}
for name, (estimator, data) in LINKS.items():
    add(f"lgbm-{name}", "steps", estimator, data)

MISSING = {
    "nan": lgbm(),
    "zero": lgbm(zero_as_missing=True),
    "unused": lgbm(use_missing=False, objective="fair"),
    "linear": lgbm(linear_tree=True, objective="mape"),
}
for name, estimator in MISSING.items():
    add(f"lgbm-missing-{name}", "steps", estimator, with_missing)
add("lgbm-early", "steps", lgbm(), with_missing, after_fit=stopped_early)
add("lgbm-linear", "steps", lgbm(linear_tree=True, linear_lambda=0.1), small)

grouped = {"min_data_per_group": 5, "cat_smooth": 1.0, "cat_l2": 1.0}
add("lgbm-codes", "steps", lgbm(categorical_feature=[1, 2], **grouped), with_codes)
add("lgbm-codes-zero", "steps", lgbm(categorical_feature=[1, 2], zero_as_missing=True, **grouped), with_codes)
add("lgbm-one-hot", "steps", lgbm(categorical_feature=[2], max_cat_to_onehot=64, **grouped), with_codes)
add("lgbm-pandas", "steps", lgbm(**grouped), with_pandas_categories)

MEMBERS = {
    "stacked": StackingRegressor(
        [
            ("plain", lgbm(**grouped)),
            ("target", TransformedTargetRegressor(lgbm(linear_tree=True), func=np.arcsinh, inverse_func=np.sinh)),
            ("searched", GridSearchCV(lgbm(), {"num_leaves": [4, 7]}, cv=2)),
        ],
        Ridge(),
        cv=2,
    ),
    "beside": VotingRegressor(
        [
            ("boosted", lgbm(**grouped)),
            (
                "linear",
                make_pipeline(
                    ColumnTransformer(
                        [
                            ("text", OneHotEncoder(handle_unknown="ignore"), ["city", "size"]),
                            ("number", "passthrough", ["age"]),
                        ]
                    ),
                    Ridge(),
                ),
            ),
        ]
    ),
}
for name, estimator in MEMBERS.items():
    add(f"lgbm-pandas-{name}", "steps", estimator, with_pandas_categories)

encoded = ColumnTransformer(
    [
        ("number", SimpleImputer(), NUMERIC),
        ("city", OneHotEncoder(handle_unknown="ignore"), ["city"]),
        ("job", OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1), ["job"]),
    ]
)
strings = make_pipeline(encoded, lgbm(categorical_feature=[len(NUMERIC) + 5], **grouped))
add("lgbm-strings", "steps", strings, functools.partial(people, COMPLETE))
add("lgbm-bagged", "steps", BaggingRegressor(lgbm(), 3, max_features=0.7, random_state=0), small)
add("lgbm-targets", "steps", MultiOutputRegressor(lgbm(n_estimators=3)), several_targets)
add("lgbm-chain", "steps", RegressorChain(lgbm(n_estimators=3), order=[2, 0, 3, 1]), several_targets)
