"""Rows at jumps that a plan does not show: the estimator itself is asked where its answers change.

A threshold on what a spline, a power, a product or a function makes of a column is no number of that column that the
plan could tell. Between two rows that differ in one column and get different answers, bisection finds the place: it
keeps the half in which the answers differ more. A jump remains however short the interval is; a slope does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

PAIRS = 256
"""The number of pairs of rows that are drawn."""

PLACES = 64
"""Between how many of them a jump is looked for."""

HALVINGS = 60
"""Enough to leave two neighbouring float64 numbers of one sign and size."""

Differ = Callable[[np.ndarray, np.ndarray], "np.ndarray | None"]
"""From two matrices of rows to how far their answers lie apart, row by row; None where there are no answers."""


def rows_at_jumps(differ: Differ, X: np.ndarray, features: Sequence[int], least: float) -> np.ndarray:
    """Return rows on both sides of jumps, at most `2 · PLACES`, none where the estimator refuses the rows asked for.

    Args:
        differ: tells how far the answers to two rows lie apart.
        X: the rows to start from, float64 `[rows, features]`.
        features: the columns to look along.
        least: the difference from which answers count as different.
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
    """Return rows with one column of each set to a number."""
    moved: np.ndarray = rows.copy()
    moved[np.arange(len(rows)), along] = numbers
    return moved
