"""Walks over chunks of trees in plain NumPy, level by level, with the bits of the kernel of `path_contributions.py`."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np
import torch

from .path_steps import first_in_sums, order_of
from .path_tips import INNER, Tips, starts_of
from .path_walks import Chunks, points_of_part, rows_of_ratios
from .preorder import Arranged

PAIRS = 3 * 2**10
"""The most nodes of chunks that are walked together, unless one chunk has more."""


class Walk(NamedTuple):
    """The nodes of some chunks above tips by depth, and the tips."""

    weights: np.ndarray  # float32 [points, 1, 1], of the rule
    ratios: np.ndarray  # float32 [2, points, rows of ratios], `y` and `q`
    ratio: np.ndarray  # int32 [nodes], the row of ratios
    node: np.ndarray  # int64 [nodes], their numbers among inner nodes
    shares: np.ndarray  # float32 [2, nodes, 1], the probability of the right and the left child
    levels: list[slice]  # the nodes of each depth
    parent: np.ndarray  # int64 [nodes + tips]; of roots any
    by_left: np.ndarray  # bool [nodes + tips, 1], whether they are left children
    below: np.ndarray  # int64 [2, nodes], the child that is first in sums, and the other; tips come after all nodes
    first_left: np.ndarray  # bool [nodes, 1], whether the first one is the left child
    tip: np.ndarray  # int64 [tips], those with inner nodes first, those with most of them at the start
    entry: np.ndarray  # int64 [tips, 1], where their entries begin
    patterns: np.ndarray  # int64 [tips, 1], how many patterns they have
    with_inner: list[int]  # how many tips have more inner nodes than 0, 1 and so on
    owner: (
        np.ndarray
    )  # int64 [nodes + inner nodes of tips, 1], the players; of tips all first ones, then all second ones
    table: np.ndarray  # float32 [targets, points, entries]


def walks_of(trees: Arranged, tips: Tips, chunks: Chunks, owner: np.ndarray, table: np.ndarray) -> list[Walk]:
    """Return the walks over groups of chunks; `owner` is that of each inner node."""
    found, first = [], 0
    swapped = first_in_sums(chunks, order_of(trees, chunks)) == 1
    ratios, row = rows_of_ratios(trees, chunks)
    ratios, table = (np.ascontiguousarray(np.moveaxis(each, -1, 1)) for each in (np.swapaxes(ratios, 0, 1), table))
    while first < len(chunks.start) - 1:
        begin = chunks.start[first]
        end = max(int(np.searchsorted(chunks.start, begin + PAIRS, side="right")) - 1, first + 1)
        pairs = np.arange(begin, chunks.start[end])
        found.append(_walk(trees, tips, chunks, pairs, swapped, owner, ratios, row, table))
        first = end
    return found


def _walk(
    trees: Arranged, tips: Tips, chunks: Chunks, pairs: np.ndarray, swapped: np.ndarray, owner: np.ndarray,
    ratios: np.ndarray, row: np.ndarray, table: np.ndarray,
) -> Walk:  # fmt: skip
    """Return the walk over some pairs of a chunk and a node.

    `swapped` is whether the second child of a pair is the first one in sums, and `row` the row of ratios of each inner
    node.
    """
    pairs = pairs[np.argsort(trees.depth[chunks.node[pairs]], kind="stable")]
    node, number = chunks.node[pairs], trees.number
    place = np.empty(int(pairs.max()) + 1, dtype=np.int64)
    place[pairs] = np.arange(len(pairs))
    swapped = swapped[pairs]
    child, tip = (np.where(swapped, each[::-1, pairs], each[:, pairs]) for each in (chunks.child, chunks.tip))
    first_left = trees.left[node + 1] != swapped
    side, parent = np.nonzero(child < 0)
    counts = np.append(tips.counts, 0)
    order = np.argsort(-counts[tip[side, parent]], kind="stable")
    side, parent = side[order], parent[order]
    own, below = tip[side, parent], place[np.maximum(child, pairs.min())]
    below[side, parent] = len(pairs) + np.arange(len(own))
    above, by_left = np.zeros(len(pairs) + len(own), dtype=np.int64), np.zeros((len(pairs) + len(own), 1), dtype=bool)
    for of in range(2):
        above[below[of]], by_left[below[of], 0] = np.arange(len(pairs)), first_left == (of == 0)
    depth = trees.depth[node]
    with_inner = [int(np.count_nonzero(counts[own] > most)) for most in range(INNER)]
    inner = [number[tips.inner[most, own[:few]]] for most, few in enumerate(with_inner)]
    small = np.minimum(trees.share[node], 1 - trees.share[node]).astype(np.float32)
    shares = np.where(trees.share[node] <= 0.5, [1 - small, small], [small, 1 - small])
    levels = np.searchsorted(depth, np.arange(int(depth[-1]) + 2)).tolist()
    return Walk(
        weights=chunks.weights.astype(np.float32)[:, None, None],
        ratios=ratios,
        ratio=row[number[node]],
        node=number[node],
        shares=shares[:, :, None],
        levels=[slice(*each) for each in itertools.pairwise(levels)],
        parent=above,
        by_left=by_left,
        below=below,
        first_left=first_left[:, None],
        tip=own,
        entry=starts_of(tips, chunks.own)[0][own][:, None],
        patterns=np.append(tips.patterns, 1)[own][:, None],
        with_inner=with_inner,
        owner=owner[np.concatenate([number[node], *inner])][:, None].astype(np.int64),
        table=table,
    )


class Room(NamedTuple):
    """Memory for walks, used again and again: the system takes longer to give it than arithmetic to fill it."""

    parts: np.ndarray  # float32 [4, *]

    @staticmethod
    def of(walks: list[Walk], rows: int) -> Room:
        """Return the memory for any of these walks."""
        largest = max((len(walk.weights) * (len(walk.node) + len(walk.tip)) for walk in walks), default=0)
        return Room(np.empty((4, largest * rows), dtype=np.float32))

    def part(self, number: int, *shape: int) -> np.ndarray:
        """Return an array of that shape in one of the parts."""
        found: np.ndarray = self.parts[number, : math.prod(shape)].reshape(shape)
        return found


def add_walk(
    walk: Walk, left: np.ndarray, known: np.ndarray, patterns: np.ndarray, sums: torch.Tensor, room: Room
) -> None:
    """Add what some chunks give to whole numbers.

    Args:
        walk: the chunks.
        left: bool `[inner nodes, rows]`, whether a row goes to the left; true where `known` is not.
        known: bool `[inner nodes, rows]`, whether the row meets all that is asked above of the node's player.
        patterns: int8 `[tips + 1, rows]`.
        sums: int64 `[targets, columns + 1, rows]`, contiguous.
        room: memory for a walk.
    """
    points, count, rows = len(walk.weights), len(walk.node), left.shape[1]
    everything, roots = len(walk.parent), walk.levels[0].stop
    goes, seen = left[walk.node], known[walk.node]
    away = np.where(goes, *walk.shares)
    row = np.where(seen, walk.ratio[:, None], 0)
    y, q = (np.take(each, row, axis=1, out=room.part(place, points, count, rows), mode="clip")
            for place, each in enumerate(walk.ratios))  # fmt: skip
    met = goes[walk.parent] == walk.by_left
    product = room.part(2, points, everything, rows)  # `P`
    factor = np.multiply(y, away, out=y)
    product[:, :roots] = walk.weights
    for own in [*walk.levels[1:], slice(count, everything)]:
        above = walk.parent[own]
        mine = factor.take(above, axis=1, mode="clip")
        np.abs(np.subtract(met[own], mine, out=mine), out=mine)
        np.multiply(product.take(above, axis=1, mode="clip"), mine, out=product[:, own])

    np.multiply(product[:, :count], q, out=q)
    to_first = goes == walk.first_left
    signed = np.where(to_first, -away, away)
    np.abs(np.subtract(to_first, factor, out=factor), out=factor)  # that of the first child
    entry = walk.entry + patterns[walk.tip]
    place = torch.from_numpy((walk.owner * rows + np.arange(rows)).ravel())
    total = room.part(3, points, everything, rows)
    parts = points // points_of_part(points)
    gives = np.empty((parts, len(walk.owner), rows))
    for table, out in zip(walk.table, sums, strict=True):
        np.take(table, entry, axis=1, out=total[:, count:], mode="clip")
        first = count
        for most, few in enumerate(walk.with_inner):
            numbers = table.take(entry[:few] + (1 + most) * walk.patterns[:few], axis=1, mode="clip")
            numbers *= product[:, count : count + few]
            gives[:, first : first + few] = _summed(numbers)
            first += few
        for own in reversed(walk.levels):
            one, other = (total.take(walk.below[place, own], axis=1, mode="clip") for place in range(2))
            between = np.subtract(one, other, out=one)
            np.multiply(factor[:, own], between, out=total[:, own])
            total[:, own] += other
            between *= q[:, own]
            np.multiply(_summed(between), signed[own], out=gives[:, own])
        whole = np.rint(gives, out=gives).sum(axis=0)
        out.view(-1).scatter_add_(0, place, torch.from_numpy(whole.astype(np.int64).ravel()))


def _summed(numbers: np.ndarray) -> np.ndarray:
    """Return sums over the points of each part, one point after the other, `[parts, nodes, rows]`."""
    together = points_of_part(len(numbers))
    parts = numbers.reshape(len(numbers) // together, together, *numbers.shape[1:])
    found: np.ndarray = parts[:, 0].copy()
    for point in range(1, together):
        found += parts[:, point]
    return found
