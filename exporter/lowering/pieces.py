"""Piecewise polynomials of one number, from which transformers of single columns are made."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.kernels.ops.linear.piecewise import Piecewise


@dataclass(frozen=True)
class Pieces:
    """The function `Σ_d coefficients[i, d] · (x − origins[i])^d` from `starts[i]` on, up to `starts[i + 1]`."""

    starts: np.ndarray  # [pieces], ascending; the first is −infinity
    origins: np.ndarray  # [pieces], finite
    coefficients: np.ndarray  # [pieces, degree + 1]

    def between(self, low: float, high: float, below: float, above: float) -> Pieces:
        """Return this function where `low ≤ x < high`, and constants elsewhere; `below` up to `low` in any case."""
        high = max(low, high)
        kept = (np.append(self.starts[1:], np.inf) > low) & (self.starts < high)
        ends = np.zeros((1, self.coefficients.shape[1])), np.zeros((1, self.coefficients.shape[1]))
        ends[0][0, 0], ends[1][0, 0] = below, above
        return Pieces(
            np.concatenate([[-np.inf], np.maximum(self.starts[kept], low), [high]]),
            np.concatenate([[low], self.origins[kept], [high]]),
            np.concatenate([ends[0], self.coefficients[kept], ends[1]]),
        )

    def compact(self, terms: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the knots and, about these, the coefficients `[knots + 1, terms]`, with equal neighbours merged."""
        wide = np.append(self.starts[:-1] < self.starts[1:], True)
        starts, origins, given = self.starts[wide], self.origins[wide], np.zeros((int(wide.sum()), terms))
        given[:, : self.coefficients.shape[1]] = self.coefficients[wide]
        constant = (given[:, 1:] == 0).all(axis=1)
        equal = ((given[1:] == given[:-1]) | (np.isnan(given[1:]) & np.isnan(given[:-1]))).all(axis=1)
        merged = equal & ((constant[1:] & constant[:-1]) | (origins[1:] == origins[:-1]))
        kept = np.append(True, ~merged)
        knots, origins, given = starts[kept][1:], origins[kept], given[kept]
        if not len(knots):
            knots, origins, given = origins, np.repeat(origins, 2), np.repeat(given, 2, axis=0)
        moved = np.append(knots[0], knots) - origins
        about = np.zeros_like(given)
        for power in range(terms):
            for term in range(power + 1):
                about[:, term] += given[:, power] * math.comb(power, term) * moved ** (power - term)
        return knots, about


def constant_pieces(edges: ArrayLike, values: ArrayLike) -> Pieces:
    """Return the function that is `values[i]` where `i` of the ascending `edges` are at or below the number."""
    starts = np.append(-np.inf, np.asarray(edges, dtype=np.float64))
    origins = np.append(starts[1:2], starts[1:]) if len(starts) > 1 else np.zeros(1)
    return Pieces(starts, origins, np.asarray(values, dtype=np.float64)[:, None])


def interpolation(x: np.ndarray, y: np.ndarray, below: float, above: float) -> Pieces:
    """Return what `numpy.interp` computes between strictly ascending points, and constants beyond them."""
    slopes = np.append(np.diff(y) / np.diff(x), 0.0)
    return Pieces(
        np.concatenate([[-np.inf], x, [np.nextafter(x[-1], np.inf)]]),
        np.concatenate([x[:1], x, x[-1:]]),
        np.stack([np.concatenate([[below], y, [above]]), np.concatenate([[0.0], slopes, [0.0]])], axis=1),
    )


def first_where(holds: Callable[[np.ndarray], np.ndarray], count: int) -> np.ndarray:
    """Return the smallest of all float64 numbers for which each of `count` conditions holds.

    A condition that holds for a number must hold for larger ones. It is taken with its rounding errors, so the float64
    numbers themselves are searched, by their ranks.
    """
    low = np.full(count, -0x7FF0_0000_0000_0000)  # −infinity, of which no condition holds
    high = -low
    with np.errstate(all="ignore"):
        for _ in range(64):
            middle = (low & high) + ((low ^ high) >> 1)
            true = holds(_float(middle))
            low, high = np.where(true, low, middle), np.where(true, middle, high)
    return _float(high)


def add_pieces(
    builder: Builder, x: Value, source: ArrayLike, functions: Sequence[Pieces], nan_is_zero: bool = False
) -> Value:
    """Return a column for each function, applied to the column of `x` that `source` names."""
    return builder.add(piecewise(source, functions, nan_is_zero), x)


def piecewise(source: ArrayLike, functions: Sequence[Pieces], nan_is_zero: bool = False) -> Piecewise:
    """Return the operation that makes a column for each function, applied to the column that `source` names."""
    terms = max(function.coefficients.shape[1] for function in functions)
    tables = [function.compact(terms) for function in functions]
    count = max(len(knots) for knots, _ in tables)
    knots = np.full((len(tables), count), np.inf)
    coefficients = np.empty((len(tables), count + 1, terms))
    for row, (places, numbers) in enumerate(tables):
        knots[row, : len(places)] = places
        coefficients[row, : len(numbers)], coefficients[row, len(numbers) :] = numbers, numbers[-1]
    return Piecewise(np.asarray(source, dtype=np.int32), knots, coefficients, nan_is_zero)


def note_range(builder: Builder, x: Value, low: ArrayLike, high: ArrayLike, within: bool = False) -> None:
    """Record that the features of `x` lay between `low` and `high`; `within`, that nothing beyond has an answer."""
    low, high = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    known = np.isfinite(low) & np.isfinite(high)
    low, high = np.where(known, low, -1.0), np.where(known, high, 1.0)
    scale = np.where(high > low, (high - low) / (12 if within else 4), 1.0)
    builder.profile.note_scale(x.features, (low + high) / 2, scale)


def _float(ordered: np.ndarray) -> np.ndarray:
    """Return the float64 numbers of these ranks; zero has the rank 0."""
    bits = np.where(ordered >= 0, ordered, np.iinfo(np.int64).min - ordered)
    return bits.view(np.float64)
