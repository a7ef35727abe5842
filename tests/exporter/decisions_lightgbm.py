"""LightGBM's decisions and ours of adversarial rows: at a model's thresholds and by one unit beside them.

    python -m tests.exporter.decisions_lightgbm

counts for every variant the pairs of a row and a tree that end in another leaf than in LightGBM, in a million pairs,
for rows in float32 and in float64 each, and prints how far answers lie from LightGBM's float64 ones.
"""

import dataclasses
import functools
import sys
import warnings
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
from lightgbm import LGBMRegressor

from tests.exporter.adversarial import adversarial_rows
from tests.exporter.cases_lightgbm import lgbm, with_codes, with_missing
from tests.exporter.data import Data, small
from tests.kernels.operations import run_plan
from triton_regressors.exporter.boosters.lightgbm_model import NEAR_ZERO, LightGBMModel, read_model
from triton_regressors.exporter.lower import lower
from triton_regressors.exporter.lowerings import lightgbm
from triton_regressors.exporter.lowerings.trees import Trees, arrange
from triton_regressors.exporter.passes.specialise import specialise
from triton_regressors.kernels.ops.tree_ensemble import TreeEnsemble
from triton_regressors.kernels.plan import Plan
from triton_regressors.kernels.run import Runner
from triton_regressors.kernels.trees import CATEGORICAL

PAIRS = 1_000_000
TREES = 20
ROWS_AT_ONCE = 10_000
GROUPED = {"min_data_per_group": 5, "cat_smooth": 1.0, "cat_l2": 1.0}
OPTIONS = {"n_estimators": TREES, "num_leaves": 15, "min_child_samples": 3}
FOREST = {"boosting_type": "rf", "subsample": 0.6, "subsample_freq": 1}

VARIANTS: dict[str, tuple[dict[str, Any], Callable[[], Data]]] = {
    "numbers": ({}, small),
    "nan": ({}, with_missing),
    "zero": ({"zero_as_missing": True}, with_missing),
    "unused": ({"use_missing": False}, with_missing),
    "codes": ({"categorical_feature": [1, 2], **GROUPED}, with_codes),
    "codes-zero": ({"categorical_feature": [1], "zero_as_missing": True, **GROUPED}, with_codes),
    "one-hot": ({"categorical_feature": [1, 2], "max_cat_to_onehot": 99, **GROUPED}, with_codes),
    "extra": ({"extra_trees": True, "max_bin": 9}, with_missing),
    "dart": ({"boosting_type": "dart"}, with_missing),
    "forest": (FOREST, with_missing),
    "goss": ({"data_sample_strategy": "goss"}, with_missing),
    "linear": ({"linear_tree": True}, with_missing),
    "linear-codes": ({"linear_tree": True, "categorical_feature": [1], **GROUPED}, with_codes),
    "root": ({"reg_sqrt": True}, with_missing),
}


@functools.cache
def fitted(name: str) -> LGBMRegressor:
    """Return a variant's estimator, fitted."""
    options, data = VARIANTS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return lgbm(**OPTIONS, **options).fit(*data())


def rows_at_edges(
    estimator: LGBMRegressor, X: np.ndarray, dtype: Any, rows: int, seed: int = 0, infinite: bool = True
) -> np.ndarray:
    """Return rows at an estimator's thresholds and beside them by units of this dtype, and of odd codes."""
    thresholds, codes = _edges(read_model(estimator.booster_.model_to_string()))
    found = adversarial_rows(X, thresholds, codes, rows=rows, seed=seed, infinite=infinite).astype(dtype)
    if dtype is np.float64:
        rng = np.random.default_rng(seed)
        for feature, own in thresholds.items():
            exact = np.concatenate([own, [-NEAR_ZERO, NEAR_ZERO, 5e-324, -5e-324, 0.0, 1e-35, -1e-35, 1e300]])
            near = np.concatenate([exact, np.nextafter(exact, np.inf), np.nextafter(exact, -np.inf)])
            at = np.flatnonzero(rng.random(rows) < 0.5)
            found[at, feature] = rng.choice(near, len(at))
    return found


