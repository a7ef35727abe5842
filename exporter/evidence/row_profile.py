"""Makes the profile that served rows are compared with: of the rows that an export is given."""

from __future__ import annotations

from typing import Any

from triton_regressors.exporter.evidence.oracle import Oracle
from triton_regressors.exporter.evidence.sample import Sample
from triton_regressors.exporter.lowering.lower import Lowered
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.format.inputs import Inputs
from triton_regressors.kernels.format.row_profile import RowProfile

CALLED = "The profile"

ANSWERED_ROWS = 2**16
"""The most rows of a profile that are answered, evenly spaced: enough for shares, whatever the model costs."""


def find_profile(
    lowered: Lowered, oracle: Oracle, inputs: Inputs, sample: Sample, runner: Runner, given: Any | None
) -> RowProfile | None:
    """Return the profile of the given rows, or of the sample, or None where nobody gave either.

    Args:
        lowered: the model, which says what numbers columns of categories take.
        oracle: reads the given rows.
        inputs: the entry's, with the types of numbers that it serves.
        sample: the rows that the plan is verified on.
        runner: the plan, whose answers to given rows are part of their profile.
        given: rows as `predict` takes them.

    Raises:
        ExportError: the given rows do not fit the model.
    """
    known = {column: lowered.profile.choices[column] for column in inputs.categorical}
    if given is not None:
        X = inputs.rounded(oracle.matrix(oracle.table(given, CALLED), lowered.inputs.numeric, CALLED))
        X = X.astype(inputs.matrix_dtype)
        answers = runner.predict(X[:: -(-len(X) // ANSWERED_ROWS)], tuple(runner.plan.outputs))
        return RowProfile.of(X, answers, known, inputs.coded)
    return None if sample.drawn else RowProfile.of(sample.X, sample.rounded, known, inputs.coded)
