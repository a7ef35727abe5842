"""Decision trees as arrays: the packing of nodes and leaves, and the descent of rows."""

from __future__ import annotations

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


def descend_rows(
    x: torch.Tensor,
    feature: np.ndarray,
    threshold: np.ndarray,
    child: np.ndarray,
    flags: np.ndarray,
    sets: np.ndarray,
    roots: np.ndarray,
    rounding: str,
) -> torch.Tensor:
    """Return the row of `values` that each row of `x` reaches in each tree, int64 `[rows, trees]`, node by node.

    The arrays are those of a tree ensemble.
    """
    limits, last = torch.tensor(threshold), 32 * sets.shape[1] - 1
    x, feature_of, left = x.to(limits.dtype), torch.tensor(feature).long(), torch.tensor(child).long()
    missing_left, categorical = (torch.tensor(flags & flag > 0) for flag in (MISSING_LEFT, CATEGORICAL))
    words = torch.tensor(sets)
    node = torch.tensor(roots).long().repeat(len(x), 1)
    while (inner := feature_of[node] >= 0).any():
        value = x.gather(1, feature_of[node].clamp(0))
        goes_left = value <= limits[node]
        if len(sets):
            whole = value.trunc() if rounding == "trunc" else value.floor()
            category = torch.where((whole >= 0) & (whole < last), whole, last).long()
            chosen = words[torch.where(categorical[node], limits[node], 0).long(), category // 32]
            goes_left = torch.where(categorical[node], chosen >> category % 32 & 1 == 1, goes_left)
        goes_left = torch.where(value.isnan(), missing_left[node], goes_left)
        node = torch.where(inner, left[node] + ~goes_left, node)
    return left[node]
