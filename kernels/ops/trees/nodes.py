"""Decision trees as arrays: the packing of nodes and leaves, and the descent in plain torch."""

from __future__ import annotations

import itertools

import numpy as np
import torch

from ...format.errors import PlanError

MISSING_LEFT = 1
"""Flag of a node: NaN goes to the left."""

CATEGORICAL = 2
"""Flag of a node: it asks whether a category is in its set."""

MOST_SETS = 2**24
"""The most sets of categories: thresholds in float32 name the sets and count no further."""

LEAVES_AT_ONCE = 2**16
"""Leaves converted to integers at a time, since the conversion takes as much memory again."""

ROUNDINGS = ("trunc", "floor")
"""The ways to round a number to a category: −0.5 is category 0 by the first, and no category by the second."""


def check_trees(
    feature: np.ndarray,
    threshold: np.ndarray,
    child: np.ndarray,
    flags: np.ndarray,
    sets: np.ndarray,
    roots: np.ndarray,
    features: int,
) -> None:
    """Raise `PlanError` unless every descent ends at a leaf of its own tree, and the arrays fit."""
    nodes, inner = len(feature), feature >= 0
    if {feature.shape, threshold.shape, child.shape, flags.shape} != {(nodes,)} or not nodes:
        raise PlanError("tree_ensemble: feature, threshold, child and flags must be [nodes], at least one.")
    if threshold.dtype not in (np.float32, np.float64):
        raise PlanError(f"tree_ensemble: threshold must be float32 or float64, not {threshold.dtype}.")
    if flags.dtype != np.uint8 or flags.max() > MISSING_LEFT | CATEGORICAL:
        raise PlanError(f"tree_ensemble: flags must be uint8 of at most {MISSING_LEFT | CATEGORICAL}.")
    if feature.min() < -1 or feature.max() >= features:
        raise PlanError(f"tree_ensemble: feature must lie in [-1, {features}).")
    if roots.ndim != 1 or not len(roots) or len(np.unique(roots)) < len(roots):
        raise PlanError("tree_ensemble: roots must be [trees], at least one and no two the same.")
    if roots.min() != 0 or roots.max() >= nodes:
        raise PlanError(f"tree_ensemble: roots must lie in [0, {nodes}), and node 0 must be one.")
    first = np.append(np.sort(roots), nodes).astype(np.int32)
    after = child > np.arange(nodes, dtype=np.int32)
    if not (after & (child < np.repeat(first[1:] - 1, np.diff(first))))[inner].all():
        raise PlanError("tree_ensemble: child must come after its parent, and another node of the tree after it.")
    starts = leaf_starts(feature, roots)
    leaf, held = child[~inner], np.diff(starts)
    if (held < 1).any() or (leaf < np.repeat(starts[:-1], held)).any() or (leaf >= np.repeat(starts[1:], held)).any():
        raise PlanError("tree_ensemble: child at a leaf must be a row of values, those in the order of the trees.")
    if sets.dtype != np.int32 or sets.ndim != 2 or not sets.shape[1] or sets.size >= 2**31 or len(sets) > MOST_SETS:
        raise PlanError(f"tree_ensemble: sets must be int32 [sets, words], at most {MOST_SETS} sets of 2**31 words.")
    chosen = threshold[inner & (flags & CATEGORICAL > 0)]
    if len(chosen) and not (chosen.min() >= 0 and chosen.max() < len(sets)):
        raise PlanError("tree_ensemble: threshold must be a row of sets where a node is categorical.")


def node_layout(feature: np.ndarray, threshold: np.ndarray, child: np.ndarray) -> tuple[bool, int]:
    """Return whether nodes must be wide, and the number of a feature's bits in a narrow node's high half."""
    distance = int((child - np.arange(len(child)))[feature >= 0].max(initial=0))
    bits = feature_bits(feature)
    fits = threshold.dtype == np.float32 and distance.bit_length() + bits <= 29
    return (False, bits) if fits else (True, 0)


def pack_nodes(
    feature: np.ndarray, threshold: np.ndarray, child: np.ndarray, flags: np.ndarray, wide: bool, feature_bits: int
) -> np.ndarray:
    """Return one int64 for each node; the module `tree_ensemble.py` documents its bits."""
    inner = feature >= 0
    high = np.where(inner, child - np.arange(len(child), dtype=np.int32), 0).astype(np.int64)
    if wide:
        low = np.where(inner, feature, child).astype(np.int32)
    else:
        low = np.where(inner, threshold.view(np.int32), child)
        categorical = inner & (flags & CATEGORICAL > 0)
        low[categorical] = threshold[categorical].astype(np.int32)
        high = high << feature_bits | np.where(inner, feature, 0)
    packed: np.ndarray = (high << 2 | flags) << 32 | low.view(np.uint32)
    return packed


def pack_plain(feature: np.ndarray, threshold: np.ndarray, child: np.ndarray, held: np.ndarray) -> np.ndarray:
    """Return one int64 for each node, for rows without missing numbers; empty if distances need too many bits.

    High half of a node: distance to the left child, feature, and 5 bits that are 0; low half: the float32 threshold. A
    leaf has the highest bit set, and its content in the others: its row of `held`, int64 and below 2⁶² in magnitude.
    The content therefore lies in the word that a descent loads anyway.
    """
    inner, bits = feature >= 0, feature_bits(feature)
    distance = (child - np.arange(len(child)))[inner]
    if int(distance.max(initial=0)).bit_length() + bits > 26:
        return np.zeros(0, dtype=np.int64)
    words = np.empty(len(feature), dtype=np.int64)
    words[inner] = (distance << bits | feature[inner]) << 37 | threshold[inner].view(np.uint32)
    words[~inner] = held[child[~inner]] | np.int64(-(2**63))
    return words


