"""Calibrates prediction intervals around an estimator's answers, by split conformal prediction.

On rows that the estimator was not fitted on, a score says how far each target lies from the answer:

    |target − y|                      where the model answers `y` alone
    |target − y| / std                where it also answers `std`
    max(l − target, target − u)       where there are models of a lower and an upper quantile, which answer l ≤ u

With n scores, q is the ⌈(n + 1) · level⌉-th smallest, and a new row's interval is `y ± q`, `y ± q · std`, or l − q to
u + q. If the n rows and the new one are exchangeable, its target lies in there with a probability of at least `level`,
whatever the model, and of at most `level + 1 / (n + 1)` if no two scores are equal. That is over the draw of all of
these rows; it promises nothing of a kind of rows by itself. Each target has an interval of its own.

The last score is negative inside of the quantiles, and so is q where they cover more than was asked. Where l − q would
then exceed u + q, no number is inside: the interval is the middle of both, and covers no less. Of quantiles that cross
in a row the smaller is l and the larger u, which any two functions of a row may be.

An entry answers float32. Its `lower` is rounded down and its `upper` up, so that the served interval holds whatever the
float64 one does: where many residuals are equal, as those of a tree are, ends that are rounded to nearest may leave out
every target at once. Coverage is counted on the served numbers.

Sources: Vovk, Gammerman, Shafer, "Algorithmic Learning in a Random World" (2005); Lei, G'Sell, Rinaldo, Tibshirani,
Wasserman, "Distribution-Free Predictive Inference for Regression" (2018), sections 2.2 and 5.2; Romano, Patterson,
Candès, "Conformalized Quantile Regression" (2019); of crossing quantiles Chernozhukov, Fernández-Val, Galichon,
"Quantile and Probability Curves Without Crossing" (2010).
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Any

import numpy as np

from triton_regressors.defaults import DEFAULT_LEVEL
from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.evidence.intervals import ENDS, Interval, quantiles_of
from triton_regressors.exporter.evidence.oracle import Answers, Oracle
from triton_regressors.exporter.evidence.quantiles import columns_of_level
from triton_regressors.exporter.lowering.soundness import one_line
from triton_regressors.kernels.entry import ABSOLUTE, QUANTILES, SCALED, IntervalReport
from triton_regressors.kernels.format.inputs import Inputs

CALLED = "The calibration table"
FLOAT32_MAX = float(np.finfo(np.float32).max)


def check_level(level: float | None, calibrate: Any | None) -> float:
    """Return the level, or the default for None; raise `ExportError` unless it is a share and rows go with it."""
    if level is None:
        return DEFAULT_LEVEL
    if calibrate is None:
        raise ExportError("level is for a prediction interval, which needs calibration rows: give calibrate.")
    if isinstance(level, bool) or not isinstance(level, int | float | np.floating) or not 0 < level < 1:
        raise ExportError(f"level must lie between 0 and 1, such as 0.9, not {level!r}.")
    return float(level)


def find_interval(oracle: Oracle, inputs: Inputs, calibrate: Any, level: float, *, rounded: bool) -> Interval:
    """Return the interval around an estimator's answers.

    Args:
        oracle: the estimator with its own outputs.
        inputs: the model's, with numbers in FP32.
        calibrate: a pair of rows as `predict` takes them and their targets, `[n]` or `[n, targets]`.
        level: which share of new rows the interval is for.
        rounded: whether the estimator is asked about the rows as these inputs hold them, or as they are given.

    Raises:
        ExportError: the rows, their targets or the estimator's outputs do not allow it, or the rows are too few.
    """
    name = type(oracle.estimator).__name__
    own = [output for output in oracle.outputs if output in ENDS]
    if len(own) == 1:
        raise ExportError(f"Cannot calibrate {name}: it answers only '{own[0]}' of lower and upper.")
    if not isinstance(calibrate, tuple | list) or len(calibrate) != 2:
        raise ExportError(f"calibrate must be a pair (X, y), not {type(calibrate).__name__}.")
    answers = _answers(oracle, inputs, calibrate[0], rounded)
    chosen = None if own else columns_of_level(oracle.estimator, answers["y"].shape[1], level)
    if own or chosen is not None:
        return _of_quantiles(oracle, answers, calibrate[1], level, chosen)
    std, targets = answers.get("std"), _targets(calibrate[1], answers["y"].shape)
    scores = _scores(name, targets, answers["y"], std)
    return _calibrated(name, answers, targets, scores, level, ABSOLUTE if std is None else SCALED)


def _of_quantiles(
    oracle: Oracle,
    answers: Answers,
    given: Any,
    level: float,
    chosen: tuple[tuple[int, int], tuple[float, float]] | None,
) -> Interval:
    """Return the interval around two quantiles: the outputs `lower` and `upper`, or two columns of `y`.

    `given` are the targets; `chosen` are the columns and their quantiles, None where it is the outputs.
    """
    name, columns = type(oracle.estimator).__name__, None if chosen is None else chosen[0]
    first, second = quantiles_of(answers, columns)
    if chosen is None and not first.shape == second.shape == answers["y"].shape:
        widths = ", ".join(str(values.shape[1]) for values in (answers["y"], first, second))
        raise ExportError(
            f"Cannot calibrate {name}: y, the lower and the upper quantile must have a column for each target, and "
            f"have {widths}."
        )
    targets = _targets(given, first.shape)
    low, high = np.minimum(first, second), np.maximum(first, second)
    scores = np.maximum(low - targets, targets - high)
    interval = _calibrated(name, answers, targets, scores, level, QUANTILES, columns)
    served = answers["y"].astype(np.float32) if chosen is None else None
    report = dataclasses.replace(
        interval.report,
        ends=oracle.ends if chosen is None else tuple(f"{quantile:g}" for quantile in chosen[1]),
        crossed=int((first > second).any(axis=1).sum()),
        y_outside=None if served is None else int((~_inside(interval, answers, served)).any(axis=1).sum()),
    )
    return dataclasses.replace(interval, report=report)


def _calibrated(
    name: str,
    answers: Answers,
    targets: np.ndarray,
    scores: np.ndarray,
    level: float,
    method: str,
    columns: tuple[int, int] | None = None,
) -> Interval:
    """Return the interval that scores `[n, targets]` of the estimator of this name give, and what is known of it.

    Raises:
        ExportError: there are too few for the level.
    """
    n = len(scores)
    quantile = conformal_quantile(scores, level)
    if quantile is None:
        raise ExportError(
            f"Cannot calibrate {name}: a level of {level:g} needs at least {fewest_rows(level):,} calibration rows, "
            f"not {n:,}; give more rows, or a lower level."
        )
    report = IntervalReport(method=method, level=level, rows=n, quantile=tuple(quantile.tolist()), mean_width=())
    interval, coverage = Interval(quantile, report, columns), None
    of_first = conformal_quantile(scores[: n // 2], level)
    if of_first is not None:
        last = {output: values[n // 2 :] for output, values in answers.items()}
        found = _inside(Interval(of_first, report, columns), last, targets[n // 2 :])
        coverage = tuple(found.mean(axis=0).tolist())
    report = dataclasses.replace(
        report,
        mean_width=tuple(interval.mean_width(answers).tolist()),
        held_out_rows=0 if coverage is None else n - n // 2,
        coverage=coverage,
    )
    return dataclasses.replace(interval, report=report)


def _inside(interval: Interval, answers: Answers, numbers: np.ndarray) -> np.ndarray:
    """Return which numbers `[rows, targets]` lie in the interval around the answers as it is served."""
    ends = interval.added(answers)
    found: np.ndarray = (ends["lower"] <= numbers) & (numbers <= ends["upper"])
    return found


def _answers(oracle: Oracle, inputs: Inputs, given: Any, rounded: bool) -> Answers:
    """Return the estimator's answers to the calibration rows, all of them finite."""
    name = type(oracle.estimator).__name__
    table = oracle.table(given, CALLED)
    X = oracle.matrix(table, inputs.numeric, CALLED)
    try:
        answers = oracle.of_table(oracle.asked(inputs.rounded(X)) if rounded else table)
    except (TypeError, ValueError) as error:
        raise ExportError(f"Cannot calibrate {name}: it refuses the calibration rows ({one_line(error)}).") from error
    lost = ~np.logical_and.reduce([np.isfinite(values).all(axis=1) for values in answers.values()])
    if lost.any():
        raise ExportError(
            f"Cannot calibrate {name}: it predicts no finite number for {int(lost.sum()):,} of the calibration rows, "
            f"row {int(np.argmax(lost))} first; leave such rows out."
        )
    return answers


