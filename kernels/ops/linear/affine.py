"""Affine: `out[r, t] = f(Σⱼ x[r, j] · weight[j, t] + intercept[t])`.

`x`: `[rows, features]`, float32 or float64; `weight`: `[features, targets]` float64; `intercept`: `[targets]` float64;
`out`: `[rows, targets]`, float32 or float64; `f`: a function of `numerics/functions.py`. Products and sums are float64,
so an answer in float32 is the one nearest to scikit-learn's float64 answer however far the data lie from zero. With few
targets a data-centre GPU hides the cost behind reading `x`.

A feature whose weights are all zero is ignored: it may be NaN, like a column that a pipeline drops. (With several
targets the kernel skips a feature if its weights are zero for the targets of one program.)

A row's bits depend only on the row and the model: the tile and the order of its sum follow from the number of
features and targets alone.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ...cpu.blocked_weight import LargeWeight, rows_of
from ...cpu.tiles import apply, product
from ...numerics.functions import FUNCTIONS, IN_PLACE, function_suffix
from ...plan.plan import Parameters
from .affine_kernel import launch_affine
from .contraction import Contraction
from .launch import affine_targets_block


@dataclass(frozen=True, eq=False)
class Affine(Contraction):
    """An affine map, then a function of each element."""

    def check(self, *widths: int) -> None:
        (features,) = widths
        self.check_contraction(features)

    def parameters(self) -> dict[str, np.ndarray]:
        """Return the fields, and a mask of the features with nonzero weights unless all have them."""
        used: np.ndarray = (self.weight != 0).any(axis=1)
        return {**super().parameters(), **({} if used.all() else {"used": used})}

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        weight = parameters["weight"]
        x = torch.where((weight != 0).any(dim=1), inputs[0].double(), 0.0)
        return FUNCTIONS[self.function](x @ weight + parameters["intercept"])

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,) = inputs
        if "used" in parameters:
            x = torch.where(parameters["used"], x, 0.0)
        intercept, function = parameters["intercept"], IN_PLACE.get(self.function, FUNCTIONS[self.function])

        def finish(part: torch.Tensor) -> None:
            apply(function, part.add_(intercept))

        if LargeWeight.suits(self.weight):
            answer = torch.empty(len(x), len(intercept), dtype=torch.float64)
            for start, rows in self._large.products(len(x), rows_of(x)):
                part = answer[start : start + len(rows)]
                finish(part.copy_(rows))
            return answer
        if self.function == "identity":
            return product(x, parameters["weight"]).add_(intercept)
        return product(x, parameters["weight"], finish)

    @functools.cached_property
    def _large(self) -> LargeWeight:
        return LargeWeight(self.weight)

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        weight, intercept = parameters["weight"], parameters["intercept"]
        launch_affine(inputs[0], weight, intercept, output, rows, self.function, sparse="used" in parameters)

    def reads_input_once(self) -> bool:
        targets = self.weight.shape[1]
        return targets <= affine_targets_block(targets, across=True)["BLOCK_TARGETS"]

    def writes_rows_whole(self) -> bool:
        return True

    def passes_on_not_finite(self) -> bool:
        return self.function == "identity" and bool((self.weight != 0).any(axis=1).all())

    def describe(self) -> str:
        return f"{self.weight.shape[0]} → {self.weight.shape[1]}" + function_suffix(self.function)
