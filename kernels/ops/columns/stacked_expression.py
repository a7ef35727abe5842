"""Expressions with the constants of each row's own member of a fleet; see `expression.py`, whose kernel it is.

`programs`, `lanes` and `columns` are the same for all members; `constants`: `[members, all of a member]` float64. Plain
torch computes all rows at once, number by number.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ...plan.plan import Parameters
from ...plan.stacked_fields import StackedFields
from .expression import ELEMENTS_AT_ONCE, Expression, Program, evaluate, evaluated, flat, group_columns, group_constants


@dataclass(frozen=True, eq=False)
class StackedExpression(StackedFields[Expression]):
    """Evaluate one program for each group of output columns, with a member's constants."""

    IN_COMMON = ("lanes", "columns")

    programs: tuple[Program, ...]
    lanes: np.ndarray
    columns: np.ndarray
    constants: np.ndarray
    start: int = 0

    @functools.cached_property
    def _one(self) -> Expression:
        """The first member's operation: whatever the members have in common is its own."""
        found = self.member(0)
        assert isinstance(found, Expression)
        return found

    def parameters(self) -> dict[str, np.ndarray]:
        """Return the columns and constants, neither of them empty."""
        more = np.zeros((self.members, 1))
        return {"columns": self._one.parameters()["columns"], "constants": np.append(self.constants, more, axis=1)}

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        x, own = inputs[0].double(), self.own(parameters, inputs[1])
        return torch.cat([evaluated(group, own["columns"], own["constants"], x) for group in self._one.groups], dim=1)

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        x, place = inputs[0], self.places(inputs[1])
        answer = torch.empty(len(x), self.output_width(), dtype=torch.float64)
        for group in self._one.groups:
            columns = group_columns(group, parameters["columns"])
            constants = group_constants(group, parameters["constants"])
            out = answer[:, group.first_output :][:, : group.lanes]
            step = max(1, ELEMENTS_AT_ONCE // group.lanes)
            for rows, places, part in zip(x.split(step), place.split(step), out.split(step), strict=True):
                own = constants.index_select(0, places)
                values = {f"x{k}": flat(rows.index_select(1, each)) for k, each in enumerate(columns.T)}
                values |= {f"c{k}": flat(own[:, :, k]) for k in range(group.constants)}
                part.copy_(evaluate(group.program, values)[: part.numel()].view(part.shape))
        return answer

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        x, numbers = inputs
        self._one.launch_kernels(parameters, x, output, rows, self.members_of(numbers))

    def launches(self, inputs: int) -> int:
        return self._one.launches(1)

    def hides_nan(self) -> bool:
        return self._one.hides_nan()

    def describe(self) -> str:
        return f"{super().describe()}, {self._one.describe()}"
