"""Shapley values of trees: takes trees apart into leaves, and finds what stands in for a row's columns.

Players are the columns of the user's table. All conditions on the way to a leaf that read the same player are one
condition of that player: several splits of one column, and splits of several columns that an encoder made of it.

Two games say what a player that is not in a coalition stands for. In the path-dependent game each split sends a part of
the rows to either side, the child's training weight over its parent's, whatever the other players are. In the
interventional game all players that are not in a coalition are those of one background row; the answer is the mean over
the background rows. `kernels/ops/trees/shapley_tables.py` has the mathematics, which is the same for both games: it
needs the probability of each pattern of met conditions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from triton_regressors.exporter.errors import ExportError
from triton_regressors.kernels.ops.trees.leaf_patterns import MET_BY_MISSING, Terms
from triton_regressors.kernels.ops.trees.nodes import CATEGORICAL, MISSING_LEFT, leaf_starts
from triton_regressors.kernels.ops.trees.path_contributions import PathContributions
from triton_regressors.kernels.ops.trees.shapley_tables import MOST_PLAYERS
from triton_regressors.kernels.ops.trees.symmetric_trees import SymmetricTrees
from triton_regressors.kernels.ops.trees.tree_contributions import (
    LARGEST_TABLE,
    TreeContributions,
)
from triton_regressors.kernels.ops.trees.tree_ensemble import TreeEnsemble

PATTERNS_AT_ONCE = 2**22
"""The patterns of background rows that are counted together."""


def tree_contributions(
    operation: TreeEnsemble | SymmetricTrees,
    values: np.ndarray,
    players: np.ndarray,
    columns: int,
    *,
    background: np.ndarray | None = None,
    cover: np.ndarray | None = None,
) -> TreeContributions | PathContributions:
    """Return the operation that answers the Shapley values of a table's columns for the sum of trees.

    A constant has the same value in all rows. In the interventional game it keeps the one of each background row, and
    in the path-dependent game it is averaged over, in all coalitions.

    A split that no training row reached sends half of the rows to either side, as XGBoost has it. CatBoost refuses
    leaves without weight, LightGBM and `sklearn` do not grow such nodes, and shap divides by 0.

    Symmetric trees ask their last question first, as CatBoost's own ShapValues have it; the order matters to the
    path-dependent game alone.

    Args:
        operation: the trees.
        values: float64 `[leaves, targets]`, what each leaf adds to each target.
        players: int `[width]`, the column of the table that each column of the operation's input comes from; −1 for a
            constant.
        columns: the number of columns of the table.
        background: float64 `[rows, width]`, the operation's input for the background rows; for the interventional game.
        cover: float64 `[nodes]`, or `[leaves]` of symmetric trees, the training weight; for the path-dependent game.

    Raises:
        ExportError: if a leaf depends on too many columns, or the numbers of all leaves take too much memory.
    """
    assert (background is None) != (cover is None)
    trees, cover = (operation, cover) if isinstance(operation, TreeEnsemble) else _as_nodes(operation, cover)
    conditions = _conditions(trees, np.where(players < 0, columns, players), cover)
    named = conditions.first & (conditions.player < columns)
    depth = np.bincount(conditions.leaf[named], minlength=len(values))
    if background is not None:
        _check_tables(depth, values.shape[1])
        chance, starts = _of_rows(conditions, depth, background)
        base = chance[starts[:-1]] @ values
    else:
        share, constant = _shares(conditions, depth, columns)
        base = (constant * share.prod(axis=1)) @ values
    centred = values - _middles(trees, values)  # a number that all leaves of a tree have is no player's
    kept = np.flatnonzero((depth > 0) & centred.any(axis=1))
    kept = kept[np.argsort(depth[kept], kind="stable")]
    asked, players, used = _shape(conditions, kept, depth, columns)
    own = depth[kept]
    leaves = {
        "feature": conditions.feature[used],
        "lower": conditions.lower[used],
        "upper": conditions.upper[used],
        "flags": conditions.flags[used],
        "player": conditions.player[used].astype(np.int32),
        "sets": conditions.sets,
        "asked": asked,
        "players": players,
        "values": centred[kept],
        "base": base,
        "columns": columns,
        "rounding": trees.rounding,
    }
    if background is not None:
        parts = [chance[first : first + (1 << number)] for first, number in zip(starts[kept], own, strict=True)]
        return TreeContributions(**leaves, chance=np.concatenate([np.zeros(0), *parts]))
    share, leaves["values"] = share[kept, : players.shape[1]], leaves["values"] * constant[kept, None]
    if not _fault(own, values.shape[1]):
        return TreeContributions(**leaves, chance=_chances(share, own))
    if own.max() > PathContributions.MOST:
        raise ExportError(
            f"A leaf of the trees depends on {own.max()} columns; contributions are answered for at most "
            f"{PathContributions.MOST}."
        )
    points, weights = np.polynomial.legendre.leggauss(-(-int(own.max()) // 2))
    return PathContributions(**leaves, share=share, points=(points + 1) / 2, weights=weights / 2)


class _Conditions(NamedTuple):
    """What leaves ask for: a condition for each leaf and feature that it reads, in the order of leaves and players."""

    leaf: np.ndarray  # int64 [conditions]
    player: np.ndarray  # int64 [conditions], the number of columns for a constant
    first: np.ndarray  # bool [conditions], whether it is the first one of its leaf and player
    slot: np.ndarray  # int64 [conditions], the place of its player among those of its leaf
    share: np.ndarray  # float64 [conditions], the part of the training weight; the product of a player's counts
    feature: np.ndarray  # these and the next are those of `TreeContributions`
    lower: np.ndarray
    upper: np.ndarray
    flags: np.ndarray
    sets: np.ndarray
    rounding: str


def _conditions(trees: TreeEnsemble, players: np.ndarray, cover: np.ndarray | None) -> _Conditions:
    """Return what the leaves ask for; `players` are those of the features."""
    leaf, node, child = _paths(trees)
    feature, left = trees.feature[node].astype(np.int64), trees.child[node] == child
    categorical = trees.flags[node] & CATEGORICAL > 0
    order = np.lexsort((categorical, feature, players[feature], leaf))
    leaf, node, child, feature, left, categorical = (
        each[order] for each in (leaf, node, child, feature, left, categorical)
    )
    changes = _changes(leaf, feature, categorical)  # features of one player follow each other
    starts = np.flatnonzero(changes)
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
        words = np.bitwise_and.reduceat(words, np.flatnonzero(changes[categorical]), axis=0)
        sets, number = np.unique(words, axis=0, return_inverse=True)
        upper[kind] = number.ravel()
    leaf, feature = leaf[starts], feature[starts]
    player = players[feature]
    first = _changes(leaf, player)
    place = np.cumsum(first) - 1
    slot = place - place[np.searchsorted(leaf, leaf)]
    flags = (MET_BY_MISSING * met | CATEGORICAL * kind).astype(np.uint8)
    own = (leaf, player, first, slot, share, feature.astype(np.int32), lower, upper, flags)
    return _Conditions(*own, sets, trees.rounding)


def _paths(trees: TreeEnsemble) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return each leaf with each node above it and that node's child on the way, int64 `[pairs]` each."""
    inner = np.flatnonzero(trees.feature >= 0)
    parent = np.full(len(trees.feature), -1)
    parent[trees.child[inner]] = parent[trees.child[inner] + 1] = inner
    child = np.flatnonzero(trees.feature < 0)
    leaf = trees.child[child].astype(np.int64)
    found = []
    while len(child):
        node = parent[child]
        below = node >= 0
        leaf, node, child = leaf[below], node[below], child[below]
        found.append((leaf, node, child))
        child = node
    return tuple(np.concatenate(each) for each in zip(*found, strict=True))  # type: ignore[return-value]


