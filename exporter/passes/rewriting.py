"""Rewrites a plan in a pass: two operations in a row become one, or one step becomes others.

Either way the plan's cost falls, see `cost.py`. A step that a rewritten step no longer reads stays in the plan as long
as something else reads it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from triton_regressors.exporter.passes.cost import cost
from triton_regressors.exporter.passes.drop import without_dead_steps
from triton_regressors.kernels.plan.plan import Operation, Plan, Step

SMALL = 2**16
"""Matrix products of at most this many numbers are always folded, to save a launch."""

Pair = Callable[[Operation, Operation, int], "Operation | None"]
"""`rule(first, second, width)`: one operation that does both on a matrix of this width, or None."""


class Scope:
    """The plan being rewritten: the maker, the readers and the width of each value, and names for new values."""

    def __init__(self, plan: Plan) -> None:
        self.widths = plan.widths()
        self._makers = {step.output: step for step in plan.steps}
        self._readers: dict[str, list[Operation]] = {}
        for step in plan.steps:
            for name in step.inputs:
                self._readers.setdefault(name, []).append(step.operation)

    def operation(self, name: str) -> Operation | None:
        """Return the operation that makes a value; None for the plan's input."""
        return self._makers[name].operation if name in self._makers else None

    def inputs(self, name: str) -> tuple[str, ...]:
        """Return the inputs of a value's maker."""
        return self._makers[name].inputs

    def readers(self, name: str) -> list[Operation]:
        """Return the operations that read a value."""
        return self._readers.get(name, [])

    def step(self, operation: Operation, inputs: tuple[str, ...], near: str) -> Step:
        """Return a step whose value has a new name, derived from that of the value `near`."""
        name = next(f"{near}_{number}" for number in itertools.count() if f"{near}_{number}" not in self.widths)
        self.widths[name] = operation.output_width(*(self.widths[value] for value in inputs))
        step = self._makers[name] = Step(operation, inputs, name)
        return step


def of_pairs(rule: Pair) -> Callable[[Plan], Plan]:
    """Make a pass of a rule for two operations in a row; the fused step is one step nearer to the input."""

    def run(plan: Plan) -> Plan:
        widths = plan.widths()
        makers: dict[str, Step] = {}
        changed = False
        for step in plan.steps:
            while len(step.inputs) == 1 and step.inputs[0] in makers:
                maker = makers[step.inputs[0]]
                if len(maker.inputs) != 1:
                    break
                both = rule(maker.operation, step.operation, widths[maker.inputs[0]])
                if both is None:
                    break
                step = Step(both, maker.inputs, step.output)
                changed = True
            makers[step.output] = step
        return without_dead_steps(plan.with_steps(makers.values())) if changed else plan

    return run


def of_steps(
    rewrite: Callable[[Step, Scope], list[Step] | None], *, may_add_steps: bool = False
) -> Callable[[Plan], Plan]:
    """Make a pass of a rewriting of one step.

    A step is left as it is if the plan would cost no less or have more steps, because something else reads the step's
    inputs.

    Args:
        rewrite: returns the steps that replace a step, or None to leave it.
        may_add_steps: for a rewriting whose new steps write less than it saves.
    """

    def run(plan: Plan) -> Plan:
        scope, before = Scope(plan), cost(plan)
        for step in plan.steps:
            new = rewrite(step, scope) if scope.operation(step.output) is step.operation else None
            if new is not None:
                steps = [part for old in plan.steps for part in (new if old.output == step.output else [old])]
                rewritten = without_dead_steps(plan.with_steps(steps))
                after = cost(rewritten)
                if after < before and (may_add_steps or len(rewritten.steps) <= len(plan.steps)):
                    plan, before = rewritten, after
                scope = Scope(plan)
        return plan

    return run
