"""Scale with the numbers of each row's own member of a fleet: `out[r, c] = (x[r, c] − shift[m, c]) · factor[m, c]`.

`m` is the place of row r's member. `x`, `out`: `[rows, width]`, float32 or float64; `shift`, `factor`:
`[members, width]` float64; the forms and `single` as in `scale.py`, whose kernel it is. All rows are scaled at once: no
sum has an order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ...format.errors import PlanError
from ...plan.plan import Parameters
from ...plan.stacked_fields import StackedFields
from .scale import Scale, launch_scale, scaled


@dataclass(frozen=True, eq=False)
class StackedScale(StackedFields[Scale]):
    """Shift and scale each column by a member's numbers; `last` is `[members, 0]` for the form "factor"."""

    shift: np.ndarray
    factor: np.ndarray
    last: np.ndarray
    form: str = "factor"
    single: bool = False
    start: int = 0

    def check(self, *widths: int) -> None:
        self.check_stacked(widths)
        shape = (self.members, widths[0])
        if self.form not in Scale.FORMS:
            raise PlanError(f"stacked_scale: form must be one of {Scale.FORMS}, not {self.form!r}.")
        for name, expected in (
            ("shift", shape),
            ("factor", shape),
            ("last", (self.members, 0) if self.form == "factor" else shape),
        ):
            if getattr(self, name).shape != expected:
                found = list(getattr(self, name).shape)
                raise PlanError(f"stacked_scale: {name} must be {list(expected)}, not {found}.")

    def output_width(self, *widths: int) -> int:
        return widths[0]

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        x, numbers = inputs
        return scaled(x, **self.own(parameters, numbers), form=self.form, single=self.single)

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        x, numbers = inputs
        launch_scale(x, parameters, output, rows, self.members_of(numbers), self.form, single=self.single)

    def describe(self) -> str:
        return super().describe() + (" in float32" if self.single else "")
