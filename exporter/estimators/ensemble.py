"""Ensembles of any regressors: voting, stacking, bagging."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.ensemble import BaggingRegressor, StackingRegressor, VotingRegressor

from triton_regressors.exporter.estimators.trees import are_trees, fitted_trees
from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.registry import lowers, lowers_transform
from triton_regressors.exporter.lowering.tree_nodes import add_trees, note_thresholds


@lowers(VotingRegressor)
def lower_voting(regressor: VotingRegressor, x: Value, builder: Builder) -> Value:
    """`y = Σᵢ weightsᵢ yᵢ / Σᵢ weightsᵢ` over the members that are not "drop"."""
    return _average(_predictions(regressor, x, builder), regressor._weights_not_none, builder)


@lowers(StackingRegressor)
def lower_stacking(regressor: StackingRegressor, x: Value, builder: Builder) -> Value:
    """The final estimator reads the members' predictions, and with `passthrough` also `x`."""
    predictions = transform_by_stacking(regressor, x, builder)
    with builder.at("final_estimator_"):
        return builder.lower(regressor.final_estimator_, predictions)


@lowers_transform(StackingRegressor)
def transform_by_stacking(regressor: StackingRegressor, x: Value, builder: Builder) -> Value:
    """The members' predictions side by side, then `x` if `passthrough` is set."""
    return builder.concatenate(_predictions(regressor, x, builder) + [x] * bool(regressor.passthrough))


@lowers_transform(VotingRegressor)
def transform_by_voting(regressor: VotingRegressor, x: Value, builder: Builder) -> Value:
    """The members' predictions side by side."""
    return builder.concatenate(_predictions(regressor, x, builder))


@lowers(BaggingRegressor)
def lower_bagging(regressor: BaggingRegressor, x: Value, builder: Builder) -> Value:
    """The mean of the members' predictions, each from its own columns of `x`, in which a column may occur twice."""
    if are_trees(regressor.estimators_, builder):
        return _bagged_trees(regressor, x, builder)
    values = []
    for index, estimator in enumerate(regressor.estimators_):
        with builder.at(f"estimators_[{index}]"):
            values.append(builder.lower(estimator, builder.columns(x, regressor.estimators_features_[index])))
    return _average(values, None, builder)


def _bagged_trees(regressor: BaggingRegressor, x: Value, builder: Builder) -> Value:
    """Return trees with columns of their own as one forest that reads all columns."""
    trees = fitted_trees(regressor.estimators_)
    columns = np.stack(regressor.estimators_features_)  # [trees, columns]
    tree = np.repeat(np.arange(len(columns)), trees.sizes)
    trees = dataclasses.replace(trees, feature=columns[tree, np.maximum(trees.feature, 0)])  # a leaf reads nothing
    note_thresholds(trees, x, builder)
    return add_trees(trees, x, builder, divisor=float(len(columns)))


def _predictions(regressor: Any, x: Value, builder: Builder) -> list[Value]:
    """Return the prediction of each fitted member, lowered under its name."""
    names = [name for name, estimator in regressor.estimators if not isinstance(estimator, str)]  # a string is "drop"
    values = []
    for name, estimator in zip(names, regressor.estimators_, strict=True):
        with builder.at(name):
            values.append(builder.lower(estimator, x))
    return values


def _average(values: list[Value], weights: ArrayLike | None, builder: Builder) -> Value:
    """Return the weighted mean of values of one width."""
    shares = np.ones(len(values)) if weights is None else np.asarray(weights, dtype=np.float64)
    shares = shares / shares.sum()
    return builder.affine(builder.concatenate(values), np.kron(shares[:, None], np.eye(values[0].width)), 0.0)
