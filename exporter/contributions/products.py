"""Exact contributions to monomials: a product of numbers of several players has a Shapley value in closed form.

For a product `Π_{p ∈ P} g_p` of one number for each of k players, against background rows b,

    φ_p = Σ_{S ⊆ P∖p} s!(k−1−s)!/k! · (Π_{S ∪ p} g(x) · E_b Π_{P∖S∖p} g(b) − Π_S g(x) · E_b Π_{P∖S} g(b)),  s = |S|,

which is a linear combination of the monomials of the subsets of P. The means are joint moments of the background rows.

Those of degree 2 are `Σᵢ zᵢ · (Σⱼ cᵢⱼ zⱼ)` and a linear map of z, where i runs over the columns of one player. All
players together need one product of each row with a matrix, where forms of their own need one for each player.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from typing import NamedTuple

import numpy as np

from triton_regressors.exporter.contributions.players import NOBODY
from triton_regressors.kernels.ops.linear.monomials import Monomials
from triton_regressors.kernels.ops.linear.polynomial import Polynomial

Factors = tuple[int, ...]
"""The columns that a monomial multiplies, ascending, with repetitions."""


def product_contributions(
    operation: Monomials, weights: np.ndarray, players: np.ndarray, columns: int, background: np.ndarray
) -> tuple[Polynomial, np.ndarray, np.ndarray]:
    """Return monomials, and the weights and the intercept with which they add up to the contributions.

    Args:
        operation: the monomials.
        weights: float64 `[monomials, targets]`.
        players: the players of the columns of the operation's input, one each where there is a weight.
        columns: the number of columns of the table.
        background: float64 `[rows, width]`, that input for the background rows.

    The answer is `[rows, targets · (columns + 1)]`, target after target, with the base at a target's end.
    """
    scaled = (background - operation.shift) * operation.factor
    targets, width = weights.shape[1], len(players)
    means: dict[Factors, float] = {}

    def mean(factors: Factors) -> float:
        if factors not in means:
            means[factors] = float(scaled[:, factors].prod(axis=1).mean())
        return means[factors]

    found: dict[Factors, np.ndarray] = defaultdict(lambda: np.zeros((targets, columns + 1)))
    for indices, weight in zip(operation.indices, weights, strict=True):
        if not weight.any():
            continue
        of_player: dict[int, list[int]] = defaultdict(list)
        for column in indices[indices < width].tolist():
            of_player[int(players[column])].append(column)
        everyone = [player for player in of_player if player != NOBODY]
        constant = of_player.get(NOBODY, [])

        def factors(some: tuple[int, ...], of_player: dict[int, list[int]] = of_player) -> Factors:
            return tuple(sorted(column for player in some for column in of_player[player]))

        scale = weight * mean(tuple(sorted(constant)))
        found[()][:, columns] += scale * mean(factors(tuple(everyone)))
        for player in everyone:
            others = [other for other in everyone if other != player]
            for size in range(len(others) + 1):
                share = 1 / (len(everyone) * math.comb(len(others), size))
                for some in itertools.combinations(others, size):
                    rest = tuple(other for other in others if other not in some)
                    found[factors((*some, player))][:, player] += scale * share * mean(factors(rest))
                    found[factors(some)][:, player] -= scale * share * mean(factors((*rest, player)))
    intercept = found.pop((), np.zeros((targets, columns + 1)))
    monomials = sorted(found, key=lambda each: (len(each), each))
    degree = max(map(len, monomials), default=1)
    indices = np.full((max(len(monomials), 1), degree), width, dtype=np.int32)
    for place, each in enumerate(monomials):
        indices[place, : len(each)] = each
    weight = np.zeros((len(indices), targets * (columns + 1)))
    for place, each in enumerate(monomials):
        weight[place] = found[each].ravel()
    return Polynomial(indices, operation.shift, operation.factor), weight, intercept.ravel()


class Factored(NamedTuple):
    """A polynomial of degree 2 as `(z[:, own] · (z @ inner)) @ outer + z @ linear`."""

    own: np.ndarray  # int32 [products], a column of z for each
    inner: np.ndarray  # float64 [columns of z, products]
    outer: np.ndarray  # float64 [products, outputs], a one in each row
    linear: np.ndarray  # float64 [columns of z, outputs]


def factored(polynomial: Polynomial, weights: np.ndarray, players: np.ndarray, columns: int) -> Factored:
    """Return what `product_contributions` returned for a polynomial of degree 2, factored; arguments are the same."""
    width, outputs = len(players), weights.shape[1]
    first, second = np.pad(polynomial.indices, ((0, 0), (0, 2)), constant_values=width)[:, :2].T
    alone = second == width
    linear = np.zeros((width + 1, outputs))  # the last row is that of no column
    linear[first[alone]] = weights[alone]
    monomial, output = np.nonzero(np.where(alone[:, None], 0.0, weights))
    target, player = np.divmod(output, columns + 1)
    first, second, weight = first[monomial], second[monomial], weights[monomial, output]
    mine = players[first] == player
    own, other = np.where(mine, first, second), np.where(mine, second, first)
    forms = np.zeros((outputs // (columns + 1), width, width))
    np.add.at(forms, (target, own, other), weight)
    targets, own = np.nonzero(forms.any(axis=2))
    outer = np.zeros((len(own), outputs))
    outer[np.arange(len(own)), targets * (columns + 1) + players[own]] = 1.0
    return Factored(own.astype(np.int32), np.ascontiguousarray(forms[targets, own].T), outer, linear[:-1])
