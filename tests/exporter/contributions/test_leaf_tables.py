"""Tables of leaves against all coalitions."""

from math import factorial

import numpy as np
import pytest

from triton_regressors.exporter.contributions.leaf_tables import leaf_tables


@pytest.mark.parametrize("players", range(1, 6))
def test_tables_of_leaves(players: int) -> None:
    """A coalition's value is the probability that nobody in it misses in the row, and nobody else in the drawn row."""
    rng = np.random.default_rng(players)
    chance = rng.dirichlet(np.ones(1 << players), 3)
    found = leaf_tables(chance)
    for row in range(1 << players):
        value = {
            coalition: chance[:, [(row & coalition | drawn & ~coalition) == 0 for drawn in range(1 << players)]].sum(1)
            for coalition in range(1 << players)
        }
        for player in range(players):
            expected = np.zeros(3)
            for coalition in value:
                if not coalition >> player & 1:
                    others = coalition.bit_count()
                    weight = factorial(others) * factorial(players - 1 - others) / factorial(players)
                    expected += weight * (value[coalition | 1 << player] - value[coalition])
            assert np.abs(found[:, row, player] - expected).max() < 1e-15
