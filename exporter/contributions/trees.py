"""Shapley values of trees: takes trees apart into leaves, and finds what stands in for a row's columns.

Players are the columns of the user's table; `conditions.py` says what a leaf asks of them.

Two games say what a player that is not in a coalition stands for. In the path-dependent game each split sends a part of
the rows to either side, the child's training weight over its parent's, whatever the other players are. In the
interventional game all players that are not in a coalition are those of one background row; the answer is the mean over
the background rows. `leaf_tables.py` has the mathematics, which is the same for both games: it needs the probability
of each pattern of met conditions.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import torch

from triton_regressors.exporter.contributions.conditions import Conditions, asked_of, changes, conditions_above
from triton_regressors.exporter.contributions.parts import Leaves, tables_of_parts
from triton_regressors.exporter.errors import ExportError
from triton_regressors.kernels.ops.trees.background_contributions import BackgroundContributions
from triton_regressors.kernels.ops.trees.nodes import MISSING_LEFT, leaf_starts
from triton_regressors.kernels.ops.trees.path_contributions import PathContributions
from triton_regressors.kernels.ops.trees.symmetric_trees import SymmetricTrees
from triton_regressors.kernels.ops.trees.terms import Terms
from triton_regressors.kernels.ops.trees.tree_contributions import LARGEST_TABLE, TreeContributions
from triton_regressors.kernels.ops.trees.tree_ensemble import TreeEnsemble

MOST_PLAYERS = TreeContributions.MOST
"""The most players of a leaf in tables, which have 2 to the power of their number lines for it."""

SOME_TABLES = 2**28
"""The most bytes of the tables of some trees, as those of `LARGEST_TABLE` are of all trees."""

PATTERNS_AT_ONCE = 2**22
"""The patterns of background rows that are counted together."""


def leaf_values(operation: TreeEnsemble | SymmetricTrees, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return what each leaf adds to weighted outputs, `[leaves, targets]`, and the constant beside the leaves.

    `weight` is `[outputs of the operation, targets]`.
    """
    values = operation.values.astype(np.float64)
    width = values.shape[1]
    if isinstance(operation, SymmetricTrees):
        trees, divisor, tree = (
            len(operation.depth),
            1.0,
            np.repeat(np.arange(len(operation.depth)), 1 << operation.depth),
        )
    else:
        trees, divisor, tree = len(operation.roots), operation.divisor, _tree_of_leaf(operation)
        if operation.output == "leaves":
            return weight, np.zeros(weight.shape[1])
        if operation.output == "each":
            return np.einsum("lw,lwt->lt", values, weight.reshape(trees, width, -1)[tree]), np.zeros(weight.shape[1])
    group = np.zeros(trees, dtype=np.int64)
    if len(operation.starts):
        group = np.searchsorted(operation.starts, np.arange(trees), side="right") - 1
    of_leaf = weight.reshape(-1, width, weight.shape[1])[group[tree]]  # [leaves, width, targets]
    constant = operation.baseline.astype(np.float64) @ weight
    return np.einsum("lw,lwt->lt", values, of_leaf) / divisor, constant / divisor


def _tree_of_leaf(trees: TreeEnsemble) -> np.ndarray:
    """Return the tree of each leaf, in the order of the leaves' values."""
    node, order = np.flatnonzero(trees.feature < 0), np.argsort(trees.roots, kind="stable")
    found = np.empty(len(node), dtype=np.int64)
    found[trees.child[node]] = order[np.searchsorted(trees.roots[order], node, side="right") - 1]
    return found


