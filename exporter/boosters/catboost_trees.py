"""The trees of CatBoost's files as nodes, and the questions that they ask.

A symmetric tree asks the same question at each node of a level, and leaf `Σₖ 2ᵏ · answerₖ` holds its value. Another
says of each node how far its children are from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from triton_regressors.exporter.boosters.flat_tables import Table
from triton_regressors.exporter.lowerings.trees import narrow

TREES_AT_ONCE = 512
"""Of how many symmetric trees nodes are made at a time."""

DEEPEST = 16
"""The levels of questions that a symmetric tree has at most."""

STEP = np.dtype([("left", "<u2"), ("right", "<u2")])
"""How many nodes further a node's children are."""

FLOAT, ONE_HOT, CTR = range(3)
"""What a question is about."""


@dataclass(frozen=True)
class Questions:
    """What trees ask, `[questions]` each: a kind, of what, and the border or hash that it is compared with.

    `source` is a column of the input for a number and a category, and a number among the CTRs.
    """

    kind: np.ndarray
    source: np.ndarray
    border: np.ndarray  # float64; floats as they are in float32, and hashes, −2³¹ to 2³¹ − 1


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
    """Whether all numbers are in [0, end)."""
    return bool(((numbers >= 0) & (numbers < end)).all())


def read_nodes(trees: Table, questions: Questions, outputs: int) -> Nodes:
    """Return the nodes of the trees, which a row can reach."""
    splits, sizes, starts = (trees.array(field, "<i4").astype(np.int64) for field in (1, 2, 3))
    values, steps, leaf = trees.array(8, "<f8"), trees.array(10, STEP), trees.array(11, "<u4")
    require(len(sizes) > 0, "it has no trees")
    require(within(sizes, len(splits) + 1) and len(splits) == sizes.sum(), "questions are not of each tree")
    require(np.array_equal(starts, np.cumsum(sizes) - sizes), "questions of a tree lie elsewhere")
    require(within(splits, max(len(questions.kind), 1)), "a node asks what is no question")
    require(bool(np.isfinite(values).all()), "the value of a leaf is not finite")
    if not len(steps):
        require(not len(leaf), "steps are not of each node")
        require(not sizes.any() or len(questions.kind) > 0, "a node asks what is no question")
        require(within(sizes, DEEPEST + 1), f"a tree is deeper than {DEEPEST}")
        leaves = int((1 << sizes).sum())
        require(len(values) == leaves * outputs, "values are not of each leaf")
        require(trees.count(9) in (0, leaves), "weights are not of each leaf")
        return symmetric_parts(splits, sizes, values.reshape(-1, outputs), questions)
    return stepping(splits, sizes, np.stack([steps["left"], steps["right"]]).astype(np.int64), leaf, values, outputs)


def symmetric_parts(splits: np.ndarray, depth: np.ndarray, leaf_values: np.ndarray, questions: Questions) -> Nodes:
    """Return the nodes of symmetric trees, made of some trees after the other, as making them takes several times more.

    Args:
        splits: the questions' numbers, tree after tree.
        depth: how many of these each tree has.
        leaf_values: `[leaves, outputs]`, tree after tree.
        questions: of the whole model.
    """
    first, leaf = np.cumsum([0, *depth]), np.cumsum([0, *(1 << depth)])
    parts = []
    for begin in range(0, len(depth), TREES_AT_ONCE):
        end = min(begin + TREES_AT_ONCE, len(depth))
        own, held = splits[first[begin] : first[end]], leaf_values[leaf[begin] : leaf[end]]
        parts.append(list(vars(_symmetric(own, depth[begin:end], held, questions)).values()))
    return Nodes(*(np.concatenate([part.pop(0) for part in parts]) for _ in range(len(parts[0]))))


