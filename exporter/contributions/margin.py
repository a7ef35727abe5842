"""The margin of a plan: its answer, or what stands before the last function of each answer, such as a link."""

from __future__ import annotations

import dataclasses

from triton_regressors.kernels.ops.columns.elementwise import Elementwise
from triton_regressors.kernels.ops.columns.expression import Expression
from triton_regressors.kernels.ops.columns.float32 import Float32
from triton_regressors.kernels.ops.columns.power import Power
from triton_regressors.kernels.ops.columns.scale import Scale
from triton_regressors.kernels.plan.plan import Operation, Plan, Step

MARGIN = "margin"


def margin_of(plan: Plan, output: str = "y") -> tuple[Plan, tuple[str, ...]]:
    """Return the plan that answers the margin alone, and the functions that make the answer of it, in their order.

    Functions at the end that act on each number by itself are left out down to the first that is not affine. What
    stands before them is the sum of contributions. `margin` is the only output.
    """
    makers = {step.output: step for step in plan.steps}
    value, links = plan.outputs[output], list[str]()
    before, passed = value, list[str]()
    while value in makers and _elementwise(makers[value].operation):
        step = makers[value]
        passed.append(_name(step.operation))
        (value,) = step.inputs
        if not isinstance(step.operation, Scale | Float32):
            before, links = value, list(passed)
    steps = list(plan.steps)
    if value in makers and getattr(makers[value].operation, "function", "identity") != "identity":
        place = steps.index(makers[value])
        operation = steps[place].operation
        links = [*passed, operation.function]  # type: ignore[attr-defined]
        plain: Operation = dataclasses.replace(operation, function="identity")  # type: ignore[type-var]
        steps[place], before = Step(plain, steps[place].inputs, value), value  # all that read it were left out
    found = Plan(plan.n_features, tuple(steps), {MARGIN: before}, plan.dtype)
    return found.with_steps(found.steps_for([MARGIN])), tuple(reversed(links))


def _elementwise(operation: Operation) -> bool:
    """Return whether each number of an operation's output is a function of the number at its place in the input."""
    if isinstance(operation, Expression):
        own = range(int(operation.lanes.sum()))
        return all(group.inputs == 1 for group in operation.groups) and operation.columns.tolist() == list(own)
    return isinstance(operation, Elementwise | Float32 | Power | Scale)


def _name(operation: Operation) -> str:
    """Return a word for the function."""
    match operation:
        case Elementwise():
            clipped = operation.low is not None or operation.high is not None
            return operation.function if not clipped else f"{operation.function}, clipped"
        case Power():
            return f"{'inverse ' if operation.inverse else ''}{operation.method}"
        case Expression():
            return "own function"
    return operation.kind()
