"""The nodes of trees in preorder, the child with more nodes first, for `path_contributions.py`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Arranged(NamedTuple):
    """The nodes of trees in preorder, `[nodes]` each."""

    node: np.ndarray  # int64, the node of the operation
    tree: np.ndarray  # int64
    size: np.ndarray  # int64, how many nodes a node is and has below it
    depth: np.ndarray  # int64
    parent: np.ndarray  # int64, the node above, −1 for none
    inner: np.ndarray  # bool
    number: np.ndarray  # int64, which of the inner nodes it is; of leaves any
    left: np.ndarray  # bool, whether it is a left child
    earlier: np.ndarray  # int64, the nearest node above of the same player; −1 for none, −2 at leaves and constants
    by_right: np.ndarray  # bool, whether the way from there is to the right
    share: np.ndarray  # float64, the probability of the left child
    before: np.ndarray  # float64, the product of the probabilities on the way, of this node's player
    players: np.ndarray  # int64, how many are asked above

    def children(self, node: np.ndarray) -> np.ndarray:
        """Return the first and second child of inner nodes, int64 `[2, *]`."""
        return np.stack([node + 1, node + 1 + self.size[node + 1]])


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
        parent=np.where(parent >= 0, place[parent], -1)[order],
        inner=feature[order] >= 0,
        number=np.cumsum(feature[order] >= 0) - 1,
        earlier=np.where(earlier >= 0, place[np.maximum(earlier, 0)], earlier)[order],
        share=share[order],
        players=players[order],
        **{name: array[order] for name, array in found.items()},
    )
