"""Walks over trees for `path_contributions.py`: chunks of leaves, and the steps of a walk through each chunk.

Nodes are numbered in preorder, the child with more nodes first. A chunk is a part of the leaves of one tree that follow
each other, with all nodes above them; what it gives does not depend on other chunks, since contributions are linear in
the values of leaves: those of other chunks count as 0. Leaves whose paths ask few players need few points of the rule,
so that leaves are first divided by the points that they need.

A node is a cherry if both children are leaves, which is what children count as that have no leaf of the chunk. A walk
goes from a chunk's root over its inner nodes and back: one step goes down to each inner child that is no cherry, and
one closes the node and its cherry. The walk holds `P` and `R` of one node, and keeps those of the nodes above for its
return on a stack. A child with a cherry and a leaf is visited: one step closes it, and still holds `P` of the node.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

LEAVES = 192
"""The most leaves of a chunk."""

FEWEST_POINTS = 8
"""A GPU has no use for fewer points if any leaf needs as many."""

POINTS_TOGETHER = 12
"""The most points that a thread of a GPU has registers for; walks of more are done in parts."""

CHERRY, VISIT, FRESH, LEFT = 1, 2, 4, 8
"""Flags of a step: it closes a cherry; it visits a child; no node above has the node's player; a child is the left one.

That child is the one below, or the cherry, or else the one that is no leaf, or the first one. The first two flags add
up to the records that the step has after its own.
"""

POP_P, DOWN, PUSH_P, PUSH_R, ALONE = 16, 32, 64, 128, 256
"""Flags of a step: what goes to the stack and comes from it; it goes down; it closes its cherry, but not its node."""

CHERRY_FRESH, LEAF, VISITED_FRESH, VISITED_LEFT = 512, 1024, 2048, 4096
"""Flags of a step: `FRESH` of the cherry; a child is a leaf; `FRESH` and `LEFT` of the visited child."""

PLACE_BITS = 13
"""The bits before the node's place on the stack."""


class Arranged(NamedTuple):
    """The nodes of trees in preorder, `[nodes]` each."""

    node: np.ndarray  # int64, the node of the operation
    tree: np.ndarray  # int64
    size: np.ndarray  # int64, how many nodes a node is and has below it
    depth: np.ndarray  # int64
    inner: np.ndarray  # bool
    left: np.ndarray  # bool, whether it is a left child
    earlier: np.ndarray  # int64, the nearest node above of the same player; −1 for none, −2 at leaves and constants
    by_right: np.ndarray  # bool, whether the way from there is to the right
    share: np.ndarray  # float64, the probability of the left child
    before: np.ndarray  # float64, the product of the probabilities on the way, of this node's player
    players: np.ndarray  # int64, how many are asked above


class Chunks(NamedTuple):
    """The inner nodes of chunks that have the same number of points, `[pairs]` or `[chunks]`, chunk by chunk."""

    points: np.ndarray  # float64 [n], of the Gauss–Legendre rule from 0 to 1
    weights: np.ndarray  # float64 [n]
    start: np.ndarray  # int64 [chunks + 1], the first pair of each chunk
    node: np.ndarray  # int64, in preorder
    child: np.ndarray  # int64 [2, pairs], the pairs of the first and second child, −1 for leaves and other chunks
    leaf: np.ndarray  # int64 [2, pairs], the leaves of the operation; their number for what is no leaf of the chunk


