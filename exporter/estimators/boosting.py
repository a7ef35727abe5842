"""Boosting: an initial prediction plus a sum of trees, and AdaBoost's weighted medians."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.ensemble import AdaBoostRegressor, GradientBoostingRegressor, HistGradientBoostingRegressor

from triton_regressors.exporter.estimators.linear import lower_dummy
from triton_regressors.exporter.estimators.trees import are_trees, fitted_trees, lower_side_by_side
from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.registry import find_lowering, lowers
from triton_regressors.exporter.lowering.tree_nodes import Trees, add_trees, note_thresholds
from triton_regressors.kernels.ops.columns.float32 import Float32
from triton_regressors.kernels.ops.columns.weighted_median import WeightedMedian
from triton_regressors.kernels.ops.trees.nodes import CATEGORICAL, MISSING_LEFT

LAST = np.uint32(2**31)
"""The last bit of a set of categories, for numbers that are not categories; they go to the same side as NaN."""


@lowers(GradientBoostingRegressor)
def lower_gradient_boosting(model: GradientBoostingRegressor, x: Value, builder: Builder) -> Value:
    """`y = init(x) + Σₜ learning_rate · value[leaf(t, x)]`, `x` cast to float32 for both."""
    trees = fitted_trees(model.estimators_[:, 0], factor=model.learning_rate)
    note_thresholds(trees, x, builder)
    if isinstance(model.init_, str):
        return add_trees(trees, x, builder)
    with builder.at("init_"):
        if find_lowering(model.init_, builder.subject(model.init_)) is lower_dummy:
            return add_trees(trees, x, builder, baseline=model.init_.constant_.item())
        y = add_trees(trees, x, builder)
        first = builder.lower(model.init_, builder.add(Float32(), x))
    return builder.affine(builder.concatenate([first, y]), np.ones(2), 0.0)


@lowers(HistGradientBoostingRegressor)
def lower_hist_gradient_boosting(model: HistGradientBoostingRegressor, x: Value, builder: Builder) -> Value:
    """`y = link⁻¹(baseline + Σₜ value[leaf(t, x)])`; trees read categories as codes, in columns after `x`.

    The estimator compares in float64.
    """
    columns, read = np.arange(x.width), x
    if model._preprocessor is not None:  # it puts categorical features first
        categorical = np.flatnonzero(model.is_categorical_)
        selected = builder.columns(x, categorical)
        builder.profile.name_tensor(selected.features, "categories")
        with builder.at("_preprocessor"):
            codes = builder.lower(model._preprocessor.named_transformers_["encoder"], selected)
        columns = np.append(x.width + np.arange(codes.width), np.flatnonzero(~model.is_categorical_))
        read = builder.concatenate([x, codes])
    trees = _predictor_trees([predictor for (predictor,) in model._predictors], columns)
    note_thresholds(trees, x, builder)
    return add_trees(
        trees,
        read,
        builder,
        exact=True,
        baseline=model._baseline_prediction.item(),
        function="exp" if model.loss in ("gamma", "poisson") else "identity",
    )


@lowers(AdaBoostRegressor)
def lower_ada_boost(model: AdaBoostRegressor, x: Value, builder: Builder) -> Value:
    """The weighted median of the estimators' predictions."""
    estimators = model.estimators_
    if are_trees(estimators, builder):
        predictions = lower_side_by_side(estimators, x, builder)
    else:
        values = []
        for index, estimator in enumerate(estimators):
            with builder.at(f"estimators_[{index}]"):
                values.append(builder.lower(estimator, x))
        predictions = builder.concatenate(values)
    return builder.add(WeightedMedian(np.array(model.estimator_weights_[: len(estimators)])), predictions)


def _predictor_trees(predictors: list[Any], columns: np.ndarray) -> Trees:
    """Return the nodes of HistGradientBoosting's trees, which find feature `i` in column `columns[i]`."""
    nodes = np.concatenate([predictor.nodes for predictor in predictors])
    sizes = np.array([len(predictor.nodes) for predictor in predictors])
    sets = np.concatenate([predictor.raw_left_cat_bitsets for predictor in predictors])
    first_set = np.repeat(
        np.cumsum([0, *(len(predictor.raw_left_cat_bitsets) for predictor in predictors)])[:-1], sizes
    )
    leaf, categorical = nodes["is_leaf"] > 0, nodes["is_categorical"] > 0
    asked = (first_set + nodes["bitset_idx"])[categorical]
    last = np.where(nodes["missing_go_to_left"][categorical] > 0, LAST, 0)  # at most 255 categories leave it unused
    sets[asked, -1] = sets[asked, -1] & ~LAST | last.astype(np.uint32)
    return Trees(
        sizes,
        columns[nodes["feature_idx"]],
        np.where(categorical, first_set + nodes["bitset_idx"], nodes["num_threshold"]),
        np.where(leaf, -1, nodes["left"].astype(np.int64)),
        nodes["right"].astype(np.int64),
        (MISSING_LEFT * (nodes["missing_go_to_left"] > 0) + CATEGORICAL * categorical).astype(np.uint8),
        nodes["value"][leaf, None],
        sets.view(np.int32),
        tuple(predictor.nodes["count"] for predictor in predictors),
    )
