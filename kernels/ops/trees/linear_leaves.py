"""LinearLeaves: `out[r] = Σₜ (constant[l] + Σₖ coefficient[l, k] · x[r, feature[l, k]])`, `l` being `leaves[r, t]`.

`leaves`: `[rows, trees]`, the number of the leaf that a row reaches in each tree, the output of a tree ensemble; `x`:
`[rows, features]`, float32 or float64; `constant`, `value`: `[leaves]` float64; `feature`, `coefficient`:
`[leaves, terms]` int32 and float64; `out`: `[rows, 1]`, float32 or float64. A leaf with fewer terms than others has the
feature −1 in place of the rest, and a number outside the range of leaves stands for the nearest leaf. If one of its
features is NaN, a leaf answers its `value` instead. Arithmetic is float64, one term after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl

from ...cpu.ordered_sum import add_in_order
from ...format.errors import PlanError
from ...plan.plan import Operation, Parameters
from .launch import LINEAR_ROWS, LINEAR_TREES

TILE_TERMS = 2**17
"""Products that plain torch holds at a time."""


@triton.jit(do_not_specialize=["rows"])
def linear_leaves_kernel(
    leaves,  # float32 or float64 [rows, TREES]
    x,  # float32 or float64 [rows, FEATURES]
    constant,  # float64 [leaves]
    value,  # float64 [leaves]
    feature,  # int32 [leaves, TERMS], one more than a column of x, or 0
    coefficient,  # float64 [leaves, TERMS]
    out,  # float32 or float64 [rows]
    rows,
    FEATURES: tl.constexpr,
    TREES: tl.constexpr,
    LEAVES: tl.constexpr,
    TERMS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_TREES: tl.constexpr,
):
    """A program makes `BLOCK_ROWS` rows, `BLOCK_TREES` trees at a time."""
    row = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    total = tl.zeros([BLOCK_ROWS, BLOCK_TREES], tl.float64)
    for start in tl.range(0, TREES, BLOCK_TREES):
        tree = start + tl.arange(0, BLOCK_TREES)[None, :]
        inside = (row < rows) & (tree < TREES)
        leaf = tl.load(leaves + row * TREES + tree, mask=inside, other=0.0).to(tl.int64)
        leaf = tl.minimum(tl.maximum(leaf, 0), LEAVES - 1)
        answer = tl.load(constant + leaf, mask=inside, other=0.0)
        missing = answer != answer
        for term in tl.range(TERMS):
            column = tl.load(feature + leaf * TERMS + term, mask=inside, other=0)
            weight = tl.load(coefficient + leaf * TERMS + term, mask=inside, other=0.0)
            number = tl.load(x + row * FEATURES + column - 1, mask=column > 0, other=0.0).to(tl.float64)
            answer += weight * number
            missing |= number != number
        total += tl.where(missing, tl.load(value + leaf, mask=inside, other=0.0), answer)
    y = tl.sum(total, axis=1, keep_dims=True)
    tl.store(out + row, y.to(out.dtype.element_ty), mask=row < rows)


@dataclass(frozen=True, eq=False)
class LinearLeaves(Operation):
    """The sum of the linear functions of the leaves that a row reaches."""

    constant: np.ndarray
    value: np.ndarray
    feature: np.ndarray
    coefficient: np.ndarray

    def check(self, *widths: int) -> None:
        _, features = widths
        leaves = self.constant.shape
        if len(leaves) != 1 or self.value.shape != leaves or self.feature.shape[:1] != leaves:
            raise PlanError("linear_leaves: constant and value must be [leaves], feature [leaves, terms].")
        if (
            self.feature.ndim != 2
            or not self.feature.shape[1]
            or self.feature.dtype != np.int32
            or self.coefficient.shape != self.feature.shape
        ):
            raise PlanError(
                "linear_leaves: feature must be int32 [leaves, terms], at least one, and coefficient as large."
            )
        if ((self.feature < -1) | (self.feature >= features)).any():
            raise PlanError(f"linear_leaves: features must lie in [-1, {features}).")

    def output_width(self, *widths: int) -> int:
        return 1

    def parameters(self) -> dict[str, np.ndarray]:
        """Return the fields, with features numbered from 1 on, since 0 means no feature."""
        return dict(self.arrays()) | {"feature": self.feature + np.int32(1)}

    def plain_parameters(self) -> dict[str, np.ndarray]:
        """Return the same, with features as int64 for plain torch."""
        return dict(self.arrays()) | {"feature": self.feature + np.int64(1)}

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        leaves, x = inputs
        x = torch.nn.functional.pad(x.double(), (1, 0))  # column 0 stands for no feature
        total = torch.zeros(len(x), 1, dtype=torch.float64)
        for leaf in leaves.long().clamp(0, len(self.constant) - 1).T:
            numbers, weights = x.gather(1, parameters["feature"][leaf]), parameters["coefficient"][leaf]
            y = parameters["constant"][leaf]
            for number, weight in zip(numbers.T, weights.T, strict=True):
                y = y + number * weight
            total[:, 0] += torch.where(numbers.isnan().any(1), parameters["value"][leaf], y)
        return total

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        leaves, x = inputs
        constant, value, feature, coefficient = (
            parameters[name] for name in ("constant", "value", "feature", "coefficient")
        )
        (rows, trees), terms = leaves.shape, feature.shape[1]
        answer = torch.empty(rows, 1, dtype=torch.float64)
        tile = max(TILE_TERMS // max(trees * terms, 1), 1)
        for start in range(0, rows, tile):
            leaf = leaves[start : start + tile].long().clamp_(0, len(constant) - 1).view(-1)
            part = x[start : start + tile].double()
            padded = torch.cat([torch.zeros(len(part), 1, dtype=part.dtype), part], dim=1)
            column = feature.index_select(0, leaf).view(len(part), -1)
            numbers = padded.gather(1, column).view(-1, terms)
            products = coefficient.index_select(0, leaf).mul_(numbers)
            sums = constant.index_select(0, leaf)
            for term in range(terms):  # one after the other, an order that no batch changes
                sums += products[:, term]
            if part.isnan().any():
                sums = torch.where(numbers.isnan().any(1), value.index_select(0, leaf), sums)
            answer[start : start + tile] = add_in_order(sums.view(len(part), trees, 1).transpose(0, 1))
        return answer

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        leaves, x = inputs
        linear_leaves_kernel[(triton.cdiv(rows, LINEAR_ROWS),)](
            leaves=leaves,
            x=x,
            **parameters,
            out=output,
            rows=rows,
            FEATURES=x.shape[1],
            TREES=leaves.shape[1],
            LEAVES=len(self.constant),
            TERMS=self.feature.shape[1],
            BLOCK_ROWS=LINEAR_ROWS,
            BLOCK_TREES=LINEAR_TREES,
            num_warps=4,
        )

    def hides_nan(self) -> bool:
        return True

    def describe(self) -> str:
        return f"{len(self.constant):,} leaves of up to {self.feature.shape[1]} features"
