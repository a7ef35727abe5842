"""Rows on thresholds: the estimator's own answer to them depends on the last bits of a number.

scikit-learn's HistGradientBoosting takes values of the training rows as thresholds. Behind a sum, such as a principal
component, a training row meets its threshold only as that sum was rounded in training, and the rounding of a sum
depends on the processor and on the rows beside it. There the estimator itself gives one answer or the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from triton_regressors.exporter.evidence.oracle import Answers, Oracle
from triton_regressors.exporter.evidence.sample import Sample
from triton_regressors.exporter.evidence.ties import errors
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.format.inputs import Inputs

LAST_BITS = (1, 2, 4, 8, 16)
"""The distances, in float64 numbers, at which an answer is asked for."""

TOGETHER = 256
"""The number of times that all columns are moved at once, for rows that lie on several thresholds."""

MOST_ROWS = 4096
"""The most rows that are looked at; of more, none is said to lie on a threshold."""

MOST_COLUMNS = 256
"""The most columns that are moved one at a time."""

NUMBERS_AT_ONCE = 2**22
"""The most numbers that the estimator is asked about together when all columns are moved."""


@dataclass(frozen=True)
class OnThresholds:
    """Rows of a sample that lie on thresholds and have another answer than the estimator's.

    `rows` of `of` rows; their answers differ by up to `max_error` standard deviations.
    """

    rows: int
    of: int
    max_error: float

    def __str__(self) -> str:
        rows = f"{self.rows:,} of {self.of:,} row{'s' * (self.of != 1)} ({100 * self.rows / self.of:.3g} %)"
        return (
            f"{rows} lie on thresholds of the model: the estimator itself gives the entry's answers to them when the "
            "last bits of a number change, or when the rows beside them do; the answers differ by up to "
            f"{self.max_error:.2g} standard deviations"
        )


def beside(number: float) -> np.ndarray:
    """Return the float64 numbers within some last bits of a number."""
    found: np.ndarray = number + np.array([sign * steps for steps in LAST_BITS for sign in (-1, 1)]) * np.spacing(
        number
    )
    return found


def search_thresholds(
    runner: Runner,
    oracle: Oracle,
    inputs: Inputs,
    sample: Sample,
    rounded: bool,
    tolerance: float,
    tied: np.ndarray,
) -> tuple[np.ndarray, OnThresholds | None]:
    """Return which rows of a sample lie on thresholds and are answered beyond the tolerance, bool `[rows]`.

    `rounded` says whether answers are compared with those to the rounded rows; `tied` rows are left out.
    """
    expected = sample.rounded if rounded else sample.expected
    found = runner.predict(sample.X, tuple(expected))
    error = errors(found, expected, sample.units)
    chosen = ~(error <= tolerance) & ~tied
    if chosen.any():
        answers = {name: values[chosen] for name, values in found.items()}
        X = oracle.types.of_matrix(sample.X[chosen].astype(np.float64))
        chosen[chosen] = on_thresholds(oracle, inputs, X, answers, sample.units, tolerance)
    if not chosen.any():
        return chosen, None
    return chosen, OnThresholds(int(chosen.sum()), len(chosen), float(error[chosen].max()))


def on_thresholds(
    oracle: Oracle, inputs: Inputs, X: np.ndarray, found: Answers, units: dict[str, np.ndarray], tolerance: float
) -> np.ndarray:
    """Return the rows to which the estimator gives the entry's answers when last bits change, bool `[rows]`.

    Args:
        oracle: the estimator.
        inputs: of the entry; the columns of numbers are moved.
        X: rows that are answered otherwise, float64 `[rows, n_features]`.
        found: the entry's answers to them.
        units: the standard deviation of each output's targets.
        tolerance: in these units.
    """
    agrees = np.zeros(len(X), dtype=bool)
    if len(X) > MOST_ROWS:
        return agrees

    def ask(moved: np.ndarray, rows: np.ndarray) -> None:
        answers = oracle.finite_answers(moved)
        if answers is not None:
            wanted = {name: values[rows] for name, values in found.items()}
            agrees[rows[errors(wanted, answers, units) <= tolerance]] = True

    ask(X, np.arange(len(X)))  # among other rows than before
    columns = [column for column in inputs.numeric if column not in inputs.categorical][:MOST_COLUMNS]
    for column in columns:
        left = np.flatnonzero(~agrees & np.isfinite(X[:, column]))
        if not len(left):
            continue
        near = np.stack([beside(number) for number in X[left, column]])
        moved = np.repeat(X[left], near.shape[1], axis=0)
        moved[:, column] = near.ravel()
        ask(moved, np.repeat(left, near.shape[1]))
    left, rng = np.flatnonzero(~agrees), np.random.default_rng(0)
    at_once = max(1, NUMBERS_AT_ONCE // (TOGETHER * X.shape[1]))
    for start in range(0, len(left) if columns else 0, at_once):
        part = left[start : start + at_once]
        moved = np.repeat(X[part], TOGETHER, axis=0)
        steps = rng.integers(-8, 9, (len(moved), len(columns))) * rng.integers(0, 2, (len(moved), len(columns)))
        moved[:, columns] += steps * np.spacing(moved[:, columns])
        ask(moved, np.repeat(part, TOGETHER))
    return agrees
