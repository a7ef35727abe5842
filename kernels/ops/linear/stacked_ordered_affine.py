"""Affine maps in float32, term by term, with the weights of each row's own member of a fleet.

`weight`: `[members, features, targets]` float32; `intercept`: `[members, targets]` float32; the rest is as in
`ordered_affine.py`, whose kernel it is. Terms are added in the order of the features, whatever other rows are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ...cpu.tiles import apply
from ...numerics.functions import FUNCTIONS, function_suffix
from ...plan.plan import Parameters
from ...plan.stacked_fields import StackedFields
from .ordered_affine import LARGEST_TERMS, OrderedAffine, launch_ordered_affine, sums_in_order


@dataclass(frozen=True, eq=False)
class StackedOrderedAffine(StackedFields[OrderedAffine]):
    """An affine map for each member, whose terms are added up in float32, one after the other."""

    weight: np.ndarray
    intercept: np.ndarray
    function: str = "identity"
    start: int = 0

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        x, own = inputs[0].float(), self.own(parameters, inputs[1])
        total = own["intercept"]
        for column, weight in zip(x.T[:, :, None], own["weight"].transpose(0, 1), strict=True):
            total = torch.where(column.isnan(), total, total + column * weight)
        return FUNCTIONS[self.function](total.double())

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        _, features, targets = self.weight.shape
        found = []
        for x, numbers in zip(
            *(each.split(max(LARGEST_TERMS // (features * targets), 1)) for each in inputs), strict=True
        ):
            own = self.own(parameters, numbers)
            found.append(sums_in_order(x.float(), own["weight"].transpose(0, 1), own["intercept"]))
        return apply(FUNCTIONS[self.function], torch.cat(found))

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        x, numbers = inputs
        launch_ordered_affine(x, parameters, output, rows, self.members_of(numbers), self.function)

    def hides_nan(self) -> bool:
        return True

    def describe(self) -> str:
        return f"{super().describe()}, {self.weight.shape[1]} → {self.weight.shape[2]}" + function_suffix(self.function)
