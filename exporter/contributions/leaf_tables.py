"""Shapley values of one leaf: a number for each of its players, for every way in which a row can miss the leaf.

A leaf asks something of `d` players. It adds 1 to the answer if all of them meet their conditions, and nothing
otherwise. Some players are as in the row, and others as in a row that is drawn at random. The pattern S of a row is the
set of players that do not meet their conditions, one bit each, and `chance[B]` is the probability that B is the pattern
of the drawn row. With `G[p, S] = Σ chance[B]` over patterns B of `p` players that share none with S, and `q = |S|`, the
Shapley value of player k is

- `Σₚ (p − 1)! q! / (p + q)! · (G[p, S] − G[p, S ∪ k])` if the row meets the condition of k, over `p ≥ 1`;
- `−Σₚ p! (q − 1)! / (p + q)! · G[p, S]` if it does not.

For a pattern B that shares no player with S, only the order of the `p + q` players of B and S matters: k is worth 1 if
it comes after all others of B and before all of S, or −1 the other way round (Lundberg et al., From local explanations
to global understanding with explainable AI for trees, Nature Machine Intelligence 2020).
"""

from __future__ import annotations

import numpy as np

from triton_regressors.kernels.ops.trees.background_contributions import chance_of_place

NUMBERS_AT_ONCE = 2**16
"""Probabilities that are processed together, so that they stay in the cache."""


def leaf_tables(chance: np.ndarray) -> np.ndarray:
    """Return the Shapley values of leaves of `d` players, float64 `[leaves, 2ᵈ, d]`.

    Args:
        chance: the probability of each pattern of a drawn row, float64 `[leaves, 2ᵈ]`.
    """
    leaves, patterns = chance.shape
    players = patterns.bit_length() - 1
    found = np.empty((leaves, patterns, players))
    at_once = max(NUMBERS_AT_ONCE // patterns, 1)
    for start in range(0, leaves, at_once):
        _fill(chance[start : start + at_once], found[start : start + at_once])
    return found


def _fill(chance: np.ndarray, found: np.ndarray) -> None:
    patterns, players = found.shape[1:]
    number = np.arange(patterns)
    bits = number[:, None] >> np.arange(players) & 1  # [patterns, d]
    size = bits.sum(axis=1)
    with_it, without_it, unmet = (np.zeros(chance.shape) for _ in range(3))  # sums of G for each pattern, weighted
    for p in range(players + 1):
        apart = np.where(size == p, chance, 0.0)  # G[p], once every player has been added up
        for player in range(players):
            halves = apart.reshape(len(chance), -1, 2, 1 << player)
            first = halves[:, :, 0].copy()
            halves[:, :, 0] += halves[:, :, 1]
            halves[:, :, 1] = first
        weight = np.array([chance_of_place(p, q) for q in range(players + 1)])  # of a player of B, by the size of S
        if p:
            without_it += weight[size] * apart
            with_it[:, 1:] += weight[size[1:] - 1] * apart[:, 1:]
        unmet[:, 1:] += (
            np.array([0.0] + [chance_of_place(q, p) for q in range(1, players + 1)])[size[1:]] * apart[:, 1:]
        )
    for player in range(players):
        met = without_it - with_it[:, number | 1 << player]
        found[:, :, player] = np.where(bits[:, player] == 1, -unmet, met)
