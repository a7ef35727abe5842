"""What a plan costs, as a measure that every fusion lowers: so that fusing ends, whatever the plan.

Each count is a whole number that is not negative, and costs are compared field by field, the first field first. Of such
costs there is no endless falling row. Why each fusion lowers it:

- A step that is dropped saves its launches.
- Two operations in a row that become one launch no more than the second did, and that step is nearer to the input. None
  becomes a Scale that was not one, and what is made of a lookup was so before.
- One step that becomes others does so only where the cost falls (`rewriting.of_steps`).
- A polynomial that becomes a quadratic form or an Affine is one polynomial less, and everything else is as it was.
"""

from __future__ import annotations

from typing import NamedTuple

from triton_regressors.kernels.ops.columns.concatenate import Concatenate
from triton_regressors.kernels.ops.columns.lookup import Lookup
from triton_regressors.kernels.ops.columns.scale import Scale
from triton_regressors.kernels.ops.linear.polynomial_affine import PolynomialAffine
from triton_regressors.kernels.plan.plan import INPUT, Plan


class Cost(NamedTuple):
    """The cost of one plan.

    `launches` are the kernels that it launches, where each part of a Concatenate counts as one, since it is written
    once more. A fusion that saves none, since another step still reads what it would drop, lowers one of the others:
    `beside`, the parts of each Concatenate that are scaled, and those that are made of a lookup (one that is both
    counts twice); `depth`, the sum over the steps of the longest chain of steps that ends in it; `polynomials`, the
    steps that expand a polynomial and contract it. An example: where two steps read a Scale and one of them takes it
    in, the Scale stays for the other, and the first is one step nearer to the input.
    """

    launches: int
    beside: int
    depth: int
    polynomials: int


def cost(plan: Plan) -> Cost:
    """Return what a plan costs, with the steps that nobody reads."""
    depths = {INPUT: 0}
    scaled: set[str] = set()
    looked_up: set[str] = set()
    beside = 0
    for step in plan.steps:
        depths[step.output] = 1 + max(depths[name] for name in step.inputs)
        if isinstance(step.operation, Scale):
            scaled.add(step.output)
        if isinstance(step.operation, Lookup) or not looked_up.isdisjoint(step.inputs):
            looked_up.add(step.output)
        if isinstance(step.operation, Concatenate):
            beside += sum((name in scaled) + (name in looked_up) for name in step.inputs)
    launches = sum(
        len(step.inputs) if isinstance(step.operation, Concatenate) else step.operation.launches(len(step.inputs))
        for step in plan.steps
    )
    polynomials = sum(isinstance(step.operation, PolynomialAffine) for step in plan.steps)
    return Cost(launches, beside, sum(depths.values()), polynomials)
