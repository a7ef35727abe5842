"""Piecewise, then affine, of each row's own member of a fleet; see `piecewise_affine.py` and `stacked_pieces.py`.

The operation holds what a member's own operation computes with: one function for each column and target. `table`:
float64 `[targets, F · (starts[members] + members), degree + 1]`; `intercept`: float64 `[members, targets]`.

The kernel is that of `piecewise_affine.py`. Plain torch computes all rows at once, and adds their terms
up in the tiles of one member alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ...cpu.tiles import apply, in_tiles, matmul, tile_rows
from ...format.errors import PlanError
from ...numerics.functions import FUNCTIONS, check_function, function_suffix
from ...plan.plan import Parameters
from ...plan.stacked import attributes_key
from .piecewise_affine import PiecewiseAffine, launch_piecewise_affine
from .stacked_pieces import StackedPieces, starts_of


@dataclass(frozen=True, eq=False)
class StackedPiecewiseAffine(StackedPieces[PiecewiseAffine]):
    """Apply a member's piecewise polynomials to columns, add them up, and apply a function to each element."""

    table: np.ndarray
    intercept: np.ndarray
    function: str = "identity"
    nan_is_zero: bool = False
    start: int = 0

    @classmethod
    def alike(cls, operation: PiecewiseAffine) -> Hashable | None:
        columns = tuple(np.unique(operation.source).tolist())
        return attributes_key(operation), columns, operation.coefficients.shape[2], operation.weight.shape[1]

    @classmethod
    def of(cls, operations: Sequence[PiecewiseAffine], start: int = 0) -> StackedPiecewiseAffine:
        tables = [each.parameters() for each in operations]
        return cls(
            tables[0]["source"],
            starts_of([each["knots"] for each in tables]),
            np.concatenate([each["knots"].reshape(-1) for each in tables]),
            np.concatenate(
                [each["table"].reshape(len(each["table"]), -1, each["table"].shape[3]) for each in tables], axis=1
            ),
            np.stack([each["intercept"] for each in tables]),
            start=start,
            **operations[0].attributes(),
        )

    def check(self, *widths: int) -> None:
        self.check_stacked(widths)
        check_function(self.function)
        if self.table.ndim != 3 or not self.table.shape[2]:
            shape = list(self.table.shape)
            raise PlanError(f"stacked_piecewise_affine: table must be [targets, pieces, degree + 1], not {shape}.")
        self.check_pieces(widths[0], self.table.shape[1])
        if self.intercept.shape != (self.members, len(self.table)):
            shapes = f"[{self.members}, {len(self.table)}], not {list(self.intercept.shape)}"
            raise PlanError(f"stacked_piecewise_affine: intercept must be {shapes}.")

    def output_width(self, *widths: int) -> int:
        return len(self.table)

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        x, place, table = inputs[0].double(), self.places(inputs[1]), parameters["table"]
        y, values = self.values(parameters, table, x, place, self.find_by_definition)
        y = torch.where(values[:, :, None].isnan(), 0.0 if self.nan_is_zero else torch.nan, y)
        return FUNCTIONS[self.function](y.sum(0) + parameters["intercept"][place])

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        x, place, table = inputs[0].double(), self.places(inputs[1]), parameters["table"]
        targets, columns = len(table), len(self.source)
        ones = torch.ones(columns, 1, dtype=torch.float64)

        def add_up(tile: torch.Tensor) -> torch.Tensor:
            by_columns = tile.reshape(-1, columns).T.contiguous().T  # as those of one member alone lie in memory
            return matmul(by_columns, ones).reshape(-1, targets)

        sums, rows = [], tile_rows(columns * targets)
        for part, places in zip(x.split(rows), place.split(rows), strict=True):
            y, values = self.values(parameters, table, part, places, self.find)
            y = torch.where(values[:, :, None].isnan(), 0.0 if self.nan_is_zero else torch.nan, y)
            terms = y.permute(1, 2, 0).reshape(-1, targets * columns)
            sums.append(in_tiles(terms, add_up, targets, columns * targets))
        return apply(FUNCTIONS[self.function], torch.cat(sums).add_(parameters["intercept"][place]))

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        x, numbers = inputs
        what = {"KNOTS": 0, "NAN_IS_ZERO": self.nan_is_zero, "FUNCTION": self.function}
        launch_piecewise_affine(x, parameters, output, rows, {**self.members_of(numbers), **what}, self.most)

    def hides_nan(self) -> bool:
        return self.nan_is_zero

    def describe(self) -> str:
        shape = f"{len(self.source)} → {len(self.table)} by piecewise polynomials of degree {self.table.shape[2] - 1}"
        return f"{super().describe()}, {shape}" + function_suffix(self.function)