def tree_contributions(
    operation: TreeEnsemble | SymmetricTrees,
    values: np.ndarray,
    players: np.ndarray,
    columns: int,
    *,
    background: np.ndarray | None = None,
    cover: np.ndarray | None = None,
) -> list[TreeContributions | BackgroundContributions | PathContributions]:
    """Return operations whose sum is the Shapley values of a table's columns for the sum of trees.

    In the path-dependent game trees have tables if their leaves have few players, and are walked otherwise.

    A constant has the same value in all rows. In the interventional game it keeps the one of each background row, and
    in the path-dependent game it is averaged over, in all coalitions.

    A split that no training row reached sends half of the rows to either side. XGBoost 3.2 answers NaN there, and shap
    divides by 0; LightGBM and `sklearn` do not grow such nodes.

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
    owner = np.where(players < 0, columns, players)[trees.feature]  # of each node
    centred = values - _middles(trees, values)  # a number that all leaves of a tree have is no player's
    walked: list[PathContributions] = []
    if cover is not None:
        path = _by_paths(trees, centred, values, owner, columns, cover)
        depth = path.players_of_leaves()
        own = _have_tables(depth, _tree_of_leaf(trees), values.shape[1])
        if not own.all():
            _check_depth(depth, PathContributions.MOST)
            if not depth[own].any():
                return [path]
            some, chosen = _some_trees(trees, ~own)
            walked.append(_by_paths(some, centred[~own], values[~own], owner[chosen], columns, cover[chosen]))
            trees, chosen = _some_trees(trees, own)
            values, centred, owner, cover = values[own], centred[own], owner[chosen], cover[chosen]
    nodes = np.flatnonzero(trees.feature < 0)
    nodes = nodes[np.argsort(trees.child[nodes])]  # of each leaf
    conditions = conditions_above(trees, owner, nodes, cover)
    named = conditions.first & (conditions.player < columns)
    depth = np.bincount(conditions.end[named], minlength=len(values))
    common: dict[str, Any] = {"columns": columns, "rounding": trees.rounding}
    if background is not None and not _fit_tables(depth, values.shape[1]):
        _check_depth(depth, BackgroundContributions.MOST)
        kept = np.flatnonzero((depth > 0) & centred.any(axis=1))
        kept = kept[np.argsort(depth[kept], kind="stable")]
        found = _of_each_row(conditions, depth, background, trees.rounding)
        common["base"] = found.reached @ values
        starts, pairs = found.of_leaves(kept)
        fields = _fields_of_leaves(conditions, kept, columns)
        rows = {"starts": starts, "unmet": found.unmet[pairs], "counts": found.counts[pairs], "rows": len(background)}
        return [BackgroundContributions(**common, **fields, values=centred[kept], **rows)]
    if background is not None:
        chance, starts = _of_rows(conditions, depth, background, trees.rounding)
        common["base"] = chance[starts[:-1]] @ values
    else:
        share, constant = _shares(conditions, depth, columns)
        common["base"] = (constant * share.prod(axis=1)) @ values
        chance, starts = _chances(share, constant, depth)
    leaves = Leaves(nodes, conditions, depth, chance, starts, centred)
    return [TreeContributions(**common, **tables_of_parts(trees, owner, columns, leaves)), *walked]


def _by_paths(
    trees: TreeEnsemble, centred: np.ndarray, values: np.ndarray, owner: np.ndarray, columns: int, cover: np.ndarray
) -> PathContributions:
    """Return the operation that needs no tables, for the path-dependent game.

    Args:
        trees: the trees.
        centred: the values of leaves that are divided among players, `[leaves, targets]`.
        values: the values of leaves.
        owner: the player of each node; the number of columns for a constant.
        columns: the number of columns of the table.
        cover: the training weight at each node.
    """
    inner, reach = np.flatnonzero(trees.feature >= 0), np.zeros(len(cover))
    left = trees.child[inner]
    whole = cover[left] + cover[left + 1]
    share = np.zeros(len(cover))
    share[inner] = np.where(whole > 0, cover[left] / np.where(whole > 0, whole, 1.0), 0.5)
    level = trees.roots
    reach[level] = 1.0
    while len(level):
        level = level[trees.feature[level] >= 0]
        left = trees.child[level]
        reach[left], reach[left + 1] = reach[level] * share[level], reach[level] * (1 - share[level])
        level = np.concatenate([left, left + 1])
    leaf = trees.feature < 0
    return PathContributions(
        trees.feature,
        trees.threshold,
        trees.child,
        trees.flags,
        trees.sets,
        trees.roots,
        player=owner.astype(np.int32),
        share=share,
        values=centred,
        base=reach[leaf] @ values[trees.child[leaf]],
        columns=columns,
        rounding=trees.rounding,
    )


def _have_tables(depth: np.ndarray, tree: np.ndarray, targets: int) -> np.ndarray:
    """Return whether leaves are of trees that have tables, bool `[leaves]`.

    Args:
        depth: the number of players of each leaf.
        tree: the tree of each leaf.
        targets: how many targets there are.
    """
    size = np.bincount(tree, np.where(depth > MOST_PLAYERS, np.inf, 8.0 * targets * depth * 2.0**depth))
    order = np.argsort(size, kind="stable")
    whole = size[order].cumsum()
    fits = np.empty(len(size), dtype=bool)
    fits[order] = whole <= (LARGEST_TABLE if whole[-1] <= LARGEST_TABLE else SOME_TABLES)
    found: np.ndarray = fits[tree]
    return found


def _some_trees(trees: TreeEnsemble, leaves: np.ndarray) -> tuple[TreeEnsemble, np.ndarray]:
    """Return the trees of some leaves, bool `[leaves]`, which are all leaves of these trees, and the trees' nodes."""
    leaf = trees.feature < 0
    tree = np.searchsorted(np.sort(trees.roots), np.arange(len(leaf)), side="right")
    chosen = np.isin(tree, tree[leaf][leaves[trees.child[leaf]]])
    place, row = chosen.cumsum() - 1, leaves.cumsum() - 1
    child = np.where(leaf, row[np.where(leaf, trees.child, 0)], place[np.where(leaf, 0, trees.child)])
    arrays = {name: getattr(trees, name)[chosen] for name in ("feature", "threshold", "flags")}
    some = dataclasses.replace(
        trees,
        **arrays,
        child=child[chosen].astype(np.int32),
        roots=place[trees.roots[chosen[trees.roots]]].astype(np.int32),
        values=trees.values[leaves],
        starts=trees.starts[:0],
    )
    return some, chosen


