"""Chunks of trees, which `path_contributions.py` walks through.

A chunk is a part of the tips of one tree that follow each other, with all nodes above them; what it gives does not
depend on other chunks, since contributions are linear in the values of leaves: those of other chunks count as 0. Tips
whose paths ask few players need few points of the rule, so that tips are first divided by the points that they need.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .path_points import points_needed
from .path_tips import LEAVES, Tips, ratios_of, tips_of
from .preorder import Arranged

LARGEST_TABLES = 2**30
"""The most bytes of the tables of all tips."""

TIPS, FEWEST_TIPS, CHUNKS = 240, 8, 512
"""The most tips of a chunk, and how many of them are enough if there are as many chunks."""

FEWEST_POINTS = 8
"""A GPU has no use for fewer points if any tip needs as many."""

POINTS_TOGETHER = 8
"""The most points that a thread of a GPU has registers for; walks of more are done in parts."""


class Chunks(NamedTuple):
    """The nodes of chunks above tips that have the same number of points, `[pairs]` or `[chunks]`, chunk by chunk."""

    points: np.ndarray  # float64 [n], of the Gauss–Legendre rule from 0 to 1
    weights: np.ndarray  # float64 [n]
    own: np.ndarray  # bool [tips], the tips of the chunks
    start: np.ndarray  # int64 [chunks + 1], the first pair of each chunk, which is the root
    node: np.ndarray  # int64, in preorder
    child: np.ndarray  # int64 [2, pairs], the pairs of the first and second child, −1 for tips and other chunks
    tip: np.ndarray  # int64 [2, pairs], the tips; their number for what is no tip of the chunk


def fitting_tips(trees: Arranged, asks: np.ndarray, held: np.ndarray, targets: int) -> tuple[Tips, np.ndarray]:
    """Return the largest tips whose tables are not too large, and how many points each one needs.

    Args:
        trees: the nodes.
        asks: bool `[nodes]`, whether a node is a leaf with a player and a value other than 0.
        held: float64 `[nodes]`, the absolute value of a leaf, relative to the largest one of its tree.
        targets: the number of targets.
    """
    for most in range(LEAVES, 0, -1):
        tips = tips_of(trees, most)
        points = points_needed(trees, tips, asks, held, FEWEST_POINTS)
        if 4 * targets * int(((1 + tips.counts) * tips.patterns * points).sum()) <= LARGEST_TABLES:
            break
    return tips, points


def chunks_of(trees: Arranged, tips: Tips, points: np.ndarray) -> list[Chunks]:
    """Return the chunks for each number of points; `points` is that of each tip."""
    return [_chunks(trees, tips, points == number, int(number)) for number in np.unique(points[points > 0])]


def _chunks(trees: Arranged, tips: Tips, own: np.ndarray, points: int) -> Chunks:
    """Return the chunks of some of the tips, `own`."""
    nodes, absent = len(trees.inner), len(own)
    held, tip_at = np.zeros(nodes, dtype=bool), np.full(nodes, absent)
    held[tips.node[own]], tip_at[tips.node[own]] = True, np.flatnonzero(own)
    tree = trees.tree[held]
    counts = np.bincount(tree)  # of each tree
    most = min(max(len(tree) // CHUNKS, FEWEST_TIPS), TIPS)
    parts, first = -(-counts // most), np.cumsum(counts) - counts
    chunk = (np.cumsum(parts) - parts)[tree] + (np.arange(len(tree)) - first[tree]) * parts[tree] // counts[tree]
    before = np.append(0, np.cumsum(held))  # how many of the tips come before a node
    in_tip = np.zeros(nodes + 1, dtype=np.int64)
    np.add.at(in_tip, tips.node, 1)
    np.add.at(in_tip, tips.node + trees.size[tips.node], -1)
    node = np.flatnonzero(trees.inner & (np.cumsum(in_tip)[:-1] == 0))
    start, end = before[node], before[node + trees.size[node]]
    node, start, end = (each[end > start] for each in (node, start, end))
    low, high = chunk[start], chunk[end - 1]
    repeats = high - low + 1
    key = np.repeat(low * nodes + node, repeats) + nodes * (
        np.arange(repeats.sum()) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    )
    key.sort()
    in_chunk, node = key // nodes, key % nodes
    below = trees.children(node)
    at = np.minimum(np.searchsorted(key, in_chunk * nodes + below), len(key) - 1)
    mine = held[below] & (np.append(chunk, -1)[before[below]] == in_chunk)
    points_at, weights = np.polynomial.legendre.leggauss(points)
    return Chunks(
        points=(points_at + 1) / 2,
        weights=weights / 2,
        own=own,
        start=np.searchsorted(in_chunk, np.arange(parts.sum() + 1)),
        node=node,
        child=np.where(key[at] == in_chunk * nodes + below, at, -1),
        tip=np.where(mine, tip_at[below], absent),
    )


def rows_of_ratios(trees: Arranged, chunks: Chunks) -> tuple[np.ndarray, np.ndarray]:
    """Return `y` and `q` for all shares before nodes, float32 `[rows, 2, points]`, and the row of each inner node.

    The first row is for rows that are not known.
    """
    used = np.zeros(len(trees.inner), dtype=bool)
    used[chunks.node] = True
    share, row = np.unique(np.where(used, trees.before, 1.0)[trees.inner], return_inverse=True)
    table = np.stack(ratios_of(share, chunks.points), axis=1)
    unknown = np.broadcast_to([[1.0], [0.0]], (1, 2, len(chunks.points)))  # so that the node gives nothing
    return np.append(unknown, table, axis=0).astype(np.float32), 1 + row.ravel().astype(np.int32)


def points_left(chunks: Chunks) -> tuple[float, ...]:
    """Return 1 minus the points of the rule, as float32 numbers; none if it is in parts."""
    whole = points_of_part(len(chunks.points)) == len(chunks.points)
    return tuple((1 - chunks.points).astype(np.float32).tolist()) if whole else ()


def points_of_part(points: int) -> int:
    """Return how many points a part of a rule has, a multiple of 4."""
    return next(number for number in range(min(points, POINTS_TOGETHER), 0, -4) if points % number == 0)


def in_parts(numbers: np.ndarray) -> np.ndarray:
    """Return the numbers of each part of a rule, `[parts, ..., points of a part]`, from `[..., points]`."""
    parts = numbers.reshape(*numbers.shape[:-1], -1, points_of_part(numbers.shape[-1]))
    return np.ascontiguousarray(np.moveaxis(parts, -2, 0))
