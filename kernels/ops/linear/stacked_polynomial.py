"""Monomials of columns that each row's own member of a fleet scales; see `polynomial.py`, whose kernel it is.

`indices`: `[monomials, degree]` int32, the same for all members; `shift`, `factor`: `[members, F]` float64. Numbers are
multiplied one by one, so that plain torch computes all rows at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ...plan.plan import Parameters
from ...plan.stacked_fields import StackedFields
from .monomials import monomial_scale, monomials
from .polynomial import Polynomial, launch_polynomial


@dataclass(frozen=True, eq=False)
class StackedPolynomial(StackedFields[Polynomial]):
    """Shift and scale the columns by a member's numbers, then multiply them into monomials."""

    IN_COMMON = ("indices",)

    indices: np.ndarray
    shift: np.ndarray
    factor: np.ndarray
    single: bool = False
    start: int = 0

    def parameters(self) -> dict[str, np.ndarray]:
        scale = monomial_scale(self.factor, self.indices)
        return {"indices": self.indices, "shift": self.shift, "scale": scale}

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        own = self.own(parameters, inputs[1])
        return monomials(own["indices"], inputs[0] - own["shift"], self.single) * own["scale"]

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        x, numbers = inputs
        launch_polynomial(x, parameters, output, rows, self.members_of(numbers), single=self.single)

    def describe(self) -> str:
        monomials, degree = self.indices.shape
        single = " in float32" * self.single
        return f"{super().describe()}, {self.shift.shape[1]} → {monomials} monomials of degree ≤ {degree}{single}"
