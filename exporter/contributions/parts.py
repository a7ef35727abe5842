"""Parts of trees whose leaves are looked up together: what all of them contribute, for each pattern of a part.

The conditions of a part are those of the players above it, and those of its own splits. Several leaves have more
conditions together than each has alone, but need fewer numbers together: two leaves below one split have all others in
common. A part is therefore as much of a tree as takes no more numbers than its leaves alone. Symmetric trees ask so
little that a part is often a whole tree.

Conditions that most rows meet, or most do not meet, are the highest bits of a pattern. The patterns of rows that are
looked up together then lie in few lines of the cache.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from triton_regressors.exporter.contributions.conditions import (
    Conditions,
    TermArrays,
    asked_of,
    conditions_above,
    paths,
)
from triton_regressors.exporter.contributions.leaf_tables import leaf_tables
from triton_regressors.kernels.ops.trees.tree_contributions import TreeContributions
from triton_regressors.kernels.ops.trees.tree_ensemble import TreeEnsemble

BITS = 30
"""The bits of a table's numbers beside the sign; larger numbers are shifted."""


class Leaves(NamedTuple):
    """The leaves of trees, and what stands in for their players."""

    nodes: np.ndarray  # int64 [leaves]
    conditions: Conditions
    depth: np.ndarray  # int64 [leaves], the number of players
    chance: np.ndarray  # float64, the probability of each pattern, see `leaf_tables.py`
    starts: np.ndarray  # int64 [leaves + 1], where those of a leaf begin
    values: np.ndarray  # float64 [leaves, targets]


