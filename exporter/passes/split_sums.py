"""Splits long sums over points into parts, for a few rows to keep a GPU busy: see `ops/points/pairwise_affine.py`.

How many parts there are follows from the numbers of points and targets and the precision. This comes after every
fusion: a linear map or a function that follows the sum is in it by then, and has no place between the parts and their
sum.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from triton_regressors.exporter.passes.rewriting import Scope
from triton_regressors.kernels.ops.linear.affine import Affine
from triton_regressors.kernels.ops.points.pairwise_affine import PairwiseAffine
from triton_regressors.kernels.plan.plan import Plan, Step

PART_POINTS = {"float64": 1024, "ten digits": 128, "float32 pairs": 128, "float32": 128}
"""How many points a part covers at least, by precision, but for what rounding up to whole blocks makes of it."""

MOST_PARTS = 64
MOST_SUMS = 512
"""How many sums there are at most, of all parts and targets: they are written to memory and read again."""


def split_sums(plan: Plan) -> Plan:
    """Make each sum over more points than a part has in parts, which an Affine adds up."""
    scope = Scope(plan)
    steps = [part for step in plan.steps for part in _split(step, scope)]
    return plan.with_steps(steps) if len(steps) > len(plan.steps) else plan


def _split(step: Step, scope: Scope) -> list[Step]:
    whole = step.operation
    if not isinstance(whole, PairwiseAffine) or len(whole.points) <= PART_POINTS[whole.precision]:
        return [step]
    points, targets = whole.weight.shape
    parts = -(-points // PART_POINTS[whole.precision])
    if whole.precision != "float64":
        parts = min(parts, MOST_PARTS, max(MOST_SUMS // targets, 2))
        parts = -(-points // dataclasses.replace(whole, parts=parts).part_points())  # whole blocks may need fewer
    sums = scope.step(dataclasses.replace(whole, parts=parts, function="identity"), step.inputs, step.output)
    total = Affine(np.tile(np.eye(targets), (parts, 1)), np.zeros(targets), whole.function)
    return [sums, Step(total, (sums.output,), step.output)]