def _check_depth(depth: np.ndarray, most: int) -> None:
    """Raise `ExportError` if a leaf has more players than an operation takes."""
    if (deepest := int(depth.max(initial=0))) > most:
        raise ExportError(
            f"a leaf of the trees depends on {deepest} columns, and contributions are answered for at most {most}"
        )


def _fields_of_leaves(conditions: Conditions, kept: np.ndarray, columns: int) -> dict[str, Any]:
    """Return the fields of `LeafPatterns` that say what some leaves ask for, each of them being a part."""
    place = np.full(int(conditions.end.max(initial=-1)) + 1, -1)
    place[kept] = np.arange(len(kept))
    asks = np.flatnonzero((conditions.player < columns) & (place[conditions.end] >= 0))
    part, slot = place[conditions.end[asks]], conditions.slot[asks]
    asked = asked_of(conditions.terms, part, slot, asks, len(kept))
    players = np.full((len(kept), asked["asked"].shape[1]), columns, dtype=np.int32)
    players[part, slot] = conditions.player[asks]
    return {**asked, "players": players}


def _fit_tables(depth: np.ndarray, targets: int) -> bool:
    """Return whether there can be tables of leaves of so many players."""
    few = int(depth.max(initial=0)) <= MOST_PLAYERS
    return few and 8 * targets * int((depth << depth).sum()) <= LARGEST_TABLE


