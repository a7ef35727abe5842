"""The trees of CatBoost's files, and the questions that they ask.

A symmetric tree asks the same question at each node of a level, and leaf `Σₖ 2ᵏ · answerₖ` holds its value. Another
says of each node how far its children are from it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from triton_regressors.exporter.boosters.flat_tables import Table
from triton_regressors.exporter.lowering.tree_nodes import narrow

DEEPEST = 16
"""The levels of questions that a symmetric tree has at most."""

STEP = np.dtype([("left", "<u2"), ("right", "<u2")])
"""The distances from a node to its children, in nodes."""

FLOAT, ONE_HOT, CTR = range(3)
"""The kinds of questions."""


@dataclass(frozen=True)
class Questions:
    """The questions of trees, `[questions]` each: a kind, a source, and the border or hash that it is compared with.

    `source` is a column of the input for a number and a category, and a number among the CTRs.
    """

    kind: np.ndarray
    source: np.ndarray
    border: np.ndarray  # float64; floats as they are in float32, and hashes, −2³¹ to 2³¹ − 1


@dataclass(frozen=True)
class Symmetric:
    """Symmetric trees, tree after tree."""

    depth: np.ndarray  # [trees], how many questions
    question: np.ndarray  # [levels], of a tree from its lowest bit on
    value: np.ndarray  # float64 [leaves, outputs], 2 to the power of its depth of each tree


@dataclass(frozen=True)
class Nodes:
    """Nodes of several trees, tree after tree, each tree's root first, `[nodes]` each.

    `left` and `right` count within the tree, −1 at a leaf, where `question` is −1 too.
    """

    sizes: np.ndarray  # [trees]
    question: np.ndarray
    left: np.ndarray
    right: np.ndarray
    value: np.ndarray  # float64 [leaves, outputs]


def require(holds: bool, otherwise: str) -> None:
    """Refuse a file of whose numbers something does not hold.

    Raises:
        ValueError: that; `otherwise` says in one clause what is wrong.
    """
    if not holds:
        raise ValueError(otherwise)


def within(numbers: np.ndarray, end: int) -> bool:
    """Return whether all numbers are in [0, end)."""
    return bool(((numbers >= 0) & (numbers < end)).all())


def read_trees(trees: Table, questions: Questions, outputs: int) -> Symmetric | Nodes:
    """Return the trees, whose arrays may lie where they were read."""
    splits, sizes, starts = (trees.array(field, "<i4").astype(np.int64) for field in (1, 2, 3))
    values, steps, leaf = trees.array(8, "<f8"), trees.array(10, STEP), trees.array(11, "<u4")
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
        require(trees.count(9) in (0, leaves), "weights do not match the leaves")
        return Symmetric(sizes, splits, values.reshape(-1, outputs))
    return stepping(splits, sizes, np.stack([steps["left"], steps["right"]]).astype(np.int64), leaf, values, outputs)


def stepping(
    question: np.ndarray, sizes: np.ndarray, steps: np.ndarray, leaf: np.ndarray, values: np.ndarray, outputs: int
) -> Nodes:
    """Return the nodes of trees that say of each node how far its children are from it.

    A node without one of its children holds a value of its own for the rows that would go there: it gets a leaf of its
    own, behind its tree's nodes.

    Args:
        question: of each node; of one without children it means nothing.
        sizes: `[trees]`, how many nodes.
        steps: `[2, nodes]`, to the left child and to the right one, 0 where there is none.
        leaf: `[nodes]`, where the values of a node without one of its children begin.
        values: of all nodes.
        outputs: how many values a node has.
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
    value = np.zeros((nodes, outputs))
    value[ends] = values.reshape(-1, outputs)[begins // outputs]
    single = np.flatnonzero(inner & ends)
    more = np.bincount(tree[single], minlength=trees)
    own = sizes[tree[single]] + np.arange(len(single)) - (np.cumsum(more) - more)[tree[single]]  # the leaves added
    child[:, single] = np.where(steps[:, single] > 0, child[:, single], own)
    order = np.argsort(np.concatenate([tree, tree[single]]), kind="stable")
    none = np.full(len(single), -1)
    left, right = (np.concatenate([np.where(inner, side, -1), none])[order] for side in child)
    asked = np.concatenate([np.where(inner, question, -1), none])[order]
    held = np.concatenate([value, value[single]])[order]
    return Nodes(sizes + more, narrow(asked), narrow(left), narrow(right), held[left < 0])
