"""Quantile regression forests of the library quantile-forest.

A leaf keeps targets of training rows: one drawn at random, or with `max_samples_leaf` more of them. The answer is the
mean, or are quantiles, of the targets that a row's leaves hold.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from triton_regressors.exporter.estimators.trees import are_trees, fitted_trees
from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.registry import lowers
from triton_regressors.exporter.lowering.soundness import NO_CHILD
from triton_regressors.exporter.lowering.tree_nodes import Trees, add_trees, note_thresholds
from triton_regressors.kernels.ops.columns.combine import Combine
from triton_regressors.kernels.ops.columns.lookup import Lookup
from triton_regressors.kernels.ops.columns.pool import Pool

FAR = 1e300
"""A number beyond every target."""


@lowers(
    "quantile_forest._quantile_forest.RandomForestQuantileRegressor",
    "quantile_forest._quantile_forest.ExtraTreesQuantileRegressor",
)
def lower_quantile_forest(forest: Any, x: Value, builder: Builder) -> Value:
    """The mean of the trees' targets, or a column for each of the default quantiles, of each output in turn."""
    if not are_trees(forest.estimators_, builder):
        raise builder.refuse(forest, "its trees have a lowering of their own; supported: the library's own trees")
    quantiles = forest.default_quantiles
    quantiles = "mean" if quantiles is None or quantiles == ["mean"] else quantiles
    mean = isinstance(quantiles, str)
    if forest.max_samples_leaf != 1 and not mean:
        raise builder.refuse(
            forest,
            f"with max_samples_leaf={forest.max_samples_leaf} a quantile weighs all training rows anew for each row. "
            "Fit it with max_samples_leaf=1, or set default_quantiles='mean'",
        )
    trees = fitted_trees(forest.estimators_)
    note_thresholds(trees, x, builder)
    sums, counts = _leaf_sums(forest)
    if not mean:
        return _quantiles(trees, sums, np.atleast_1d(quantiles).tolist(), x, builder)
    if (counts == 1).all():
        return add_trees(dataclasses.replace(trees, value=sums), x, builder, divisor=float(len(trees.sizes)))
    outputs, both = sums.shape[1], np.concatenate([sums, counts], axis=1)
    z = add_trees(dataclasses.replace(trees, value=both), x, builder)
    above, below = (builder.columns(z, np.arange(outputs) + first) for first in (0, outputs))
    return builder.add(Combine("product"), above, builder.elementwise(below, "reciprocal"))


def _leaf_sums(forest: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the sum and the number of the targets that each leaf keeps, `[leaves, outputs]`, tree after tree."""
    targets = np.asarray(forest.forest_.y_train)  # [outputs, rows]
    held = np.asarray(forest.forest_.y_train_leaves)  # [trees, nodes, outputs, size], from 1, and 0 for none
    bounds = np.asarray(forest.forest_.y_bound_leaves)  # [trees, nodes, 2]
    output = np.arange(len(targets))[:, None]
    sums, counts = [], []
    for tree, estimator in enumerate(forest.estimators_):
        leaf = np.flatnonzero(estimator.tree_.children_left == NO_CHILD)
        row = held[tree, leaf]
        if forest.max_samples_leaf == 1:  # the library reads 0 as the last target
            kept = targets[output, row - 1][:, :, 0]
            if forest.monotonic_cst is not None:
                kept = np.clip(kept, bounds[tree, leaf, 0][:, None], bounds[tree, leaf, 1][:, None])
            sums.append(kept)
            counts.append(np.ones_like(kept))
        else:
            sums.append(np.where(row > 0, targets[output, row - 1], 0.0).sum(axis=2))
            counts.append((row > 0).sum(axis=2).astype(np.float64))
    return np.concatenate(sums), np.concatenate(counts)


def _quantiles(trees: Trees, values: np.ndarray, quantiles: Sequence[float], x: Value, builder: Builder) -> Value:
    """Return quantiles of the trees' values, interpolated as `numpy.quantile` does.

    The `k`-th smallest of several numbers is the median of these and of so many numbers far below or above them.
    """
    count, outputs = len(trees.sizes), values.shape[1]
    each = add_trees(dataclasses.replace(trees, value=values), x, builder, output="each")
    far = [count * outputs, count * outputs + 1]  # the columns of a number below all of them, and of one above
    members, columns, shares = [], [], []
    for column, (output, quantile) in enumerate(itertools.product(range(outputs), quantiles)):
        own, place = np.arange(count) * outputs + output, quantile * (count - 1)
        first = math.floor(place)
        ranks: dict[float, float] = {first: 1 - (place - first), first + 1: place - first}
        if 2 * place == count - 1:
            ranks = {place: 1.0}  # the median itself, of one number or between two
        for rank, share in ranks.items():
            if share:
                more = round(count - 1 - 2 * rank)
                members.append(np.concatenate([own, np.full(abs(more), far[0] if more > 0 else far[1])]))
                columns.append(column)
                shares.append(share)
    size = max(map(len, members))
    padded = np.stack([np.pad(row, (0, size - len(row)), constant_values=-1) for row in members]).astype(np.int32)
    if padded.max() >= far[0]:
        table = np.tile([[-FAR], [FAR]], (2, 1))  # for a missing number, and for any other
        constants = Lookup(np.zeros(2, dtype=np.int32), np.zeros(3, dtype=np.int32), np.zeros(0), table)
        each = builder.concatenate([each, builder.add(constants, x)])
    ordered = builder.add(Pool(padded, "median"), each)
    if shares == [1.0] * len(shares):
        return ordered
    weight = np.zeros((len(members), outputs * len(quantiles)))
    weight[np.arange(len(members)), columns] = shares
    return builder.affine(ordered, weight, 0.0)
