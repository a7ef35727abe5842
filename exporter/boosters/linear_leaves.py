"""Linear trees of LightGBM as trees whose leaves hold coefficients.

A leaf of a linear tree answers `constant + Σ coefficient · x`. The sum over trees is `Σ constants + Σⱼ (Σ coefficients
of j) · xⱼ`: trees whose leaves are rows `[constant, coefficients]` make the two sums, and one product with the row ends
it. Where one of the features that a leaf reads is NaN it answers its value instead. So there is a chain of nodes in
front of such a leaf, one for each feature that may be NaN there:

    x₂ ≤ ∞, else [value, 0, 0]
    └─ x₅ ≤ ∞, else [value, 0, 0]
       └─ [constant, coefficient of x₂, coefficient of x₅]

A feature cannot be NaN in a leaf on whose way a node asked for it, and sent the row away from NaN's side.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from triton_regressors.exporter.boosters.lightgbm_model import LightGBMModel
from triton_regressors.exporter.lowerings.trees import Trees
from triton_regressors.kernels.trees import MISSING_LEFT


def with_coefficients(model: LightGBMModel) -> tuple[LightGBMModel, np.ndarray]:
    """Return a model of linear trees with values `[nodes, 1 + used]`, and the features used, ascending."""
    trees, linear = model.trees, model.linear
    assert linear is not None
    leaf = np.flatnonzero(trees.left < 0)
    of_term = np.repeat(np.arange(len(leaf)), linear.terms)
    used, column = np.unique(linear.feature, return_inverse=True)
    asked = _may_be_nan(trees, leaf[of_term], linear.feature)
    chain = np.zeros(len(trees.left), dtype=np.int64)  # how many nodes are put in front of a node
    np.add.at(chain, leaf[of_term[asked]], 1)
    extent = 1 + 2 * chain
    place = np.cumsum(extent) - extent  # of what a node becomes; its own node is the last of these
    starts = place[np.cumsum(trees.sizes) - trees.sizes]
    start = np.repeat(starts, trees.sizes)
    total = int(extent.sum())

    def moved(values: np.ndarray, fill: float = 0) -> np.ndarray:
        found = np.full(total, fill, dtype=values.dtype)
        found[place + 2 * chain] = values
        return found

    def child(side: np.ndarray) -> np.ndarray:
        own = np.cumsum(trees.sizes) - trees.sizes
        target = place[np.repeat(own, trees.sizes) + side.clip(0)] - start
        return moved(np.where(side < 0, -1, target), -1)

    feature, threshold, left, right = (
        moved(trees.feature),
        moved(trees.threshold),
        child(trees.left),
        child(trees.right),
    )
    node = leaf[of_term[asked]]
    rank = np.arange(len(node)) - np.searchsorted(node, node)  # among those of one leaf
    test = place[node] + 2 * rank
    feature[test], threshold[test] = linear.feature[asked], np.inf
    left[test], right[test] = test + 2 - start[node], test + 1 - start[node]
    value = np.zeros((total, 1 + len(used)))
    ends = place + 2 * chain
    value[ends[leaf], 0] = linear.constant
    np.add.at(value, (ends[leaf[of_term]], 1 + column), linear.coefficient)
    value[test + 1, 0] = trees.value[node, 0]
    sizes = np.add.reduceat(extent, np.cumsum(trees.sizes) - trees.sizes)
    flags, zero_missing = moved(trees.flags), moved(model.zero_missing)
    trees = Trees(sizes, feature, threshold, left, right, flags, value, trees.sets)
    return dataclasses.replace(model, trees=trees, zero_missing=zero_missing, linear=None), used


def _may_be_nan(trees: Trees, leaf: np.ndarray, feature: np.ndarray) -> np.ndarray:
    """Return of pairs of a leaf and a feature whether the feature can be NaN where a row has come to the leaf."""
    inner = np.flatnonzero(trees.left >= 0)
    start = np.repeat(np.cumsum(trees.sizes) - trees.sizes, trees.sizes)
    parent, is_left = np.full(len(trees.left), -1), np.zeros(len(trees.left), dtype=bool)
    for side in (trees.left, trees.right):
        parent[start[inner] + side[inner]] = inner
    is_left[start[inner] + trees.left[inner]] = True
    found, node = np.ones(len(leaf), dtype=bool), leaf.copy()
    while len(going := np.flatnonzero(parent[node] >= 0)):
        above = parent[node[going]]
        away = is_left[node[going]] != (trees.flags[above] & MISSING_LEFT > 0)
        found[going[away & (trees.feature[above] == feature[going])]] = False
        node[going] = above
    return found
