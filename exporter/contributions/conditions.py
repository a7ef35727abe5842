"""What trees ask of a row on the way to a node, as conditions of players.

Players are the columns of the user's table. All splits on the way to a node that read the same player are one condition
of that player: several splits of one column, and splits of several columns that an encoder made of it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from triton_regressors.kernels.ops.trees.nodes import CATEGORICAL, MISSING_LEFT
from triton_regressors.kernels.ops.trees.terms import MET_BY_MISSING
from triton_regressors.kernels.ops.trees.tree_ensemble import TreeEnsemble


class TermArrays(NamedTuple):
    """Terms, as `LeafPatterns` has them."""

    feature: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    flags: np.ndarray
    sets: np.ndarray

    def joined(self, other: TermArrays) -> TermArrays:
        """Return these terms and then the other ones."""
        moved = np.where(other.flags & CATEGORICAL > 0, other.upper + len(self.sets), other.upper)
        others = other._replace(upper=moved.astype(self.upper.dtype))
        return TermArrays(*(np.concatenate(each) for each in zip(self, others, strict=True)))


class Conditions(NamedTuple):
    """What is asked on the way to some nodes: a term for each node and feature, in the order of nodes and players."""

    end: np.ndarray  # int64 [terms], the number of the node
    player: np.ndarray  # int64 [terms], the number of columns for a constant
    first: np.ndarray  # bool [terms], whether it is the first one of its node and player
    slot: np.ndarray  # int64 [terms], the place of its player among those of its node
    share: np.ndarray  # float64 [terms], the part of the training weight; the product of a player's counts
    terms: TermArrays


def conditions_above(
    trees: TreeEnsemble, players: np.ndarray, ends: np.ndarray, cover: np.ndarray | None = None
) -> Conditions:
    """Return what is asked on the way to some nodes.

    Args:
        trees: the trees.
        players: the player of each node; the number of columns, which is more than all others, for a constant.
        ends: the nodes, int64.
        cover: the training weight at each node.
    """
    end, node, child = paths(trees, ends)
    feature, left = trees.feature[node].astype(np.int64), trees.child[node] == child
    categorical = trees.flags[node] & CATEGORICAL > 0
    order = np.lexsort((categorical, feature, players[node], end))
    end, node, child, feature, left, categorical = (
        each[order] for each in (end, node, child, feature, left, categorical)
    )
    new = changes(end, feature, categorical)  # features of one player follow each other
    starts = np.flatnonzero(new)
    threshold, dtype = trees.threshold[node], trees.threshold.dtype
    lower = np.where(left | categorical, dtype.type(np.nan), threshold)
    upper = np.where(left & ~categorical, threshold, dtype.type(np.inf))
    by_missing = (trees.flags[node] & MISSING_LEFT > 0) == left
    share = np.ones(len(node))
    if cover is not None:
        whole = cover[node]
        share = np.minimum(np.where(whole > 0, cover[child] / np.where(whole > 0, whole, 1.0), 0.5), 1.0)
    lower, upper, met, share = (
        how.reduceat(each, starts) if len(starts) else each
        for how, each in ((np.fmax, lower), (np.minimum, upper), (np.logical_and, by_missing), (np.multiply, share))
    )
    sets, kind = trees.sets[:0], categorical[starts]
    if kind.any():
        words = trees.sets[threshold[categorical].astype(np.int64)]
        words = np.where(left[categorical][:, None], words, ~words)
        words = np.bitwise_and.reduceat(words, np.flatnonzero(new[categorical]), axis=0)
        sets, number = np.unique(words, axis=0, return_inverse=True)
        upper[kind] = number.ravel()
    end, player = end[starts], players[node[starts]]
    first = changes(end, player)
    place = np.cumsum(first) - 1
    slot = place - place[np.searchsorted(end, end)]
    flags = (MET_BY_MISSING * met | CATEGORICAL * kind).astype(np.uint8)
    terms = TermArrays(feature[starts].astype(np.int32), lower, upper, flags, sets)
    return Conditions(end, player, first, slot, share, terms)


def paths(trees: TreeEnsemble, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the numbers of some nodes, each with each node above it and that node's child on the way, `[pairs]`."""
    inner = np.flatnonzero(trees.feature >= 0)
    parent = np.full(len(trees.feature), -1)
    parent[trees.child[inner]] = parent[trees.child[inner] + 1] = inner
    child, number = ends, np.arange(len(ends))
    found = [(number[:0], number[:0], number[:0])]
    while len(child):
        node = parent[child]
        below = node >= 0
        number, node, child = number[below], node[below], child[below]
        found.append((number, node, child))
        child = node
    return tuple(np.concatenate(each) for each in zip(*found, strict=True))  # type: ignore[return-value]


def asked_of(
    terms: TermArrays, part: np.ndarray, condition: np.ndarray, term: np.ndarray, parts: int
) -> dict[str, Any]:
    """Return the fields of `LeafPatterns` that say what parts ask for, without a term twice.

    Args:
        terms: the terms.
        part: int64 `[asks]`, the part that asks.
        condition: int64 `[asks]`, which of its conditions the term belongs to; a condition may have several terms.
        term: int64 `[asks]`, the number of the term.
        parts: the number of parts.
    """
    order = np.lexsort((condition, part))
    part, condition, term = part[order], condition[order], term[order]
    used = terms._replace(**{name: getattr(terms, name)[term] for name in terms._fields if name != "sets"})
    keys = [np.ascontiguousarray(each).view(f"i{each.itemsize}").astype(np.int64) for each in used[:-1]]
    order = np.lexsort(keys)
    new = changes(*(key[order] for key in keys))
    number = np.empty(len(order), dtype=np.int32)
    number[order] = np.cumsum(new) - 1
    first = changes(part, condition)
    asked = np.full((parts, int(condition.max(initial=-1)) + 1), -1, dtype=np.int32)
    asked[part[first], condition[first]] = number[first]
    others = np.stack([part[~first], condition[~first], number[~first]], axis=1).astype(np.int32)
    fields = {name: array[order[new]] for name, array in used._asdict().items() if name != "sets"}
    return fields | {"sets": terms.sets, "asked": asked, "others": others}


def changes(*keys: np.ndarray) -> np.ndarray:
    """Return whether an element differs from the one before in any of the keys; the first one does."""
    found = np.ones(len(keys[0]), dtype=bool)
    found[1:] = np.any([key[1:] != key[:-1] for key in keys], axis=0)
    return found
