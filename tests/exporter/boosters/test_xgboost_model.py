"""XGBoost's models as arrays: every decision and every bit of a margin is XGBoost's, at the models' own edges."""

import json
from typing import Any

import numpy as np
import pytest
import xgboost
from xgboost import XGBRegressor

from tests.exporter.adversarial import adversarial_rows
from tests.exporter.catalogue.cases import CASES
from tests.exporter.catalogue.cases_xgboost import SIZE, partly_missing
from tests.exporter.data import small
from triton_regressors.exporter.boosters.xgboost_model import XGBoostModel, read_xgboost
from triton_regressors.kernels.ops.trees.nodes import CATEGORICAL, MISSING_LEFT

ROWS = 600

TREES = [
    name
    for name, case in CASES.items()
    if name.startswith("xgboost-")
    and isinstance(case.estimator, XGBRegressor)
    and name not in ("xgboost-linear", "xgboost-categories")
]


def read(estimator: Any) -> XGBoostModel:
    return read_xgboost(bytes(estimator.get_booster().save_raw("ubj")))


def walk(model: XGBoostModel, X: np.ndarray) -> np.ndarray:
    """Return the node that each row reaches in each tree, `[rows, trees]`, by the definition of `XGBoostModel`."""
    trees = model.trees
    assert trees is not None
    starts, words = np.cumsum(trees.sizes) - trees.sizes, trees.sets.shape[1]
    node = np.repeat(starts[None], len(X), axis=0)
    while (inner := trees.left[node] >= 0).any():
        number = np.take_along_axis(X, np.where(inner, trees.feature[node], 0), axis=1)
        threshold, flags = trees.threshold[node], trees.flags[node]
        left = number <= threshold.astype(np.float32)
        if len(trees.sets):
            known = (number >= 0) & (number < 32 * words - 1)
            code = np.where(known, number, 32 * words - 1).astype(np.int64)
            set_ = np.where(flags & CATEGORICAL > 0, threshold, 0).astype(np.int64)
            bit = trees.sets.view(np.uint32)[set_, code >> 5] >> (code & 31).astype(np.uint32) & 1
            left = np.where(flags & CATEGORICAL > 0, bit > 0, left)
        left = np.where(np.isnan(number), flags & MISSING_LEFT > 0, left)
        node = np.where(inner, starts + np.where(left, trees.left[node], trees.right[node]), node)
    return node


def margins(model: XGBoostModel, node: np.ndarray) -> np.ndarray:
    """Return the float32 sums of leaves, tree after tree, `[rows, outputs]`."""
    assert model.trees is not None
    sums, number = np.repeat(model.base[None], len(node), axis=0), np.cumsum(model.trees.left < 0) - 1
    for tree, place in enumerate(node.T):
        to = slice(None) if model.output_of_tree is None else [model.output_of_tree[tree]]
        sums[:, to] += model.trees.value[number[place]]
    return sums


def rows_of(estimator: Any, model: XGBoostModel, X: np.ndarray) -> np.ndarray:
    trees = model.trees
    assert trees is not None
    asks, sets = trees.left >= 0, trees.flags & CATEGORICAL > 0
    thresholds = {feature: trees.threshold[asks & ~sets & (trees.feature == feature)] for feature in range(X.shape[1])}
    codes = {feature: np.arange(32 * trees.sets.shape[1]) for feature in model.categorical}
    return adversarial_rows(X, thresholds, codes, rows=ROWS)


def as_read(estimator: Any, X: np.ndarray) -> np.ndarray:
    return np.where(np.float32(estimator.missing) == X, np.float32(np.nan), X)


