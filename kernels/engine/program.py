"""A plan bound to a device: its weights there, and its steps as launches over buffers that the caller owns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from ..plan.plan import INPUT, Parameters, Plan, Step
from .streams import Launch, Task

NARROW, MOST_SCATTERED, MOST_WHOLE, MOST_ALONE = 4, 2**12, 2**17, 2**20
"""Kernels write rows of at most NARROW numbers over the bus themselves, and wider ones up to so many numbers in all.

MOST_SCATTERED holds where each number crosses the bus by itself, and the others where a program writes neighbouring
numbers of a row, which cross together and sooner than a copy engine begins. MOST_ALONE is for rows that are a whole
batch. While a copy engine carries the answers of a piece of a batch, the device computes the next piece.
"""


def bind_parameters(plan: Plan, device: torch.device, *, plain: bool = False) -> dict[str, Parameters]:
    """Return each step's tensors on the device, by the value that the step makes: the kernel's, or plain torch's."""
    return {
        step.output: {
            name: torch.from_numpy(np.require(array, requirements=["C", "W"])).to(device)
            for name, array in (op.plain_parameters() if plain else op.parameters()).items()
        }
        for step in plan.steps
        for op in [step.operation]
    }


class Program:
    """A plan as a device computes it (`plan`), the device, and the width of each value (`widths`)."""

    def __init__(self, plan: Plan, device: torch.device) -> None:
        self.plan = _on_device(plan, device)
        self.device = device
        self.widths = self.plan.widths()
        self._parameters = bind_parameters(self.plan, device)

    def buffer(
        self, held: dict[str, torch.Tensor], value: str, rows: int, dtype: torch.dtype = torch.float64
    ) -> torch.Tensor:
        """Return the buffer `[rows, width]` of a value from `held`; make it if there is none."""
        if value not in held:
            held[value] = torch.empty(rows, self.widths[value], dtype=dtype, device=self.device)
        return held[value]

    def tasks(
        self,
        steps: Sequence[Step],
        held: dict[str, torch.Tensor],
        size: int,
        outputs: Mapping[str, torch.Tensor],
        given: torch.Tensor,
        *,
        alone: bool = False,
    ) -> tuple[Task, ...]:
        """Return the tasks that compute outputs of rows.

        Args:
            steps: the steps that make these outputs.
            held: buffers of the intermediate values, of `size` rows; missing buffers are made.
            size: at least as many rows as `given` has.
            outputs: a buffer for each output by its name, float32 `[len(given), width]`.
            given: the rows.
            alone: whether they are a whole batch, so that no other rows are computed meanwhile.
        """
        values = {INPUT: given}
        tasks: list[Task] = []
        read = {name for step in steps for name in step.inputs}
        direct = {self.plan.outputs[name]: name for name in outputs if self.plan.outputs[name] not in read}
        for step in steps:
            inputs = [values[name] for name in step.inputs]
            dtype = inputs[0].dtype if step.operation.keeps_dtype() else torch.float64
            made = step.output not in direct
            target = self.buffer(held, step.output, size, dtype) if made else outputs[direct[step.output]]
            values[step.output] = target
            here, most = target, _most_across(step, alone=alone)
            width = target.shape[1]
            if target.device.type != self.device.type and width > NARROW and size * width > most:
                here = held.setdefault(f"output {direct[step.output]}", torch.empty(size, width, device=self.device))
            launch = _launch(step, self._parameters[step.output], inputs, here, target, most)
            tasks.append(Task(step.inputs, step.output, launch))
        for name, buffer in outputs.items():
            value = self.plan.outputs[name]
            if values[value] is not buffer:
                tasks.append(Task((value,), f"output {name}", _copy(values[value], buffer)))
        return tuple(tasks)


def _on_device(plan: Plan, device: torch.device) -> Plan:
    plan = plan.on_device(device)
    if device.type == "cuda" and any(step.operation.gains_by_order() for step in plan.steps):
        from .member_order import in_order_of_members

        return in_order_of_members(plan)
    return plan


def _copy(source: torch.Tensor, target: torch.Tensor) -> Launch:
    def copy(rows: int) -> None:
        target[:rows].copy_(source[:rows], non_blocking=True)

    return copy


def _most_across(step: Step, *, alone: bool) -> int:
    """Return how many numbers of wide answers a step's kernels write over the bus themselves."""
    of_whole_rows = MOST_ALONE if alone else MOST_WHOLE
    return of_whole_rows if step.operation.writes_rows_whole() else MOST_SCATTERED


def _launch(
    step: Step, parameters: Parameters, inputs: list[torch.Tensor], here: torch.Tensor, output: torch.Tensor, most: int
) -> Launch:
    """Return the launches of a step; a copy engine takes more than `most` numbers over the bus, from `here`."""

    def launch(rows: int) -> None:
        many = here is not output and rows * output.shape[1] > most
        step.operation.launch(parameters, inputs, here if many else output, rows)
        if many:
            output[:rows].copy_(here[:rows], non_blocking=True)

    return launch
