"""LightGBM's regressors: sums of trees, read from the model's text.

LightGBM compares and adds in float64. The plan's trees also compare in float64, and an answer is the float32 nearest to
LightGBM's.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from triton_regressors.exporter.boosters.lightgbm_model import NEAR_ZERO, LightGBMModel, read_parts
from triton_regressors.exporter.boosters.pandas_columns import pandas_columns
from triton_regressors.exporter.boosters.rounds import saved_in_parts
from triton_regressors.exporter.estimators.pandas_categories import number_pandas_categories
from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.registry import lowers, refuses
from triton_regressors.exporter.lowering.tree_nodes import Trees, add_trees, narrow, note_thresholds
from triton_regressors.kernels.ops.columns.combine import Combine
from triton_regressors.kernels.ops.linear.piecewise import Piecewise
from triton_regressors.kernels.ops.trees.linear_leaves import LinearLeaves
from triton_regressors.kernels.ops.trees.nodes import CATEGORICAL

FUNCTIONS = {
    **dict.fromkeys(("regression", "regression_l1", "huber", "fair", "quantile", "mape"), ()),
    **dict.fromkeys(("poisson", "gamma", "tweedie"), ("exp",)),
    "cross_entropy": ("expit",),
    "cross_entropy_lambda": ("exp", "log1p"),
}
"""The functions that each objective, by its name in the text, applies to the sum."""

refuses(
    "it ranks rows within their groups, and only regressors are exported",
    "Fit an LGBMRegressor, or serve this one with the Triton server's FIL backend.",
    "lightgbm.sklearn.LGBMRanker",
)
refuses(
    "it is a model of any objective, and only regressors are exported",
    "Fit an LGBMRegressor with its parameters.",
    "lightgbm.sklearn.LGBMModel",
)
refuses(
    "it is a Booster of LightGBM, and not an estimator",
    "Save it with save_model as a .txt file, and export that file.",
    "lightgbm.basic.Booster",
)


@lowers("lightgbm.sklearn.LGBMRegressor")
def lower_lgbm_regressor(estimator: Any, x: Value, builder: Builder) -> Value:
    """`y = f(Σₜ value[leaf(t, x)])`, or `f` of their mean; a leaf of a linear tree has a linear function of `x`."""
    model = _read(estimator.booster_)
    note_thresholds(model.trees, x, builder)
    read, columns = _numbers(estimator, model, x, builder)
    return _lower_model(estimator, model, read, columns, builder)


def lower_booster(estimator: Any, booster: Any, x: Value, builder: Builder) -> Value:
    """Return what a Booster answers to columns that hold the codes of categories; errors name `estimator`."""
    model = _read(booster)
    note_thresholds(model.trees, x, builder)
    return _lower_model(estimator, model, x, np.arange(x.width), builder)


def _lower_model(estimator: Any, model: LightGBMModel, read: Value, columns: np.ndarray, builder: Builder) -> Value:
    """Return a model's answer; feature `i` is in column `columns[i]` of `read`."""
    functions = _functions(estimator, model, builder)
    of_roots = "sqrt" in model.objective[1:]
    if model.linear is None:
        trees, read = _trees(model, read, columns, builder)
        divisor = _divisor(model)
        del model  # a large model takes as much memory as the plan's trees
        y = add_trees(trees, read, builder, exact=True, divisor=divisor)
    elif model.outputs > 1:
        raise builder.refuse(estimator, "it has linear trees of several outputs; supported: linear trees of one")
    else:
        y = _linear_sum(model, read, columns, builder)
    if of_roots:  # it was fitted on square roots
        return builder.add(_signed_square(y.width), y)
    for function in functions:
        y = builder.elementwise(y, function)
    return y


def _read(booster: Any) -> LightGBMModel:
    """Return a Booster's model, with the rounds that its `predict` uses."""

    def save(begin: int, end: int, path: str) -> None:
        booster.save_model(path, num_iteration=end - begin, start_iteration=begin)

    rounds = booster.best_iteration if booster.best_iteration > 0 else booster.current_iteration()
    return read_parts(text[:].decode() for text in saved_in_parts(save, "model.txt", max(rounds, 1)))


