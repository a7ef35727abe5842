"""The steps of walks through chunks of trees, as the kernel of `path_contributions.py` takes them.

A walk closes the nodes of a chunk, children before their parent: it has `R` of one child and of the other, or of a tip,
and computes that of the node. `P` is not kept for every node: it is that of an anchor, times the factors on the way
from there, at most `WAY`. The root is an anchor, and so is each node from which the way to a node below, that is no
anchor and not below one, is `WAY` long. Where a walk enters an anchor, it puts `P` on a stack.

Where both children of a node are no tips, `R` of the one that is closed first goes to the stack too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .path_tips import INNER, Tips, starts_of
from .path_walks import Chunks
from .preorder import Arranged

WAY = 2
"""The most factors from an anchor to a node; steps have flags and words for two."""

ONE, TWO, ENTER, PUSH = 1, 2, 4, 8
"""Flags of a step: there are factors; there are two; it enters an anchor, and does not close a node; `R` then goes to
the stack."""

TIP_BIT, TIP, TIPS_ONLY = 4, 16, 32
"""Flags of a step that closes a node: a child is a tip; both are."""

ASKED, LEFT, SMALL = 64, 128, 256
"""Flags of the node of a step: ratios are needed; the child that is first in the sums is the left one; the probability
in the record is that of the left child.

Ratios are needed of nodes that ask a constant, or a player that was asked above.
"""

FIRST, SECOND = 8, 64
"""These flags times `FIRST` are those of the first node on the way from the anchor, and times `SECOND` of the second
one. `LEFT` then says whether the way goes to the left."""

COUNT, COUNT_BITS = 15, 3
"""The bits before the number of the first tip's inner nodes, and how many bits that has; that of the second follows."""

WORDS, ANCHOR, SHARES, FLAGS, RATIO, PLACE, NUMBER = 16, 3, 4, 8, 9, 12, 14
"""The words of a step, and the first one of each kind, see `steps_of`."""

TIP_WORDS = 8
"""The words of a tip, see `tip_words`."""


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
    return int(order.level.max(initial=0)) + 1, int(order.kept.max(initial=0)) + 1


def first_in_sums(chunks: Chunks, order: Order) -> np.ndarray:
    """Return which child is the first one in sums, 0 or 1: what is on the stack, or else the tip, or else child 0."""
    return np.where(order.forks, 1 - order.last, np.where(chunks.child[0] < 0, 0, 1))


