"""The steps of walks through chunks of trees, as the kernel of `path_contributions.py` takes them.

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

from .path_tips import INNER, Tips, starts_of
from .path_walks import Chunks
from .preorder import Arranged

WAY = 2
"""The most factors from an anchor to a node; steps have flags and words for two."""

ONE, TWO, ENTER, PUSH_P, POP_P = 1, 2, 4, 8, 16
"""Flags of a step: there are factors; there are two; it enters an anchor; `P` goes to the stack, or comes back."""

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
    one_left = trees.left[trees.children(node)[one, pairs]]
    counts = np.append(tips.counts, 0)[ends]
    flags += (TIP * in_tips.any(axis=0) + TIPS_ONLY * in_tips.all(axis=0) + LEFT * one_left)[pair]
    flags += stack_flags + (counts[0] << COUNT_BITS) + (counts[1] << COUNT_BITS + 2)

    number, nodes = trees.number, len(owner)
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
    inner = tips.inner[:, chunks.own]
    node = np.append(chunks.node, inner[inner >= 0])
    return np.bincount(owner[trees.number[node]], minlength=columns + 1)


def _both(low: np.ndarray | int, high: np.ndarray | int) -> np.ndarray:
    """Return words of two numbers of 32 bits."""
    found: np.ndarray = np.int64(low) | np.int64(high) << 32
    return found