class _Patterns(NamedTuple):
    """The patterns of background rows at each leaf, those of a leaf in ascending order, without rows that miss it."""

    starts: np.ndarray  # int64 [leaves + 1], the first pattern of each leaf, and their number
    unmet: np.ndarray  # int64 [patterns], a bit for each player that does not meet its conditions
    counts: np.ndarray  # int32 [patterns], of background rows
    reached: np.ndarray  # float64 [leaves], the share of background rows that reach a leaf

    def of_leaves(self, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return where the patterns of some leaves start, side by side, and the numbers of these patterns."""
        first, size = self.starts[kept], np.diff(self.starts)[kept]
        starts = np.append(0, size.cumsum())
        return starts, np.repeat(first - starts[:-1], size) + np.arange(starts[-1])


def _of_each_row(conditions: Conditions, depth: np.ndarray, background: np.ndarray, rounding: str) -> _Patterns:
    """Return the patterns that background rows have; rows whose constants do not meet a leaf never reach it.

    Raises:
        ExportError: they take too much memory.
    """
    rows, leaves = len(background), len(depth)
    found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    reached, size = np.zeros(leaves), 0
    bounds = np.searchsorted(conditions.end, np.arange(leaves + 1))
    at_once = max(PATTERNS_AT_ONCE // (rows * max(int(np.diff(bounds).max(initial=0)), 1)), 1)
    for start in range(0, leaves, at_once):
        stop = min(start + at_once, leaves)
        asks = slice(bounds[start], bounds[stop])
        pattern = np.zeros((stop - start, rows), dtype=np.int64)
        arrays = {name: array[asks] for name, array in conditions.terms._asdict().items() if name != "sets"}
        terms = Terms.of(*conditions.terms._replace(**arrays), rounding)
        unmet = terms.met(torch.from_numpy(background).to(terms.upper.dtype)).numpy() ^ 1
        own = conditions.end[asks] - start
        np.bitwise_or.at(pattern, own, unmet.astype(np.int64) << conditions.slot[asks, None])
        reached[start:stop] = (pattern == 0).mean(axis=1)
        leaf, row = np.nonzero(pattern >> depth[start:stop, None] == 0)
        keys = np.stack([leaf + start, pattern[leaf, row]])
        keys = keys[:, np.lexsort(keys[::-1])]
        first = np.flatnonzero(changes(*keys))
        counts = np.diff(np.append(first, keys.shape[1])).astype(np.int32)
        found.append((*keys[:, first], counts))
        size += 12 * len(first)
        if size > LARGEST_TABLE:
            raise ExportError(
                f"the patterns of {rows:,} background rows at {leaves:,} leaves take more than "
                f"{LARGEST_TABLE / 2**30:g} GiB; give fewer background rows"
            )
    leaf, patterns, counts = (np.concatenate(each) for each in zip(*found, strict=True))
    starts = np.append(0, np.bincount(leaf, minlength=leaves).cumsum())
    return _Patterns(starts, patterns, counts, reached)


def _of_rows(
    conditions: Conditions, depth: np.ndarray, background: np.ndarray, rounding: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return the share of background rows that have each pattern, and the start of each leaf's.

    A leaf has 2 to the power of its players of them. Further ones follow if it reads constants: those of rows whose
    constants do not meet it, which never reach it.
    """
    leaf, slot = conditions.end, conditions.slot
    bits = np.zeros(len(depth), dtype=np.int64)
    np.maximum.at(bits, leaf, slot + 1)
    starts = np.append(0, np.cumsum(1 << bits))
    counts = np.bincount(starts[:-1][bits == 0], minlength=starts[-1]) * len(background)
    if not len(leaf):
        return counts / len(background), starts
    terms = Terms.of(*conditions.terms, rounding)
    begin = np.flatnonzero(changes(leaf))
    rows = max(PATTERNS_AT_ONCE // len(leaf), 1)
    for start in range(0, len(background), rows):
        part = torch.from_numpy(background[start : start + rows]).to(terms.upper.dtype)
        unmet = (terms.met(part).numpy() ^ 1).astype(np.int32) << slot[:, None].astype(np.int32)
        pattern = np.bitwise_or.reduceat(unmet, begin, axis=0)  # [leaves that ask, rows]
        counts += np.bincount((starts[leaf[begin], None] + pattern).ravel(), minlength=len(counts))
    return counts / len(background), starts


def _shares(conditions: Conditions, depth: np.ndarray, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the part of the training weight that meets each player of a leaf, and that which meets the constants.

    The shares are `[leaves, most players]`, 1 past a leaf's last player; those of the constants are `[leaves]`.
    """
    share, constant = np.ones((len(depth), int(depth.max(initial=0)))), np.ones(len(depth))
    begin = np.flatnonzero(conditions.first)
    if len(begin):
        product = np.multiply.reduceat(conditions.share, begin)  # of a leaf and player
        leaf, slot, own = conditions.end[begin], conditions.slot[begin], conditions.player[begin] < columns
        share[leaf[own], slot[own]] = product[own]
        constant[leaf[~own]] = product[~own]
    return share, constant


def _chances(share: np.ndarray, constant: np.ndarray, depth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the probability of each pattern of independent players, and the start of each leaf's."""
    starts = np.append(0, np.cumsum(1 << depth))
    chance = np.empty(starts[-1])
    for players in np.unique(depth):
        leaves = np.flatnonzero(depth == players)
        found = constant[leaves, None]
        for met in share[leaves, :players].T[:, :, None]:
            found = np.concatenate([found * met, found * (1 - met)], axis=1)
        chance[starts[leaves, None] + np.arange(1 << players)] = found
    return chance, starts


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
