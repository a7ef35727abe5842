"""Chooses how each operation sums, of the precisions that it has.

An operation sums in float64 unless less was measured to lose next to nothing: what its kernel would answer on the
sample is computed at each of its precisions, and the cheapest is chosen whose error is at most a quarter of the
tolerance. The matrix units of a GPU sum float32 products about twice as fast.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from triton_regressors.kernels.parity import units
from triton_regressors.kernels.plan import INPUT, Operation, Plan, Step
from triton_regressors.kernels.run import Runner

SHARE_OF_TOLERANCE = 0.25


def choose_precision(plan: Plan, X: np.ndarray, tolerance: float) -> Plan:
    """Return the plan with sums of less than float64 where the sample rows `X` show that they are good enough."""
    choices = [step for step in plan.steps if len(step.operation.PRECISIONS) > 1]
    if not choices:
        return plan
    names = dict.fromkeys(name for step in choices for name in (*step.inputs, step.output) if name != INPUT)
    probe = dataclasses.replace(plan, outputs={name: name for name in names})
    values = {INPUT: X, **Runner(probe, engine="torch", max_rows=len(X)).predict(X, tuple(names))}
    chosen = {
        step.output: _chosen(step.operation, [values[name] for name in step.inputs], values[step.output], tolerance)
        for step in choices
    }
    if all(chosen[step.output] is step.operation for step in choices):
        return plan
    return plan.with_steps(
        Step(chosen.get(step.output, step.operation), step.inputs, step.output) for step in plan.steps
    )


def _chosen(operation: Operation, inputs: list[np.ndarray], answer: np.ndarray, tolerance: float) -> Operation:
    """Return the operation at the cheapest of its precisions that answers well enough."""
    y = answer.astype(np.float64)
    for precision in reversed(operation.PRECISIONS[1:]):
        cheaper = operation.in_precision(precision)
        error = np.abs(cheaper.emulate(*inputs) - y) / units(y)
        if error.max() <= SHARE_OF_TOLERANCE * tolerance:
            return cheaper
    return operation
