"""Makes the profile of an export's rows, with which served rows are compared."""

from __future__ import annotations

from typing import Any

from triton_regressors.exporter.evidence.oracle import Oracle
from triton_regressors.exporter.evidence.sample import Sample
from triton_regressors.exporter.lowering.lower import Lowered
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.format.inputs import Inputs
from triton_regressors.kernels.format.row_profile import RowProfile

PROFILE = "The profile"

ANSWERED_ROWS = 2**16
"""The most rows of a profile that are answered, evenly spaced: enough for shares, and bounded for slow models."""


def find_profile(
    lowered: Lowered, oracle: Oracle, inputs: Inputs, sample: Sample, runner: Runner, given: Any | None
) -> RowProfile | None:
    """Return the profile of the given rows, or of the sample, or None if the user gave neither or wants none.

    Args:
        lowered: the model, which knows the numbers that columns of categories take.
        oracle: the estimator's oracle, which reads the given rows.
        inputs: the entry's inputs, with the types of numbers that it serves.
        sample: the rows that the plan is verified on.
        runner: the plan, whose answers to given rows are part of their profile.
        given: rows as `predict` takes them; False: there is no profile.

    Raises:
        ExportError: the given rows do not fit the model.
    """
    if given is False:
        return None
    known = {column: lowered.profile.choices[column] for column in inputs.categorical}
    if given is not None:
        X = inputs.rounded(oracle.matrix(oracle.table(given, PROFILE), lowered.inputs.numeric, PROFILE))
        X = X.astype(inputs.matrix_dtype)
        answers = runner.predict(X[:: -(-len(X) // ANSWERED_ROWS)], tuple(runner.plan.outputs))
        return RowProfile.of(X, answers, known, inputs.coded)
    return None if sample.drawn else RowProfile.of(sample.X, sample.rounded, known, inputs.coded)
