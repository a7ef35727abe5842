"""Runs the steps of a plan in plain torch, on a CPU."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import torch

from ..cpu.tiles import one_thread
from ..plan.plan import INPUT, Joined, Plan, Step
from .gather import Part, on_cpu
from .kernel_executor import Answers, Search
from .program import bind_parameters
from .resident import Outputs
from .staging import Staging, unlocked


class TorchExecutor:
    """Runs each operation's `compute_on_cpu`, in one thread."""

    def __init__(self, plan: Plan, staging: Staging) -> None:
        self._staging, self._values = staging, plan.outputs
        self._parameters = bind_parameters(plan, torch.device("cpu"), plain=True)
        self._steps = functools.cache(lambda outputs: with_joined(plan, plan.steps_for(outputs)))

    def launch(self, parts: Sequence[Part], rows: int, outputs: Outputs) -> Answers:
        """Stage rows and compute their outputs."""
        self._staging.fill([on_cpu(part) for part in parts], 0, rows)
        return self.compute(self._staging.tensor[:rows], outputs)

    stage = launch

    def allowed(self, rows: int, search: Search) -> bool:
        """Search the staged rows."""
        return search(self._staging.numbers(rows))

    def wait(self) -> None:
        """Return: `launch` computed everything."""

    def staged(self, rows: int) -> np.ndarray | None:
        """Return the last launched rows."""
        return self._staging.rows(rows)

    def answer(self, X: np.ndarray, outputs: Outputs) -> dict[str, np.ndarray]:
        """Return outputs of rows that are read in place."""
        x = torch.from_numpy(unlocked(np.ascontiguousarray(X)))
        return {name: answer.copy() for name, answer in self.compute(x, outputs).arrays.items()}

    def warm_up(self, outputs: Outputs) -> None:
        """Compute one row."""
        self.compute(self._staging.tensor[:1], outputs)

    @torch.inference_mode()
    def compute(self, x: torch.Tensor, outputs: Outputs) -> Answers:
        """Compute outputs of rows."""
        values = {INPUT: x}
        with one_thread():
            for step in self._steps(outputs):
                if isinstance(step, Step):
                    inputs = (values[name] for name in step.inputs)
                    values[step.output] = step.operation.compute_on_cpu(self._parameters[step.output], *inputs)
                else:
                    values |= step.run(self._parameters, values)
            return Answers.of({name: values[self._values[name]].float() for name in outputs})


def with_joined(plan: Plan, steps: Sequence[Step]) -> tuple[Step | Joined, ...]:
    """Return steps of a plan, with one joined step in place of the first of those that an operation joins."""
    readers, left = plan.readers(), list(steps)
    joined: dict[str, Joined] = {}
    for step in steps:
        found = step.operation.join(step, left, readers) if step in left else None
        if found is not None:
            joined[min(found.steps, key=steps.index).output] = found
            left = [each for each in left if each not in found.steps]
    return tuple(joined.get(step.output, step) for step in steps if step.output in joined or step in left)
