"""The works that benchmarks of kernels time: a plan's kernels, beside torch in their place."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.base import BaseEstimator

from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.kernels.ops.trees.tree_ensemble import TreeEnsemble
from triton_regressors.kernels.plan.plan import INPUT, Operation, Plan, Step

LIMIT = 1e-6
"""The largest difference from the reference's answers, in standard deviations of these, at least in units of 1."""

Tensor = torch.Tensor


@dataclass(frozen=True)
class Work:
    """A plan, torch's function in its place (if there is one), and the numbers of rows to time.

    Rows are normal, or their absolute values if `positive`, and `missing` is the share of their numbers that are NaN.
    `limit` is the largest error. `ensemble` is the estimator of trees that nvForest can load, and `beside` the same
    trees summed as integers, if the plan's sum is ordered.
    """

    family: str
    title: str
    plan: Plan
    rows: Sequence[int]
    peer: Callable[[Tensor], Tensor] | None = None
    ensemble: BaseEstimator | None = None
    beside: Plan | None = None
    limit: float = LIMIT
    positive: bool = False
    missing: float = 0.0


def alone(operation: Operation) -> Plan:
    """Return a plan of one operation."""
    (features,) = {array.shape[1] for name, array in operation.arrays() if name == "points"}
    return Plan(features, (Step(operation, (INPUT,), "y"),), {"y": "y"})


def compiled(estimator: BaseEstimator) -> Plan:
    """Return an estimator's plan as `export` writes it."""
    return compile_estimator(estimator).plan


def in_order(ensemble: TreeEnsemble) -> TreeEnsemble:
    """Return an ensemble that sums its trees one after the other in float32, as XGBoost does."""
    return dataclasses.replace(
        ensemble,
        values=ensemble.values.astype(np.float32),
        baseline=ensemble.baseline.astype(np.float32),
        divisor=1.0,
        output="ordered",
        starts=np.array([0, len(ensemble.roots)], dtype=np.int32),
    )


def with_ordered_sums(plan: Plan) -> Plan:
    """Return the plan with every sum of trees ordered."""
    return plan.with_steps(
        dataclasses.replace(step, operation=in_order(step.operation))
        if isinstance(step.operation, TreeEnsemble)
        else step
        for step in plan.steps
    )
