"""The cost of a plan, which every fusion lowers, so that fusing ends for every plan.

Each count is a non-negative whole number, and costs are compared lexicographically, so no sequence of costs can fall
for ever. Each fusion lowers the cost for this reason:

- A step that is dropped saves its launches.
- Two operations in a row that become one launch no more than the second did, and the resulting step is nearer to the
  input. The result is a Scale only if one of the two was, and depends on a lookup only if one of them did.
- One step becomes others only if the cost falls (`rewriting.of_steps`).
- A polynomial that becomes a quadratic form or an Affine is one polynomial less, and nothing else changes.
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

    `launches` counts kernel launches; each part of a Concatenate counts as one, since it is written once more. A fusion
    saves no launch if another step still reads the step that it would drop; it then lowers one of the other counts.
    `beside` counts the parts of each Concatenate that are scaled, and the parts that depend on a lookup (a part that is
    both counts twice). `depth` is the sum over the steps of the longest chain that ends in each. `polynomials` counts
    the steps that expand a polynomial and contract it. An example: if two steps read a Scale and one of them absorbs
    it, the Scale stays for the other, and the first is one step nearer to the input.
    """

    launches: int
    beside: int
    depth: int
    polynomials: int


def cost(plan: Plan) -> Cost:
    """Return the cost of a plan, including steps that no step reads."""
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
