"""Weighted medians with the weights of each row's own member of a fleet; see `weighted_median.py`, whose kernel it is.

`x`: `[rows, most estimators of a member or more]`; `weights`: `[members, most estimators]` float64, −1 past a member's
last one; `out`: `[rows, 1]`. Weights are added in the ascending order of a row, whatever other rows are.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ...format.errors import PlanError
from ...plan.plan import Parameters
from ...plan.stacked import Stacked
from .weighted_median import TILE_ELEMENTS, WeightedMedian, launch_medians, medians


@dataclass(frozen=True, eq=False)
class StackedWeightedMedian(Stacked[WeightedMedian]):
    """The median of each row's numbers, weighted by its member."""

    RAGGED = True

    weights: np.ndarray
    start: int = 0

    @classmethod
    def alike(cls, operation: WeightedMedian) -> Hashable | None:
        return ()

    @classmethod
    def of(cls, operations: Sequence[WeightedMedian], start: int = 0) -> StackedWeightedMedian:
        most = max(len(each.weights) for each in operations)
        padded = [np.pad(each.weights, (0, most - len(each.weights)), constant_values=-1.0) for each in operations]
        return cls(np.stack(padded), start)

    @property
    def members(self) -> int:
        return len(self.weights)

    def member(self, place: int) -> WeightedMedian:
        """Return the operation of the member at a place."""
        own = self.weights[place]
        return WeightedMedian(own[own >= 0])

    def check(self, *widths: int) -> None:
        self.check_stacked(widths)
        if self.weights.ndim != 2 or self.weights.shape[1] != widths[0] or not (self.weights[:, 0] >= 0).all():
            raise PlanError(f"stacked_weighted_median: weights must be [members, {widths[0]}], the first not negative.")

    def output_width(self, *widths: int) -> int:
        return 1

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        x, numbers = inputs
        own = parameters["weights"].index_select(0, self.places(numbers))
        return medians(torch.where(own < 0, torch.nan, x), own.clamp_min(0))  # NaN comes last

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        tile = max(TILE_ELEMENTS // self.weights.shape[1], 1)
        parts = zip(*(each.split(tile) for each in inputs), strict=True)
        return torch.cat([self.reference(parameters, *part) for part in parts])

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        x, numbers = inputs
        launch_medians(x, parameters, output, rows, self.members_of(numbers))

    def hides_nan(self) -> bool:
        return True

    def describe(self) -> str:
        return f"{super().describe()}, of up to {self.weights.shape[1]}"
