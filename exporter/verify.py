"""Parity of a plan with the estimator's own predictions.

The estimator is asked in float64: `predict` is given the float32 rows as float64, so that its answer is the exact one
that the plan is to round.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline

from triton_regressors.exporter.builder import Builder
from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.text import TextColumns
from triton_regressors.kernels.inputs import Inputs
from triton_regressors.kernels.parity import Parity, measure, units
from triton_regressors.kernels.plan import Plan
from triton_regressors.kernels.run import Runner

DRAWN_ROWS = 1024


@dataclass(frozen=True)
class Sample:
    """Rows and the estimator's own answers to them."""

    X: np.ndarray  # float32 [rows, n_features]
    expected: Mapping[str, np.ndarray]  # float64 [rows, width] for each output
    drawn: bool

    @property
    def units(self) -> dict[str, np.ndarray]:
        """The unit of error for each output's columns."""
        return {name: units(values) for name, values in self.expected.items()}


@dataclass(frozen=True)
class Report:
    """What was measured: by which engine, on how many rows, and the parity of each output."""

    engine: str
    rows: int
    drawn: bool
    tolerance: float
    units: Mapping[str, np.ndarray]
    outputs: Mapping[str, Parity]

    def to_json(self) -> dict[str, Any]:
        """Return the report as `plan.json` holds it."""
        return {
            "tolerance": self.tolerance,
            "engine": self.engine,
            "rows": self.rows,
            "rows_from": "a draw to the fitted scale" if self.drawn else "the given sample",
            "outputs": {
                name: {
                    "unit": self.units[name].tolist(),
                    "max_error": parity.max_error,
                    "max_ulp": parity.max_ulp,
                    "excess": parity.excess,
                }
                for name, parity in self.outputs.items()
            },
        }


def take_sample(estimator: Any, builder: Builder, inputs: Inputs, outputs: tuple[str, ...], rows: Any | None) -> Sample:
    """Return rows with the estimator's answers: the given rows, or rows drawn to the fitted scale.

    Rows that the estimator itself answers with NaN or infinity are left out; they have no right answer.
    """
    drawn = rows is None
    X = _draw(builder) if drawn else _as_rows(rows, feature_names(estimator), builder, inputs)
    try:
        expected = answers(estimator, X, outputs, builder.text)
    except ValueError as error:
        which = "drawn rows; give rows of your data with --sample" if drawn else "rows of the sample"
        why = str(error).splitlines()[0].rstrip(".")
        raise ExportError(f"Cannot verify {type(estimator).__name__}: it refuses the {which} ({why}).") from error
    with np.errstate(over="ignore"):
        finite = np.logical_and.reduce([np.isfinite(v.astype(np.float32)).all(axis=1) for v in expected.values()])
    if not finite.any():
        which = "drawn rows; give rows of your data with --sample" if drawn else "rows of the sample"
        raise ExportError(f"Cannot verify {type(estimator).__name__}: it predicts no finite number for the {which}.")
    return Sample(X[finite], {name: values[finite] for name, values in expected.items()}, drawn)


def answers(estimator: Any, X: np.ndarray, outputs: tuple[str, ...], text: TextColumns) -> dict[str, np.ndarray]:
    """Return the estimator's own answers in float64, `[rows, width]` each, to rows of the plan's matrix."""
    estimator = _without_searches(estimator)
    matrix: Any = X.astype(np.float64)
    names = feature_names(estimator)
    if text:
        matrix = text.asked(matrix, names)
    elif names is not None:
        import pandas as pd

        matrix = pd.DataFrame(matrix, columns=names)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if "std" in outputs:
            found = dict(zip(("y", "std"), estimator.predict(matrix, return_std=True), strict=True))
        else:
            found = {"y": estimator.predict(matrix)}
    return {name: np.asarray(values, dtype=np.float64).reshape(len(X), -1) for name, values in found.items()}


def feature_names(estimator: Any) -> list[str] | None:
    """Return the names of the columns that the estimator was fitted on, if they had any."""
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def _without_searches(estimator: Any) -> Any:
    """Return what a search found in place of the search, whose `predict` does not pass `return_std` on."""
    if isinstance(estimator, FrozenEstimator):
        return _without_searches(estimator.estimator)
    if hasattr(estimator, "best_estimator_"):
        return _without_searches(estimator.best_estimator_)
    if isinstance(estimator, Pipeline):
        *before, (name, last) = estimator.steps
        found = _without_searches(last)
        return estimator if found is last else Pipeline([*before, (name, found)])
    return estimator


def verify(plan: Plan, sample: Sample, tolerance: float) -> Report:
    """Measure the plan against the sample with this machine's own engine: kernels on a GPU, else their references."""
    runner = Runner(plan, engine="auto", max_rows=min(len(sample.X), 4096))
    with one_thread():
        found = runner.predict(sample.X, tuple(plan.outputs))
    parity = {name: measure(found[name], sample.expected[name], sample.units[name]) for name in plan.outputs}
    return Report(runner.engine, len(sample.X), sample.drawn, tolerance, sample.units, parity)


@contextmanager
def one_thread() -> Iterator[None]:
    """Have torch compute in one thread, as an entry does: on a busy machine, threads wait long for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def check(report: Report, subject: str) -> None:
    """Raise `ExportError` unless every output is within the tolerance."""
    for name, parity in report.outputs.items():
        if not parity.within(report.tolerance):
            raise ExportError(
                f"Cannot export {subject}: output '{name}' differs from its own prediction by {parity.max_error:.1e} "
                f"standard deviations on {report.rows} rows; the tolerance is {report.tolerance:.0e}."
            )


def _draw(builder: Builder) -> np.ndarray:
    """Return rows of independent normal features about the fitted location and scale."""
    location = np.nan_to_num(builder.location, nan=0.0)
    scale = np.nan_to_num(builder.scale_of_input, nan=1.0)
    rng = np.random.default_rng(0)
    rows = max(min(DRAWN_ROWS, 2**22 // builder.input.width), 16)
    X: np.ndarray = location + scale * rng.standard_normal((rows, builder.input.width))
    for column, numbers in sorted(builder.choices.items()):
        X[:, column] = rng.choice(numbers, rows)
    builder.text.draw(X, rng)
    return X.astype(np.float32)


def _as_rows(rows: Any, names: list[str] | None, builder: Builder, inputs: Inputs) -> np.ndarray:
    """Return given rows as float32 `[rows, n_features]`."""
    n_features = builder.input.width
    if builder.text:
        rows = builder.text.rows(rows, names, inputs)
    try:
        with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinity, and is refused below
            X = np.asarray(rows).astype(np.float32)
    except (TypeError, ValueError) as error:
        raise ExportError(f"The sample must be numbers: {error}.") from None
    if X.ndim != 2 or X.shape[1] != n_features or not len(X):
        raise ExportError(f"The sample must be [rows, {n_features}] with at least one row, not {list(X.shape)}.")
    if np.isinf(X).any():
        raise ExportError("The sample holds infinity; give rows that the model can take, as float32.")
    return X