def steps_of(
    trees: Arranged, tips: Tips, chunks: Chunks, owner: np.ndarray, ratio_rows: np.ndarray, before: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the steps of all walks, the first one of each chunk and then their number, and the tips in their order.

    A step is int32 `[WORDS]`:

    - twice the numbers of the node and of those on the way from the anchor among inner nodes, and the place on the
      stack of `P` of the anchor
    - the smaller probabilities of the children, float32, of the node and of those on the way; and the player, or the
      place of `P` if the step enters an anchor
    - flags
    - the rows of ratios of the node and of those on the way
    - the places of `R` of the first child and of the node
    - the number of the first tip; the second one follows, and then those of later steps

    The last step is followed by two empty ones.

    Args:
        trees: the nodes.
        tips: all tips.
        chunks: the chunks.
        owner: the player of each inner node.
        ratio_rows: the row of ratios of each inner node.
        before: how many tips come before the first one.
    """
    order, node = order_of(trees, chunks), chunks.node
    pair, enters = _pairs_of(order)
    way = np.where(enters | ~order.anchor[pair], order.way[pair], 0)
    second = order.parent[pair]  # the last node of the way, if there are two
    first = np.where(way == 2, order.parent[second], np.where(way == 1, second, pair))
    second = np.where(way == 2, second, first)  # states that are loaded for nothing are those of a node that is loaded
    own, number = node[pair], trees.number
    push, places = _stack_of(chunks, order, pair, enters)
    flags = PUSH * push + ENTER * enters + ONE * (way >= 1) + TWO * (way == 2)

    in_tips, pairs = chunks.child < 0, np.arange(len(node))
    one = first_in_sums(chunks, order)
    has = ~enters & np.stack([in_tips.any(axis=0), in_tips.all(axis=0)])[:, pair]
    ends = np.stack([chunks.tip[one, pairs], chunks.tip[1]])[:, pair]
    counts = np.where(has, np.append(tips.counts, 0)[ends], 0)
    flags += TIP * has[0] + TIPS_ONLY * has[1] + (counts[0] << COUNT) + (counts[1] << COUNT + COUNT_BITS)
    left = trees.left[trees.children(node)[one, pairs]][pair]
    by_first = trees.left[node[np.where(way == 2, second, pair)]]
    flags += _flags_of(trees, own, left) + FIRST * _flags_of(trees, node[first], by_first)
    flags += SECOND * _flags_of(trees, node[second], trees.left[own])

    words = np.zeros((len(pair) + 2, WORDS), dtype=np.int32)
    ways = np.stack([own, node[first], node[second]])
    words[:-2, :3] = 2 * number[ways].T
    words[:, NUMBER] = before + np.append(np.cumsum(has.sum(axis=0)) - has.sum(axis=0), [has.sum(), has.sum()])
    share = trees.share[ways]
    words[:-2, SHARES : SHARES + 3] = np.minimum(share, 1 - share).astype(np.float32).view(np.int32).T
    words[:-2, SHARES + 3] = np.where(enters, places[1], owner[number[own]])
    words[:-2, FLAGS] = flags
    words[:-2, RATIO : RATIO + 3] = ratio_rows[number[ways]].T
    words[:-2, [ANCHOR, PLACE, PLACE + 1]] = places.T
    return words, np.append(order.begin[chunks.start[:-1]], len(pair)), ends.T[has.T]


def tip_words(trees: Arranged, tips: Tips, own: np.ndarray, some: np.ndarray, owner: np.ndarray) -> np.ndarray:
    """Return the words of `some` of the tips `own`, int32 `[some, TIP_WORDS]`.

    These are where their entries begin in the table, how many patterns they have, and the players of inner nodes.
    """
    found = np.zeros((len(some), TIP_WORDS), dtype=np.int32)
    inner = np.append(tips.inner, np.full((INNER, 1), -1), axis=1)[:, some]
    found[:, 0], found[:, 1] = starts_of(tips, own)[0][some], np.append(tips.patterns, 1)[some]
    found[:, 2 : 2 + INNER] = np.where(inner < 0, 0, owner[trees.number[inner]]).T
    return found


def _flags_of(trees: Arranged, node: np.ndarray, left: np.ndarray) -> np.ndarray:
    """Return the flags of nodes."""
    found: np.ndarray = ASKED * (trees.earlier[node] != -1) + LEFT * left + SMALL * (trees.share[node] <= 0.5)
    return found


def _pairs_of(order: Order) -> tuple[np.ndarray, np.ndarray]:
    """Return the pair of each step, and whether it enters an anchor, and does not close it."""
    entered = order.entered
    pair = np.empty(len(order.close) + len(entered), dtype=np.int64)
    enters = np.zeros(len(pair), dtype=bool)
    pair[order.close], pair[order.begin[entered]] = np.arange(len(order.close)), entered
    enters[order.begin[entered]] = True
    return pair, enters


def _stack_of(chunks: Chunks, order: Order, pair: np.ndarray, enters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return whether steps put `R` on the stack, and their places there, `[3, steps]`, see `steps_of`."""
    anchor = np.where(enters | ~order.anchor[pair], order.above[pair], pair)
    kept, push, own = places_of(order)[0] + order.kept, np.zeros(len(pair), dtype=bool), np.zeros(len(pair), dtype=int)
    forks = np.flatnonzero(order.forks)
    at_first = order.close[chunks.child[1 - order.last[forks], forks]]
    push[at_first], own[at_first] = True, kept[forks]
    return push, np.stack([order.level[anchor], np.where(enters, order.level[pair], kept[pair]), own])
