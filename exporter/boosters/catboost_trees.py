"""The trees of CatBoost's files, and the questions that they ask.

A symmetric tree asks the same question at each node of a level, and its value is that of leaf `Σₖ 2ᵏ · answerₖ`. Any
other tree stores for each node the distances to its children.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from triton_regressors.exporter.boosters.flat_tables import Table
from triton_regressors.exporter.lowering.tree_nodes import narrow

DEEPEST = 16
"""The most levels of questions that a symmetric tree has."""

STEP = np.dtype([("left", "<u2"), ("right", "<u2")])
"""The distances from a node to its children, in nodes."""

FLOAT, ONE_HOT, CTR = range(3)
"""The kinds of questions."""


@dataclass(frozen=True)
class Questions:
    """The questions of trees, `[questions]` each: a kind, a source, and the border or hash that is compared with it.

    `source` is a column of the input for numbers and categories, and the index of a CTR otherwise.
    """

    kind: np.ndarray
    source: np.ndarray
    border: np.ndarray  # float64; floats as they are in float32, and hashes, −2³¹ to 2³¹ − 1


@dataclass(frozen=True)
class Symmetric:
    """Symmetric trees, tree after tree."""

    depth: np.ndarray  # [trees], the number of questions
    question: np.ndarray  # [levels], each tree's from its lowest bit on
    value: np.ndarray  # float64 [leaves, outputs], for each tree 2 to the power of its depth
    cover: np.ndarray  # float64 [leaves], the weights of training rows; empty if they are unknown


@dataclass(frozen=True)
class Nodes:
    """Nodes of several trees, tree after tree, each tree's root first, `[nodes]` each.

    `left` and `right` count within the tree. A leaf has −1 for both, and for `question`.
    """

    sizes: np.ndarray  # [trees]
    question: np.ndarray
    left: np.ndarray
    right: np.ndarray
    value: np.ndarray  # float64 [leaves, outputs]
    cover: np.ndarray  # float64 [leaves], as in `Symmetric`


def require(holds: bool, otherwise: str) -> None:
    """Refuse a file if a condition on its numbers does not hold.

    Raises:
        ValueError: it does not hold; `otherwise` says in one clause what is wrong.
    """
    if not holds:
        raise ValueError(otherwise)


def within(numbers: np.ndarray, end: int) -> bool:
    """Return whether all numbers are in [0, end)."""
    return bool(((numbers >= 0) & (numbers < end)).all())


def read_trees(trees: Table, questions: Questions, outputs: int) -> Symmetric | Nodes:
    """Return the trees; their arrays may be views of the data."""
    splits, sizes, starts = (trees.array(field, "<i4").astype(np.int64) for field in (1, 2, 3))
    values, steps, leaf = trees.array(8, "<f8"), trees.array(10, STEP), trees.array(11, "<u4")
    weights = trees.array(9, "<f8")
    require(len(sizes) > 0, "it has no trees")
    require(within(sizes, len(splits) + 1) and len(splits) == sizes.sum(), "questions are missing for some trees")
    require(np.array_equal(starts, np.cumsum(sizes) - sizes), "questions of a tree lie outside the model")
    require(within(splits, max(len(questions.kind), 1)), "a node asks what is no question")
    require(bool(np.isfinite(values).all()), "the value of a leaf is not finite")
    if not len(steps):
        require(not len(leaf), "steps are not of each node")
        require(not sizes.any() or len(questions.kind) > 0, "a node asks what is no question")
        require(within(sizes, DEEPEST + 1), f"a tree is deeper than {DEEPEST}")
        leaves = int((1 << sizes).sum())
        require(len(values) == leaves * outputs, "values do not match the leaves")
        require(len(weights) in (0, leaves), "weights do not match the leaves")
        return Symmetric(sizes, splits, values.reshape(-1, outputs), weights)
    distances = np.stack([steps["left"], steps["right"]]).astype(np.int64)
    return stepping(splits, sizes, distances, leaf, values, outputs, weights)


def stepping(
    question: np.ndarray,
    sizes: np.ndarray,
    steps: np.ndarray,
    leaf: np.ndarray,
    values: np.ndarray,
    outputs: int,
    weights: np.ndarray,
) -> Nodes:
    """Return the nodes of trees that store for each node the distances to its children.

    A node with only one child holds a value itself for the rows that would go to the other: it gets an added leaf,
    behind its tree's nodes.

    Args:
        question: each node's question; a node without children has none, and its number means nothing.
        sizes: `[trees]`, the number of nodes.
        steps: `[2, nodes]`, the distances to the left and to the right child, 0 for a missing child.
        leaf: `[nodes]`, the place of the first value of a node that lacks a child.
        values: the values of all nodes.
        outputs: the number of values of a node.
        weights: the weight of the training rows that end at a node, for each `outputs` values; empty if unknown.
    """
    nodes = len(question)
    require(steps.shape[1] == len(leaf) == nodes, "steps are not of each node")
    tree, trees = np.repeat(np.arange(len(sizes)), sizes), len(sizes)
    first = (np.cumsum(sizes) - sizes)[tree]
    place = np.arange(nodes) - first
    child = place + steps
    inner = steps.max(axis=0) > 0
    require(bool((child < sizes[tree]).all()) and bool((sizes > 0).all()), "a node's child is not in its tree")
    times = np.bincount((first + child)[steps > 0], minlength=nodes)
    require(np.array_equal(times, place > 0), "a node is not the child of one other node")
    ends = steps.min(axis=0) == 0
    begins = leaf[ends].astype(np.int64)
    require(bool((begins % outputs == 0).all()) and within(begins + outputs - 1, len(values)), "a leaf has no value")
    leaves = len(values) // outputs
    require(len(weights) in (0, leaves), "weights do not match the leaves")
    rows = np.concatenate([values.reshape(leaves, outputs), weights.reshape(leaves, -1)], axis=1)
    value = np.zeros((nodes, rows.shape[1]))
    value[ends] = rows[begins // outputs]
    single = np.flatnonzero(inner & ends)
    more = np.bincount(tree[single], minlength=trees)
    own = sizes[tree[single]] + np.arange(len(single)) - (np.cumsum(more) - more)[tree[single]]  # the leaves added
    child[:, single] = np.where(steps[:, single] > 0, child[:, single], own)
    order = np.argsort(np.concatenate([tree, tree[single]]), kind="stable")
    none = np.full(len(single), -1)
    left, right = (np.concatenate([np.where(inner, side, -1), none])[order] for side in child)
    asked = np.concatenate([np.where(inner, question, -1), none])[order]
    held = np.concatenate([value, value[single]])[order][left < 0]
    return Nodes(sizes + more, narrow(asked), narrow(left), narrow(right), held[:, :outputs], held[:, outputs:].ravel())
