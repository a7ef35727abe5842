"""What a plan may do because its input is float32: thresholds are rounded, and nothing is rounded twice.

A lowering compares as the estimator does, in float64 or after rounding to float32. A float32 `x` is at most a threshold
exactly where it is at most the largest float32 that is not above that threshold, and a float32 threshold shares a word
with the rest of its node.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from triton_regressors.exporter.lowering.tree_nodes import round_down
from triton_regressors.kernels.ops.columns.columns import Columns
from triton_regressors.kernels.ops.columns.concatenate import Concatenate
from triton_regressors.kernels.ops.columns.float32 import Float32
from triton_regressors.kernels.ops.columns.impute import Impute
from triton_regressors.kernels.ops.columns.lookup import Lookup
from triton_regressors.kernels.ops.columns.scale import Scale
from triton_regressors.kernels.ops.linear.polynomial import Polynomial
from triton_regressors.kernels.ops.trees.symmetric_trees import SymmetricTrees
from triton_regressors.kernels.ops.trees.tree_ensemble import TreeEnsemble
from triton_regressors.kernels.plan.plan import INPUT, Operation, Plan, Step


def specialise(plan: Plan, dtype: str) -> Plan:
    """Return a lowered plan for an input of that dtype."""
    if dtype != "float32":
        return dataclasses.replace(plan, dtype=dtype)
    single, renamed, steps = {INPUT}, {INPUT: INPUT}, []
    for step in plan.steps:
        operation, inputs = step.operation, tuple(renamed[name] for name in step.inputs)
        exact = all(name in single for name in inputs)
        if isinstance(operation, Float32) and exact:
            renamed[step.output] = inputs[0]
            continue
        if isinstance(operation, SymmetricTrees | TreeEnsemble) and exact:
            operation = dataclasses.replace(operation, threshold=round_down(operation.threshold))
        if _keeps_float32(operation, exact):
            single.add(step.output)
        renamed[step.output] = step.output
        steps.append(Step(operation, inputs, step.output))
    outputs = {name: renamed[value] for name, value in plan.outputs.items()}
    return Plan(plan.n_features, tuple(steps), outputs, dtype)


def _keeps_float32(operation: Operation, exact: bool) -> bool:
    """Return whether an operation makes nothing but float32 numbers, `exact` saying that it is given nothing else."""
    match operation:
        case Columns() | Concatenate():
            return exact
        case Float32():
            return exact or not len(operation.rounded)
        case Polynomial() | Scale():
            return operation.single
        case Impute():
            return exact and _are_float32(operation.fill)
        case Lookup():
            return not operation.summed and operation.function == "identity" and _are_float32(operation.table)
    return False


def _are_float32(numbers: np.ndarray) -> bool:
    return bool(np.array_equal(numbers, numbers.astype(np.float32), equal_nan=True))
