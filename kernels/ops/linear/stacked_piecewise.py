"""Piecewise polynomials of columns, of each row's own member of a fleet; see `piecewise.py` and `stacked_pieces.py`.

`coefficients`: float64 `[F · (starts[members] + members), degree + 1]`; `out`: `[rows, F]`. The kernel is that of
`piecewise.py`. Plain torch computes all rows at once, by the same products and sums.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ...cpu.tiles import tile_rows
from ...format.errors import PlanError
from ...plan.plan import Parameters
from ...plan.stacked import attributes_key
from .piecewise import Piecewise, launch_piecewise
from .stacked_pieces import Find, StackedPieces, starts_of


@dataclass(frozen=True, eq=False)
class StackedPiecewise(StackedPieces[Piecewise]):
    """Apply a piecewise polynomial of the row's member to a column, for each column of the output."""

    coefficients: np.ndarray
    nan_is_zero: bool = False
    start: int = 0

    @classmethod
    def alike(cls, operation: Piecewise) -> Hashable | None:
        return attributes_key(operation), tuple(operation.source.tolist()), operation.coefficients.shape[2]

    @classmethod
    def of(cls, operations: Sequence[Piecewise], start: int = 0) -> StackedPiecewise:
        return cls(
            operations[0].source,
            starts_of([each.knots for each in operations]),
            np.concatenate([each.knots.reshape(-1) for each in operations]),
            np.concatenate([each.coefficients.reshape(-1, each.coefficients.shape[2]) for each in operations]),
            operations[0].nan_is_zero,
            start,
        )

    def check(self, *widths: int) -> None:
        self.check_stacked(widths)
        if self.coefficients.ndim != 2 or not self.coefficients.shape[1]:
            shape = list(self.coefficients.shape)
            raise PlanError(f"stacked_piecewise: coefficients must be [pieces, degree + 1], not {shape}.")
        self.check_pieces(widths[0], len(self.coefficients))

    def output_width(self, *widths: int) -> int:
        return len(self.source)

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        return self._compute(parameters, inputs[0].double(), self.places(inputs[1]), self.find_by_definition)

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        x, place, rows = inputs[0].double(), self.places(inputs[1]), tile_rows(len(self.source))
        parts = zip(x.split(rows), place.split(rows), strict=True)
        return torch.cat([self._compute(parameters, *part, self.find) for part in parts])

    def _compute(self, parameters: Parameters, x: torch.Tensor, place: torch.Tensor, find: Find) -> torch.Tensor:
        y, values = self.values(parameters, parameters["coefficients"][None], x, place, find)
        return torch.where(values.isnan(), 0.0 if self.nan_is_zero else values, y[:, :, 0]).T

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        x, numbers = inputs
        what = {**self.members_of(numbers), "KNOTS": 0, "NAN_IS_ZERO": self.nan_is_zero, "IN_ORDER": False}
        launch_piecewise(x, parameters, output, rows, what, self.most)

    def hides_nan(self) -> bool:
        return self.nan_is_zero

    def describe(self) -> str:
        shape = f"{len(self.source)} columns of at most {self.most + 1} pieces"
        return f"{super().describe()}, {shape} of degree {self.coefficients.shape[1] - 1}"