def _edges(model: LightGBMModel) -> tuple[dict[int, np.ndarray], dict[int, np.ndarray]]:
    """Return what numbers of each feature are compared with, and the codes of each feature of categories."""
    trees, inner = model.trees, model.trees.left >= 0
    by_set = trees.flags & CATEGORICAL > 0
    numeric = {f: trees.threshold[inner & ~by_set & (trees.feature == f)] for f in range(model.n_features)}
    codes = {f: np.arange(32 * trees.sets.shape[1] + 2) for f in np.unique(trees.feature[inner & by_set]).tolist()}
    return {feature: numbers for feature, numbers in numeric.items() if len(numbers)}, codes


def plan_of_leaves(estimator: LGBMRegressor, dtype: Any) -> Plan:
    """Return the estimator's plan with each tree's leaf, by LightGBM's number, in place of the sum of their values."""

    def number_leaves(trees: Trees, **options: Any) -> TreeEnsemble:
        place = np.arange(len(trees.left)) - np.repeat(np.cumsum(trees.sizes) - trees.sizes, trees.sizes)
        leaf = place - np.repeat((trees.sizes - 1) // 2, trees.sizes)
        numbered = dataclasses.replace(trees, value=leaf[:, None].astype(np.float64))
        return arrange(numbered, **options | {"output": "each", "divisor": 1.0})

    def read_nodes(text: str) -> LightGBMModel:
        return dataclasses.replace(read_model(text), linear=None, objective=())

    with mock.patch.object(lightgbm, "arrange", number_leaves), mock.patch.object(lightgbm, "read_model", read_nodes):
        return specialise(lower(estimator).plan, np.dtype(dtype).name)


def plan_of_answers(estimator: LGBMRegressor, dtype: Any) -> Plan:
    """Return the estimator's plan for rows of this dtype."""
    return specialise(lower(estimator).plan, np.dtype(dtype).name)


def wrong_leaves(estimator: LGBMRegressor, X: np.ndarray) -> int:
    """Return how many pairs of a row and a tree end in another leaf than in LightGBM."""
    expected = estimator.predict(X, pred_leaf=True)
    return int(np.count_nonzero(run_plan(plan_of_leaves(estimator, X.dtype), X)["y"] != expected.reshape(len(X), -1)))


def ulps_from_lightgbm(estimator: LGBMRegressor, X: np.ndarray) -> float:
    """Return how far answers lie at most from LightGBM's float64 ones, in units of their last float32 place."""
    X = np.where(np.abs(X) > 1e6, X.dtype.type(1), X)  # a linear tree's answers grow with the row
    expected = estimator.predict(X)
    found = Runner(plan_of_answers(estimator, X.dtype), engine="torch").predict(X)["y"][:, 0]
    return float(np.max(np.abs(found - expected) / np.spacing(np.abs(expected).astype(np.float32))))


def main() -> None:
    failed = False
    print(f"{'variant':14}{'rows':10}{'(row, tree) pairs':>18}{'wrong leaves':>14}{'answers, ulp':>14}")
    for name, (_, data) in VARIANTS.items():
        estimator, (X, _) = fitted(name), data()
        trees = len(read_model(estimator.booster_.model_to_string()).trees.sizes)
        parts = -(-PAIRS // (trees * ROWS_AT_ONCE))
        for dtype in (np.float32, np.float64):
            make = functools.partial(rows_at_edges, estimator, X, dtype, ROWS_AT_ONCE)
            wrong = sum(wrong_leaves(estimator, make(seed)) for seed in range(parts))
            ulps = ulps_from_lightgbm(estimator, make(infinite=False))
            pairs = parts * trees * ROWS_AT_ONCE
            print(f"{name:14}{np.dtype(dtype).name:10}{pairs:18,}{wrong:14}{ulps:14.4f}", flush=True)
            failed |= wrong > 0 or ulps > 0.5001
    sys.exit(failed)


if __name__ == "__main__":
    main()
