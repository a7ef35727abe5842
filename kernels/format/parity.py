"""The distance of answers from the estimator's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Parity:
    """The largest differences between float32 answers and float64 expectations.

    `max_error` is in units of the predictions' standard deviation, `max_ulp` in units of the last place of the float32
    nearest to the expectation. `excess` is `max_error` after one such unit is subtracted from each difference: no
    float32 answer can promise less, however small the spread of predictions far from zero.
    """

    max_error: float
    max_ulp: float
    excess: float

    def within(self, tolerance: float) -> bool:
        """Return whether the excess is at most `tolerance` standard deviations; NaN never is."""
        return self.excess <= tolerance


def measure(answers: np.ndarray, expected: np.ndarray, unit: float | Sequence[float] | np.ndarray) -> Parity:
    """Compare `answers` and `expected`, both `[rows, width]`; `unit` is one number or one for each column."""
    if answers.shape != expected.shape:
        raise ValueError(f"Answers are {list(answers.shape)} where {list(expected.shape)} are expected.")
    if not expected.size:
        return Parity(0.0, 0.0, 0.0)
    error = np.abs(answers.astype(np.float64) - expected)
    ulp = ulps(expected)
    excess = np.maximum(error - ulp, 0.0) / np.asarray(unit)
    if not np.isfinite(error).all():
        return Parity(float("nan"), float("nan"), float("nan"))
    return Parity(float((error / np.asarray(unit)).max()), float((error / ulp).max()), float(excess.max()))


def ulps(expected: np.ndarray) -> np.ndarray:
    """Return the unit in the last place of the float32 nearest to each float64."""
    found: np.ndarray = np.spacing(np.abs(expected).astype(np.float32)).astype(np.float64)
    return found


def units(expected: np.ndarray) -> np.ndarray:
    """Return the unit of error for each column of `[rows, width]`: its standard deviation.

    A column that does not vary is measured by its magnitude, and one that is zero throughout by 1.
    """
    spread = expected.std(axis=0)
    magnitude = np.abs(expected).max(axis=0)
    constant = spread <= 1e-12 * magnitude
    return np.where(constant, np.where(magnitude > 0, magnitude, 1.0), spread)
