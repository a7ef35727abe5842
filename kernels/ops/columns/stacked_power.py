"""Power transforms with the exponents of each row's own member of a fleet; see `power.py`, whose kernel it is.

`x`, `out`: `[rows, width]`, float32 or float64; `right`, `left`: `[members, width]` float64. All rows are raised at
once, in tiles like those of one model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ...cpu.tiles import in_tiles
from ...plan.plan import Parameters
from ...plan.stacked_fields import StackedFields
from .power import Power, exponents, launch_power, powers


@dataclass(frozen=True, eq=False)
class StackedPower(StackedFields[Power]):
    """Apply a power transform, or its inverse, to each column with a member's exponents."""

    right: np.ndarray
    left: np.ndarray
    method: str
    inverse: bool = False
    start: int = 0

    def parameters(self) -> dict[str, np.ndarray]:
        return exponents(self.arrays(), self.method)

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        x, numbers = inputs
        return powers(x.double(), **self.own(parameters, numbers), method=self.method, inverse=self.inverse)

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x, numbers), width = inputs, self.right.shape[1]
        own = self.own(parameters, numbers)

        def compute(tile: torch.Tensor) -> torch.Tensor:
            x, right, left = (each.contiguous() for each in tile.split(width, dim=1))
            return powers(x, right, left, self.method, inverse=self.inverse)

        return in_tiles(torch.cat([x.double(), own["right"], own["left"]], dim=1), compute, width, 6 * width)

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        x, numbers = inputs
        launch_power(x, parameters, output, rows, self.members_of(numbers), self.method, inverse=self.inverse)

    def describe(self) -> str:
        return f"{super().describe()}, {'inverse ' * self.inverse}{self.method}"