def arranged(
    feature: np.ndarray, child: np.ndarray, roots: np.ndarray, player: np.ndarray, share: np.ndarray, columns: int
) -> Arranged:
    """Return the nodes in preorder; the arguments are fields of the operation."""
    nodes, levels = len(feature), [roots.astype(np.int64)]
    while len(asks := levels[-1][feature[levels[-1]] >= 0]):
        levels.append(np.concatenate([child[asks], child[asks] + 1]).astype(np.int64))
    inner = [level[feature[level] >= 0] for level in levels]
    size, depth, parent, left = np.ones(nodes, int), np.zeros(nodes, int), np.full(nodes, -1), np.zeros(nodes, bool)
    for own in reversed(inner):
        size[own] += size[child[own]] + size[child[own] + 1]
    place, tree = np.empty(nodes, int), np.empty(nodes, int)
    place[roots], tree[roots] = np.cumsum(size[roots]) - size[roots], np.arange(len(roots))
    for number, own in enumerate(inner):
        first = child[own] + (size[child[own]] < size[child[own] + 1])
        place[first], place[2 * child[own] + 1 - first] = place[own] + 1, place[own] + 1 + size[first]
        left[child[own]] = True
        for each in (child[own], child[own] + 1):
            parent[each], tree[each], depth[each] = own, tree[own], number + 1

    earlier, by_right = np.full(nodes, -2), np.zeros(nodes, bool)
    node = np.flatnonzero((feature >= 0) & (player < columns))
    earlier[node], below = -1, node
    while len(node):
        above = parent[below]
        node, below, above = (each[above >= 0] for each in (node, below, above))
        found = player[above] == player[node]
        earlier[node[found]], by_right[node[found]] = above[found], ~left[below[found]]
        node, below = node[~found], above[~found]
    before, players = np.ones(nodes), np.zeros(nodes, int)
    for own in inner:
        again = own[earlier[own] >= 0]
        above = earlier[again]
        before[again] = before[above] * np.where(by_right[again], 1 - share[above], share[above])
        players[child[own]] = players[child[own] + 1] = players[own] + (earlier[own] == -1)
    order = np.argsort(place)
    found = {"tree": tree, "size": size, "depth": depth, "left": left, "by_right": by_right, "before": before}
    return Arranged(
        node=order,
        inner=feature[order] >= 0,
        earlier=np.where(earlier >= 0, place[np.maximum(earlier, 0)], earlier)[order],
        share=share[order],
        players=players[order],
        **{name: array[order] for name, array in found.items()},
    )