def _symmetric(splits: np.ndarray, depth: np.ndarray, leaf_values: np.ndarray, questions: Questions) -> Nodes:
    """Return the nodes of symmetric trees, without those that no row reaches.

    A question whose answer follows from those before it is not asked. Levels are made one after the other, of all trees
    at once; a node of a level is a tree and the answers so far.
    """
    asked = np.full((len(depth), max(depth.max(initial=0), 1)), -1)
    asked[np.arange(asked.shape[1]) < depth[:, None]] = splits
    first_leaf = np.cumsum([0, *(1 << depth)])[:-1].astype(np.int32)
    tree = np.arange(len(depth), dtype=np.int32)
    answers, node = np.zeros_like(tree), tree
    count = len(depth)  # of nodes
    made: list[Any] = []  # what each level gives to its nodes
    for level in range(int(depth.max(initial=0)) + 1):
        ended = depth[tree] == level
        end = node[ended]
        made.append((end, tree[ended], -1, -1, first_leaf[tree[ended]] + answers[ended]))
        tree, answers, node = tree[~ended], answers[~ended], node[~ended]
        if not len(tree):
            break
        yes, no = (found[tree] for found in _follows(asked[:, : level + 1], questions))
        can = [(answers & no[:, 0]) == 0, ((answers & yes[:, 0]) == yes[:, 0]) & ((answers & yes[:, 1]) == 0)]
        both = can[0] & can[1]
        left = count + 2 * np.arange(int(both.sum()), dtype=np.int32)
        made.append((node[both], tree[both], asked[tree[both], level], left, -1))
        count += 2 * len(left)
        single, bit = ~both, np.int32(1 << level)
        tree = np.concatenate([tree[single], tree[both], tree[both]])
        answers = np.concatenate([answers[single] + bit * can[1][single], answers[both], answers[both] + bit])
        node = np.concatenate([node[single], left, left + 1])
    return _in_order(made, count, len(depth), leaf_values)


def _follows(asked: np.ndarray, questions: Questions) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each tree's last question, which answers to those before it decide it, as masks of bits.

    Args:
        asked: the questions so far, `[trees, levels]`.
        questions: all of them.

    Returns:
        `[trees, 2]`: yes is possible where all of the first answers are yes and none of the second ones.
        `[trees, 1]`: no is possible where none of these answers is yes.
    """
    before, last = asked[:, :-1], asked[:, -1:]
    kind, source, border = questions.kind, questions.source, questions.border
    same = (kind[before] == kind[last]) & (source[before] == source[last])
    one_hot = kind[last] == ONE_HOT
    lower = same & np.where(one_hot, border[before] == border[last], border[before] <= border[last])
    higher = same & np.where(one_hot, border[before] == border[last], border[before] >= border[last])
    other = same & one_hot & (border[before] != border[last])
    weight = np.int64(1) << np.arange(before.shape[1])
    masks = [np.where(which, weight, 0).sum(axis=1, dtype=np.int64) for which in (lower, other, higher)]
    return np.stack(masks[:2], axis=1), masks[2][:, None]


def _in_order(made: list[Any], count: int, trees: int, leaf_values: np.ndarray) -> Nodes:
    """Return nodes that were numbered level by level, tree by tree."""
    tree_of = np.zeros(count, dtype=np.int32)
    question, left, leaf = (np.full_like(tree_of, -1) for _ in range(3))
    while made:  # which frees them
        node, tree, asked, child, value = made.pop()
        tree_of[node], question[node], left[node], leaf[node] = tree, asked, child, value
    order = np.argsort(tree_of, kind="stable")
    sizes = np.bincount(tree_of, minlength=trees)
    place = np.empty_like(tree_of)
    place[order] = np.arange(count)
    place -= (np.cumsum(sizes) - sizes).astype(np.int32)[tree_of]  # of each node within its tree
    inner = left >= 0
    left, right = (np.where(inner, place[np.maximum(child, 0)], -1) for child in (left, np.where(inner, left + 1, 0)))
    leaf = leaf[order]
    values = leaf_values[leaf[leaf >= 0]]
    return Nodes(sizes, narrow(question[order]), narrow(left[order]), narrow(right[order]), values)


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