@pytest.mark.parametrize("name", TREES)
def test_every_decision_and_every_bit_is_xgboosts(name: str) -> None:
    estimator, X = CASES[name].fitted()
    model = read(estimator)
    rows = rows_of(estimator, model, X)
    node = walk(model, as_read(estimator, rows))
    found = margins(model, node)
    expected = estimator.predict(rows, output_margin=True).reshape(found.shape)
    assert expected.dtype == np.float32
    np.testing.assert_array_equal(found, expected)
    finite = ~np.isinf(rows).any(axis=1)  # XGBoost's leaves take no infinity
    leaves = estimator.apply(rows[finite], iteration_range=estimator._get_iteration_range(None))
    np.testing.assert_array_equal(model.nodes[node[finite]], leaves.reshape(finite.sum(), -1))
    assert np.isnan(rows[finite]).any()
    assert np.isinf(rows[~finite]).any()


@pytest.mark.parametrize("objective", ["reg:logistic", "reg:gamma", "binary:logitraw"])
def test_the_first_margin_is_xgboosts(objective: str) -> None:
    X = np.arange(4.0)[:, None]
    for score in np.random.default_rng(0).uniform(0.001, 0.999, 8):
        options = {"objective": objective, "base_score": float(score), "learning_rate": 0.0}
        estimator = XGBRegressor(n_estimators=1, n_jobs=1, **options).fit(X, X[:, 0] % 2 + (objective == "reg:gamma"))
        np.testing.assert_array_equal(read(estimator).base, estimator.predict(X[:1], output_margin=True))


def test_pruned_nodes_are_left_out() -> None:
    X, y = small()
    estimator = XGBRegressor(**SIZE, tree_method="exact", gamma=20).fit(X, y)
    document = json.loads(bytes(estimator.get_booster().save_raw("json")))
    stored = document["learner"]["gradient_booster"]["model"]["trees"]
    model = read(estimator)
    assert model.trees is not None
    assert model.trees.sizes.sum() < sum(len(tree["left_children"]) for tree in stored)
    np.testing.assert_array_equal(margins(model, walk(model, X.astype(np.float32)))[:, 0], estimator.predict(X))


def test_weights_of_trees_may_be_beside_the_trees() -> None:
    """XGBoost writes them in this way from 3.3 on."""
    X, y = partly_missing()
    estimator = XGBRegressor(**SIZE, booster="dart", rate_drop=0.3).fit(X, y)
    raw = bytes(estimator.get_booster().save_raw("ubj"))
    older = read_xgboost(raw)
    newer = read_xgboost(as_newer(raw))
    assert older.trees is not None
    assert newer.trees is not None
    np.testing.assert_array_equal(newer.trees.value, older.trees.value)
    assert len(np.unique(older.trees.value)) > 40


def as_newer(raw: bytes) -> bytes:
    """Return a document whose booster has the trees' weights in its model."""

    def name(text: bytes) -> bytes:
        return b"L" + len(text).to_bytes(8, "big") + text

    booster = name(b"gradient_booster") + b"{" + name(b"gbtree")
    begin = raw.index(booster) + len(name(b"gradient_booster"))
    end = raw.index(name(b"learner_model_param"))
    inner_end = raw.index(name(b"name") + b"S" + name(b"dart"), begin)
    inner = raw[begin + 1 + len(name(b"gbtree")) : inner_end]
    weights = raw[raw.index(name(b"weight_drop"), inner_end) : end - 1]
    model = name(b"model") + b"{"
    assert inner.count(model) == 1
    return raw[:begin] + inner.replace(model, model + weights) + raw[end:]


def test_what_cannot_be_served_is_refused() -> None:
    X, y = small()
    for objective in ("binary:hinge", "rank:pairwise"):
        options = {"group": [len(y)]} if objective.startswith("rank") else {}
        booster = xgboost.train({"objective": objective}, xgboost.DMatrix(X, y > 0, **options), 2)
        with pytest.raises(ValueError, match=f"its objective is '{objective}'; supported: 'reg:squarederror', "):
            read_xgboost(bytes(booster.save_raw("ubj")))
    huge = np.where(np.median(X, axis=0) < X, -2e38, -3e38)  # whose mean is −infinity in float32
    estimator = XGBRegressor(n_estimators=3, tree_method="exact", n_jobs=1).fit(huge, y)
    with pytest.raises(ValueError, match="below −infinity"):
        read(estimator)
