"""Decision trees two levels at a time: 16 bytes hold a node and its children.

A quad is a node, its two children and the link to its four grandchildren. A descent that visits quads waits for memory
half as often as one that visits nodes, and moves less data. Quads support neither missing numbers nor categories.

A quad is two int64, from the lowest bit: the node's threshold and its left child's, float32; the right child's
threshold, and 32 further bits. The lowest of these hold the three features, in that order. The bits above them hold the
distance, in groups, to the group of the grandchildren; a group is four consecutive quads. The highest bit is 0. A leaf
has its content in its first word, and −1 in its second. A child that is a leaf gets the question `x[0] > ∞`, so that
its quad is the first of its two.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .nodes import feature_bits


class Quads(NamedTuple):
    """The quads of several trees, each tree's groups in the order of their depth."""

    words: np.ndarray  # int64 [groups, 4, 2]
    roots: np.ndarray  # int32 [trees], the group whose first quad is the root

    @staticmethod
    def none() -> Quads:
        """Return the quads of no tree."""
        return Quads(np.zeros((0, 4, 2), dtype=np.int64), np.zeros(0, dtype=np.int32))


def pack_quads(
    feature: np.ndarray, threshold: np.ndarray, child: np.ndarray, roots: np.ndarray, held: np.ndarray
) -> Quads | None:
    """Return the trees as quads, or None if features and distances do not fit 31 bits together.

    Args:
        feature: int32 `[nodes]`, −1 at a leaf.
        threshold: float32 `[nodes]`.
        child: int32 `[nodes]`, the left child, followed by the right one; at a leaf its row of `held`.
        roots: int32 `[trees]`.
        held: int64 `[leaves]`, the content of the leaves.
    """
    inner, bits = feature >= 0, feature_bits(feature)
    first = np.full((len(roots), 4), -1)
    first[:, 0] = roots
    levels, trees = [first], [np.arange(len(roots))]
    while True:
        asks = (levels[-1] >= 0) & inner[levels[-1]]
        if not asks.any():
            break
        halves = _children(child, levels[-1][asks])  # [groups, 2]
        left = np.where(inner[halves], child[halves], halves)
        right = np.where(inner[halves], child[halves] + 1, -1)
        levels.append(np.stack([left, right], axis=2).reshape(-1, 4))
        trees.append(np.repeat(trees[-1], asks.sum(axis=1)))
    order = np.argsort(np.concatenate(trees), kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    node = np.concatenate(levels).ravel()
    asks = (node >= 0) & inner[node]
    distance = place[len(roots) :] - place[np.flatnonzero(asks) // 4]  # groups were appended in their parents' order
    if int(distance.max(initial=0)).bit_length() + 3 * bits > 31:
        return None
    words = np.full((len(node), 2), -1, dtype=np.int64)
    leaf = (node >= 0) & ~inner[node]
    words[leaf, 0] = held[child[node[leaf]]]
    halves = _children(child, node[asks])
    asked = np.where(inner[halves], feature[halves], 0).astype(np.int64)
    limits = np.where(inner[halves], threshold[halves], np.float32(np.inf)).view(np.uint32).astype(np.int64)
    high = distance << 3 * bits | asked[:, 1] << 2 * bits | asked[:, 0] << bits | feature[node[asks]]
    words[asks, 0] = limits[:, 0] << 32 | threshold[node[asks]].view(np.uint32)
    words[asks, 1] = high << 32 | limits[:, 1]
    return Quads(words.reshape(-1, 4, 2)[order], place[: len(roots)].astype(np.int32))


def _children(child: np.ndarray, node: np.ndarray) -> np.ndarray:
    return np.stack([child[node], child[node] + 1], axis=1)
