"""Neural networks of the members of a fleet: each row goes through the layers of its own member; see `dense_layers.py`.

`weights`: `[members, weights of all layers]`; `intercepts`: `[members, units of all layers]`; `shift`: `[members,
features]`; all float64. Widths, functions and precision are the same for all members, and a member ignores features if
the others do.

In "float64" a GPU launches the kernels of affine maps, which read the weights of each row's member, once for each
layer. In the other precisions one launch takes all rows through all layers (`stacked_kernels.py`). A CPU computes the
rows of each member of a batch as its own operation does.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ...format.errors import PlanError
from ...plan.plan import Parameters
from ...plan.stacked import attributes_key, stacked_fields
from ..linear.by_members import ByMembers
from .dense_layers import DenseLayers
from .stacked_kernels import launch_stacked_digit_layers, launch_stacked_float16_layers


@dataclass(frozen=True, eq=False)
class StackedDenseLayers(ByMembers[DenseLayers]):
    """A neural network for each member, of the same widths."""

    weights: np.ndarray
    intercepts: np.ndarray
    shift: np.ndarray
    widths: tuple[int, ...]
    activation: str
    function: str = "identity"
    precision: str = "float64"
    start: int = 0

    PRECISIONS = DenseLayers.PRECISIONS

    @classmethod
    def alike(cls, operation: DenseLayers) -> Hashable | None:
        return attributes_key(operation), bool(operation.plain_parameters())  # all ignore some features, or none does

    @classmethod
    def of(cls, operations: Sequence[DenseLayers], start: int = 0) -> StackedDenseLayers:
        return cls(**stacked_fields(operations), start=start)

    @property
    def members(self) -> int:
        return len(self.weights)

    def check(self, *widths: int) -> None:
        self.check_stacked(widths)
        if {len(array) for _, array in self.arrays()} != {self.members}:
            raise PlanError("stacked_dense_layers: each array must have a line for each member.")
        self._one.check(widths[0])

    def output_width(self, *widths: int) -> int:
        return self.widths[-1]

    def member(self, place: int) -> DenseLayers:
        arrays = {name: array[place] for name, array in self.arrays()}
        attributes = {name: value for name, value in self.attributes().items() if name != "start"}
        return DenseLayers(**arrays, **attributes)

    def precisions(self) -> tuple[str, ...]:
        """Return the precision: those of members were chosen one by one."""
        return (self.precision,)

    def on_device(self, device: torch.device) -> StackedDenseLayers:
        precision = self._one.on_device(device).precision
        return self if precision == self.precision else dataclasses.replace(self, precision=precision)

    @functools.cached_property
    def _one(self) -> DenseLayers:
        """The first member's operation: whatever the members have in common is its own."""
        return self.member(0)

    def parameters(self) -> dict[str, np.ndarray]:
        tables = [self.member(place).parameters() for place in range(self.members)]
        return {
            name: table if name == "shapes" else np.stack([each[name] for each in tables])
            for name, table in tables[0].items()
        }

    def gains_by_order(self) -> bool:
        """A program takes as long as its rows have members."""
        return True

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        x, numbers = inputs
        if self.precision == "float64":
            self._one.launch_layers(parameters, x, output, rows, self.members_of(numbers))
            return
        launch = launch_stacked_digit_layers if self.precision == "int8" else launch_stacked_float16_layers
        constants = {
            "ACTIVATION": self.activation,
            "FUNCTION": self.function,
            "SHIFTED": bool(self.shift.any()),
            "SPARSE": "used" in parameters,
        }
        of_rows = {"x": x, "numbers": numbers, "rows": rows, "first": self.start, "members": self.members}
        launch(parameters, output, self.widths, constants, of_rows)

    def launches(self, inputs: int) -> int:
        return self._one.launches(1)

    def describe(self) -> str:
        return f"{super().describe()}, {self._one.describe()}"
