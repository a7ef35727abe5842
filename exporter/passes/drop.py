"""Drops steps without effect, and steps that no output needs."""

from __future__ import annotations

import numpy as np

from triton_regressors.kernels.ops.columns.columns import Columns
from triton_regressors.kernels.ops.columns.concatenate import Concatenate
from triton_regressors.kernels.ops.columns.elementwise import Elementwise
from triton_regressors.kernels.ops.columns.scale import Scale
from triton_regressors.kernels.plan.plan import Plan, Step


def drop_steps_without_effect(plan: Plan) -> Plan:
    """Drop steps that change nothing; their readers read their inputs."""
    renamed: dict[str, str] = {}
    widths, steps = plan.widths(), []
    for step in plan.steps:
        inputs = tuple(renamed.get(name, name) for name in step.inputs)
        if _has_no_effect(step, widths[step.inputs[0]]) and step.output not in plan.outputs.values():
            renamed[step.output] = inputs[0]
        else:
            steps.append(Step(step.operation, inputs, step.output))
    return plan.with_steps(steps) if renamed else plan


def without_dead_steps(plan: Plan) -> Plan:
    """Return the plan without the steps that no output needs."""
    steps = plan.steps_for(tuple(plan.outputs))
    return plan if len(steps) == len(plan.steps) else plan.with_steps(steps)


def _has_no_effect(step: Step, width: int) -> bool:
    match op := step.operation:
        case Scale():
            return not op.single and not op.shift.any() and bool(np.all(op.factor == 1))
        case Columns():
            return np.array_equal(op.indices, np.arange(width))
        case Concatenate():
            return len(step.inputs) == 1
        case Elementwise():
            return op.function == "identity" and op.low is None and op.high is None
    return False
