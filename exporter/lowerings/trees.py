"""Decision trees and forests of them: `y = mean of the trees' leaves`; embeddings by leaf."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor, RandomTreesEmbedding
from sklearn.tree import DecisionTreeRegressor, ExtraTreeRegressor

from triton_regressors.exporter.builder import Builder, Value
from triton_regressors.exporter.registry import find_lowering, lowers
from triton_regressors.exporter.soundness import NO_CHILD, check_nodes
from triton_regressors.kernels.ops.tree_ensemble import TreeEnsemble
from triton_regressors.kernels.trees import CATEGORICAL, MISSING_LEFT


@dataclass(frozen=True)
class Trees:
    """Nodes of several trees as scikit-learn keeps them, tree after tree, each tree's root first, `[nodes]` each.

    `left` and `right` count within the tree; where there is no child, at a leaf, `left` is −1.
    """

    sizes: np.ndarray  # [trees]
    feature: np.ndarray
    threshold: np.ndarray  # float64; where categorical the row of `sets`
    left: np.ndarray
    right: np.ndarray
    flags: np.ndarray
    value: np.ndarray  # [nodes, outputs]
    sets: np.ndarray  # int32 [sets, words], see `TreeEnsemble`


@lowers(DecisionTreeRegressor, ExtraTreeRegressor)
def lower_tree(tree: Any, x: Value, builder: Builder) -> Value:
    """`y = value[leaf(x)]`."""
    return lower_side_by_side([tree], x, builder)


@lowers(ExtraTreesRegressor, RandomForestRegressor)
def lower_forest(forest: Any, x: Value, builder: Builder) -> Value:
    """`y = Σₜ value[leaf(t, x)] / trees`."""
    trees = fitted_trees(_own_trees(forest, builder))
    note_thresholds(trees, x, builder)
    return builder.add(arrange(trees, divisor=float(len(trees.sizes))), x)


@lowers(RandomTreesEmbedding)
def lower_embedding(embedding: RandomTreesEmbedding, x: Value, builder: Builder) -> Value:
    """One column for each leaf of each tree, in the order of the trees and of their nodes: 1 where `x` arrives."""
    trees = fitted_trees(_own_trees(embedding, builder))
    note_thresholds(trees, x, builder)
    return builder.add(arrange(trees, output="leaves"), x)


def lower_side_by_side(estimators: Sequence[Any], x: Value, builder: Builder) -> Value:
    """What each of these fitted trees predicts, one beside the other."""
    trees = fitted_trees(estimators)
    note_thresholds(trees, x, builder)
    return builder.add(arrange(trees, output="each"), x)


def are_trees(estimators: Sequence[Any], builder: Builder) -> bool:
    """Return whether all of these, members of the estimator being lowered, are lowered by their nodes alone.

    Raises:
        ExportError: One of them has no lowering.
    """
    plain = True
    for index, estimator in enumerate(estimators):
        with builder.at(f"estimators_[{index}]"):
            plain = find_lowering(estimator, builder.subject(estimator)) is lower_tree and plain
    return plain


def _own_trees(forest: Any, builder: Builder) -> Sequence[Any]:
    """Return a forest's trees, which may be of another class than it would fit by itself."""
    if not are_trees(forest.estimators_, builder):
        raise builder.refuse(forest, "its trees have a lowering of their own. A BaggingRegressor of them is exported")
    trees: Sequence[Any] = forest.estimators_
    return trees


def fitted_trees(estimators: Sequence[Any], factor: float = 1.0) -> Trees:
    """Return the nodes of fitted estimators of `sklearn.tree`, their values multiplied by `factor`."""
    trees = [estimator.tree_ for estimator in estimators]

    def field(name: str) -> np.ndarray:
        return np.concatenate([getattr(tree, name) for tree in trees])

    return Trees(
        np.array([tree.node_count for tree in trees]),
        field("feature"),
        field("threshold"),
        field("children_left"),
        field("children_right"),
        np.where(field("missing_go_to_left"), MISSING_LEFT, 0).astype(np.uint8),
        factor * np.concatenate([tree.value[:, :, 0] for tree in trees]),
        np.zeros((0, 8), dtype=np.int32),
    )


