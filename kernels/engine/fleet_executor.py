"""Runs the plan of a fleet of several classes in plain torch, on a CPU: a class computes the rows of its members alone.

The steps of such a plan compute each class for all rows, and then choose. Here the rows are brought together by class
first, and the answers are put back into the order of the batch. No bit of an answer changes, because no row's bits
depend on other rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import torch

from ..plan.plan import Plan, Step
from .kernel_executor import Answers
from .resident import Outputs
from .staging import Staging
from .torch_executor import TorchExecutor

CHOICE = "member_choice"
"""The operation that takes the rows of some members from one value, and all others from another."""


class FleetExecutor(TorchExecutor):
    """Computes the rows of the first class, and those of each other class by an executor of its own.

    The last column of a row is the number of its member. Members of a class have neighbouring numbers.
    """

    def __init__(self, plan: Plan, staging: Staging) -> None:
        choices = {step.output: _choice(step) for step in plan.steps if step.operation.kind() == CHOICE}
        bounds = sorted({bound for start, stop, *_ in choices.values() for bound in (start, stop)})
        values = [tuple(_chosen(choices, value, number) for value in plan.outputs.values()) for number in (-1, *bounds)]
        classes = {each: place for place, each in enumerate(dict.fromkeys(values))}
        made = {step.output: step for step in plan.steps}
        first, *others = (_with_outputs(plan, made, dict(zip(plan.outputs, each, strict=True))) for each in classes)
        super().__init__(first, staging)
        self._computes = [super().compute, *(TorchExecutor(each, staging).compute for each in others)]
        self._bounds = np.array(bounds)
        self._class = np.array([classes[each] for each in values])

    def warm_up(self, outputs: Outputs) -> None:
        """Compute one row of each class."""
        for compute in self._computes:
            compute(self._staging.tensor[:1], outputs)

    @torch.inference_mode()
    def compute(self, x: torch.Tensor, outputs: Outputs) -> Answers:
        """Compute rows class by class."""
        rows_class = self._class[np.searchsorted(self._bounds, x[:, -1].numpy(), side="right")]
        counts = np.bincount(rows_class, minlength=1)
        if counts.max() == len(x):
            return self._computes[counts.argmax()](x, outputs)
        there = counts.nonzero()[0].tolist()
        order = torch.from_numpy(rows_class.argsort(kind="stable"))
        own = zip(there, torch.split(x.index_select(0, order), counts[there].tolist()), strict=True)
        parts = [self._computes[each](rows, outputs).tensors for each, rows in own]
        answers = {name: torch.cat([part[name] for part in parts]) for name in outputs}
        return Answers.of({name: torch.empty_like(y).index_copy_(0, order, y) for name, y in answers.items()})


def _choice(step: Step) -> tuple[int, int, str, str]:
    """Return the members `start` to `stop` − 1 of a choice, the value that they take, and that of all others."""
    members, (others, chosen, _) = step.operation.attributes(), step.inputs
    return members["start"], members["stop"], chosen, others


def _chosen(choices: Mapping[str, tuple[int, int, str, str]], value: str, number: int) -> str:
    """Return the value that a member takes in place of one that choices make."""
    while value in choices:
        start, stop, chosen, others = choices[value]
        value = chosen if start <= number < stop else others
    return value


def _with_outputs(plan: Plan, made: Mapping[str, Step], outputs: Mapping[str, str]) -> Plan:
    """Return the plan with other values behind its outputs, and the steps that these need; `made` has all steps."""
    needed, waiting = set[str](), list(outputs.values())
    while waiting:
        value = waiting.pop()
        if value in made and value not in needed:
            needed.add(value)
            waiting += made[value].inputs
    return dataclasses.replace(plan, steps=tuple(each for each in plan.steps if each.output in needed), outputs=outputs)
