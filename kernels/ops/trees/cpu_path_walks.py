"""Walks over chunks of trees in plain NumPy, level by level, with the bits of the kernel of `path_contributions.py`."""

from __future__ import annotations

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


def walk(
    levels: list[Level],
    chunks: Chunks,
    left: np.ndarray,
    known: np.ndarray,
    held: np.ndarray,
    sums: torch.Tensor,
) -> None:
    """Add what some chunks give to the whole numbers `[targets, columns + 1, rows]`.

    Args:
        levels: the levels of the chunks.
        chunks: all chunks with that number of points.
        left: bool `[inner nodes, rows]`, whether a row goes to the left; true where `known` is not.
        known: bool `[inner nodes, rows]`, whether the row meets all that is asked above of the node's player.
        held: float64 `[targets, leaves + 1]`, the values of leaves in units of the output, and 0.
        sums: int64.
    """
    rows, y = left.shape[1], (1 - chunks.points)[:, None, None]
    signed: list[np.ndarray] = []
    chosen: list[np.ndarray] = []
    products: list[np.ndarray] = []
    product = np.broadcast_to(chunks.weights[:, None, None], (len(y), len(levels[0].node), rows))
    factors = np.zeros((len(y), 0, rows))
    for level in levels:
        if products:
            above = levels[len(products) - 1]
            met = (chosen[-1][above.bare + level.parent] == level.by_left).astype(np.float64)
            product = products[-1].take(above.bare + level.parent, axis=1)
            factor = factors.take(level.parent, axis=1)
            np.abs(np.subtract(met, factor, out=factor), out=factor)
            product *= factor
        products.append(product)
        goes = left[level.node]
        away = np.where(goes, 1.0 - level.share, level.share)
        chosen.append(goes)
        signed.append(np.where(goes, away, -away))
        factors = _times_y(level, slice(level.bare, None), y, known, away[level.bare :])
    for target, values in enumerate(held):
        total = np.zeros((len(y), 0, rows))
        for level, goes, sign, product in zip(levels[::-1], chosen[::-1], signed[::-1], products[::-1], strict=True):
            bare, count = level.bare, len(level.node)
            new = np.empty((len(y), count + len(level.leaves), rows))
            new[:, count:] = values[level.leaves][:, None]
            given = np.empty((count, rows))
            one, two = values[level.ends][..., None]
            between = sign[:bare] * (two - one)
            np.add(_times_y(level, slice(bare), y, known, between), np.where(goes[:bare], one, two), out=new[:, :bare])
            _give(level, slice(bare), product, known, between, given)
            one, two = (total.take(each, axis=1) for each in level.below)
            middle = np.where(goes[bare:], one, two)
            between = np.subtract(two, one, out=two)
            between *= sign[bare:]
            step = _times_y(level, slice(bare, None), y, known, between)
            np.add(step, middle, out=new[:, bare:count])
            _give(level, slice(bare, None), product, known, between, given)
            sums[target].index_add_(0, torch.from_numpy(level.owner), torch.from_numpy(given.astype(np.int64)))
            total = new


def _parts(level: Level, own: slice) -> Iterator[tuple[slice, slice | None]]:
    """Yield the parts of a level's nodes, and which of `again` they are; None if not any."""
    start, stop, _ = own.indices(len(level.node))
    again = level.again
    for first, end in ((start, min(stop, again.start)), (max(start, again.stop), stop)):
        if first < end:
            yield slice(first, end), None
    first, end = max(start, again.start), min(stop, again.stop)
    if first < end:
        yield slice(first, end), slice(first - again.start, end - again.start)


def _times_y(level: Level, own: slice, y: np.ndarray, known: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return y times numbers of some nodes, `[points, nodes, rows]`."""
    found = np.empty((len(y), *numbers.shape[-2:]))
    first = own.start or 0
    for part, again in _parts(level, own):
        mine = slice(part.start - first, part.stop - first)
        factor = y if again is None else np.maximum(level.y[:, again], 1.0 - known[level.node[part]])
        np.multiply(factor, numbers[..., mine, :], out=found[:, mine])
    return found


def _give(
    level: Level, own: slice, product: np.ndarray, known: np.ndarray, between: np.ndarray, given: np.ndarray
) -> None:
    """Write what some nodes give, whole numbers `[nodes, rows]`."""
    first = own.start or 0
    for part, again in _parts(level, own):
        mine = between[..., part.start - first : part.stop - first, :]
        weight = product[:, part] if again is None else product[:, part] * level.q[:, again]
        found = weight * mine
        total = np.rint(found, out=found).sum(axis=0)
        given[part] = -total if again is None else np.where(known[level.node[part]], total, 0.0)