def chunks_of(trees: Arranged, child: np.ndarray, given: np.ndarray) -> list[Chunks]:
    """Return the chunks for each number of points.

    Args:
        trees: the nodes.
        child: the operation's field, of whose leaves it is the number.
        given: bool `[leaves]`, whether a leaf has a value other than 0.
    """
    leaf = np.where(trees.inner, -1, child[trees.node])
    asks = (leaf >= 0) & (trees.players > 0) & given[leaf]
    fewest = np.maximum((trees.players + 1) // 2, 2)
    needed = 1 << np.ceil(np.log2(fewest)).astype(int)
    needed = np.where((needed >= 16) & (fewest <= needed * 3 // 4), needed * 3 // 4, needed)
    needed = np.maximum(needed, min(int(needed[asks].max(initial=1)), FEWEST_POINTS))
    return [_chunks(trees, leaf, asks & (needed == points), int(points)) for points in np.unique(needed[asks])]


def _chunks(trees: Arranged, leaf: np.ndarray, own: np.ndarray, points: int) -> Chunks:
    """Return the chunks of some of the leaves, `own`."""
    nodes, absent = len(own), np.count_nonzero(~trees.inner)
    counts = np.bincount(trees.tree[own])  # of each tree
    parts, first = -(-counts // LEAVES), np.cumsum(counts) - counts
    tree = trees.tree[own]
    chunk = (np.cumsum(parts) - parts)[tree] + (np.arange(len(tree)) - first[tree]) * parts[tree] // counts[tree]
    before = np.append(0, np.cumsum(own))  # how many of the leaves come before a node
    node = np.flatnonzero(trees.inner)
    start, end = before[node], before[node + trees.size[node]]
    node, start, end = (each[end > start] for each in (node, start, end))
    low, high = chunk[start], chunk[end - 1]
    repeats = high - low + 1
    key = np.repeat(low * nodes + node, repeats) + nodes * (
        np.arange(repeats.sum()) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    )
    key.sort()
    in_chunk, node = key // nodes, key % nodes
    below = np.stack([node + 1, node + 1 + trees.size[node + 1]])
    at = np.minimum(np.searchsorted(key, in_chunk * nodes + below), len(key) - 1)
    held = own[below] & (np.append(chunk, -1)[before[below]] == in_chunk)
    points_at, weights = np.polynomial.legendre.leggauss(points)
    return Chunks(
        points=(points_at + 1) / 2,
        weights=weights / 2,
        start=np.searchsorted(in_chunk, np.arange(parts.sum() + 1)),
        node=node,
        child=np.where(key[at] == in_chunk * nodes + below, at, -1),
        leaf=np.where(held, leaf[below], absent),
    )


class Kinds(NamedTuple):
    """Kinds of the children of a chunk's nodes, bool `[2, pairs]`, or of the nodes, bool `[pairs]`."""

    is_leaf: np.ndarray
    bare: np.ndarray  # of nodes: a cherry
    cherry: np.ndarray
    deep: np.ndarray  # neither leaf nor cherry
    small: np.ndarray  # of nodes: one of a cherry and a leaf
    visited: np.ndarray  # small
    entered: np.ndarray  # deep and not small; once a walk is back, it does not have `P` at hand


def kinds_of(chunks: Chunks) -> Kinds:
    """Return the kinds of children and nodes."""
    is_leaf = chunks.child < 0
    bare = np.all(is_leaf, axis=0)
    cherry = ~is_leaf & bare[chunks.child]
    deep = ~is_leaf & ~cherry
    small = ~bare & ~deep.any(axis=0) & is_leaf.any(axis=0)
    visited = deep & small[chunks.child]
    return Kinds(is_leaf, bare, cherry, deep, small, visited, deep & ~visited)


def places_of(trees: Arranged, chunks: Chunks) -> np.ndarray:
    """Return the place of each node's `P` on the stack; its `R` has the next place. A node without `P` has one less."""
    kinds, depth = kinds_of(chunks), trees.depth[chunks.node]
    free = np.zeros(len(depth), dtype=np.int64)  # the first free place
    has_p = kinds.entered.any(axis=0)
    for level in range(int(depth.max(initial=-1)) + 1):
        own = np.flatnonzero(depth == level)
        for side in range(2):
            inner = own[kinds.entered[side, own]]
            free[chunks.child[side, inner]] = free[inner] + 1 + (side == 1) * kinds.deep[0, inner]
    return free - ~has_p


def steps_of(
    trees: Arranged, chunks: Chunks, owner: np.ndarray, ratio_rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the records of all walks, their leaves, and the first of each chunk's, then the number of all.

    A step has a record of its node, then that of the child that it visits, and of the cherry that it closes; 3 empty
    records follow the last. A record is int64 `[4]`: flags and the node's number among inner nodes, of 32 bits each;
    the number of the next record's node; the share; the row of ratios and the player, of 32 bits each. Its leaves are
    int64 `[2]`: those of a cherry are the left and the right one, and a node has one, if a child is a leaf.

    Args:
        trees: the nodes.
        chunks: the chunks.
        owner: the player of each inner node.
        ratio_rows: the row of ratios of each inner node.
    """
    node, nodes, absent = chunks.node, len(owner), np.count_nonzero(~trees.inner)
    below = np.stack([node + 1, node + 1 + trees.size[node + 1]])
    is_leaf, bare, cherry, deep, small, visited, entered = kinds_of(chunks)
    pairs, root, place = np.arange(len(node)), trees.depth[node] == 0, places_of(trees, chunks)
    left, fresh = trees.left[below], trees.earlier[node] == -1

    # The child of the node that closes it with another one: its cherry, or else the one that is no leaf, or the first.
    one = np.where(cherry.any(axis=0), cherry[1], is_leaf[0]).astype(int)
    one_left, one_child = left[one, pairs], chunks.child[one, pairs]
    end = 2 * (node + trees.size[node])
    to_first = LEFT * left[0] + FRESH * fresh
    to_second = LEFT * left[1] + FRESH * fresh + PUSH_R * deep[0] + POP_P * entered[0]
    of_small = VISIT + VISITED_LEFT * one_left[chunks.child] + VISITED_FRESH * fresh[chunks.child]
    close = LEFT * one_left + FRESH * fresh + CHERRY * cherry.any(axis=0) + LEAF * is_leaf.any(axis=0)
    close += POP_P * np.where(deep[1], entered[1], entered[0])
    steps = [
        (entered[0], to_first + DOWN + PUSH_P, 2 * below[0] + 1, pairs),
        (visited[0], to_first + of_small[0], 2 * below[0] + 1, chunks.child[0]),
        (entered[1], to_second + DOWN + PUSH_P * ~entered[0], 2 * below[1] + 1, pairs),
        (visited[1], to_second + of_small[1], 2 * below[1] + 1, chunks.child[1]),
        (cherry.all(axis=0), to_first + CHERRY + ALONE, end, chunks.child[0]),
        (bare & root, np.full(len(node), CHERRY + ALONE + LEFT), end, pairs),
        (~bare & (~small | root), close, end, one_child),
    ]
    pair = np.concatenate([pairs[own] for own, *_ in steps])
    flags, time, child = (np.concatenate([step[k][step[0]] for step in steps]) for k in (1, 2, 3))
    chunk = np.repeat(np.arange(len(chunks.start) - 1), np.diff(chunks.start))
    order = np.lexsort((-node[pair], time, chunk[pair]))
    pair, flags, child = pair[order], flags[order], child[order]

    visits, more = (flags & VISIT) > 0, flags & (CHERRY | VISIT)
    start, count = np.cumsum(1 + more) - (1 + more), len(pair) + int(more.sum())
    of = np.empty(count, dtype=np.int64)  # the pair of each record
    of[start], of[start[more > 0] + 1], of[start[visits] + 2] = pair, child[more > 0], one_child[child[visits]]
    last = np.where(visits, one_child[child], child)
    flags += CHERRY_FRESH * (fresh[last] & (more > 0))
    number = (np.cumsum(trees.inner) - 1)[node]
    records = np.zeros((count + 3, 4), dtype=np.int64)
    records[:count, 0] = number[of] << 32
    records[start, 0] |= (place[pair] << PLACE_BITS | flags) & (1 << 32) - 1
    records[: count - 1, 1] = number[of[1:]]
    records[:count, 2] = trees.share[node].view(np.int64)[of]
    records[:count, 3] = ratio_rows[number[of]] | owner[number[of]].astype(np.int64) << 32
    # A cherry that is a root is below a node of which no row is known, and from which all rows go to the left.
    above = start[bare[pair]]
    records[above, 0] = nodes << 32 | records[above, 0] & (1 << 32) - 1
    records[above, 2:] = np.float64(1.0).view(np.int64), 0
    leaves = np.full((count + 3, 2), absent)
    ends = np.where(left[0], chunks.leaf, chunks.leaf[::-1])
    leaves[:count] = np.where(bare, ends, np.where(is_leaf[0], chunks.leaf[0], chunks.leaf[1])).T[of]
    return records, leaves, np.searchsorted(chunk[of], np.arange(len(chunks.start)))


def rows_of_ratios(trees: Arranged, chunks: Chunks) -> tuple[np.ndarray, np.ndarray]:
    """Return `y` and `q` for all shares before nodes, `[rows, 2, points]`, and the row of each inner node."""
    used = np.zeros(len(trees.inner), dtype=bool)
    used[chunks.node] = True
    share, row = np.unique(np.where(used, trees.before, 1.0)[trees.inner], return_inverse=True)
    share, t = share[:, None], chunks.points
    whole = t + (1 - t) * share
    table = np.stack([(1 - t) * share / whole, -share / whole**2], axis=1)
    table[share[:, 0] == 1] = np.stack([1 - t, np.full(len(t), -1.0)])  # as if the sum in `whole` were exact
    return table, row.ravel().astype(np.int32)


def points_of_part(points: int) -> int:
    """Return how many points a part of a rule has."""
    return next(number for number in range(min(points, POINTS_TOGETHER), 0, -1) if points % number == 0)


def in_parts(numbers: np.ndarray) -> np.ndarray:
    """Return the numbers of each part of a rule, `[parts, ..., points of a part]`, from `[..., points]`."""
    parts = numbers.reshape(*numbers.shape[:-1], -1, points_of_part(numbers.shape[-1]))
    return np.ascontiguousarray(np.moveaxis(parts, -2, 0))
