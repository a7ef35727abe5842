"""Sums and products of matrices with the numbers of each row's own member of a fleet; see `combine.py`.

`terms`: `[members, numbers]` float64, of each member the exponent, then factor and offset of each input. The kernel is
that of `combine.py`. Numbers are combined one by one, so that plain torch computes all rows at once.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ...format.errors import PlanError
from ...numerics.powers import torch_power, whole
from ...plan.plan import Parameters
from ...plan.stacked import Stacked
from .combine import MAX_INPUTS, Combine, combined, launch_combine


@dataclass(frozen=True, eq=False)
class StackedCombine(Stacked[Combine]):
    """Scale and shift each input by a member's numbers, then add or multiply them; the exponent is a whole number."""

    terms: np.ndarray
    operation: str
    start: int = 0

    @classmethod
    def alike(cls, operation: Combine) -> Hashable | None:
        if whole(operation.exponent) is None:
            return None
        return operation.operation, operation.exponent, len(operation.terms())

    @classmethod
    def of(cls, operations: Sequence[Combine], start: int = 0) -> StackedCombine:
        return cls(np.stack([each.terms() for each in operations]), operations[0].operation, start)

    @property
    def members(self) -> int:
        return len(self.terms)

    def member(self, place: int) -> Combine:
        """Return the operation of the member at a place."""
        exponent, *numbers = self.terms[place].tolist()
        if numbers == [1.0, 0.0] * MAX_INPUTS:  # for any number of inputs
            return Combine(self.operation, exponent=exponent)
        return Combine(self.operation, tuple(numbers[::2]), tuple(numbers[1::2]), exponent)

    def check(self, *widths: int) -> None:
        known = (self.terms.shape[1] - 1) // 2
        self.check_stacked(widths, known if known < MAX_INPUTS else len(widths) - 1)
        exponent = self.terms[:, 0]
        if len(set(exponent.tolist())) > 1 or whole(float(exponent[0])) is None:
            raise PlanError("stacked_combine: members must have one exponent, a whole number.")
        self.member(0).check(*widths[:-1])

    def output_width(self, *widths: int) -> int:
        return max(widths[:-1])

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        own = parameters["terms"].index_select(0, self.places(inputs[-1])).T[:, :, None]
        return torch_power(combined(inputs[:-1], own, self.operation), float(self.terms[0, 0]))

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        members, exponent = self.members_of(inputs[-1]), float(self.terms[0, 0])
        launch_combine(inputs[:-1], parameters, output, rows, members, self.operation, exponent)

    def describe(self) -> str:
        return f"{super().describe()}, {self.member(0).describe()}"