def tables_of_parts(trees: TreeEnsemble, players: np.ndarray, columns: int, leaves: Leaves) -> dict[str, Any]:
    """Return the fields of `TreeContributions` that hold parts, their conditions and their numbers.

    Args:
        trees: the trees.
        players: the player of each node; the number of columns for a constant.
        columns: the number of columns of the table.
        leaves: the leaves.
    """
    conditions, width = leaves.conditions, columns + 1
    split = _splits(trees)
    top = _tops(trees, players, columns, split)
    kept = np.flatnonzero((leaves.depth > 0) & leaves.values.any(axis=1))
    roots, part = np.unique(top[leaves.nodes[kept]], return_inverse=True)
    of_leaf = np.full(len(leaves.depth), -1)
    of_leaf[kept] = part

    above = conditions_above(trees, players, roots)
    outer = np.flatnonzero(above.player < columns)
    outer_firsts = outer[above.first[outer]]
    outer_number = np.cumsum(above.first[outer]) - 1
    inner = np.flatnonzero((trees.feature >= 0) & np.isin(top, roots))
    pair, number = np.unique(np.searchsorted(roots, top[inner]) * len(top) + split[inner], return_inverse=True)
    inside, kind = pair // len(top), pair % len(top)
    inside_number = np.zeros(len(top), dtype=np.int64)
    inside_number[inner] = len(outer_firsts) + number
    of_condition = np.concatenate([above.end[outer_firsts], inside])  # its part
    bits = np.bincount(of_condition, minlength=len(roots))

    one = np.flatnonzero(conditions.first & (conditions.player < columns) & (of_leaf[conditions.end] >= 0))
    leaf, player, slot = conditions.end[one], conditions.player[one], conditions.slot[one]
    member = of_leaf[leaf] * width + player
    named, number = np.unique(member, return_inverse=True)
    names = np.bincount(named // width, minlength=len(roots))  # how many players a part has
    rank = np.arange(len(named)) - np.searchsorted(named // width, named // width)
    deepest = int(leaves.depth.max(initial=0))
    places = np.zeros((len(of_leaf), deepest), dtype=np.int64)  # of a leaf's players among those of its part
    places[leaf, slot] = rank[number]

    key = above.end[outer_firsts] * width + above.player[outer_firsts]
    at = np.searchsorted(key, member)
    both = np.append(key, -1)[at] == member
    at = at[both]
    ends, node, child = paths(trees, leaves.nodes)
    own = (of_leaf[ends] >= 0) & (top[node] == top[leaves.nodes[ends]])
    ends, node, child = ends[own], node[own], child[own]
    of_split = slot[np.searchsorted(leaf * width + player, ends * width + players[node])]
    right = trees.child[node] != child

    of_leaves, met = _met(leaves), np.zeros(len(of_condition))
    np.maximum.at(met, at, of_leaves[leaf[both], slot[both]])
    weight = of_leaves[ends, of_split]
    rows, left = (np.bincount(inside_number[node], weight * which, len(met)) for which in (1.0, ~right))
    bit = _bits(of_condition, np.where(rows > 0, left / np.where(rows > 0, rows, 1.0), met))
    wrong = np.zeros((2, len(of_leaf), deepest), dtype=np.int64)  # conditions that must be met, and must not be met
    wrong[0, leaf[both], slot[both]] = 1 << bit[at]
    np.bitwise_or.at(wrong, (right.astype(np.int64), ends, of_split), 1 << bit[inside_number[node]])

    order = np.lexsort((names, bits))
    place = np.argsort(order)
    terms = above.terms.joined(
        TermArrays(
            trees.feature[kind],
            np.full(len(kind), np.nan, dtype=trees.threshold.dtype),
            trees.threshold[kind],
            trees.flags[kind],
            trees.sets,
        )
    )
    asked = asked_of(
        terms,
        place[np.concatenate([above.end[outer], inside])],
        bit[np.concatenate([outer_number, len(outer_firsts) + np.arange(len(kind))])],
        np.concatenate([outer, len(above.end) + np.arange(len(kind))]),
        len(roots),
    )
    listed = np.full((len(roots), int(names.max(initial=0))), columns, dtype=np.int32)
    listed[place[named // width], rank] = named % width
    numbers = _numbers(leaves, kept, place[part], bits[order], names[order], places, wrong)
    return {**asked, "players": listed, **_in_units(numbers, listed, columns, leaves.values.shape[1])}


def _met(leaves: Leaves) -> np.ndarray:
    """Return which part of drawn rows meets the condition of each player of a leaf, `[leaves, players]`."""
    found = np.zeros((len(leaves.depth), int(leaves.depth.max(initial=0))))
    for depth in np.unique(leaves.depth):
        own, pattern = np.flatnonzero(leaves.depth == depth), np.arange(1 << depth)
        met = ~pattern[:, None] >> np.arange(depth) & 1
        found[own, :depth] = leaves.chance[leaves.starts[own, None] + pattern] @ met
    return found


def _bits(part: np.ndarray, met: np.ndarray) -> np.ndarray:
    """Return the bit of each condition in the patterns of its part: the surer its answer, the higher.

    Args:
        part: the part of each condition.
        met: about which part of drawn rows meets it; digits that differ between machines decide nothing.
    """
    order = np.lexsort((np.abs(met - 0.5).round(6), part))
    bit = np.empty(len(order), dtype=np.int64)
    bit[order] = np.arange(len(order)) - np.searchsorted(part[order], part[order])
    return bit


def _splits(trees: TreeEnsemble) -> np.ndarray:
    """Return, for each inner node, the first node that decides alike about all rows; −1 for a leaf."""
    inner = np.flatnonzero(trees.feature >= 0)
    bits = np.ascontiguousarray(trees.threshold[inner]).view(f"i{trees.threshold.itemsize}").astype(np.int64)
    keys = np.stack([trees.feature[inner], trees.flags[inner], bits])
    _, first, same = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    found = np.full(len(trees.feature), -1)
    found[inner] = inner[first[same.ravel()]]
    return found


def _tops(trees: TreeEnsemble, players: np.ndarray, columns: int, split: np.ndarray) -> np.ndarray:
    """Return the top node of the part that each node belongs to; −1 for nodes above parts.

    Sets of players are the bits of whole numbers. A constant is in no part of several leaves: rows have no bit for it.
    """
    nodes, child, inner = len(split), trees.child.tolist(), (trees.feature >= 0).tolist()
    own = [1 << player if player < columns else 0 for player in players.tolist()]
    above, below, alone = [0] * nodes, [0] * nodes, [0] * nodes
    inside: list[frozenset[int] | None] = [frozenset()] * nodes  # the splits of a part; None if they are too many
    fits = [True] * nodes
    for node in range(nodes):
        if inner[node]:
            above[child[node]] = above[child[node] + 1] = above[node] | own[node]
    for node in reversed(range(nodes)):
        before = above[node].bit_count()
        if not inner[node]:
            alone[node] = before << before
            continue
        left, right = child[node], child[node] + 1
        below[node] = below[left] | below[right] | own[node]
        alone[node] = alone[left] + alone[right]
        of_left, of_right = inside[left], inside[right]
        splits = (
            None if of_left is None or of_right is None or not own[node] else of_left | of_right | {int(split[node])}
        )
        if splits is not None and before + len(splits) > TreeContributions.MOST:
            splits = None
        inside[node] = splits
        names = (above[node] | below[node]).bit_count()
        fits[node] = splits is not None and names << before + len(splits) <= alone[node]
    top = [-1] * nodes
    for node in range(nodes):
        if top[node] < 0 and fits[node]:
            top[node] = node
        if inner[node]:
            top[child[node]] = top[child[node] + 1] = top[node]
    return np.array(top)


def _numbers(
    leaves: Leaves,
    kept: np.ndarray,
    part: np.ndarray,
    bits: np.ndarray,
    names: np.ndarray,
    places: np.ndarray,
    wrong: np.ndarray,
) -> list[np.ndarray]:
    """Return what parts contribute, `[parts, targets, players, patterns]` for each number of conditions and players.

    Args:
        leaves: the leaves.
        kept: the leaves that contribute.
        part: the part of each of these.
        bits: the number of conditions of each part.
        names: the number of players of each part.
        places: the places of a leaf's players among those of its part, `[leaves, players]`.
        wrong: the conditions that must be met, and those that must not be met, `[2, leaves, players]`.
    """
    found = []
    targets = np.arange(leaves.values.shape[1])
    for conditions, players in np.unique(np.stack([bits, names]), axis=1).T.tolist():
        first, end = (np.flatnonzero((bits == conditions) & (names == players))[[0, -1]] + [0, 1]).tolist()
        total = np.zeros((end - first, len(targets), players, 1 << conditions))
        pattern = np.arange(1 << conditions)
        mine = (part >= first) & (part < end)
        for depth in np.unique(leaves.depth[kept[mine]]):
            chosen = np.flatnonzero(mine & (leaves.depth[kept] == depth))
            chosen = chosen[np.argsort(part[chosen], kind="stable")]
            leaf, own = kept[chosen], part[chosen] - first
            table = leaf_tables(leaves.chance[leaves.starts[leaf, None] + np.arange(1 << depth)])
            missed = np.zeros((len(leaf), len(pattern)), dtype=np.int64)  # the pattern of the leaf's players
            for slot in range(depth):
                met, unmet = wrong[:, leaf, slot, None]
                missed |= ((pattern & met | ~pattern & unmet) != 0).astype(np.int64) << slot
            rank = np.arange(len(own)) - np.searchsorted(own, own)
            for turn in range(int(rank.max()) + 1):  # no part is there twice in a turn
                now = np.flatnonzero(rank == turn)
                values = leaves.values[leaf[now], :, None]
                for slot in range(depth):
                    given = values * table[now[:, None], missed[now], slot][:, None]
                    total[own[now, None], targets, places[leaf[now], slot, None]] += given
        found.append(total)
    return found


def _in_units(numbers: list[np.ndarray], players: np.ndarray, columns: int, targets: int) -> dict[str, Any]:
    """Return the numbers in units of their outputs, such that no sum of a row's reaches 2⁵³, and their shifts."""
    largest, first = np.zeros((targets, columns + 1)), 0
    outputs = []
    for each in numbers:
        outputs.append(players[first : first + len(each), : each.shape[2]])
        first += len(each)
        most = np.abs(each).max(axis=3)
        for target, total in enumerate(largest):
            np.add.at(total, outputs[-1], most[:, target])
    exponent = np.maximum(np.frexp(largest)[1], -900) - 52  # so that the unit itself is a normal number
    whole, shifts = [np.zeros(0, dtype=np.int32)], [np.zeros(0, dtype=np.uint8)]
    for each, output in zip(numbers, outputs, strict=True):
        scaled = np.ldexp(each, -exponent[:, output].swapaxes(0, 1)[:, :, :, None])
        shift = np.maximum(np.frexp(np.abs(scaled).max(axis=3))[1] - BITS, 0)
        whole.append(np.rint(np.ldexp(scaled, -shift[..., None])).astype(np.int32).ravel())
        shifts.append(shift.astype(np.uint8).ravel())
    return {
        "table": np.concatenate(whole),
        "shift": np.concatenate(shifts),
        "unit": np.ldexp(1.0, exponent).ravel(),
    }