def arrange(
    trees: Trees,
    *,
    exact: bool = False,
    baseline: float | np.ndarray = 0.0,
    divisor: float = 1.0,
    function: str = "identity",
    output: str = "sum",
    rounding: str = "trunc",
    output_of_tree: np.ndarray | None = None,
) -> TreeEnsemble:
    """Lay nodes out as `tree_ensemble` wants them: tree after tree, level after level, siblings side by side.

    For a sum the trees are put in the order of their depths. An example: scikit-learn grew this tree depth first,

        node      0   1   2   3   4
        left      1   2  -1  -1  -1
        right     4   3  -1  -1  -1

    and its levels are 0, then 1 and 4, then 2 and 3. Laid out as 0 1 4 2 3, children lie side by side, and a node needs
    the place of one of them alone: 0's is 1, and 1's, which stands at 1, is 3.

    Args:
        trees: the nodes, see `Trees`.
        exact: whether thresholds stay as they are; else they are rounded down: for a float32 x, `x ≤ threshold` and
            `x ≤ the largest float32 that is not above it` are the same.
        baseline: of the sum, one for all outputs or one for each.
        divisor: of the sum.
        function: of the sum.
        output: "sum"; "ordered", whose values are rounded to float32; "each"; or "leaves".
        rounding: of numbers to categories, see `TreeEnsemble`.
        output_of_tree: `[trees]`, for "ordered" alone: which output each tree adds to, if to one. Without it each adds
            to all, and has a value for each.

    Raises:
        ValueError: the nodes are no trees.
    """
    starts = (np.cumsum(trees.sizes) - trees.sizes).astype(np.int32)
    for start, size in zip(starts, trees.sizes, strict=True):
        left, right = trees.left[start : start + size], trees.right[start : start + size]
        check_nodes(left, right, left != NO_CHILD)
    tree_of = np.repeat(np.arange(len(starts), dtype=np.int32), trees.sizes)
    inner = trees.left >= 0
    left, right = (np.add(starts[tree_of], child, dtype=np.int32) for child in (trees.left, trees.right))
    levels, depth = [starts], np.zeros(len(starts), dtype=np.int64)
    while len(parents := levels[-1][inner[levels[-1]]]):
        levels.append(np.stack([left[parents], right[parents]], axis=1).ravel())
        depth[tree_of[parents]] = len(levels) - 1
    order = np.argsort(depth, kind="stable") if output == "sum" else np.arange(len(starts))
    if output_of_tree is not None:
        order = np.argsort(output_of_tree, kind="stable")
    del right
    sizes = np.asarray(trees.sizes)[order]
    free = np.empty(len(order), dtype=np.int32)  # of each tree, the next place for a node
    free[order] = np.cumsum(sizes) - sizes
    nodes, position = np.empty(len(inner), dtype=np.int32), np.empty(len(inner), dtype=np.int32)
    while levels:
        level = levels.pop(0)  # which is tree after tree
        tree = tree_of[level]
        count = np.bincount(tree, minlength=len(order))
        first = np.cumsum(count) - count
        at = (free - first).astype(np.int32)[tree] + np.arange(len(level), dtype=np.int32)
        nodes[at] = level  # new to old
        position[level] = at  # old to new
        free += count.astype(np.int32)
    del tree_of, level, tree, at
    is_inner = inner[nodes]
    sets, number = _distinct(trees.sets)
    threshold, asks = trees.threshold[nodes], is_inner & (trees.flags[nodes] & CATEGORICAL > 0)
    threshold[asks] = number[threshold[asks].astype(np.int64)]
    leaves = nodes[~is_inner]
    if output == "leaves":
        leaves = np.sort(leaves)
    child = np.zeros(len(inner), dtype=np.int32)
    child[inner] = position[left[inner]]
    child[leaves] = np.arange(len(leaves))
    roots, child = position[starts[order]], child[nodes]
    del left, position
    values = np.ascontiguousarray(trees.value[leaves, : 0 if output == "leaves" else None])
    outputs, groups = values.shape[1], np.zeros(0, dtype=np.int32)
    if output == "ordered":
        values, groups = values.astype(np.float32), np.array([0, len(order)], dtype=np.int32)
        if output_of_tree is not None:
            outputs = max(np.size(baseline), int(output_of_tree.max()) + 1)
            groups = np.searchsorted(output_of_tree[order], np.arange(outputs + 1)).astype(np.int32)
    return TreeEnsemble(
        feature=np.where(is_inner, trees.feature[nodes], -1).astype(np.int32),
        threshold=threshold if exact else round_down(threshold),
        child=child,
        flags=np.where(is_inner, trees.flags[nodes], 0).astype(np.uint8),
        sets=sets,
        roots=roots,
        values=values,
        baseline=np.full(outputs, baseline, dtype=np.float32 if output == "ordered" else np.float64),
        divisor=divisor,
        function=function,
        output=output,
        rounding=rounding,
        starts=groups,
    )


def _distinct(sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sets that differ, and for each of all the number of its like: splits that ask for one are few."""
    if not len(sets):
        return sets, np.zeros(0, dtype=np.int64)
    whole = np.ascontiguousarray(sets).view(np.dtype((np.void, sets.itemsize * sets.shape[1])))[:, 0]
    _, first, number = np.unique(whole, return_index=True, return_inverse=True)
    return sets[first], number


def round_down(threshold: np.ndarray) -> np.ndarray:
    """Return the largest float32 that is not above each number."""
    if threshold.dtype == np.float32:
        return threshold
    with np.errstate(over="ignore"):
        nearest = threshold.astype(np.float32)
        rounded: np.ndarray = np.where(nearest > threshold, np.nextafter(nearest, np.float32(-np.inf)), nearest)
    return rounded


def note_thresholds(trees: Trees, x: Value, builder: Builder) -> None:
    """Say that a feature lies about its median threshold; four fifths of them span 2.5 standard deviations."""
    asks = (trees.left >= 0) & (trees.flags & CATEGORICAL == 0) & np.isfinite(trees.threshold)
    feature, threshold = trees.feature[asks], trees.threshold[asks]
    order = np.lexsort((threshold, feature))
    threshold = threshold[order]
    first, last = np.searchsorted(feature[order], [np.arange(x.width), np.arange(1, x.width + 1)])
    asked = last > first
    low, median, high = (
        threshold[(first + share * (last - 1 - first)).astype(np.int64)[asked]] for share in (0.1, 0.5, 0.9)
    )
    location, scale = np.full(x.width, np.nan), np.full(x.width, np.nan)  # unknown
    location[asked] = median
    scale[asked] = np.where(high > low, (high - low) / 2.5, np.where(median != 0, np.abs(median), 1.0))
    builder.profile.note_scale(x.features, location, scale)
