"""Walks over chunks of trees in plain NumPy, level by level, with the bits of the kernel of `path_contributions.py`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch

from .path_walks import Arranged, Chunks, rows_of_ratios

PAIRS = 2**12
"""The most nodes of chunks that are walked together, unless one chunk has more."""


class Level(NamedTuple):
    """The nodes of one depth in some chunks, those first that have no inner child.

    Those whose player was asked above, or is a constant, are in the middle: `again`.
    """

    node: np.ndarray  # int64 [nodes], their numbers among inner nodes
    share: np.ndarray  # float64 [nodes, 1]
    owner: np.ndarray  # int64 [nodes], the players
    bare: int  # how many have no inner child
    again: slice
    y: np.ndarray  # float64 [points, again, 1]
    q: np.ndarray  # float64 [points, again, 1]
    ends: np.ndarray  # int64 [2, bare], the left and the right leaf
    below: np.ndarray  # int64 [2, nodes - bare], the left and the right child in the next level, after it its leaves
    leaves: np.ndarray  # int64 [leaves], the children of the level above that are leaves
    parent: np.ndarray  # int64 [nodes], the parents in the level above
    by_left: np.ndarray  # bool [nodes, 1], whether they are left children


def levels_of(trees: Arranged, chunks: Chunks, owner: np.ndarray) -> list[list[Level]]:
    """Return the levels of groups of chunks, from the roots down; `owner` is that of each inner node."""
    number, found, first = np.cumsum(trees.inner) - 1, [], 0
    table, row = rows_of_ratios(trees, chunks)
    while first < len(chunks.start) - 1:
        begin = chunks.start[first]
        end = max(int(np.searchsorted(chunks.start, begin + PAIRS, side="right")) - 1, first + 1)
        found.append(_levels(trees, chunks, np.arange(begin, chunks.start[end]), number, owner, table, row))
        first = end
    return found


def _levels(
    trees: Arranged,
    chunks: Chunks,
    pairs: np.ndarray,
    number: np.ndarray,
    owner: np.ndarray,
    table: np.ndarray,
    row: np.ndarray,
) -> list[Level]:
    """Return the levels of some pairs of a chunk and a node."""
    node, first = chunks.node[pairs], pairs[0]
    one, two = chunks.child[:, pairs]
    swapped = ~trees.left[node + 1]
    child = np.where(swapped, [two, one], [one, two])
    leaf = np.where(swapped, chunks.leaf[::-1, pairs], chunks.leaf[:, pairs])
    bare, again = (child < 0).all(axis=0), trees.earlier[node] != -1
    depth, kind = trees.depth[node], np.where(bare, 0 + again, 3 - again)
    place, parent, by_left = np.zeros(len(pairs), int), np.zeros(len(pairs), int), np.zeros(len(pairs), bool)
    by_depth = []
    for level in range(depth.max() + 1):
        own = np.flatnonzero(depth == level)
        own = own[np.argsort(kind[own], kind="stable")]
        place[own] = np.arange(len(own))
        by_depth.append(own)
    found = []
    leaves = np.zeros(0, dtype=np.int64)
    for level, own in enumerate(by_depth):
        count = np.bincount(kind[own], minlength=4)
        inside, middle = int(count[:2].sum()), slice(int(count[0]), int(count[:3].sum()))
        rest, after = own[inside:], by_depth[level + 1] if level + 1 < len(by_depth) else own[:0]
        ours = child[:, rest]
        outer = ours < 0
        below = np.where(
            outer, len(after) - 1 + np.cumsum(outer.ravel()).reshape(outer.shape), place[np.maximum(ours - first, 0)]
        )
        for side in range(2):
            mine = ours[side][~outer[side]] - first
            parent[mine], by_left[mine] = np.flatnonzero(~outer[side]), side == 0
        ratios = table[row[number[node[own[middle]]]]].transpose(1, 2, 0)[..., None]
        names = number[node[own]]
        found.append(
            Level(
                node=names,
                share=trees.share[node[own]][:, None],
                owner=owner[names],
                bare=inside,
                again=middle,
                y=np.ascontiguousarray(ratios[0]),
                q=np.ascontiguousarray(ratios[1]),
                ends=leaf[:, own[:inside]],
                below=below,
                leaves=leaves,
                parent=parent[own],
                by_left=by_left[own][:, None],
            )
        )
        leaves = leaf[:, rest][outer]
    return found


class Room(NamedTuple):
    """Memory for walks, used again and again: the system takes longer to give it than arithmetic to fill it."""

    products: np.ndarray  # float64 [*], of all levels of a walk
    parts: np.ndarray  # float64 [5, *], each of a level

    @staticmethod
    def of(groups: list[list[Level]], points: int, rows: int) -> Room:
        """Return the memory for the walks of any of these groups."""
        largest = max(len(level.node) + len(level.leaves) for levels in groups for level in levels)
        nodes = max(sum(len(level.node) for level in levels) for levels in groups)
        return Room(np.empty(nodes * points * rows), np.empty((5, largest * points * rows)))

    def part(self, number: int, *shape: int) -> np.ndarray:
        """Return an array of that shape in one of the parts."""
        found: np.ndarray = self.parts[number, : math.prod(shape)].reshape(shape)
        return found


def walk(
    levels: list[Level],
    chunks: Chunks,
    left: np.ndarray,
    known: np.ndarray,
    held: np.ndarray,
    sums: torch.Tensor,
    room: Room,
) -> None:
    """Add what some chunks give to the whole numbers `[targets, columns + 1, rows]`.

    Args:
        levels: the levels of the chunks.
        chunks: all chunks with that number of points.
        left: bool `[inner nodes, rows]`, whether a row goes to the left; true where `known` is not.
        known: bool `[inner nodes, rows]`, whether the row meets all that is asked above of the node's player.
        held: float64 `[targets, leaves + 1]`, the values of leaves in units of the output, and 0.
        sums: int64.
        room: memory for a walk.
    """
    rows, y = left.shape[1], (1 - chunks.points)[:, None, None]
    points, start = len(y), 0
    signed: list[np.ndarray] = []
    chosen: list[np.ndarray] = []
    products: list[np.ndarray] = []
    factors = room.part(0, points, 0, rows)
    for level in levels:
        count = len(level.node)
        product = room.products[start : start + points * count * rows].reshape(points, count, rows)
        start += product.size
        goes = left[level.node]
        if products:
            parent = levels[len(products) - 1].bare + level.parent
            met = (chosen[-1][parent] == level.by_left).astype(np.float64)
            np.take(products[-1], parent, axis=1, out=product, mode="clip")  # "raise" would copy
            factor = np.take(factors, level.parent, axis=1, out=room.part(1, *product.shape), mode="clip")
            np.abs(np.subtract(met, factor, out=factor), out=factor)
            product *= factor
        else:
            product[:] = chunks.weights[:, None, None]
        products.append(product)
        away = np.where(goes, 1.0 - level.share, level.share)
        chosen.append(goes)
        signed.append(np.where(goes, away, -away))
        factors = room.part(0, points, count - level.bare, rows)
        _write_times_y(factors, level, slice(level.bare, count), y, known, away[level.bare :])
    for target, values in enumerate(held):
        total = room.part(0, points, 0, rows)
        for number in reversed(range(len(levels))):
            level, goes, sign, product = levels[number], chosen[number], signed[number], products[number]
            bare, count = level.bare, len(level.node)
            new = room.part(number % 2, points, count + len(level.leaves), rows)
            new[:, count:] = values[level.leaves][:, None]
            given = np.empty((count, rows))
            one, two = values[level.ends][..., None]
            between = sign[:bare] * (two - one)
            _write_times_y(new[:, :bare], level, slice(0, bare), y, known, between)
            new[:, :bare] += np.where(goes[:bare], one, two)
            _write_given(given, level, slice(0, bare), product, known, between, room)
            both = (room.part(2 + side, points, count - bare, rows) for side in range(2))
            one, two = (
                np.take(total, below, axis=1, out=each, mode="clip")
                for below, each in zip(level.below, both, strict=True)
            )
            middle = np.where(goes[bare:], one, two)
            between = np.subtract(two, one, out=two)
            between *= sign[bare:]
            _write_times_y(new[:, bare:count], level, slice(bare, count), y, known, between)
            new[:, bare:count] += middle
            _write_given(given, level, slice(bare, count), product, known, between, room)
            sums[target].index_add_(0, torch.from_numpy(level.owner), torch.from_numpy(given.astype(np.int64)))
            total = new


def _parts(level: Level, own: slice) -> Iterator[tuple[slice, slice | None]]:
    """Yield the parts of some of a level's nodes, and which of `again` they are; None if not any."""
    again = level.again
    for first, end in ((own.start, min(own.stop, again.start)), (max(own.start, again.stop), own.stop)):
        if first < end:
            yield slice(first, end), None
    first, end = max(own.start, again.start), min(own.stop, again.stop)
    if first < end:
        yield slice(first, end), slice(first - again.start, end - again.start)


def _write_times_y(
    out: np.ndarray, level: Level, own: slice, y: np.ndarray, known: np.ndarray, numbers: np.ndarray
) -> None:
    """Write y times numbers of some nodes, `[points, nodes, rows]`."""
    for part, again in _parts(level, own):
        mine = slice(part.start - own.start, part.stop - own.start)
        if again is None:
            np.multiply(y, numbers[..., mine, :], out=out[:, mine])
        else:
            factor = np.maximum(level.y[:, again], 1.0 - known[level.node[part]], out=out[:, mine])
            factor *= numbers[..., mine, :]


def _write_given(
    out: np.ndarray, level: Level, own: slice, product: np.ndarray, known: np.ndarray, between: np.ndarray, room: Room
) -> None:
    """Write what some nodes give, whole numbers `[nodes, rows]`."""
    for part, again in _parts(level, own):
        mine = between[..., part.start - own.start : part.stop - own.start, :]
        weight = product[:, part]
        found = room.part(4, *weight.shape)
        if again is not None:
            weight = np.multiply(weight, level.q[:, again], out=found)
        total = np.rint(np.multiply(weight, mine, out=found), out=found).sum(axis=0)
        out[part] = -total if again is None else np.where(known[level.node[part]], total, 0.0)
