"""The prediction interval of a fleet's model, in steps that are stacked with those of other models.

The operation `interval_end` holds the number q of one model and does not stack. It computes `m − h` and `m + h`, and in
its form "scaled" h is an input. With the factor 1 that step is the same for all models, and q moves in front of it:

    form         m                h
    absolute     y                q, the only entry of a look-up
    scaled       y                q · std, a scale
    quantiles    l / 2 + u / 2    max(|u / 2 − l / 2| + q, 0), a program that reads q as a column

Look-ups and scales stack. Every number is the float64 number of `interval_end`, so the ends have the same bits.
"""

from __future__ import annotations

import numpy as np

from triton_regressors.kernels.ops.columns.concatenate import Concatenate
from triton_regressors.kernels.ops.columns.expression import Expression, Program
from triton_regressors.kernels.ops.columns.interval_end import IntervalEnd
from triton_regressors.kernels.ops.columns.lookup import Lookup
from triton_regressors.kernels.ops.columns.scale import Scale
from triton_regressors.kernels.ops.columns.slice import Slice
from triton_regressors.kernels.plan.plan import Plan, Step

Q, HALF, MIDDLE = "interval_q", "interval_half", "interval_middle"
TOGETHER, BOTH = "interval_quantiles", "interval_middle_and_half"
"""The values of the steps in front of the ends."""

HALVES: Program = (("multiply", "x0", "c0"), ("multiply", "x1", "c0"))
MIDDLE_OF: Program = (*HALVES, ("add", "v0", "v1"))
HALF_OF: Program = (
    *HALVES,
    ("subtract", "v1", "v0"),
    ("absolute", "v2"),
    ("add", "v3", "x2"),
    ("maximum", "v4", "c1"),
)
"""The middle and half the distance of the ends; x0 and x1 are the two quantiles, x2 is q, c0 is 1 / 2 and c1 is 0."""


def stackable_interval(plan: Plan) -> Plan:
    """Return a plan whose interval is in steps that stack; a plan without an interval is returned as it is."""
    found = [(step.operation, step) for step in plan.steps if isinstance(step.operation, IntervalEnd)]
    if not found:
        return plan
    first, read = found[0][0], found[0][1].inputs
    q, middle = first.quantile, read[0]
    if first.form == "absolute":
        made = [Step(_constant(q), read, HALF)]
    elif first.form == "scaled":
        made = [Step(Scale(np.zeros_like(q), q), read[1:], HALF)]
    else:
        made, middle = _of_quantiles(q, read), MIDDLE
    ends = [Step(IntervalEnd(end.end, "scaled", np.ones_like(q)), (middle, HALF), step.output) for end, step in found]
    before = [step for step in plan.steps if not isinstance(step.operation, IntervalEnd)]
    return plan.with_steps([*before, *made, *ends])


def _constant(numbers: np.ndarray) -> Lookup:
    """Return the operation that answers these numbers for every row, whatever it holds: a look-up without keys."""
    table = np.stack([numbers, numbers])  # for NaN, and for every other number
    return Lookup(np.zeros(1, np.int32), np.zeros(2, np.int64), np.zeros(0), table, summed=True)


def _of_quantiles(q: np.ndarray, read: tuple[str, ...]) -> list[Step]:
    """Return the steps to the middle of two quantiles, and to half the distance of the ends."""
    targets = len(q)
    columns = np.arange(3 * targets, dtype=np.int32).reshape(3, targets).T
    program = Expression(
        (MIDDLE_OF, HALF_OF),
        np.array([targets, targets], dtype=np.int32),
        np.concatenate([columns[:, :2].ravel(), columns.ravel()]),
        np.concatenate([np.full(targets, 0.5), np.tile([0.5, 0.0], targets)]),
    )
    return [
        Step(_constant(q), (read[0],), Q),
        Step(Concatenate(), (*read, Q), TOGETHER),
        Step(program, (TOGETHER,), BOTH),
        Step(Slice(0, targets), (BOTH,), MIDDLE),
        Step(Slice(targets, targets), (BOTH,), HALF),
    ]
