"""XGBoost's regressors: float32 sums, of trees or of features, in order, read from the model that XGBoost saves.

The plans round their input to float32, as XGBoost does, and their sums are XGBoost's own, bit for bit. Sums of features
follow its builds for x86-64, which round each product first.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np

from triton_regressors.exporter.boosters.rounds import saved_in_parts
from triton_regressors.exporter.boosters.saved_model import saved
from triton_regressors.exporter.boosters.xgboost_model import XGBoostModel, read_parts, read_xgboost
from triton_regressors.exporter.estimators.encoding import Codes, lookup
from triton_regressors.exporter.estimators.pandas_categories import number_pandas_categories
from triton_regressors.exporter.estimators.strings import refuse_unknown
from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.registry import lowers, refuses
from triton_regressors.exporter.lowering.tree_nodes import add_trees, narrow, note_thresholds
from triton_regressors.kernels.ops.columns.float32 import Float32
from triton_regressors.kernels.ops.columns.impute import Impute
from triton_regressors.kernels.ops.linear.ordered_affine import OrderedAffine
from triton_regressors.kernels.ops.trees.nodes import CATEGORICAL

refuses(
    "it answers with classes",
    "Export an XGBRegressor: one with objective='binary:logistic' answers with the probability.",
    "xgboost.sklearn.XGBClassifier",
    "xgboost.sklearn.XGBRFClassifier",
)
refuses(
    "it ranks rows within groups, and a request has no groups",
    "Export an XGBRegressor.",
    "xgboost.sklearn.XGBRanker",
)
refuses(
    "it does not record which number means a missing value",
    "Save it with save_model, load it with load_model of an XGBRegressor, and export that.",
    "xgboost.core.Booster",
)


@lowers("xgboost.sklearn.XGBRegressor", "xgboost.sklearn.XGBRFRegressor")
def lower_xgboost(estimator: Any, x: Value, builder: Builder, codes: bool = False) -> Value:
    """`y = link⁻¹(base + Σₜ leaf(t, x))`, the sum in float32 and in the order of the trees.

    With `codes` the columns of categories hold their codes already.
    """
    try:
        model = _read(estimator.get_booster())
    except ValueError as error:
        raise builder.refuse(estimator, str(error)) from error
    if model.n_features != x.width:
        raise builder.refuse(estimator, f"it was fitted on {model.n_features} features and would get {x.width}")
    if model.trees is None:
        return _lower_linear(estimator, model, x, builder)
    read, columns = _lower_missing(estimator, x, builder), np.arange(x.width)
    if not codes:
        read, columns = _lower_categories(estimator, model, read, builder)
    trees = dataclasses.replace(model.trees, feature=narrow(columns)[model.trees.feature])
    base, link, output_of_tree = model.base, model.link, model.output_of_tree
    del model  # a large model takes half as much memory as the plan's trees
    note_thresholds(trees, x, builder)
    return add_trees(
        trees,
        read,
        builder,
        baseline=base,
        function=link,
        output="ordered",
        rounding="floor",
        output_of_tree=output_of_tree,
    )


def _read(booster: Any) -> XGBoostModel:
    """Return the booster's model, with the rounds that its `predict` uses.

    A model is read in parts, some rounds at a time, unless it has names of categories, which a slice of a booster
    drops, or is a "gblinear", which has no rounds.
    """

    def save(begin: int, end: int, path: str) -> None:
        booster[begin:end].save_model(path)

    best = booster.attr("best_iteration")
    rounds = booster.num_boosted_rounds() if best is None else int(best) + 1
    named = booster.feature_names is not None and "c" in (booster.feature_types or ())
    if named or not rounds or json.loads(booster.save_config())["learner"]["gradient_booster"]["name"] == "gblinear":
        return read_xgboost(saved(booster.save_model, "model.ubj"))
    return read_parts(saved_in_parts(save, "model.ubj", rounds))


def _lower_linear(estimator: Any, model: XGBoostModel, x: Value, builder: Builder) -> Value:
    """Return the intercept plus the weighted features, added in order; missing numbers are left out."""
    assert model.weights is not None
    sums = OrderedAffine(model.weights[:-1], model.weights[-1] + model.base, model.link)
    return builder.add(sums, _lower_missing(estimator, x, builder))


def _lower_missing(estimator: Any, x: Value, builder: Builder) -> Value:
    """Return `x` with NaN for the numbers that the estimator treats as missing, and for zeros of a sparse matrix."""
    every, nothing = np.arange(x.width, dtype=np.int32), np.full(x.width, np.nan)
    z = builder.add(Impute(every, nothing, every[:0], 0.0), x) if x.sparse else x
    missing = np.float32(estimator.missing)
    if np.isfinite(missing):
        rounded = builder.add(Float32(), z)
        return builder.add(Impute(every, nothing, every[:0], float(missing)), rounded).holding(x, every)
    if np.isinf(missing) and min(x.features, default=-1) < 0:
        raise builder.refuse(
            estimator, f"missing is {missing}, which another step may make; supported: NaN, or a number"
        )
    return z.holding(x, every)  # requests hold no infinity


def _lower_categories(estimator: Any, model: XGBoostModel, x: Value, builder: Builder) -> tuple[Value, np.ndarray]:
    """Return `x` with the codes of categories, and the column of each of the model's features in it."""
    assert model.trees is not None
    if not model.categories:
        if model.named and model.categorical:
            called = builder.profile.called(x.features, model.categorical[0])
            raise builder.refuse(
                estimator,
                f"its model does not hold the pandas categories of {called}, like all models of XGBoost before 3.1; "
                "fit it again with a newer one, or on an array of codes with feature_types",
            )
        for feature in model.categorical:
            if x.features and x.features[feature] >= 0:
                builder.profile.note_choices(x.features[feature], np.arange(_codes(model, feature)))
        return x, np.arange(x.width)
    if np.isfinite(estimator.missing):
        raise builder.refuse(
            estimator, f"missing is {estimator.missing} beside pandas' categories; supported there: NaN"
        )
    known = {feature: np.asarray(values).tolist() for feature, values in model.categories.items()}
    read, columns = number_pandas_categories(estimator, known, (), x, builder)
    guards = []
    for feature, categories in model.categories.items():
        if isinstance(categories, np.ndarray):
            guards.append(Codes(feature, np.sort(categories), np.zeros(len(categories)), 0.0, np.nan))
        else:
            refuse_unknown(builder, x, feature)
    if guards:
        builder.guard(lookup(builder, x, guards, summed=True))
    return read, columns


def _codes(model: XGBoostModel, feature: int) -> int:
    """Return the number of a feature's codes up to one beyond the largest that a node lists."""
    assert model.trees is not None
    asks = (model.trees.flags & CATEGORICAL > 0) & (model.trees.feature == feature)
    to_left = np.bitwise_and.reduce(model.trees.sets[model.trees.threshold[asks].astype(np.int64)], axis=0)
    right = np.unpackbits(~to_left.view(np.uint8), bitorder="little")
    return int(np.flatnonzero(right).max(initial=0)) + 2