def _changes(*keys: np.ndarray) -> np.ndarray:
    """Return whether an element differs from the one before in any of the keys; the first one does."""
    changes = np.ones(len(keys[0]), dtype=bool)
    changes[1:] = np.any([key[1:] != key[:-1] for key in keys], axis=0)
    return changes


def _check_tables(depth: np.ndarray, targets: int) -> None:
    """Raise `ExportError` if tables of leaves of so many players are too large."""
    fault = _fault(depth, targets)
    if fault:
        raise ExportError(f"{fault} Limit the depth of the trees, or choose the path-dependent game.")


def _fault(depth: np.ndarray, targets: int) -> str:
    """Return why there can be no tables of leaves of so many players, or nothing if there can."""
    most = int(depth.max(initial=0))
    if most > MOST_PLAYERS:
        return f"A leaf of the trees depends on {most} columns; with a background it may depend on {MOST_PLAYERS}."
    size = 8 * targets * most * int((1 << depth).sum())
    if size > LARGEST_TABLE:
        return (
            f"The contributions of {len(depth):,} leaves of up to {most} columns would take {size / 2**30:.1f} GiB; "
            f"the most is {LARGEST_TABLE / 2**30:g} GiB."
        )
    return ""


def _of_rows(conditions: _Conditions, depth: np.ndarray, background: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the share of background rows that have each pattern, and the start of each leaf's.

    A leaf has 2 to the power of its players of them. Further ones follow if it reads constants: those of rows whose
    constants do not meet it, which never reach it.
    """
    leaf, slot = conditions.leaf, conditions.slot
    bits = np.zeros(len(depth), dtype=np.int64)
    np.maximum.at(bits, leaf, slot + 1)
    starts = np.append(0, np.cumsum(1 << bits))
    counts = np.bincount(starts[:-1][bits == 0], minlength=starts[-1]) * len(background)
    if not len(leaf):
        return counts / len(background), starts
    terms = Terms.of(
        *(getattr(conditions, name) for name in ("feature", "lower", "upper", "flags", "sets", "rounding"))
    )
    begin = np.flatnonzero(_changes(leaf))
    rows = max(PATTERNS_AT_ONCE // len(leaf), 1)
    for start in range(0, len(background), rows):
        part = torch.from_numpy(background[start : start + rows]).to(terms.upper.dtype)
        unmet = (terms.met(part).numpy() ^ 1).astype(np.int16) << slot[:, None].astype(np.int16)
        pattern = np.bitwise_or.reduceat(unmet, begin, axis=0)  # [leaves that ask, rows]
        counts += np.bincount((starts[leaf[begin], None] + pattern).ravel(), minlength=len(counts))
    return counts / len(background), starts


def _shares(conditions: _Conditions, depth: np.ndarray, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the part of the training weight that meets each player of a leaf, and that which meets the constants.

    The shares are `[leaves, most players]`, 1 past a leaf's last player; those of the constants are `[leaves]`.
    """
    share, constant = np.ones((len(depth), int(depth.max(initial=0)))), np.ones(len(depth))
    begin = np.flatnonzero(conditions.first)
    if len(begin):
        product = np.multiply.reduceat(conditions.share, begin)  # of a leaf and player
        leaf, slot, own = conditions.leaf[begin], conditions.slot[begin], conditions.player[begin] < columns
        share[leaf[own], slot[own]] = product[own]
        constant[leaf[~own]] = product[~own]
    return share, constant


def _chances(share: np.ndarray, depth: np.ndarray) -> np.ndarray:
    """Return the probability of each pattern of independent players, for leaves that ascend in their number of them."""
    found = [np.zeros(0)]
    for players in np.unique(depth):
        chance = np.ones((np.count_nonzero(depth == players), 1))
        for met in share[depth == players, :players].T[:, :, None]:
            chance = np.concatenate([chance * met, chance * (1 - met)], axis=1)
        found.append(chance.ravel())
    return np.concatenate(found)


def _shape(
    conditions: _Conditions, kept: np.ndarray, depth: np.ndarray, columns: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return `asked` and `players` of the kept leaves, and the conditions that are the terms, none of them twice."""
    place = np.full(len(depth), -1)
    place[kept] = np.arange(len(kept))
    mine = np.flatnonzero((conditions.player < columns) & (place[conditions.leaf] >= 0))
    leaf, first, slot = (getattr(conditions, name)[mine] for name in ("leaf", "first", "slot"))
    fields = [getattr(conditions, name)[mine] for name in ("player", "feature", "flags", "lower", "upper")]
    keys = [np.ascontiguousarray(each).view(f"i{each.itemsize}").astype(np.int64) for each in fields]
    order = np.lexsort(keys)
    new = _changes(*(key[order] for key in keys)) if len(order) else np.zeros(0, dtype=bool)
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.cumsum(new) - 1
    width = int(depth[kept].max(initial=0))
    later = np.cumsum(~first)
    begin = np.searchsorted(leaf, leaf)  # conditions are in the order of leaves
    later -= later[begin] - ~first[begin]  # the further conditions of the leaf so far
    column = np.where(first, slot, width + later - 1)
    asked = np.full((len(kept), int(column.max(initial=width - 1)) + 1), -1, dtype=np.int32)
    asked[place[leaf], column] = number
    players = np.full((len(kept), width), columns, dtype=np.int32)
    players[place[leaf[first]], slot[first]] = conditions.player[mine][first]
    return asked, players, mine[order[new]]


def _middles(trees: TreeEnsemble, values: np.ndarray) -> np.ndarray:
    """Return the middle of the values of each leaf's tree, `[leaves, targets]`.

    Without it the numbers of leaves are as small as can be, and so is the unit in which they are added up.
    """
    starts = leaf_starts(trees.feature, trees.roots)
    middle = (np.maximum.reduceat(values, starts[:-1]) + np.minimum.reduceat(values, starts[:-1])) / 2
    return np.repeat(middle, np.diff(starts), axis=0)


def _as_nodes(trees: SymmetricTrees, cover: np.ndarray | None) -> tuple[TreeEnsemble, np.ndarray | None]:
    """Return the same trees made of nodes, with the same leaves, and the training weight at each node."""
    parts: list[tuple[np.ndarray, ...]] = []
    nodes = leaves = asked = 0
    for depth in trees.depth.tolist():
        place = np.arange(1, 2 << depth)  # the children of node h are 2h and 2h + 1
        level = np.frexp(place)[1] - 1
        inner, leaf = place < 1 << depth, place - (1 << depth)
        questions = np.append(trees.asked[asked : asked + depth], 0)
        question = np.where(inner, questions[np.where(inner, depth - 1 - level, 0)], 0) if depth else np.zeros(1, int)
        weight = np.zeros(len(place) + 1)
        if cover is not None:
            weight[1 << depth :] = cover[leaves : leaves + (1 << depth)]
            for h in range(depth - 1, -1, -1):
                weight[1 << h : 2 << h] = weight[2 << h : 4 << h].reshape(-1, 2).sum(axis=1)
        feature, threshold, missing = (
            np.append(array, array.dtype.type(0))[question if len(array) else [0]]
            for array in (trees.feature, trees.threshold, trees.missing)
        )
        child = np.where(inner, nodes + 2 * place - 1, leaves + leaf)
        flags = np.where(inner & (missing == 0), MISSING_LEFT, 0)
        parts.append((np.where(inner, feature, -1), threshold, child, flags, weight[1:]))
        nodes, leaves, asked = nodes + len(place), leaves + (1 << depth), asked + depth
    feature, threshold, child, flags, weight = (np.concatenate(each) for each in zip(*parts, strict=True))
    sizes = (2 << trees.depth.astype(np.int64)) - 1
    found = TreeEnsemble(
        feature=feature.astype(np.int32),
        threshold=threshold.astype(trees.threshold.dtype),
        child=child.astype(np.int32),
        flags=flags.astype(np.uint8),
        sets=np.zeros((0, 1), dtype=np.int32),
        roots=np.append(0, np.cumsum(sizes)[:-1]).astype(np.int32),
        values=trees.values,
        baseline=trees.baseline,
    )
    return found, None if cover is None else weight
