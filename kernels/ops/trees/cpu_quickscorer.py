"""Decision trees on a CPU without descending: each feature rules out leaves, and the row's leaf remains.

The thresholds of a feature cut its numbers into cells, and within a cell every node that asks for the feature decides
alike. Number a tree's leaves from left to right: a node that sends a row to the right rules out the leaves of its left
side. The leftmost leaf that no node rules out is the row's leaf (Lucchese et al., QuickScorer, SIGIR 2015). A table
therefore holds, for each cell and tree, one bit for each leaf. A row's leaves are the conjunction of one line of the
table for each feature. This takes less time than descending if leaves are few and trees uneven, like those of boosting
on histograms.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from .nodes import CATEGORICAL, MISSING_LEFT, leaf_starts

LEAVES = 32
"""The bits of a line for one tree, and therefore the most leaves of a tree."""

TABLE_BYTES = 2**24
"""The most bytes of a table; trees that need more get several tables."""

SEARCH, LINE, STEP = 47.0, 0.5, 3.6
"""Nanoseconds to find a feature's cell, to process a tree in its line, and to take a step down a tree."""

WORDS_AT_ONCE = 2**15
"""Words of the table that are processed together, so that they stay in the cache."""


@dataclass(frozen=True)
class Cells:
    """The table of some trees.

    Args:
        used: the features that nodes ask for, int64 `[used]`.
        edges: the ends of their cells, ascending, `[used, edges]`, infinite past a feature's last.
        first: the line of each feature's first cell, int32 `[used, 1]`.
        missing: the line of its last cell, the one for NaN, int32 `[used, 1]`.
        table: bits of each line, int32 `[lines, trees]`.
        leaves: the number of each leaf, int32 `[trees · LEAVES]`.
        base: the start of each tree's leaves, minus the bias of a float32's exponent, int32 `[trees]`.
    """

    used: torch.Tensor
    edges: torch.Tensor
    first: torch.Tensor
    missing: torch.Tensor
    table: torch.Tensor
    leaves: torch.Tensor
    base: torch.Tensor

    def find_leaves(self, x: torch.Tensor) -> torch.Tensor:
        """Return the number of the leaf that each row reaches in each tree, int32 `[trees · rows]`.

        Args:
            x: `[rows, features]`, of the thresholds' dtype.
        """
        columns = x.T.index_select(0, self.used).contiguous()
        cell = torch.searchsorted(self.edges, columns, out_int32=True).add_(self.first)
        line = torch.minimum(cell, self.missing)  # [used, rows]
        trees = self.table.shape[1]
        at_once = max(WORDS_AT_ONCE // max(len(x) * trees, 1), 1)
        left: torch.Tensor | None = None
        for begin in range(0, len(line), at_once):
            lines = line[begin : begin + at_once]
            bits = self.table.index_select(0, lines.reshape(-1)).view(len(lines), len(x), trees)
            while len(bits) > 1:
                half = len(bits) // 2
                both = bits[:half] & bits[half : 2 * half]
                if len(bits) % 2:
                    both[0] &= bits[-1]
                bits = both
            left = bits[0] if left is None else left.bitwise_and_(bits[0])
        assert left is not None
        exponent = (left & -left).float().view(torch.int32) >> 23
        at = (exponent & 255).add_(self.base)
        return self.leaves.index_select(0, at.T.reshape(-1))


def build_cells(
    feature: np.ndarray,
    threshold: np.ndarray,
    child: np.ndarray,
    flags: np.ndarray,
    sets: np.ndarray,
    roots: np.ndarray,
    rounding: str = "trunc",
) -> list[Cells]:
    """Return the tables of trees in their order; an empty list if descending is faster or a tree has too many leaves.

    The arrays are those of a tree ensemble.
    """
    is_leaf = feature < 0
    if np.diff(leaf_starts(feature, roots)).max() > LEAVES or is_leaf.all():
        return []
    depth, tree = _depths(feature, child, roots)
    count = len(np.unique(feature[~is_leaf]))
    steps = (depth[is_leaf].mean() + depth.max()) / 2
    if count * (SEARCH + LINE * len(roots)) > STEP * steps * len(roots):
        return []
    lines = sum(len(np.unique(threshold[feature == f])) + 2 for f in np.unique(feature[~is_leaf]))
    parts = min(-(-4 * lines * len(roots) // TABLE_BYTES), len(roots))
    place, left_leaves = _left_leaves(feature, child, depth)
    found = []
    for trees in np.array_split(np.arange(len(roots)), parts):
        node = np.flatnonzero((tree >= trees[0]) & (tree <= trees[-1]) & ~is_leaf)
        leaf = np.flatnonzero((tree >= trees[0]) & (tree <= trees[-1]) & is_leaf)
        numbers = np.zeros((len(trees), LEAVES), np.int32)
        numbers[tree[leaf] - trees[0], place[leaf]] = child[leaf]
        used, edges, first, missing, table = _cells(
            feature[node],
            threshold[node],
            flags[node],
            sets,
            tree[node] - trees[0],
            left_leaves[node],
            len(trees),
            rounding,
        )
        base = torch.arange(len(trees), dtype=torch.int32) * LEAVES - 127
        found.append(Cells(used, edges, first, missing, table, torch.from_numpy(numbers.ravel()), base))
    return found


def _depths(feature: np.ndarray, child: np.ndarray, roots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each node's depth and the number of its tree."""
    depth, tree = np.zeros(len(feature), np.int64), np.zeros(len(feature), np.int64)
    node, tree[roots] = roots.astype(np.int64), np.arange(len(roots))
    while len(node := node[feature[node] >= 0]):
        for below in (child[node], child[node] + 1):
            depth[below], tree[below] = depth[node] + 1, tree[node]
        node = np.concatenate([child[node], child[node] + 1]).astype(np.int64)
    return depth, tree


def _left_leaves(feature: np.ndarray, child: np.ndarray, depth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each leaf's place in its tree, from left to right, and a mask of the leaves on a node's left, uint32."""
    levels = [np.flatnonzero((depth == level) & (feature >= 0)) for level in range(int(depth.max()))]
    count, place = np.ones(len(feature), np.int64), np.zeros(len(feature), np.int64)
    for node in reversed(levels):
        count[node] = count[child[node]] + count[child[node] + 1]
    for node in levels:
        place[child[node]] = place[node]
        place[child[node] + 1] = place[node] + count[child[node]]
    on_left = np.where(feature >= 0, count[np.where(feature >= 0, child, 0)], 0)
    return place, (((np.int64(1) << on_left) - 1) << place).astype(np.uint32)


def _cells(
    feature: np.ndarray,
    threshold: np.ndarray,
    flags: np.ndarray,
    sets: np.ndarray,
    tree: np.ndarray,
    left_leaves: np.ndarray,
    trees: int,
    rounding: str,
) -> tuple[torch.Tensor, ...]:
    """Return the features, edges, lines and bits of inner nodes."""
    used, categorical = np.unique(feature), flags & CATEGORICAL > 0
    last = 32 * sets.shape[1] - 1
    below = np.nextafter(np.arange(last + 1, dtype=threshold.dtype), threshold.dtype.type(-np.inf))
    if rounding == "trunc":
        below[0] = -1
    edges, tables = [], []
    for f in used:
        nodes = np.flatnonzero(feature == f)
        numeric, asking = nodes[~categorical[nodes]], nodes[categorical[nodes]]
        words = sets[np.unique(threshold[asking]).astype(np.int64)].view(np.uint32)
        turns = words ^ (words << np.uint32(1) | np.roll(words, 1, axis=1) >> np.uint32(31))  # changes between bits
        turn = np.unpackbits(np.bitwise_or.reduce(turns, axis=0).view(np.uint8), bitorder="little") > 0
        edge = np.unique(np.concatenate([threshold[numeric], below[turn]]))
        edges.append(edge)
        table = np.full((len(edge) + 2, trees), 2**32 - 1, np.uint32)
        past = np.searchsorted(edge, threshold[numeric]) + 1  # the first cell to the right
        np.bitwise_and.at(table, (past, tree[numeric]), ~left_leaves[numeric])
        np.bitwise_and.accumulate(table[:-1], axis=0, out=table[:-1])
        category = np.searchsorted(below, np.append(edge, np.inf)) - 1  # of each cell; −1 means none, like the last
        for node in asking:
            words = sets[int(threshold[node])].view(np.uint32)
            right = words[category >> 5] >> (category & 31).astype(np.uint32) & 1 == 0
            table[:-1, tree[node]][right] &= ~left_leaves[node]
        away = nodes[flags[nodes] & MISSING_LEFT == 0]
        np.bitwise_and.at(table[-1], tree[away], ~left_leaves[away])
        tables.append(table)
    widest = max(map(len, edges)) + 1  # one more, so that NaN's place comes after infinity's
    padded = np.full((len(used), widest), np.inf, threshold.dtype)
    for line, edge in zip(padded, edges, strict=True):
        line[: len(edge)] = edge
    ends = np.cumsum([len(table) for table in tables])
    first = np.append(0, ends[:-1])
    return (
        torch.from_numpy(used.astype(np.int64)),
        torch.from_numpy(padded),
        *(torch.from_numpy(lines.astype(np.int32)[:, None]) for lines in (first, ends - 1)),
        torch.from_numpy(np.concatenate(tables).view(np.int32)),
    )
