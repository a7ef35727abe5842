"""The nodes of any library's trees, and their layout for the operation `TreeEnsemble`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.soundness import NO_CHILD, check_nodes
from triton_regressors.kernels.ops.trees.nodes import CATEGORICAL
from triton_regressors.kernels.ops.trees.tree_ensemble import TreeEnsemble

NODES_AT_ONCE = 2**16
"""Nodes laid out at a time, or more if a single tree has more."""


@dataclass(frozen=True)
class Trees:
    """Nodes of several trees as scikit-learn keeps them, tree after tree, each tree's root first, `[nodes]` each.

    `left` and `right` count within the tree; at a leaf `left` is −1. Leaves hold values, in the order of their nodes.
    """

    sizes: np.ndarray  # [trees]
    feature: np.ndarray
    threshold: np.ndarray  # float64; for a categorical split the row of `sets`
    left: np.ndarray
    right: np.ndarray
    flags: np.ndarray
    value: np.ndarray  # [leaves, outputs]
    sets: np.ndarray  # int32 [sets, words], see `TreeEnsemble`
    cover: tuple[np.ndarray, ...] = ()
    """The weight of the training rows that reached each node, or each leaf, in pieces; nothing if it is unknown."""


def narrow(numbers: np.ndarray) -> np.ndarray:
    """Return whole numbers, at least −1, in 16 bits if they fit, as a large model has many nodes."""
    return numbers.astype(np.int16 if numbers.max(initial=0) < 2**15 else np.int32)


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
    """Lay nodes out as `tree_ensemble` needs them: tree after tree, level after level, siblings side by side.

    For a sum the trees are put in the order of their depths. An example: scikit-learn grew this tree depth first,

        node      0   1   2   3   4
        left      1   2  -1  -1  -1
        right     4   3  -1  -1  -1

    and its levels are 0, then 1 and 4, then 2 and 3. Laid out as 0 1 4 2 3, children lie side by side, and a node only
    needs the place of its left child: for node 0 this is 1, and for node 1, which stands at 1, it is 3.

    Args:
        trees: the nodes, see `Trees`.
        exact: whether thresholds stay as they are; otherwise they are rounded down: for a float32 x, `x ≤ threshold`
            and `x ≤ the largest float32 that is not above it` are the same.
        baseline: the number added to the sum, one for all outputs or one for each.
        divisor: the number that the sum is divided by.
        function: the function applied to the sum.
        output: "sum"; "ordered", whose values are rounded to float32; "each"; or "leaves".
        rounding: the rounding of numbers to categories, see `TreeEnsemble`.
        output_of_tree: `[trees]`, only for "ordered": the one output that each tree adds to. Without it each tree adds
            to all outputs, and has a value for each.

    Raises:
        ValueError: the nodes do not form trees.
    """
    _check(trees)
    sizes, leaves = np.asarray(trees.sizes), _leaf_counts(trees)
    order = np.arange(len(sizes))
    if output == "sum":
        order = np.argsort(np.concatenate([_depths(part) for part in _parts(trees, leaves, order)]), kind="stable")
    elif output_of_tree is not None:
        order = np.argsort(output_of_tree, kind="stable")
    sets, number = _distinct(trees.sets)
    nodes, held = len(trees.left), 0 if output == "leaves" else trees.value.shape[1]
    feature, child, flags = np.empty(nodes, np.int32), np.empty(nodes, np.int32), np.empty(nodes, np.uint8)
    threshold = np.empty(nodes, trees.threshold.dtype if exact else np.float32)
    values = np.empty((leaves.sum(), held), np.float32 if output == "ordered" else np.float64)
    end = last = 0
    for part in _parts(trees, leaves, order):
        begin, end, first, last = end, end + len(part.left), last, last + len(part.value)
        own = slice(begin, end)
        node, at = _by_levels(part)
        is_leaf = part.left[node] < 0
        leaf = (np.cumsum(part.left < 0) - 1)[node[is_leaf]]
        values[first:last] = part.value[np.sort(leaf) if output == "leaves" else leaf, :held]
        feature[own] = np.where(is_leaf, -1, part.feature[node])
        flags[own] = np.where(is_leaf, 0, part.flags[node])
        child[own][~is_leaf] = begin + at
        child[own][is_leaf] = first + (leaf if output == "leaves" else np.arange(len(leaf)))
        asked, asks = part.threshold[node], flags[own] & CATEGORICAL > 0
        asked[asks] = number[asked[asks].astype(np.int64)]
        threshold[own] = asked if exact else round_down(asked)
    outputs, groups = held, np.zeros(0, dtype=np.int32)
    if output == "ordered":
        groups = np.array([0, len(order)], dtype=np.int32)
        if output_of_tree is not None:
            outputs = max(np.size(baseline), int(output_of_tree.max()) + 1)
            groups = np.searchsorted(output_of_tree[order], np.arange(outputs + 1)).astype(np.int32)
    return TreeEnsemble(
        feature=feature,
        threshold=threshold,
        child=child,
        flags=flags,
        sets=sets,
        roots=(np.cumsum(sizes[order]) - sizes[order]).astype(np.int32),
        values=values,
        baseline=np.full(outputs, baseline, dtype=np.float32 if output == "ordered" else np.float64),
        divisor=divisor,
        function=function,
        output=output,
        rounding=rounding,
        starts=groups,
    )


def add_trees(trees: Trees, x: Value, builder: Builder, **layout: Any) -> Value:
    """Add trees that read `x`, laid out by `arrange` with these arguments, and note the covers of their nodes."""
    y = builder.add(arrange(trees, **layout), x)

    def cover() -> np.ndarray:  # laid out in the place of thresholds, of which leaves have one too
        whole = np.concatenate(trees.cover).astype(np.float64)
        whole = whole if len(whole) == len(trees.left) else _summed_up(trees, whole)
        plain = dataclasses.replace(trees, threshold=whole, flags=np.zeros_like(trees.flags))
        return arrange(plain, **{**layout, "exact": True}).threshold

    if trees.cover:
        builder.note_cover(y, cover)
    return y


def _parts(trees: Trees, leaves: np.ndarray, order: np.ndarray) -> Iterator[Trees]:
    """Yield the trees in an order, some at a time, as the layout takes several times the memory of the nodes.

    Args:
        trees: the nodes.
        leaves: the number of leaves of each tree.
        order: the trees' numbers.
    """
    sizes = np.asarray(trees.sizes)
    first, first_leaf = np.cumsum(sizes) - sizes, np.cumsum(leaves) - leaves
    ends = np.flatnonzero(np.diff(np.cumsum(sizes[order]) // NODES_AT_ONCE)) + 1
    for some in np.split(order, ends):
        node, leaf = _runs(first[some], sizes[some]), _runs(first_leaf[some], leaves[some])
        yield Trees(
            sizes[some],
            trees.feature[node],
            trees.threshold[node],
            trees.left[node],
            trees.right[node],
            trees.flags[node],
            trees.value[leaf],
            trees.sets,
        )


def _runs(first: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Return consecutive numbers: for each run `count` of them, from `first` on."""
    found: np.ndarray = np.repeat(first - (np.cumsum(count) - count), count) + np.arange(count.sum())
    return found


