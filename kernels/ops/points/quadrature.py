"""Gauss-Legendre quadratures of `∫₋₁¹ P(τ) / (1 + τ δ_p) dτ`, where `P(τ)` is a product of factors `1 + τ δ_q`.

Every `|δ|` is at most 1, and δ_p is one of them. A rule of `2 n` nodes is exact up to degree `4 n − 1`. Fewer nodes
than the degree asks for are often enough: with `τ = cos θ` the integrand, divided by its largest value, is a sum of
`c_k cos k θ`. Over `k ≥ 4 n` the sum of all `|c_k|` is at most the probability that a random walk ends `4 n` or more
away from where it began. Each factor is one step of it, to either side with a probability of at most 1/4. The
probability grows with the steps and with their chance to leave the place, such that the degree alone bounds it.
"""

from __future__ import annotations

import functools
import math

import numpy as np

MISSED = 2.0**-45
"""The largest such sum that a rule may miss."""

MOST_PAIRS = 8
"""The most pairs of nodes that a thread does at a time."""


def pairs_of_nodes(degree: int) -> int:
    """Return how many pairs of nodes `±τ` are enough for integrands of that degree."""
    pairs = degree // 4 + 1  # exact
    while pairs > 1 and _chance_of_ending(4 * (pairs - 1), degree) <= MISSED:
        pairs -= 1
    return pairs


def _chance_of_ending(away: int, steps: int) -> float:
    """Return the probability that a walk ends `away` or more from its beginning: a step is the sum of two tosses."""
    return 2 * sum(math.comb(2 * steps, steps + end) for end in range(away, steps + 1)) / 4**steps


def positive_nodes(degree: int) -> np.ndarray:
    """Return the positive nodes of the rule for that degree and their weights, float64 `[2, pairs]`."""
    pairs = pairs_of_nodes(degree)
    return np.array(np.polynomial.legendre.leggauss(2 * pairs))[:, pairs:]


def groups_of_nodes(nodes: np.ndarray) -> np.ndarray:
    """Return what kernels have of groups of as many nodes, float64 `[groups, n + n + 1 + n · n]`.

    A row is the nodes `s`, the coefficients of `D(v) = Π (1 − s² + s² v)`, and a matrix: its column k has the
    coefficients of `D(v) / (1 − s_k² + s_k² v)` times the weight of node k. Coefficients begin with that of power 0.

    Args:
        nodes: positive nodes and their weights, `[2, pairs]`.
    """
    groups = -(-nodes.shape[1] // MOST_PAIRS)
    filled = np.pad(nodes, ((0, 0), (0, -nodes.shape[1] % groups)))  # with nodes of weight 0
    found = []
    for own, weights in filled.reshape(2, groups, -1).swapaxes(0, 1):
        factors = np.stack([1 - own**2, own**2], axis=1)
        others = [_product(np.delete(factors, k, axis=0)) * weight for k, weight in enumerate(weights)]
        found.append(np.concatenate([own, _product(factors), np.stack(others, axis=1).ravel()]))
    return np.stack(found)


def _product(factors: np.ndarray) -> np.ndarray:
    """Return the coefficients of a product of polynomials."""
    found: np.ndarray = functools.reduce(np.convolve, factors, np.ones(1))
    return found