def feature_bits(feature: np.ndarray) -> int:
    """Return the number of bits of the largest feature index in the nodes."""
    return int(feature.max(initial=0)).bit_length()


def leaf_starts(feature: np.ndarray, roots: np.ndarray) -> np.ndarray:
    """Return how many leaves come before each tree's, in the order of the nodes, followed by the number of leaves."""
    counts = np.add.reduceat(feature < 0, np.sort(roots), dtype=np.int32)
    return np.append(np.int32(0), np.cumsum(counts, dtype=np.int32))


def depths(feature: np.ndarray, child: np.ndarray, roots: np.ndarray) -> np.ndarray:
    """Return the number of inner nodes above the deepest leaf of each tree, int32 `[trees]`."""
    depth, node, tree = np.zeros(len(roots), dtype=np.int32), roots, np.arange(len(roots))
    while True:
        asks = feature[node] >= 0
        if not asks.any():
            return depth
        depth[tree[asks]] += 1
        node, tree = child[node[asks]], tree[asks]
        node, tree = np.append(node, node + 1), np.append(tree, tree)


def integer_leaves(values: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return `values`, `[leaves, outputs]`, as int64 multiples of each output's unit, a power of two, and the units.

    A sum with one leaf of every tree is at most 2⁶²; the trees' leaves begin at `starts[:-1]`.
    """
    first, whole = starts[:-1], np.empty(values.shape, dtype=np.int64)
    largest = np.maximum(np.maximum.reduceat(values, first, axis=0), -np.minimum.reduceat(values, first, axis=0))
    exponent = np.maximum(np.frexp(largest.sum(axis=0))[1], -900) - 62  # so that the unit itself is a normal number
    for start in range(0, len(values), LEAVES_AT_ONCE):
        part = slice(start, start + LEAVES_AT_ONCE)
        whole[part] = np.rint(np.ldexp(values[part], -exponent))
    return whole, np.ldexp(1.0, exponent)


class Descent:
    """Trees in the form that plain torch descends. A leaf is its own left child, and sends no number to the right.

    The arrays are those of a tree ensemble.
    """

    def __init__(
        self,
        feature: np.ndarray,
        threshold: np.ndarray,
        child: np.ndarray,
        flags: np.ndarray,
        sets: np.ndarray,
        roots: np.ndarray,
        rounding: str = "trunc",
    ) -> None:
        self._rounding = rounding
        inner = feature >= 0
        arrays = {
            "feature": np.maximum(feature, 0),
            "threshold": np.where(inner, threshold, threshold.dtype.type(np.inf)),
            "left": np.where(inner, child, np.arange(len(child), dtype=np.int32)),
            "leaf": child,
            "away": inner & (flags & MISSING_LEFT == 0),
            "set": np.where(inner & (flags & CATEGORICAL > 0), threshold, -1).astype(np.int32)
            if len(sets)
            else child[:0],
            "sets": sets,
            "roots": roots.astype(np.int32),
        }
        self._arrays = {name: torch.from_numpy(np.require(array, requirements="W")) for name, array in arrays.items()}

    def find_leaves(self, x: torch.Tensor) -> torch.Tensor:
        """Return the number of the leaf that each row reaches in each tree, int32 `[trees · rows]`.

        Every lane takes a step at a time. When half of them have arrived, the others continue without these.

        Args:
            x: `[rows, features]`, of the thresholds' dtype.
        """
        arrays = self._arrays
        left, feature, threshold, roots = (arrays[name] for name in ("left", "feature", "threshold", "roots"))
        rows, columns = len(x), x.T.contiguous()
        numbers, special = columns.view(-1), len(arrays["sets"]) > 0 or bool(x.isnan().any())
        root = roots.repeat_interleave(rows)
        value = columns.index_select(0, feature.index_select(0, roots))
        right = value > threshold.index_select(0, roots)[:, None]
        if special:
            right = self._right_of_special(right.view(-1), value.view(-1), root)
        node = left.index_select(0, root).add_(right.view(-1))
        row = torch.arange(rows, dtype=torch.int32).repeat(len(roots))
        end, lane = node, None
        for step in itertools.count():
            below = left.index_select(0, node)
            if step % 2:
                going = below != node
                count = int(going.count_nonzero())
                if 2 * count < len(node) or not count:
                    if lane is None:
                        end = node
                    else:
                        end.index_copy_(0, lane, node)  # lanes that continue are overwritten later
                    if not count:
                        return arrays["leaf"].index_select(0, end)
                    there = going.nonzero().view(-1)
                    lane = there if lane is None else lane.index_select(0, there)
                    row, node, below = (values.index_select(0, there) for values in (row, node, below))
            value = numbers.index_select(0, feature.index_select(0, node).mul_(rows).add_(row))
            right = value > threshold.index_select(0, node)
            if special:
                right = self._right_of_special(right, value, node)
            node = below.add_(right)
        raise AssertionError

    def _right_of_special(self, right: torch.Tensor, value: torch.Tensor, node: torch.Tensor) -> torch.Tensor:
        """Return `right` with the decisions about NaN, and those of nodes that ask for a category."""
        sets = self._arrays["sets"]
        if len(sets):
            number, last = self._arrays["set"].index_select(0, node), 32 * sets.shape[1] - 1
            known = (value > -1 if self._rounding == "trunc" else value >= 0) & (value < last)
            category = torch.where(known, value, last).long()
            word = sets.view(-1).index_select(0, number.clamp_min(0).long() * sets.shape[1] + (category >> 5))
            right = torch.where(number >= 0, (word >> (category & 31)) & 1 == 0, right)
        return torch.where(value.isnan(), self._arrays["away"].index_select(0, node), right)
