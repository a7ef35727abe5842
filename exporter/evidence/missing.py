"""Finds the columns in which a served request may hold NaN: those in which the estimator and the plan answer it alike.

An estimator's support of NaN depends on its parts and on its training data, so the estimator is asked. Rows get NaN in
sets of columns, and a set is allowed if `predict` does not raise and gives a finite answer. A set that fails is halved,
for a limited number of questions; columns that are undecided by then are not allowed. Columns for which the plan
answers NaN are not asked about. Columns in which rows of the sample itself hold NaN are allowed in any case: the entry
is verified on these rows, or not written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from triton_regressors.exporter.evidence.oracle import Answers, Oracle
from triton_regressors.exporter.evidence.sample import Sample
from triton_regressors.exporter.evidence.ties import errors, tied_rows
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.format.inputs import INTEGERS, UNKNOWN, Inputs

QUESTIONS = 64
ROWS = 64


def nan_columns(
    runner: Runner, oracle: Oracle, inputs: Inputs, sample: Sample, tolerance: float, accept_ties: bool = False
) -> tuple[list[int], Sample, bool]:
    """Return the columns, rows with NaN in them and the estimator's answers, and whether ties close other columns.

    The rows are rows of the sample with NaN in place of some numbers, if both answer them alike. Rows whose answers
    differ because neighbours are at equal distance count as answered alike with `accept_ties`, but are not among the
    returned rows. Without it they close their columns, which the last value says.
    """
    complete = sample.X[~np.isnan(sample.X).any(axis=1)][:ROWS]
    none = {name: values[:0] for name, values in sample.expected.items()}
    nothing = Sample(complete[:0], none, sample.drawn, none)
    if not len(complete):
        complete = np.where(np.isnan(sample.X[:ROWS]), 0, sample.X[:ROWS]).astype(sample.X.dtype)

    closed_by_ties = False

    def matched(rows: np.ndarray) -> tuple[Answers, np.ndarray] | None:
        """Return the estimator's answers and the mask of rows answered alike; None unless all rows that count are."""
        nonlocal closed_by_ties
        expected = oracle.finite_answers(rows)
        if expected is None:
            return None
        alike = errors(runner.predict(rows, oracle.outputs), expected, sample.units) <= tolerance
        if not alike.all():
            if not tied_rows(runner.plan, rows[~alike]).all():
                return None
            if not accept_ties:
                closed_by_ties = True
                return None
        return expected, alike

    def takes(columns: np.ndarray) -> bool:
        rows = complete[:2].copy()
        rows[:, columns] = np.nan
        return matched(oracle.completed(rows)) is not None

    tensors = inputs.columns()
    if INTEGERS in tensors:  # int64 has no NaN, but a missing date
        tensors[INTEGERS] = tuple(inputs.dates)
    every = np.array(sorted(column for columns in tensors.values() for column in columns), dtype=np.int64)
    if not len(every):
        return [], nothing, False
    given = every[np.isnan(sample.X[:, every]).any(axis=0)]
    with_nan = np.flatnonzero(np.isnan(sample.X[:, given]).any(axis=1))[:ROWS]

    def as_given() -> tuple[list[int], Sample, bool]:
        """Return the columns and rows that hold NaN in the sample."""
        expected, rounded = (
            {name: values[with_nan] for name, values in answers.items()}
            for answers in (sample.expected, sample.rounded)
        )
        kept = Sample(sample.X[with_nan], expected, sample.drawn, rounded)
        return given.tolist(), kept, closed_by_ties

    # The plan answers a row for each column. More columns than questions would cost more than they spare.
    asked = _answered(runner, oracle, complete[0], every) if len(every) <= QUESTIONS else every
    columns = np.union1d(_search(asked, takes), given)
    if not len(columns):
        return [], nothing, closed_by_ties
    rng = np.random.default_rng(0)
    rows = complete.copy()
    holes = rng.random((len(rows), len(columns))) < 0.25
    holes[np.arange(len(rows)), rng.integers(0, len(columns), len(rows))] = True
    rows[:, columns] = np.where(holes, np.float32(np.nan), rows[:, columns])
    rows = oracle.completed(rows)
    found = matched(rows)
    if found is None:
        return as_given()
    expected, alike = found
    expected = {name: values[alike] for name, values in expected.items()}
    kept = Sample(rows[alike], expected, sample.drawn, expected)
    return columns.tolist(), kept, closed_by_ties


def made_nan_columns(
    runner: Runner, oracle: Oracle, inputs: Inputs, samples: Sequence[Sample], tolerance: float
) -> list[int]:
    """Return the columns that steps make of strings in which NaN is answered as the estimator answers it.

    A missing value is made of a missing string, or of one that has no such part. A column without NaN in the samples
    is tried with a string that nobody knows, in one row of two: code may not take a column that is missing throughout.
    """
    found = list[int]()
    if inputs.made is None:
        return found
    for column in inputs.made.columns:
        if any(np.isnan(sample.X[:, column.column]).any() for sample in samples):
            found.append(column.column)
            continue
        for source in inputs.made.sources(column):
            rows = samples[0].X[:2].copy()
            rows[-1, source] = UNKNOWN
            rows = oracle.completed(rows)
            expected = oracle.finite_answers(rows) if np.isnan(rows[-1, column.column]) else None
            if expected is not None:
                error = errors(runner.predict(rows, oracle.outputs), expected, samples[0].units)
                found += [column.column] if (error <= tolerance).all() else []
                break
    return found


def _answered(runner: Runner, oracle: Oracle, row: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return the columns for which the plan's answers are finite if that column alone of the row `[n]` is NaN."""
    rows = np.tile(row, (len(columns), 1))
    rows[np.arange(len(columns)), columns] = np.nan
    answers = runner.predict(oracle.completed(rows), oracle.outputs)
    finite = np.isfinite(np.column_stack(list(answers.values()))).all(axis=1)
    return np.asarray(columns[finite])


def _search(columns: np.ndarray, takes: Callable[[np.ndarray], bool]) -> np.ndarray:
    """Return the columns that `takes` accepts, halving each set that it does not accept."""
    allowed: list[np.ndarray] = []
    waiting = [columns]
    for _ in range(QUESTIONS):
        if not waiting:
            break
        part = waiting.pop(0)
        if takes(part):
            allowed.append(part)
        elif len(part) > 1:
            waiting += np.array_split(part, 2)
    return np.sort(np.concatenate(allowed)) if allowed else columns[:0]
