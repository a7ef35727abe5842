"""Splits long sums over points into parts, so that a few rows keep a GPU busy: see `kernels/ops/pairwise_affine.py`.

How many parts follows from the number of points alone. It comes after every fusion: a linear map or a function that
follows the sum is in it by then, and has no place between the parts and their sum.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from triton_regressors.exporter.passes.rewriting import Scope
from triton_regressors.kernels.ops.affine import Affine
from triton_regressors.kernels.ops.pairwise_affine import PairwiseAffine
from triton_regressors.kernels.plan import Plan, Step

PART_POINTS = 1024
"""How many points a part covers, but for what rounding up to whole blocks makes of it."""


def split_sums(plan: Plan) -> Plan:
    """Make each sum over more than `PART_POINTS` points in parts, which an Affine adds up."""
    scope = Scope(plan)
    steps = [part for step in plan.steps for part in _split(step, scope)]
    return plan.with_steps(steps) if len(steps) > len(plan.steps) else plan


def _split(step: Step, scope: Scope) -> list[Step]:
    whole = step.operation
    if not isinstance(whole, PairwiseAffine) or len(whole.points) <= PART_POINTS:
        return [step]
    targets, parts = whole.weight.shape[1], -(-len(whole.points) // PART_POINTS)
    sums = scope.step(dataclasses.replace(whole, parts=parts, function="identity"), step.inputs, step.output)
    total = Affine(np.tile(np.eye(targets), (parts, 1)), np.zeros(targets), whole.function)
    return [sums, Step(total, (sums.output,), step.output)]
