"""How many points of the Gauss–Legendre rule tips need, for `path_walks.py`.

The rule with n points is exact for polynomials of degree 2n − 1. A leaf of the value v with d players has integrands of
degree d − 1, so that n ≥ d / 2 points are exact. Fewer points leave an error, which has a bound. The walks compute in
float32, whose errors are about 2⁻²⁴ of the largest value of a tree. A tip may have fewer points than would be exact as
long as the bounds of all such leaves of its tree sum up to at most `LARGEST_ERROR` of that value. This holds for each
target: a bound counts relative to the largest value of the target for which that is most.

The integrand for player k is v (aₖ − rₖ) Π fᵢ(t) over all other players i, with fᵢ(t) = t · aᵢ + (1 − t) · rᵢ
(`path_contributions.py`). The probabilities rᵢ of a leaf are known, while aᵢ is 0 or 1, depending on the row.

- Put t = (2 + z + 1/z) / 4 with z on the unit circle. Then fᵢ has the coefficients (1 + rᵢ) / 2 at z⁰ and (1 − rᵢ) / 4
  at z and 1/z if aᵢ is 1. They are rᵢ / 2 and −rᵢ / 4 if aᵢ is 0. In absolute value these are at most (1 + rᵢ) / 2 and
  max(rᵢ, 1 − rᵢ) / 4, whatever the row.
- The product of the fᵢ has coefficients that are at most those of the product of these bounds. It is symmetric in z and
  1/z. Since zᵐ + z⁻ᵐ is twice the Chebyshev polynomial Tₘ of 2t − 1, which is at most 1 from 0 to 1, the part of the
  product of degree 2n or more is at most the sum of the coefficients of all zᵐ and z⁻ᵐ with m ≥ 2n. This is the tail.
- The rule is exact for the rest. Its weights are positive and sum up to 1, so that the rule and the integral of that
  part are each at most the tail. The error is at most 2 · tail · |v| · |aₖ − rₖ|, and |aₖ − rₖ| ≤ max(rₖ, 1 − rₖ).

The player k that is left out may be any one. For each coefficient the largest one of these products, each times its
max(rₖ, 1 − rₖ), is found player after player: the next player is either a factor of the largest one so far, or is left
out of the product of all so far.

Contributions are sums over leaves, so that the bounds of leaves can be added.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .path_tips import Tips
from .preorder import Arranged

LARGEST_ERROR = 2.0**-25
"""The most that points may add to the error of a tree's contributions, relative to the largest value of its leaves."""

POINTS = np.array([4, 8, 16, 24, 32])
"""The numbers of points that a tip can have; the last is exact for 64 players."""

LEAVES_TOGETHER = 2**14
"""The most leaves whose errors are computed at a time."""


