"""The output `out_of_range`: the number of columns in which a row is unlike the rows of an entry's profile."""

from __future__ import annotations

import dataclasses

import numpy as np

from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.evidence.sample import Sample
from triton_regressors.kernels.format.inputs import Inputs
from triton_regressors.kernels.format.row_profile import RowProfile
from triton_regressors.kernels.ops.columns.combine import Combine
from triton_regressors.kernels.ops.columns.lookup import Lookup
from triton_regressors.kernels.ops.columns.outside import Outside
from triton_regressors.kernels.plan.plan import INPUT, Plan, Step

OUTPUT = "out_of_range"
STAGE = "count what is out of range"


def add_count(plan: Plan, profile: RowProfile | None, inputs: Inputs) -> Plan:
    """Return the plan with the output `[rows, 1]`; the others keep their bits.

    It counts the columns in which a row has a number below the profile's smallest or above its largest, an unknown
    category, or NaN although the profile has none there.

    Raises:
        ExportError: there is no profile, or another output has this name.
    """
    if profile is None:
        raise ExportError("out_of_range compares rows with a profile: give sample or profile.")
    if OUTPUT in plan.outputs:
        raise ExportError(f"Cannot add the output '{OUTPUT}': the model has one of this name.")
    low, high = np.nan_to_num(profile.low, nan=-np.inf), np.nan_to_num(profile.high, nan=np.inf)
    low[inputs.coded] = -np.inf
    low[inputs.choosing] = 0  # UNKNOWN is below 0
    missing = profile.nan_share == 0
    known = dict(sorted(profile.known.items()))
    missing[list(known)] = False  # the lookup counts it
    steps = [*plan.steps, Step(Outside(low, high, missing.astype(np.uint8)), (INPUT,), OUTPUT)]
    if known:
        count = sum(map(len, known.values()))
        table = np.concatenate([np.zeros(count), profile.nan_share[list(known)] == 0, np.ones(len(known))])
        starts = np.cumsum([0, *map(len, known.values())])
        keys = np.concatenate([*known.values()]).astype(np.float64)
        lookup = Lookup(np.array([*known], np.int32), starts.astype(np.int32), keys, table[:, None], summed=True)
        steps[-1] = dataclasses.replace(steps[-1], output="out of a range")
        steps.append(Step(lookup, (INPUT,), "of no category"))
        steps.append(Step(Combine("sum", (1.0, 1.0)), ("out of a range", "of no category"), OUTPUT))
    return Plan(plan.n_features, tuple(steps), {**plan.outputs, OUTPUT: OUTPUT}, plan.dtype)


def with_count(sample: Sample, profile: RowProfile, inputs: Inputs) -> Sample:
    """Return the sample with the output's answers beside the estimator's."""
    counts = {OUTPUT: profile.outside(sample.X, inputs.choosing)}
    return dataclasses.replace(sample, expected={**sample.expected, **counts}, rounded={**sample.rounded, **counts})
