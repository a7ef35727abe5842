"""Weighted medians with the weights of each row's own member of a fleet; see `weighted_median.py`, whose kernel it is.

`x`: `[rows, estimators]`; `weights`: `[members, estimators]` float64; `out`: `[rows, 1]`. Weights are added in the
ascending order of a row, whatever other rows are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ...plan.plan import Parameters
from ...plan.stacked_fields import StackedFields
from .weighted_median import TILE_ELEMENTS, WeightedMedian, launch_medians, medians


@dataclass(frozen=True, eq=False)
class StackedWeightedMedian(StackedFields[WeightedMedian]):
    """The median of each row's numbers, weighted by its member."""

    weights: np.ndarray
    start: int = 0

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        x, numbers = inputs
        return medians(x, **self.own(parameters, numbers))

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
        return f"{super().describe()} of {self.weights.shape[1]}"
