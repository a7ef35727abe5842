"""Walks over trees for `path_contributions.py`: chunks of tips, and the steps of a walk through each chunk.

A chunk is a part of the tips of one tree that follow each other, with all nodes above them; what it gives does not
depend on other chunks, since contributions are linear in the values of leaves: those of other chunks count as 0. Tips
whose paths ask few players need few points of the rule, so that tips are first divided by the points that they need.

A walk closes the nodes of a chunk, children before their parent: it has `R` of one child and of the other, or of a tip,
and computes that of the node. `P` is not kept for every node: it is that of an anchor, times the factors on the way
from there, at most `WAY`. The root is an anchor, and so is each node from which the way to a node below, that is no
anchor and not below one, is `WAY` long. Where a walk enters an anchor, it puts `P` of the anchor above on a stack, and
has it again after it has closed the one below.

Where both children of a node are no tips, `R` of the one that is closed first goes to the stack.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .path_points import points_needed
from .path_tips import INNER, Tips, ratios_of, starts_of
from .preorder import Arranged

TIPS = 160
"""The most tips of a chunk."""

WAY = 2
"""The most factors from an anchor to a node."""

FEWEST_POINTS = 8
"""A GPU has no use for fewer points if any tip needs as many."""

POINTS_TOGETHER = 8
"""The most points that a thread of a GPU has registers for; walks of more are done in parts."""

ONE, TWO, ENTER, PUSH_P, POP_P = 1, 2, 4, 8, 16
"""Flags of a step: there are one or two factors or more; it enters an anchor; `P` goes to the stack, or comes back."""

PUSH_R, TIP, TIPS_ONLY, LEFT = 32, 64, 128, 256
"""Flags of a step: `R` goes to the stack; a child is a tip; both are; the first one in the sums is the left child.

That one is the child whose `R` is on the stack, or else the tip, or else the first child.
"""

FIRST_LEFT, SECOND_LEFT = 512, 1024
"""Flags of a step: the way from the anchor goes to the left at its first node, or at its second one."""

COUNT_BITS = 11
"""The bits before the number of the first tip's inner nodes, of two bits; that of the second tip follows."""

WORDS = 13
"""The numbers of a step, see `steps_of`."""


class Chunks(NamedTuple):
    """The nodes of chunks above tips that have the same number of points, `[pairs]` or `[chunks]`, chunk by chunk."""

    points: np.ndarray  # float64 [n], of the Gauss–Legendre rule from 0 to 1
    weights: np.ndarray  # float64 [n]
    own: np.ndarray  # bool [tips], the tips of the chunks
    start: np.ndarray  # int64 [chunks + 1], the first pair of each chunk, which is the root
    node: np.ndarray  # int64, in preorder
    child: np.ndarray  # int64 [2, pairs], the pairs of the first and second child, −1 for tips and other chunks
    tip: np.ndarray  # int64 [2, pairs], the tips; their number for what is no tip of the chunk


def chunks_of(trees: Arranged, tips: Tips, asks: np.ndarray, held: np.ndarray) -> list[Chunks]:
    """Return the chunks for each number of points.

    Args:
        trees: the nodes.
        tips: the tips.
        asks: bool `[nodes]`, whether a node is a leaf with a player and a value other than 0.
        held: float64 `[nodes]`, the absolute value of a leaf, relative to the largest one of its tree.
    """
    points = points_needed(trees, tips, asks, held, FEWEST_POINTS)
    return [_chunks(trees, tips, points == number, int(number)) for number in np.unique(points[points > 0])]


