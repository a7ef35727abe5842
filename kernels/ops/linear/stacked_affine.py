"""Affine maps of the members of a fleet: `out[r, t] = f(Σⱼ x[r, j] · weight[m, j, t] + intercept[m, t])`.

`m` is the place of row r's member. `x`: `[rows, features]`, float32 or float64; `weight`: `[members, features,
targets]` float64; `intercept`: `[members, targets]` float64; `out`: `[rows, targets]`, float32 or float64; `f` as in
`affine.py`.

A GPU uses the kernels of `affine.py`, which read each row's own weights. A CPU multiplies the rows of each member by
its weight, or computes the maps of all rows at once if their answers are rounded; see `cpu/member_sums.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ...cpu.blocked_weight import LargeWeight
from ...cpu.member_sums import products
from ...cpu.tiles import apply
from ...format.errors import PlanError
from ...numerics.functions import FUNCTIONS, IN_PLACE, check_function, function_suffix
from ...plan.plan import Parameters
from .affine import Affine
from .affine_kernel import launch_affine
from .by_members import SumsByMembers


@dataclass(frozen=True, eq=False)
class StackedAffine(SumsByMembers[Affine]):
    """An affine map for each member."""

    weight: np.ndarray
    intercept: np.ndarray
    function: str = "identity"
    start: int = 0

    @classmethod
    def alike(cls, operation: Affine) -> Hashable | None:
        several = operation.weight.shape[1] > 1  # features without weight are skipped in all of these maps or in none
        return operation.weight.shape, operation.function, several and bool((operation.weight != 0).any(axis=1).all())

    @classmethod
    def of(cls, operations: Sequence[Affine], start: int = 0) -> StackedAffine:
        weight = np.stack([each.weight for each in operations])
        return cls(weight, np.stack([each.intercept for each in operations]), operations[0].function, start)

    @property
    def members(self) -> int:
        return len(self.weight)

    def check(self, *widths: int) -> None:
        self.check_stacked(widths)
        if self.weight.shape[1:-1] != (widths[0],) or self.intercept.shape != (self.members, self.weight.shape[-1]):
            raise PlanError(
                f"stacked_affine: weight must be [members, {widths[0]}, targets] and intercept [members, targets], not "
                f"{list(self.weight.shape)} and {list(self.intercept.shape)}."
            )
        check_function(self.function)

    def output_width(self, *widths: int) -> int:
        return self.weight.shape[2]

    def parameters(self) -> dict[str, np.ndarray]:
        """Return the fields, and whether a feature has no weight if one has none."""
        return {**super().parameters(), **({} if self._used.all() else {"sparse": np.ones(1, dtype=bool)})}

    def plain_parameters(self) -> dict[str, np.ndarray]:
        """Return the parameters, which the sums of all rows read."""
        return self.parameters()

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        x, place = inputs[0].double(), self.places(inputs[1])
        terms, intercept = _terms(x, parameters["weight"][place], sparse=True), parameters["intercept"][place]
        return FUNCTIONS[self.function](terms.sum(1) + intercept)

    def of_members(self, x: torch.Tensor, places: Sequence[int], counts: Sequence[int]) -> torch.Tensor:
        if len(places) == 1 or LargeWeight.suits(self.weight[0]):
            return super().of_members(x, places, counts)
        row = np.array(places).repeat(counts)
        x = x if self._used.all() else torch.where(torch.from_numpy(self._used[row]), x, 0.0)
        answers = products(x, self.weight, places, counts).add_(torch.from_numpy(self.intercept[row]))
        return apply(IN_PLACE.get(self.function, FUNCTIONS[self.function]), answers)

    @functools.cached_property
    def _used(self) -> np.ndarray:
        """Whether members have a weight of each feature, `[members, features]`."""
        used: np.ndarray = (self.weight != 0).any(axis=2)
        return used

    def terms(self, parameters: Parameters, x: torch.Tensor, place: torch.Tensor) -> tuple[torch.Tensor, ...]:
        weight, intercept = parameters["weight"].index_select(0, place), parameters["intercept"].index_select(0, place)
        return _terms(x, weight, sparse="sparse" in parameters).transpose(1, 2), intercept[:, :, None]

    @property
    def terms_per_row(self) -> int:
        return self.weight[0].size

    def member(self, place: int) -> Affine:
        return Affine(self.weight[place], self.intercept[place], self.function)

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        weight, intercept, (x, numbers) = parameters["weight"], parameters["intercept"], inputs
        sparse, members = "sparse" in parameters, self.members_of(numbers)
        launch_affine(x, weight, intercept, output, rows, self.function, sparse=sparse, members=members)

    def describe(self) -> str:
        return f"{super().describe()}, {self.weight.shape[1]} → {self.weight.shape[2]}" + function_suffix(self.function)


def _terms(x: torch.Tensor, weight: torch.Tensor, *, sparse: bool) -> torch.Tensor:
    """Return features times weights of rows, `[rows, features, targets]`; 0 for features without weight if `sparse`."""
    features = x[:, :, None]
    return (torch.where((weight != 0).any(2, keepdim=True), features, 0.0) if sparse else features) * weight
