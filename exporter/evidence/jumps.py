"""Rows at jumps that a plan does not show, found by asking the estimator itself.

If a threshold compares a spline, a power, a product or a function of a column, the plan does not show the column's
number at which it decides. Between two rows that differ in one column and get different answers, bisection finds this
place: it keeps the half in which the answers differ more. The difference of a jump remains in ever shorter intervals;
the difference of a slope vanishes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

PAIRS = 256
"""The number of pairs of rows that are drawn."""

PLACES = 64
"""The number of these pairs between which a jump is searched for."""

HALVINGS = 60
"""The number of bisections, enough to reach neighbouring float64 numbers of one sign and size."""

Differ = Callable[[np.ndarray, np.ndarray], "np.ndarray | None"]
"""A function of two matrices of rows that returns the distance of their answers, row by row; None without answers."""


def rows_at_jumps(differ: Differ, X: np.ndarray, features: Sequence[int], least: float) -> np.ndarray:
    """Return rows on both sides of jumps, at most `2 · PLACES`, and none if the estimator refuses a row on the way.

    Args:
        differ: returns the distance between the answers to two rows.
        X: the rows to start from, float64 `[rows, features]`.
        features: the columns to search along.
        least: the difference above which answers count as different.
    """
    rng = np.random.default_rng(0)
    low, along = X[rng.integers(0, len(X), PAIRS)], rng.choice(np.asarray(features), PAIRS)
    start, end = low[np.arange(PAIRS), along], X[rng.integers(0, len(X), PAIRS), along]
    usable = np.isfinite(start) & np.isfinite(end) & (start != end)
    low, along, end = low[usable], along[usable], end[usable]
    high = _moved(low, along, end)
    apart = differ(low, high) if len(low) else None
    if apart is None:
        return X[:0]
    chosen = np.flatnonzero(apart > least)[:PLACES]
    low, high, along = low[chosen], high[chosen], along[chosen]
    if not len(chosen):
        return X[:0]
    each = np.arange(len(along))
    for _ in range(HALVINGS):
        middle = _moved(low, along, low[each, along] / 2 + high[each, along] / 2)
        apart = differ(np.concatenate([low, middle]), np.concatenate([middle, high]))
        if apart is None:
            return X[:0]
        to_low, to_high = np.split(apart, 2)
        below = (to_low >= to_high)[:, None]
        low, high = np.where(below, low, middle), np.where(below, middle, high)
    apart = differ(low, high)
    if apart is None:
        return X[:0]
    left = apart > least
    found: np.ndarray = np.concatenate([low[left], high[left]])
    return found


def _moved(rows: np.ndarray, along: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return rows with one column in each set to a number."""
    moved: np.ndarray = rows.copy()
    moved[np.arange(len(rows)), along] = numbers
    return moved