def _chunks(trees: Arranged, tips: Tips, own: np.ndarray, points: int) -> Chunks:
    """Return the chunks of some of the tips, `own`."""
    nodes, absent = len(trees.inner), len(own)
    held, tip_at = np.zeros(nodes, dtype=bool), np.full(nodes, absent)
    held[tips.node[own]], tip_at[tips.node[own]] = True, np.flatnonzero(own)
    tree = trees.tree[held]
    counts = np.bincount(tree)  # of each tree
    parts, first = -(-counts // TIPS), np.cumsum(counts) - counts
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
    below = np.stack([node + 1, node + 1 + trees.size[node + 1]])
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


class Order(NamedTuple):
    """The order of the steps of walks, `[pairs]` each, unless it says otherwise."""

    begin: np.ndarray  # int64, the step that enters an anchor, or else the first one of a child, or that of the node
    close: np.ndarray  # int64, the step that closes the node
    last: np.ndarray  # int64, which child is closed last; of nodes that have two
    forks: np.ndarray  # bool, whether a node has two children that are no tips
    anchor: np.ndarray  # bool
    entered: np.ndarray  # int64 [*], the anchors that are no roots
    parent: np.ndarray  # int64, the node above; of roots any
    above: np.ndarray  # int64, the anchor above; of roots any
    way: np.ndarray  # int64, how many factors are between the node and that one
    level: np.ndarray  # int64, how many anchors are above; the place of an anchor's `P` on the stack
    kept: np.ndarray  # int64, how many `R` are on the stack when the walk comes to the node


def order_of(trees: Arranged, chunks: Chunks) -> Order:
    """Return the order of the walks; the steps of all chunks follow each other."""
    child, depth, pairs = chunks.child, trees.depth[chunks.node], len(chunks.node)
    inner = child >= 0
    forks: np.ndarray = np.logical_and(*inner)
    levels = [np.flatnonzero(depth == each) for each in range(int(depth.max(initial=-1)) + 1)]
    forked, reach, count = forks.copy(), np.zeros(pairs, int), np.ones(pairs, int)
    anchor = depth == 0
    for own in reversed(levels):
        for side in range(2):
            some = own[inner[side, own]]
            below = child[side, some]
            forked[some] |= forked[below]
            reach[some] = np.maximum(reach[some], np.where(anchor[below], 1, reach[below] + 1))
            count[some] += count[below]
        anchor[own] |= reach[own] == WAY
        count[own] += anchor[own] & (depth[own] > 0)
    last = np.where(forked[child[1]] & ~forked[child[0]], 0, 1)
    begin, parent, above, way, level, kept = np.zeros((6, pairs), int)
    roots = chunks.start[:-1]
    begin[roots] = np.cumsum(count[roots]) - count[roots]
    for own in levels:
        start = begin[own] + (anchor[own] & (depth[own] > 0))
        for second in range(2):
            at_first = np.where(forks[own], 1 - last[own], np.where(inner[0, own], 0, 1))
            which = last[own] if second else at_first
            has = forks[own] if second else np.logical_or(*inner[:, own])
            some, below = own[has], child[which, own][has]
            begin[below], parent[below] = start[has], some
            start[has] += count[below]
            above[below] = np.where(anchor[some], some, above[some])
            way[below] = np.where(anchor[some], 0, way[some]) + 1
            level[below] = level[some] + anchor[some]
            kept[below] = kept[some] + second * forks[some]
    entered = np.flatnonzero(anchor & (depth > 0))
    return Order(begin, begin + count - 1, last, forks, anchor, entered, parent, above, way, level, kept)


def places_of(order: Order) -> tuple[int, int]:
    """Return how many places on the stack are for `P`, and then for `R`."""
    return int(order.level.max(initial=1)), int(order.kept.max(initial=0)) + 1


def steps_of(
    trees: Arranged, tips: Tips, chunks: Chunks, owner: np.ndarray, ratio_rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the steps of all walks, and the first one of each chunk and then their number.

    A step is int64 `[WORDS]`; where two numbers share a word, the first one has the lower 32 bits:

    - flags, and the number of the node among inner nodes
    - the nodes on the way from the anchor
    - the tips
    - the probabilities of the left and right child, float32, of the node, and then of those on the way
    - the row of ratios of the node, and its player
    - the rows of ratios of those on the way
    - where the entries of the tips begin
    - for each tip, the players of two of its inner nodes, and then of the third ones of both
    - the places on the stack of `P` and `R`

    The last step is followed by two empty ones.

    Args:
        trees: the nodes.
        tips: all tips.
        chunks: the chunks.
        owner: the player of each inner node.
        ratio_rows: the row of ratios of each inner node.
    """
    order, node = order_of(trees, chunks), chunks.node
    pair, enters = _pairs_of(order)
    way = np.where(enters | ~order.anchor[pair], order.way[pair], 0)
    second = order.parent[pair]  # the last node of the way, if there are two
    first = np.where(way == 2, order.parent[second], second)
    is_left = trees.left[node]
    flags = ENTER * enters + ONE * (way >= 1) + TWO * (way == 2) + SECOND_LEFT * is_left[pair]
    flags += FIRST_LEFT * is_left[np.where(way == 2, second, pair)]
    stack_flags, places = _stack_of(chunks, order, pair)

    in_tips, absent, pairs = chunks.child < 0, len(tips.node), np.arange(len(node))
    one = np.where(order.forks, 1 - order.last, np.where(in_tips[0], 0, 1))  # the child that is first in the sums
    ends = np.stack([chunks.tip[one, pairs], np.where(in_tips.all(axis=0), chunks.tip[1], absent)])[:, pair]
    ends = np.where(enters, absent, ends)
    one_left = trees.left[np.stack([node + 1, node + 1 + trees.size[node + 1]])][one, pairs]
    counts = np.append(tips.counts, 0)[ends]
    flags += (TIP * in_tips.any(axis=0) + TIPS_ONLY * in_tips.all(axis=0) + LEFT * one_left)[pair]
    flags += stack_flags + (counts[0] << COUNT_BITS) + (counts[1] << COUNT_BITS + 2)

    number, nodes = np.cumsum(trees.inner) - 1, len(owner)
    own, rows = number[node], ratio_rows.astype(np.int64)[number[node]]
    shares = np.stack([trees.share[node], 1 - trees.share[node]], axis=1).astype(np.float32).view(np.int64)[:, 0]
    players = np.append(np.where(tips.inner < 0, 0, owner[number[tips.inner]]), np.zeros((INNER, 1), int), axis=1)
    ways = _both(np.where(way >= 1, own[first], nodes), np.where(way == 2, own[second], nodes))
    words = [_both(flags, own[pair]), ways, _both(*ends), shares[pair], shares[first], shares[second]]
    words += [_both(rows[pair], owner[own][pair]), _both(rows[first], rows[second])]
    words += [_both(*starts_of(tips, chunks.own)[0][ends])]
    words += [_both(*players[:2, ends[0]]), _both(*players[:2, ends[1]]), _both(*players[2, ends]), places]
    after = np.zeros((2, WORDS), dtype=np.int64)
    after[:, :3] = _both(0, nodes), _both(nodes, nodes), _both(absent, absent)
    return np.append(np.stack(words, axis=1), after, axis=0), np.append(order.begin[chunks.start[:-1]], len(pair))


def _pairs_of(order: Order) -> tuple[np.ndarray, np.ndarray]:
    """Return the pair of each step, and whether it enters an anchor, and does not close it."""
    entered = order.entered
    pair = np.empty(len(order.close) + len(entered), dtype=np.int64)
    enters = np.zeros(len(pair), dtype=bool)
    pair[order.close], pair[order.begin[entered]] = np.arange(len(order.close)), entered
    enters[order.begin[entered]] = True
    return pair, enters


def _stack_of(chunks: Chunks, order: Order, pair: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the flags of steps that say what they do with the stack, and the words of its places."""
    flags, place, kept = np.zeros(len(pair), dtype=np.int64), np.zeros(len(pair), dtype=np.int64), order.kept[pair]
    entered = order.entered
    level = order.level[order.above[entered]]
    first = np.full(len(order.close), len(pair))  # of the anchors below an anchor
    np.minimum.at(first, order.above[entered], order.begin[entered])
    flags[first[first < len(pair)]] += PUSH_P
    place[order.begin[entered]] = level
    after = order.close[entered] + 1
    flags[after] += POP_P
    place[after] = level
    forks = np.flatnonzero(order.forks)
    after = order.close[chunks.child[1 - order.last[forks], forks]] + 1
    flags[after] += PUSH_R
    kept[after] = order.kept[forks]
    return flags, _both(place, places_of(order)[0] + kept)


def adds_of(trees: Arranged, tips: Tips, chunks: Chunks, owner: np.ndarray, columns: int) -> np.ndarray:
    """Return how often a walk adds to the sums of each player, int64 `[columns + 1]`, in one part of the rule."""
    number, inner = np.cumsum(trees.inner) - 1, tips.inner[:, chunks.own]
    node = np.append(chunks.node, inner[inner >= 0])
    return np.bincount(owner[number[node]], minlength=columns + 1)


def _both(low: np.ndarray | int, high: np.ndarray | int) -> np.ndarray:
    """Return words of two numbers of 32 bits."""
    found: np.ndarray = np.int64(low) | np.int64(high) << 32
    return found


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


def points_of_part(points: int) -> int:
    """Return how many points a part of a rule has, a multiple of 4."""
    return next(number for number in range(min(points, POINTS_TOGETHER), 0, -4) if points % number == 0)


def in_parts(numbers: np.ndarray) -> np.ndarray:
    """Return the numbers of each part of a rule, `[parts, ..., points of a part]`, from `[..., points]`."""
    parts = numbers.reshape(*numbers.shape[:-1], -1, points_of_part(numbers.shape[-1]))
    return np.ascontiguousarray(np.moveaxis(parts, -2, 0))
