"""Folds an Affine into the lookups that it reads beside other values, and adds up the results.

An example: the first term of `[onehot(x₀), x₁, x₂] @ W` is a number for each category of `x₀`, a lookup in `W`.
"""

from __future__ import annotations

import numpy as np

from triton_regressors.exporter.passes.fold_lookups import fold_lookup
from triton_regressors.exporter.passes.rewriting import Scope
from triton_regressors.kernels.ops.columns.combine import MAX_INPUTS, Combine
from triton_regressors.kernels.ops.columns.concatenate import Concatenate
from triton_regressors.kernels.ops.columns.elementwise import Elementwise
from triton_regressors.kernels.ops.columns.lookup import Lookup
from triton_regressors.kernels.ops.linear.affine import Affine
from triton_regressors.kernels.plan.plan import Operation, Step


def add_up_lookups(step: Step, scope: Scope) -> list[Step] | None:
    """Replace an Affine of a Concatenate with lookups by the sum of an Affine of the rest and of folded lookups.

    One-hot columns that stand beside other columns are then never made.
    """
    affine = step.operation
    if not isinstance(affine, Affine) or not isinstance(scope.operation(step.inputs[0]), Concatenate):
        return None
    names, intercept = scope.inputs(step.inputs[0]), affine.intercept
    blocks = np.split(affine.weight, np.cumsum([scope.widths[name] for name in names])[:-1])
    rest = [(n, b) for n, b in zip(names, blocks, strict=True) if not isinstance(scope.operation(n), Lookup)]
    terms: list[tuple[Operation, tuple[str, ...]]] = []
    if rest:
        weight = np.concatenate([block for _, block in rest])
        terms.append((Affine(weight, intercept), tuple(name for name, _ in rest)))
        intercept = np.zeros_like(intercept)
    for name, block in zip(names, blocks, strict=True):
        operation = scope.operation(name)
        if isinstance(operation, Lookup):
            summed = fold_lookup(operation, Affine(block, intercept), scope.widths[name])
            if summed is None:
                return None
            terms.append((summed, scope.inputs(name)))
            intercept = np.zeros_like(intercept)
    if len(rest) == len(names) or len(terms) > MAX_INPUTS:
        return None
    steps: list[Step] = []
    for operation, inputs in terms:
        if len(inputs) > 1:
            steps.append(scope.step(Concatenate(), inputs, step.output))
            inputs = (steps[-1].output,)
        steps.append(scope.step(operation, inputs, step.output))
    added = tuple(made.output for made in steps if not isinstance(made.operation, Concatenate))
    if affine.function == "identity":
        return [*steps, Step(Combine("sum"), added, step.output)]
    steps.append(scope.step(Combine("sum"), added, step.output))
    return [*steps, Step(Elementwise(affine.function), (steps[-1].output,), step.output)]
