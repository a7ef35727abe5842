"""Shapley values by their definition, over all coalitions: the oracle of every faster form.

    φ_p(x) = Σ_{S ⊆ P∖p} s!(n−1−s)!/n! · (v(S ∪ p) − v(S)),   v(S) = mean over background rows b of f(x_S, b_rest)

(Shapley, A value for n-person games, 1953; Štrumbelj and Kononenko, Explaining prediction models and individual
predictions with feature contributions, 2014).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np


def shapley_values(
    margin: Callable[[np.ndarray], np.ndarray],
    X: np.ndarray,
    background: np.ndarray,
    players: np.ndarray,
    columns: int,
) -> np.ndarray:
    """Return the contributions, float64 `[rows, targets · (columns + 1)]`; each target ends with its base.

    Args:
        margin: returns float64 `[n, targets]` for rows `[n, width]`.
        X: rows, `[rows, width]`.
        background: rows, `[background rows, width]`.
        players: the column of the table, from 0 to `columns`, that each column of the rows belongs to.
        columns: the number of columns of the table; the work doubles with each.
    """
    of_coalition = []
    for coalition in range(2**columns):
        taken = (coalition >> players) & 1 == 1
        mixed = np.repeat(background[None], len(X), axis=0)
        mixed[:, :, taken] = X[:, None, taken]
        found = margin(mixed.reshape(-1, X.shape[1]))
        of_coalition.append(found.reshape(len(X), len(background), -1).mean(axis=1))
    worth = np.stack(of_coalition)  # [coalitions, rows, targets]
    answer = np.zeros((len(X), worth.shape[2], columns + 1))
    answer[:, :, -1] = worth[0]
    coalitions = (np.arange(2**columns)[:, None] >> np.arange(columns)) & 1
    answer[:, :, :-1] = np.einsum("sp,srt->rtp", definition_weights(coalitions), worth)
    return answer.reshape(len(X), -1)


def definition_weights(coalitions: np.ndarray) -> np.ndarray:
    """Return the weight of the worth of each coalition in the Shapley value of each player.

    `coalitions` are all of them, `[2ⁿ, n]`, 1 for a player that takes part; so is the answer, float64.
    """
    n, size = coalitions.shape[1], coalitions.sum(axis=1, keepdims=True)
    share = np.array([1 / (n * math.comb(n - 1, others)) for others in range(n)])  # of coalitions of others
    joins, leaves = share[np.maximum(size - 1, 0)], -share[np.minimum(size, n - 1)]
    weights: np.ndarray = np.where(coalitions == 1, joins, leaves)
    return weights
