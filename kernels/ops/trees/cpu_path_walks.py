"""Walks over chunks of trees in plain NumPy, level by level, with the bits of the kernel of `path_contributions.py`."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np
import torch

from .path_walks import Arranged, Chunks, points_of_part, rows_of_ratios

PAIRS = 3 * 2**10
"""The most nodes of chunks that are walked together, unless one chunk has more."""


class Walk(NamedTuple):
    """The nodes of some chunks: first those without an inner child, roots before others, then the others by depth."""

    weights: np.ndarray  # float64 [points, 1, 1], of the rule
    ratios: np.ndarray  # float64 [2, points, rows of ratios], `y` and `q`
    ratio: np.ndarray  # int32 [nodes], the row of ratios
    node: np.ndarray  # int64 [nodes], their numbers among inner nodes
    share: np.ndarray  # float64 [nodes, 1]
    owner: np.ndarray  # int64 [nodes, 1], the players
    parent: np.ndarray  # int64 [nodes]; of roots any
    by_left: np.ndarray  # bool [nodes, 1], whether they are left children
    roots: int  # how many roots have no inner child
    of_roots: np.ndarray  # float64 [parts, roots, 1], the sums of their P · q
    bare: int  # how many nodes have no inner child
    levels: list[slice]  # the nodes with an inner child, those of each depth
    ends: np.ndarray  # int64 [2, bare], the left and the right leaf
    below: np.ndarray  # int64 [2, nodes - bare], the left and the right child; the leaves below come after all nodes
    leaves: np.ndarray  # int64 [leaves below]


def walks_of(trees: Arranged, chunks: Chunks, owner: np.ndarray) -> list[Walk]:
    """Return the walks over groups of chunks; `owner` is that of each inner node."""
    found, first = [], 0
    table, row = rows_of_ratios(trees, chunks)
    ratios = np.ascontiguousarray(table.transpose(1, 2, 0))
    while first < len(chunks.start) - 1:
        begin = chunks.start[first]
        end = max(int(np.searchsorted(chunks.start, begin + PAIRS, side="right")) - 1, first + 1)
        found.append(_walk(trees, chunks, np.arange(begin, chunks.start[end]), owner, ratios, row))
        first = end
    return found


def _walk(
    trees: Arranged, chunks: Chunks, pairs: np.ndarray, owner: np.ndarray, ratios: np.ndarray, row: np.ndarray
) -> Walk:
    """Return the walk over some pairs of a chunk and a node; `row` is the row of ratios of each inner node."""
    node = chunks.node[pairs]
    swapped = ~trees.left[node + 1]
    child, leaf = (np.where(swapped, each[::-1, pairs], each[:, pairs]) for each in (chunks.child, chunks.leaf))
    depth, is_bare = trees.depth[node], (child < 0).all(axis=0)
    order = np.lexsort((depth, ~is_bare))
    place, count, bare = np.argsort(order), len(pairs), int(is_bare.sum())
    node, leaf, depth = node[order], leaf[:, order], depth[order]
    below = child[:, order[bare:]]
    outer = below < 0
    below = np.where(
        outer, count - 1 + np.cumsum(outer.ravel()).reshape(outer.shape), place[np.maximum(below - pairs[0], 0)]
    )
    parent, by_left = np.zeros(count, int), np.zeros((count, 1), bool)
    for side in range(2):
        mine = below[side][~outer[side]]
        parent[mine], by_left[mine] = bare + np.flatnonzero(~outer[side]), side == 0
    starts = bare + np.searchsorted(depth[bare:], np.arange(int(depth[bare:].max(initial=-1)) + 2))
    name, roots = (np.cumsum(trees.inner) - 1)[node], int(np.count_nonzero(depth[:bare] == 0))
    weights = chunks.weights[:, None, None]
    return Walk(
        weights=weights,
        ratios=ratios,
        ratio=row[name],
        node=name,
        share=trees.share[node][:, None],
        owner=owner[name][:, None].astype(np.int64),
        parent=parent,
        by_left=by_left,
        roots=roots,
        of_roots=_summed(weights * ratios[1][:, row[name[:roots]], None]),
        bare=bare,
        levels=[slice(*each) for each in itertools.pairwise(starts.tolist())],
        ends=leaf[:, :bare],
        below=below,
        leaves=leaf[:, bare:][outer],
    )


class Room(NamedTuple):
    """Memory for walks, used again and again: the system takes longer to give it than arithmetic to fill it."""

    parts: np.ndarray  # float64 [5, *]

    @staticmethod
    def of(walks: list[Walk], rows: int) -> Room:
        """Return the memory for any of these walks."""
        largest = max((len(walk.weights) * (len(walk.node) + len(walk.leaves)) for walk in walks), default=0)
        return Room(np.empty((5, largest * rows)))

    def part(self, number: int, *shape: int) -> np.ndarray:
        """Return an array of that shape in one of the parts."""
        found: np.ndarray = self.parts[number, : math.prod(shape)].reshape(shape)
        return found


def add_walk(walk: Walk, left: np.ndarray, known: np.ndarray, held: np.ndarray, sums: torch.Tensor, room: Room) -> None:
    """Add what some chunks give to whole numbers.

    Args:
        walk: the chunks.
        left: bool `[inner nodes, rows]`, whether a row goes to the left; true where `known` is not.
        known: bool `[inner nodes, rows]`, whether the row meets all that is asked above of the node's player.
        held: float64 `[targets, leaves + 1]`, the values of leaves in units of the output, and 0.
        sums: int64 `[targets, columns + 1, rows]`, contiguous.
        room: memory for a walk.
    """
    points, count, bare, roots, rows = len(walk.weights), len(walk.node), walk.bare, walk.roots, left.shape[1]
    goes, seen = left[walk.node], known[walk.node]
    away = np.where(goes, 1.0 - walk.share, walk.share)
    signed = np.where(goes, away, -away)
    met = goes[walk.parent] == walk.by_left
    y, q = (each.take(walk.ratio, axis=1)[..., None] for each in walk.ratios)
    y = np.maximum(y, 1.0 - seen, out=room.part(0, points, count, rows))

    deep = walk.levels[0].stop if walk.levels else bare  # the first node that has an inner child and is no root
    weight = room.part(1, points, count - bare, rows)  # P, and then P · q
    above = walk.parent[deep:] - bare
    factor = np.multiply(y[:, bare:], away[bare:], out=room.part(2, points, count - bare, rows))
    shape = (points, count - deep, rows)
    factor = np.take(factor, above, axis=1, out=room.part(3, *shape), mode="clip")  # "raise" would copy
    np.abs(np.subtract(met[deep:], factor, out=factor), out=factor)
    weight[:, : deep - bare] = walk.weights
    for own in walk.levels[1:]:
        mine, inner = factor[:, own.start - deep : own.stop - deep], slice(own.start - bare, own.stop - bare)
        product = weight.take(walk.parent[own] - bare, axis=1, mode="clip")
        np.multiply(product, mine, out=weight[:, inner])
    # The sums of P · q of the nodes without an inner child, from those of the nodes above with and without their y.
    above = walk.parent[roots:bare]
    product = np.multiply(weight.take(above - bare, axis=1, mode="clip"), q[:, roots:bare])
    whole = _summed(product)
    product *= y.take(above, axis=1, mode="clip")
    part = _summed(product) * away[above]
    ends = np.where(met[roots:bare], whole - part, part)
    if roots:
        ends = np.concatenate([np.broadcast_to(walk.of_roots, (len(ends), roots, rows)), ends], axis=1)
    weight *= q[:, bare:]
    y[:, bare:] *= signed[bare:]

    place = torch.from_numpy((walk.owner * rows + np.arange(rows)).ravel())
    total, given = room.part(2, points, count + len(walk.leaves), rows), room.part(3, points, count - bare, rows)
    gives = np.empty((len(ends), count, rows))
    for values, out in zip(held, sums, strict=True):
        one, two = values[walk.ends][..., None]
        between = signed[:bare] * (two - one)
        np.multiply(y[:, :bare], between, out=total[:, :bare])
        total[:, :bare] += np.where(goes[:bare], one, two)
        np.multiply(ends, between, out=gives[:, :bare])
        total[:, count:] = values[walk.leaves][:, None]
        for own in reversed(walk.levels):
            inner = slice(own.start - bare, own.stop - bare)
            one, two = room.part(4, 2, points, inner.stop - inner.start, rows)
            np.take(total, walk.below[0, inner], axis=1, out=one, mode="clip")
            np.take(total, walk.below[1, inner], axis=1, out=two, mode="clip")
            middle = np.where(goes[own], one, two)
            between = np.subtract(two, one, out=given[:, inner])
            np.add(np.multiply(y[:, own], between, out=two), middle, out=total[:, own])
        given *= weight
        np.multiply(_summed(given), signed[bare:], out=gives[:, bare:])
        whole = np.rint(gives, out=gives).sum(axis=0)
        whole *= seen
        out.view(-1).scatter_add_(0, place, torch.from_numpy(whole.astype(np.int64).ravel()))


def _summed(numbers: np.ndarray) -> np.ndarray:
    """Return sums over the points of each part, one point after the other, `[parts, nodes, rows]`."""
    together = points_of_part(len(numbers))
    parts = numbers.reshape(len(numbers) // together, together, *numbers.shape[1:])
    if numbers[0].size == 1:  # whose points follow each other in memory, where NumPy would add in another order
        parts = np.repeat(parts, 2, axis=2)
    found: np.ndarray = parts.sum(axis=1)[:, : numbers.shape[1]]
    return found
