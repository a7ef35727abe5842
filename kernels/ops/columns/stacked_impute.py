"""Impute with the numbers of each row's own member of a fleet; `m` is the place of row r's member.

    out[r, j]     = fill[m, j] where x[r, columns[m, j]] is missing, else x[r, columns[m, j]]
    out[r, J + k] = 1 where x[r, indicators[m, k]] is missing, else 0

`columns`: int32 `[members, J]`; `fill`: float64 `[members, J]`; `indicators`: int32 `[members, K]`. The kernel is that
of `impute.py`. Numbers are moved as they are, so plain torch computes all rows at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ...format.errors import PlanError
from ...numerics.missing import check_missing, find_missing, missing_number
from ...plan.plan import Parameters
from ...plan.stacked_fields import StackedFields
from .impute import Impute, launch_impute


@dataclass(frozen=True, eq=False)
class StackedImpute(StackedFields[Impute]):
    """Replace missing numbers in a member's `columns` by its `fill`, then append columns for its `indicators`."""

    columns: np.ndarray
    fill: np.ndarray
    indicators: np.ndarray
    missing: float | None = None
    start: int = 0

    def check(self, *widths: int) -> None:
        self.check_stacked(widths)
        check_missing("stacked_impute", self.missing)
        if self.columns.ndim != 2 or self.indicators.ndim != 2 or len(self.indicators) != self.members:
            shapes = f"{list(self.columns.shape)} and {list(self.indicators.shape)}"
            raise PlanError(f"stacked_impute: columns and indicators must be [members, columns] each, not {shapes}.")
        source = np.concatenate([self.columns, self.indicators], axis=1)
        if not source.size or source.min() < 0 or source.max() >= widths[0]:
            raise PlanError(f"stacked_impute: columns and indicators must be at least one and lie in [0, {widths[0]}).")
        if self.fill.shape != self.columns.shape:
            raise PlanError(f"stacked_impute: fill must be {list(self.columns.shape)}, not {list(self.fill.shape)}.")

    def output_width(self, *widths: int) -> int:
        return self.columns.shape[1] + self.indicators.shape[1]

    def parameters(self) -> dict[str, np.ndarray]:
        return {
            "source": np.concatenate([self.columns, self.indicators], axis=1).astype(np.int32),
            "fill": np.concatenate([self.fill, np.ones(self.indicators.shape)], axis=1),
            "missing": missing_number(self.missing),
        }

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        x, place = inputs[0], self.places(inputs[1])
        v = x.double().gather(1, parameters["source"][place].long())
        found = find_missing(v, self.missing)
        v[:, self.columns.shape[1] :] = 0
        return torch.where(found, parameters["fill"][place], v)

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        (x, numbers), columns, missing_is_nan = inputs, self.columns.shape[1], self.missing is None
        members = self.members_of(numbers)
        launch_impute(x, parameters, output, rows, members, columns, missing_is_nan=missing_is_nan)

    def hides_nan(self) -> bool:
        return True

    def describe(self) -> str:
        return f"{super().describe()}, {self.columns.shape[1]} columns, {self.indicators.shape[1]} indicators"