def _scores(name: str, targets: np.ndarray, y: np.ndarray, std: np.ndarray | None) -> np.ndarray:
    """Return how far targets lie from the answers of the estimator of this name, all `[n, targets]`."""
    residuals: np.ndarray = np.abs(targets - y)
    if std is None:
        return residuals
    if std.shape != y.shape:
        raise ExportError(f"Cannot calibrate {name}: its std has {std.shape[1]} columns, and its y {y.shape[1]}.")
    known = (std > 0).all(axis=1)
    if not known.all():
        raise ExportError(
            f"Cannot calibrate {name}: its std is 0 in row {int(np.argmin(known))} of the calibration rows, so that "
            "residuals cannot be divided by it; give rows that it was not fitted on."
        )
    scaled: np.ndarray = residuals / std
    return scaled


def conformal_quantile(scores: np.ndarray, level: float) -> np.ndarray | None:
    """Return the ⌈(n + 1) · level⌉-th smallest of n scores `[n, targets]`, for each target; None if n is too small."""
    rank = _rank(len(scores), level)
    if rank > len(scores):
        return None
    found: np.ndarray = np.sort(scores, axis=0)[rank - 1]
    return found


def fewest_rows(level: float) -> int:
    """Return how many rows a level takes: ⌈1 / (1 − level)⌉ − 1."""
    return math.ceil(1 / (1 - _exact(level))) - 1


def _rank(n: int, level: float) -> int:
    return math.ceil((n + 1) * _exact(level))


def _exact(level: float) -> Fraction:
    """Return the level as it is written: 0.9 is nine tenths, of which ten are nine, and not the float above it."""
    return Fraction(repr(float(level)))


def _targets(given: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return the calibration rows' targets as float64 `[n, targets]`."""
    n, width = shape
    try:
        targets = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ExportError(f"The calibration targets must be numbers: {one_line(error)}.") from None
    if targets.shape != (n, width) and not (width == 1 and targets.shape == (n,)):
        wanted = f"[{n}] or [{n}, 1]" if width == 1 else f"[{n}, {width}]"
        raise ExportError(
            f"The calibration targets must be {wanted}, to fit the rows and the model, not {list(targets.shape)}."
        )
    targets = targets.reshape(n, width)
    for accepted, wanted in (
        (np.isfinite(targets), "finite"),
        (np.abs(targets) <= FLOAT32_MAX, f"within float32's range, ±{FLOAT32_MAX:.4g}, as the entry's answers are"),
    ):
        if not accepted.all():
            row, column = np.argwhere(~accepted)[0].tolist()
            place = f"row {row}" if width == 1 else f"row {row}, target {column},"
            raise ExportError(
                f"The calibration targets must be {wanted}; that of {place} is {targets[row, column]:g}. Leave such "
                "rows out."
            )
    return targets