def _functions(estimator: Any, model: LightGBMModel, builder: Builder) -> tuple[str, ...]:
    """Return the functions that are applied to the sum."""
    if not model.objective:  # the user's own objective applies no function to the sum
        return ()
    objective = model.objective[0]
    if objective not in FUNCTIONS:
        supported = f"supported: {', '.join(FUNCTIONS)}, or a function"
        raise builder.refuse(estimator, f"its objective is '{objective}', which is not for regression; {supported}")
    return FUNCTIONS[objective]


def _signed_square(width: int) -> Piecewise:
    """Return the operation `sign(y) · y²`."""
    squares = np.array([[0.0, 0.0, -1.0], [0.0, 0.0, 1.0]])
    return Piecewise(np.arange(width, dtype=np.int32), np.zeros((width, 1)), np.tile(squares, (width, 1, 1)))


def _numbers(estimator: Any, model: LightGBMModel, x: Value, builder: Builder) -> tuple[Value, np.ndarray]:
    """Return the model's input, with pandas' categories as codes, and the column of each feature in it."""
    try:
        trees, known = model.trees, pandas_columns(model)
    except ValueError as error:
        raise builder.refuse(estimator, str(error)) from None
    for feature in model.categorical:
        if feature not in known and x.features and x.features[feature] >= 0:
            builder.profile.note_choices(x.features[feature], np.array(model.codes(feature), dtype=np.float64))
    numeric = np.unique(trees.feature[(trees.left >= 0) & (trees.flags & CATEGORICAL == 0)])
    return number_pandas_categories(estimator, known, set(numeric.tolist()), x, builder)


def _divisor(model: LightGBMModel) -> float:
    """Return the divisor of the sum of the trees."""
    return float(model.rounds) if model.averaged else 1.0


def _trees(model: LightGBMModel, x: Value, columns: np.ndarray, builder: Builder) -> tuple[Trees, Value]:
    """Return the trees, and the value that they read; feature `i` of the model is in column `columns[i]` of `x`."""
    trees = model.trees
    feature = narrow(columns)[trees.feature]
    if model.zero_missing.any():
        zero = np.unique(trees.feature[model.zero_missing])
        holes = _without_zeros(builder.columns(x, columns[zero]), builder)
        only = model.zero_missing | (trees.left < 0)
        feature = np.where(
            model.zero_missing, np.searchsorted(zero, trees.feature), holes.width + feature.astype(np.int64)
        )
        x = holes if only.all() else builder.concatenate([holes, x])
    return dataclasses.replace(trees, feature=feature), x


def _without_zeros(x: Value, builder: Builder) -> Value:
    """Return `x` with NaN in place of the numbers that LightGBM reads as 0."""
    knots = np.array([-NEAR_ZERO, np.nextafter(NEAR_ZERO, np.inf)])
    pieces = np.array([0.0, np.nan, 0.0])[:, None]
    nothing = Piecewise(
        np.arange(x.width, dtype=np.int32), np.tile(knots, (x.width, 1)), np.tile(pieces, (x.width, 1, 1))
    )
    return builder.add(Combine("sum"), x, builder.add(nothing, x))


def _linear_sum(model: LightGBMModel, x: Value, columns: np.ndarray, builder: Builder) -> Value:
    """Return the sum of linear trees: the trees find the leaves that a row reaches, whose functions are then summed."""
    trees, read = _trees(model, x, columns, builder)
    linear = model.linear
    assert linear is not None
    number = np.arange(len(trees.value), dtype=np.float64)[:, None]
    leaves = add_trees(dataclasses.replace(trees, value=number), read, builder, exact=True, output="each")
    feature = np.full((len(linear.terms), max(linear.terms.max(), 1)), -1, dtype=np.int32)
    coefficient = np.zeros(feature.shape)
    held = np.arange(feature.shape[1]) < linear.terms[:, None]
    feature[held], coefficient[held] = columns[linear.feature], linear.coefficient
    y = builder.add(LinearLeaves(linear.constant, trees.value[:, 0], feature, coefficient), leaves, x)
    return builder.affine(y, np.full((1, 1), 1 / _divisor(model)), np.zeros(1)) if model.averaged else y
