"""The steps of a plan as plain torch takes them on a CPU, where a launch costs nothing and memory much.

Sums that are split into parts to keep a GPU busy are made whole. A matrix of functions of rows and points that only a
squared norm reads is never whole: its tiles go into the norm as they are made, and into a sum over the same functions,
as a Gaussian process has of its variance and its mean.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ...plan.plan import Parameters, Plan, Step
from ..linear.affine import Affine
from .function import PointFunction
from .pairwise import Pairwise
from .pairwise_affine import PairwiseAffine
from .squared_norm import SquaredNorm

FUNCTION_FIELDS = tuple(field.name for field in dataclasses.fields(PointFunction) if field.name != "precision")


@dataclass(frozen=True)
class SharedPoints:
    """The step that makes functions of rows and points, the one that makes their norm, and one that sums them up."""

    functions: Pairwise
    norm: Step
    sum: Step | None
    input: str

    def run(self, parameters: Mapping[str, Parameters], x: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the values that these steps make of the rows `x`, but for the functions themselves."""
        points, norm, sums = len(self.functions.points), self.norm.operation, self.sum and self.sum.operation
        assert isinstance(norm, SquaredNorm)
        assert sums is None or isinstance(sums, PairwiseAffine)
        answer = sums.no_sums(len(x)) if sums else torch.empty(0)

        def source(start: int, count: int) -> Iterator[tuple[int, torch.Tensor]]:
            for first, k in self.functions.matrix.tiles(x[start : start + count]):
                yield first, k[:, :points]
                if sums:
                    sums.sum_tile(k, answer[start + first : start + first + len(k)])

        found = {self.norm.output: norm.norms(parameters[self.norm.output], len(x), source)}
        if self.sum and sums:
            found[self.sum.output] = sums.finish_sums(parameters[self.sum.output], answer)
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
        of_these = next((step for step in alike if step.output not in left_out), None)
        together = [maker, norm, *([of_these] if of_these else [])]
        first = min(together, key=steps.index)
        shared[first.output] = SharedPoints(maker.operation, norm, of_these, maker.inputs[0])
        left_out.update(step.output for step in together)
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


def _sums(step: Step, functions: Pairwise) -> bool:
    """Whether a step sums these functions in one part, for which plain torch makes the very same tiles."""
    operation = step.operation
    if not isinstance(operation, PairwiseAffine) or operation.parts > 1:
        return False
    return all(np.array_equal(getattr(operation, name), getattr(functions, name)) for name in FUNCTION_FIELDS)