def points_needed(trees: Arranged, tips: Tips, asks: np.ndarray, held: np.ndarray, fewest: int) -> np.ndarray:
    """Return how many points each tip needs, int64 `[tips]`; 0 for those without a leaf that asks for points.

    Args:
        trees: the nodes.
        tips: the tips.
        asks: bool `[nodes]`, whether a node is a leaf with a player and a value other than 0.
        held: float64 `[nodes]`, the absolute value of a leaf, relative to the largest one of its tree.
        fewest: no tip has fewer points if any tip needs as many.
    """
    leaf = np.flatnonzero(asks)
    tip = np.searchsorted(tips.node, leaf, side="right") - 1
    exact = np.zeros(len(tips.node), dtype=np.int64)
    np.maximum.at(exact, tip, (trees.players[leaf] + 1) // 2)
    points = POINTS[np.searchsorted(POINTS, exact)]
    most = int(points[exact > 0].max(initial=0))
    kinds = POINTS[(min(most, fewest) <= POINTS) & (most >= POINTS)]
    points = np.maximum(points, kinds.min(initial=most)) * (exact > 0)
    many = trees.players[leaf] > 2 * kinds.min(initial=most)
    leaf, tip = leaf[many], tip[many]
    errors = errors_of_leaves(trees, leaf, kinds[:-1].tolist()) * held[leaf]
    tree = trees.tree[tips.node]
    error, total = np.zeros(len(tips.node)), np.zeros(int(tree.max(initial=-1)) + 1)
    for kind in reversed(range(len(errors))):
        new = np.bincount(tip, errors[kind], minlength=len(tips.node))
        some = np.flatnonzero((points == kinds[kind + 1]) & (new <= LARGEST_ERROR))
        some = some[np.lexsort([new[some], tree[some]])]  # the tips of a tree follow each other, least errors first
        own, more = tree[some], new[some] - error[some]
        before = np.append(0, np.cumsum(more))
        fits = total[own] + before[1:] - before[np.searchsorted(own, own)] <= LARGEST_ERROR
        some, own, more = some[fits], own[fits], more[fits]
        points[some], error[some] = kinds[kind], new[some]
        np.add.at(total, own, more)
    return points


def errors_of_leaves(trees: Arranged, leaf: np.ndarray, points: Sequence[int]) -> np.ndarray:
    """Return bounds of the errors that leaves of the value 1 have, float64 `[numbers of points, leaves]`.

    Args:
        trees: the nodes.
        leaf: int64 `[leaves]`, in preorder.
        points: the numbers of points.
    """
    found, players = np.zeros((len(points), len(leaf))), trees.players[leaf]
    for count in np.unique(players).tolist():
        same = np.flatnonzero(players == count)
        for first in range(0, len(same), LEAVES_TOGETHER):
            some = same[first : first + LEAVES_TOGETHER]
            found[:, some] = largest_errors(_probabilities(trees, leaf[some]), points)
    return found


def largest_errors(probabilities: np.ndarray, points: Sequence[int]) -> np.ndarray:
    """Return bounds of the errors that leaves of the value 1 have, float64 `[numbers of points, leaves]`.

    Args:
        probabilities: float64 `[players, leaves]`, those of the players of each leaf.
        points: the numbers of points.
    """
    players, leaves = probabilities.shape
    # Coefficients of z⁰ and up: those of all players so far, and the largest ones with one player left out.
    whole, without = np.zeros((players + 2, leaves)), np.zeros((players + 2, leaves))
    whole[0] = 1
    for r in probabilities:
        away = np.maximum(r, 1 - r)
        without = np.maximum(_times(without, (1 + r) / 2, away / 4), away * whole)
        whole = _times(whole, (1 + r) / 2, away / 4)
    return np.stack([2 * 2 * without[2 * number :].sum(axis=0) for number in points])


def _times(product: np.ndarray, middle: np.ndarray, side: np.ndarray) -> np.ndarray:
    """Return the coefficients of a product with one more factor, which has `side` at z and 1/z."""
    found: np.ndarray = middle * product
    found[1:] += side * product[:-1]
    found[:-1] += side * product[1:]
    found[0] += side * product[1]
    return found


def _probabilities(trees: Arranged, leaf: np.ndarray) -> np.ndarray:
    """Return the probability of each player on the way to leaves that have as many, float64 `[players, leaves]`.

    Args:
        trees: the nodes.
        leaf: int64 `[leaves]`, in preorder.
    """
    found = np.empty((int(trees.players[leaf[0]]), len(leaf)))
    count, place, below = np.zeros(len(leaf), dtype=np.int64), np.arange(len(leaf)), leaf
    # The lowest node of a player has the probabilities of all of them: those above are passed over.
    passed = np.zeros((int(trees.depth[leaf].max()), len(leaf)), dtype=bool)
    while len(place):
        node, earlier = trees.parent[below], trees.earlier[trees.parent[below]]
        lowest = (earlier >= -1) & ~passed[trees.depth[node], place]
        share = np.where(trees.left[below], trees.share[node], 1 - trees.share[node]) * trees.before[node]
        found[count[place[lowest]], place[lowest]] = share[lowest]
        count[place[lowest]] += 1
        passed[trees.depth[earlier[earlier >= 0]], place[earlier >= 0]] = True
        place, below = place[trees.depth[node] > 0], node[trees.depth[node] > 0]
    return found
