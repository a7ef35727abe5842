"""The steps of a plan as plain torch takes them on a CPU, where a launch costs nothing and memory much.

Sums that are split into parts to keep a GPU busy are made whole. A matrix of functions of rows and points that only a
squared norm reads is never whole: its tiles go into the norm as they are made, and into sums over the same functions,
as a Gaussian process has of its mean and its variance.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from .ops.affine import Affine
from .ops.pairwise import Pairwise
from .ops.pairwise_affine import PairwiseAffine
from .ops.squared_norm import SquaredNorm
from .plan import Parameters, Plan, Step
from .point_function import PointFunction

FUNCTION_FIELDS = tuple(field.name for field in dataclasses.fields(PointFunction) if field.name != "precision")


@dataclass(frozen=True)
class SharedPoints:
    """The step that makes functions of rows and points, the one that makes their norm, and those that sum them up."""

    functions: Pairwise
    norm: Step
    sums: tuple[Step, ...]
    input: str

    def run(self, parameters: Mapping[str, Parameters], x: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the values that these steps make of the rows `x`, but for the functions themselves."""
        points = len(self.functions.points)
        sums = [(step.output, _sum_of(step), _sum_of(step).no_sums(len(x))) for step in self.sums]

        def source(start: int, count: int) -> Iterator[tuple[int, torch.Tensor]]:
            for first, k in self.functions.matrix.tiles(x[start : start + count]):
                for _, operation, answer in sums:
                    operation.sum_tile(k, answer[start + first : start + first + len(k)])
                yield first, k[:, :points]

        operation = self.norm.operation
        assert isinstance(operation, SquaredNorm)
        found = {self.norm.output: operation.norms(parameters[self.norm.output], len(x), source)}
        for output, sum_of_points, answer in sums:
            found[output] = sum_of_points.finish_sums(parameters[output], answer)
        return found


def with_whole_sums(plan: Plan) -> Plan:
    """Return the plan with the parts of sums of one target and the steps that add them up as one."""
    makers, readers = {step.output: step for step in plan.steps}, _readers(plan)
    whole: dict[str, Step] = {}
    parts = set()
    for step in plan.steps:
        maker = makers.get(step.inputs[0]) if isinstance(step.operation, Affine) else None
        if maker is None or readers[maker.output] > 1 or not isinstance(maker.operation, PairwiseAffine):
            continue
        first, total = maker.operation, step.operation
        assert isinstance(total, Affine)
        if first.parts > 1 and first.weight.shape[1] == 1 and total.weight.shape[1] == 1 and (total.weight == 1).all():
            intercept = first.intercept + total.intercept
            joined = dataclasses.replace(first, parts=1, intercept=intercept, function=total.function)
            whole[step.output] = Step(joined, maker.inputs, step.output)
            parts.add(maker.output)
    return plan.with_steps(whole.get(step.output, step) for step in plan.steps if step.output not in parts)


def with_shared_points(plan: Plan, steps: Sequence[Step]) -> tuple[Step | SharedPoints, ...]:
    """Return some steps of a plan, those together that share functions of rows and points.

    Whether a norm is made of tiles depends on the plan alone, and a sum has the same bits either way.
    """
    makers, readers = {step.output: step for step in steps}, _readers(plan)
    shared: dict[str, SharedPoints] = {}
    left_out: set[str] = set()
    for norm in steps:
        maker = makers.get(norm.inputs[0]) if isinstance(norm.operation, SquaredNorm) else None
        if maker is None or readers[maker.output] > 1 or not isinstance(maker.operation, Pairwise):
            continue
        alike = [step for step in steps if step.inputs == maker.inputs and _sums(step, maker.operation)]
        sums = tuple(step for step in alike if step.output not in left_out)
        together = SharedPoints(maker.operation, norm, sums, maker.inputs[0])
        first = min(steps.index(step) for step in (maker, *sums))
        shared[steps[first].output] = together
        left_out.update(step.output for step in (maker, norm, *sums))
    found: list[Step | SharedPoints] = []
    for step in steps:
        if step.output in shared:
            found.append(shared[step.output])
        elif step.output not in left_out:
            found.append(step)
    return tuple(found)


def _readers(plan: Plan) -> Counter[str]:
    """Return how many steps and outputs read each value."""
    read: Iterable[str] = (name for step in plan.steps for name in step.inputs)
    return Counter([*read, *plan.outputs.values()])


def _sum_of(step: Step) -> PairwiseAffine:
    assert isinstance(step.operation, PairwiseAffine)
    return step.operation


def _sums(step: Step, functions: Pairwise) -> bool:
    """Whether a step sums these functions in one part, for which plain torch makes the very same tiles."""
    operation = step.operation
    if not isinstance(operation, PairwiseAffine) or operation.parts > 1:
        return False
    return all(np.array_equal(getattr(operation, name), getattr(functions, name)) for name in FUNCTION_FIELDS)