def _levels(trees: Trees) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the nodes of each level of the trees, siblings side by side, and the number of each node's tree."""
    first = np.cumsum(trees.sizes) - trees.sizes
    node, tree = first, np.arange(len(first))
    while len(node):
        yield node, tree
        inner = trees.left[node] >= 0
        node, tree = node[inner], np.repeat(tree[inner], 2)
        node = np.stack([trees.left[node], trees.right[node]], axis=1).ravel() + first[tree]


def _summed_up(trees: Trees, of_leaves: np.ndarray) -> np.ndarray:
    """Return for each node the sum of the numbers of the leaves behind it, `[leaves]`."""
    sums, first = np.zeros(len(trees.left)), np.cumsum(trees.sizes) - trees.sizes
    sums[trees.left < 0] = of_leaves
    for level, tree in reversed(list(_levels(trees))):
        inner = trees.left[level] >= 0
        node, begin = level[inner], first[tree[inner]]
        sums[node] = sums[begin + trees.left[node]] + sums[begin + trees.right[node]]
    return sums


def _depths(trees: Trees) -> np.ndarray:
    """Return the number of each tree's last level."""
    depth = np.zeros(len(trees.sizes), dtype=np.int64)
    for level, (_, tree) in enumerate(_levels(trees)):
        depth[tree] = level
    return depth


def _by_levels(trees: Trees) -> tuple[np.ndarray, np.ndarray]:
    """Return the nodes tree after tree, level after level, and for each inner node the place of its left child."""
    node, tree = (np.concatenate(parts) for parts in zip(*_levels(trees), strict=True))
    order = np.argsort(tree, kind="stable")
    node, tree = node[order], tree[order]
    place = np.empty_like(node)
    place[node] = np.arange(len(node))
    left, first = trees.left[node], np.cumsum(trees.sizes) - trees.sizes
    inner = left >= 0
    return node, place[first[tree[inner]] + left[inner]]


def _check(trees: Trees) -> None:
    """Raise `ValueError` unless the nodes form trees."""
    starts = np.cumsum(trees.sizes) - trees.sizes
    for start, size in zip(starts, trees.sizes, strict=True):
        left, right = trees.left[start : start + size], trees.right[start : start + size]
        check_nodes(left, right, left != NO_CHILD)


def _leaf_counts(trees: Trees) -> np.ndarray:
    """Return how many leaves each tree has."""
    counts: np.ndarray = np.add.reduceat(trees.left < 0, np.cumsum(trees.sizes) - trees.sizes, dtype=np.int64)
    return counts


def _distinct(sets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct sets, and for each given set its number among them, since many splits share a set."""
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
    """Record the location and scale of the features that trees compare with thresholds."""
    asks = (trees.left >= 0) & (trees.flags & CATEGORICAL == 0)
    note_borders(trees.feature[asks], trees.threshold[asks], x, builder)


def note_borders(feature: np.ndarray, border: np.ndarray, x: Value, builder: Builder) -> None:
    """Record that a feature lies about its median border; the middle four fifths span 2.5 standard deviations.

    Args:
        feature: `[questions]`; features that are not columns of `x` are ignored.
        border: `[questions]`.
        x: the value that is compared.
        builder: records it in its profile.
    """
    feature, border = feature[np.isfinite(border)], border[np.isfinite(border)]
    order = np.lexsort((border, feature))
    border = border[order]
    first, last = np.searchsorted(feature[order], [np.arange(x.width), np.arange(1, x.width + 1)])
    asked = last > first
    low, median, high = (
        border[(first + share * (last - 1 - first)).astype(np.int64)[asked]] for share in (0.1, 0.5, 0.9)
    )
    location, scale = np.full(x.width, np.nan), np.full(x.width, np.nan)  # unknown
    location[asked] = median
    scale[asked] = np.where(high > low, (high - low) / 2.5, np.where(median != 0, np.abs(median), 1.0))
    builder.profile.note_scale(x.features, location, scale)
