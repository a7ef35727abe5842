"""Selects columns while they are concatenated, without a step of its own.

This pass runs after every fusion, as fusions assume that a Concatenate takes all columns of its inputs.
"""

from __future__ import annotations

import itertools

import numpy as np

from triton_regressors.exporter.passes.drop import without_dead_steps
from triton_regressors.exporter.passes.rewriting import Scope
from triton_regressors.kernels.ops.columns.columns import Columns
from triton_regressors.kernels.ops.columns.concatenate import Concatenate
from triton_regressors.kernels.plan.plan import Plan, Step


def select_in_place(plan: Plan) -> Plan:
    """Let each Concatenate select columns itself, from the inputs of the selections that it reads."""
    scope = Scope(plan)
    steps = [_selected(step, scope) for step in plan.steps]
    changed = any(new is not old for new, old in zip(steps, plan.steps, strict=True))
    return without_dead_steps(plan.with_steps(steps)) if changed else plan


def _selected(step: Step, scope: Scope) -> Step:
    """Return the step, or in its place a Concatenate that reads each value once."""
    if not isinstance(step.operation, Concatenate) or step.operation.columns is not None:
        return step
    parts: list[tuple[str, np.ndarray]] = []
    for name in step.inputs:
        made = scope.operation(name)
        if isinstance(made, Columns):
            parts.append((scope.inputs(name)[0], made.indices))
        else:
            parts.append((name, np.arange(scope.widths[name])))
    sources = tuple(dict.fromkeys(source for source, _ in parts))
    if sources == step.inputs:
        return step
    firsts = dict(zip(sources, itertools.accumulate((scope.widths[s] for s in sources), initial=0), strict=False))
    columns = np.concatenate([firsts[source] + indices for source, indices in parts]).astype(np.int32)
    return Step(Concatenate(columns), sources, step.output)
