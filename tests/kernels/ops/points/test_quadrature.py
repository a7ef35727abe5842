"""Quadratures of contributions: enough nodes for any factors, and the groups' polynomials."""

import math

import numpy as np
import pytest

from triton_regressors.kernels.ops.points.quadrature import (
    MISSED,
    MOST_PAIRS,
    groups_of_nodes,
    pairs_of_nodes,
    positive_nodes,
)


@pytest.mark.parametrize("degree", [0, 1, 3, 4, 7, 15, 31, 36, 63, 99, 199, 511])
def test_what_a_rule_misses_is_below_its_bound(degree: int) -> None:
    """Powers of `1 + τ` take the most nodes; products with `1 − τ` are their like."""
    nodes, weights = positive_nodes(degree)
    rule, exact = (
        (np.append(nodes, -nodes), np.append(weights, weights)),
        np.polynomial.legendre.leggauss(degree // 2 + 1),
    )
    for down in {0, degree // 7, degree // 2}:
        found, wanted = ((w * ((1 + t) / 2) ** (degree - down) * ((1 - t) / 2) ** down).sum() for t, w in (rule, exact))
        assert abs(found - wanted) <= 2.1 * MISSED + 1e-15


@pytest.mark.parametrize(("degree", "pairs"), [(0, 1), (3, 1), (4, 2), (27, 7), (31, 7), (63, 11), (511, 31)])
def test_fewer_nodes_than_the_degree_asks_for(degree: int, pairs: int) -> None:
    assert pairs_of_nodes(degree) == pairs <= degree // 4 + 1
    if pairs > 1:  # one pair less misses more than the bound, for the integrand that takes the most nodes
        tosses, away = 2 * degree, 4 * (pairs - 1)
        assert 2 * sum(math.comb(tosses, degree + k) for k in range(away, degree + 1)) > MISSED * 2**tosses


@pytest.mark.parametrize("degree", [0, 5, 31, 63, 511])
def test_groups_have_the_sum_of_fractions(degree: int) -> None:
    nodes, weights = positive_nodes(degree)
    groups = groups_of_nodes(np.stack([nodes, weights]))
    values, v, at, total = np.random.default_rng(1).random(len(nodes)), 0.3, 0, 0.0
    count = -(-len(nodes) // len(groups))
    assert count <= MOST_PAIRS
    for row in groups:
        denominator, forms = row[count : 2 * count + 1], row[2 * count + 1 :].reshape(count, count)
        own = np.pad(values[at : at + count], (0, max(at + count - len(values), 0)))
        numerator = forms @ own
        assert min(denominator.min(), forms.min()) >= 0
        total += np.polynomial.polynomial.polyval(v, numerator) / np.polynomial.polynomial.polyval(v, denominator)
        at += count
    wanted = (weights * values / (1 - nodes**2 + nodes**2 * v)).sum()
    assert total == pytest.approx(wanted, rel=1e-13)
