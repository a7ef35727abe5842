"""Contributions to monomials of degree 2: their factors are the polynomial that they were made of."""

import numpy as np
import pytest

from triton_regressors.exporter.contributions.players import NOBODY
from triton_regressors.exporter.contributions.products import factored, product_contributions
from triton_regressors.kernels.ops.linear.polynomial import Polynomial

PLAYERS = np.array([0, 1, 1, NOBODY])
WIDTH = len(PLAYERS)
PAIRS = [[0, 1], [0, 2], [1, 2], [0, 3], [1, 1], [0, WIDTH], [3, 3]]


@pytest.mark.parametrize(
    "indices", [PAIRS, PAIRS[:1], [[0, WIDTH]], [[3, 3]]], ids=["all", "one", "linear", "constant"]
)
@pytest.mark.parametrize("targets", [1, 2])
def test_factors_are_the_polynomial(indices: list[list[int]], targets: int) -> None:
    rng, columns = np.random.default_rng(len(indices)), 2
    operation = Polynomial(np.array(indices, dtype=np.int32), rng.standard_normal(WIDTH), rng.uniform(1, 2, WIDTH))
    weights = rng.standard_normal((len(indices), targets))
    found, own, _ = product_contributions(operation, weights, PLAYERS, columns, rng.standard_normal((7, WIDTH)))
    z = rng.standard_normal((5, WIDTH))
    monomials = np.hstack([z, np.ones((5, 1))])[:, found.indices].prod(axis=2)
    factors = factored(found, own, PLAYERS, columns)
    sums = (z[:, factors.own] * (z @ factors.inner)) @ factors.outer + z @ factors.linear
    np.testing.assert_allclose(sums, monomials @ own, atol=1e-12)
