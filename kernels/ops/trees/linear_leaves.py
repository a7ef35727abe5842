"""LinearLeaves: `out[r] = Σₜ (constant[l] + Σₖ coefficient[l, k] · x[r, feature[l, k]])`, `l` being `leaves[r, t]`.

`leaves`: `[rows, trees]`, the number of the leaf that a row reaches in each tree, the output of a tree ensemble; `x`:
`[rows, features]`, float32 or float64; `constant`, `value`: `[leaves]` float64; `feature`, `coefficient`:
`[leaves, terms]` int32 and float64; `out`: `[rows, 1]`, float32 or float64. A leaf with fewer terms than others has the
feature −1 in place of the rest, and a number outside the range of leaves stands for the nearest leaf. If one of its
features is NaN, a leaf answers its `value` instead. Arithmetic is float64, one term after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from ...cpu.ordered_sum import add_in_order
from ...format.errors import PlanError
from ...numerics.members import member_places, one_member
from ...plan.plan import Operation, Parameters
from .launch import LINEAR_ROWS, LINEAR_TREES
from .traverse import NO_TREE

TILE_TERMS = 2**17
"""Products that plain torch holds at a time."""


@triton.jit(do_not_specialize=["rows", "first", "members"])
def linear_leaves_kernel(
    leaves,  # float32 or float64 [rows, TREES]
    x,  # float32 or float64 [rows, FEATURES]
    numbers,  # float32 or float64 [rows], the numbers of the rows' members where STACKED
    first_leaf,  # int64 [members + 1] where STACKED, of each member's leaves, then the number of leaves
    constant,  # float64 [leaves], those of all members where STACKED
    value,  # float64 [leaves]
    feature,  # int32 [leaves, TERMS], one more than a column of x, or 0
    coefficient,  # float64 [leaves, TERMS]
    out,  # float32 or float64 [rows]
    rows,
    first,  # the number of the first member
    members,
    STACKED: tl.constexpr,
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
    least, most = 0, LEAVES - 1
    if STACKED:
        place = member_places(numbers, row, row < rows, first, members)
        least = tl.load(first_leaf + place)
        most = tl.load(first_leaf + place + 1) - 1 - least
    for start in tl.range(0, TREES, BLOCK_TREES):
        tree = start + tl.arange(0, BLOCK_TREES)[None, :]
        inside = (row < rows) & (tree < TREES)
        leaf = tl.load(leaves + row * TREES + tree, mask=inside, other=0.0).to(tl.int64)
        if STACKED:
            inside &= leaf != NO_TREE
        leaf = tl.minimum(tl.maximum(leaf, 0), most) + least
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
        return sums_of_leaves(parameters, leaves.long().clamp(0, len(self.constant) - 1), x)

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        leaves, x = inputs
        parts = zip(*(each.split(tile_of(leaves, self.feature)) for each in (leaves, x)), strict=True)
        last = len(self.constant) - 1
        return torch.cat([fast_sums_of_leaves(parameters, leaf.long().clamp_(0, last), part) for leaf, part in parts])

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        leaves, x = inputs
        launch_linear_leaves(leaves, x, {"first_leaf": x, **parameters}, output, rows, one_member(x))

    def hides_nan(self) -> bool:
        return True

    def describe(self) -> str:
        return f"{len(self.constant):,} leaves of up to {self.feature.shape[1]} features"


def sums_of_leaves(
    parameters: Parameters, leaves: torch.Tensor, x: torch.Tensor, real: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the sums of the functions of leaves, float64 `[rows, 1]`.

    Args:
        parameters: those of linear leaves for plain torch.
        leaves: the leaves' places in these, int64 `[rows, trees]`.
        x: `[rows, features]`.
        real: whether a row has a tree, bool `[rows, trees]`; None: all have all.
    """
    x = torch.nn.functional.pad(x.double(), (1, 0))  # column 0 stands for no feature
    total = torch.zeros(len(x), 1, dtype=torch.float64)
    for tree, leaf in enumerate(leaves.T):
        numbers, weights = x.gather(1, parameters["feature"][leaf]), parameters["coefficient"][leaf]
        y = parameters["constant"][leaf]
        for number, weight in zip(numbers.T, weights.T, strict=True):
            y = y + number * weight
        y = torch.where(numbers.isnan().any(1), parameters["value"][leaf], y)
        total[:, 0] += y if real is None else torch.where(real[:, tree], y, 0.0)
    return total


def tile_of(leaves: torch.Tensor, feature: np.ndarray) -> int:
    """Return the rows that plain torch computes at a time."""
    return max(TILE_TERMS // max(leaves.shape[1] * feature.shape[1], 1), 1)


def fast_sums_of_leaves(
    parameters: Parameters, leaves: torch.Tensor, x: torch.Tensor, real: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the same as `sums_of_leaves`, in fewer steps."""
    (rows, trees), terms, leaf = leaves.shape, parameters["feature"].shape[1], leaves.reshape(-1)
    padded = torch.nn.functional.pad(x.double(), (1, 0))
    column = parameters["feature"].index_select(0, leaf).view(rows, trees * terms)
    numbers = padded.gather(1, column).view(-1, terms)
    products = parameters["coefficient"].index_select(0, leaf).mul_(numbers)
    sums = parameters["constant"].index_select(0, leaf)
    for term in range(terms):  # one after the other, an order that no batch changes
        sums += products[:, term]
    if x.isnan().any():
        sums = torch.where(numbers.isnan().any(1), parameters["value"].index_select(0, leaf), sums)
    if real is not None and not real.all():
        sums = torch.where(real.view(-1), sums, -0.0)  # changes no sum
    return add_in_order(sums.view(rows, trees, 1).transpose(0, 1))


def launch_linear_leaves(
    leaves: torch.Tensor,
    x: torch.Tensor,
    parameters: Parameters,
    output: torch.Tensor,
    rows: int,
    members: Mapping[str, Any],
) -> None:
    """Launch the kernel on the first `rows` rows; `members` says how it finds each row's leaves."""
    count, terms = parameters["feature"].shape
    linear_leaves_kernel[(triton.cdiv(rows, LINEAR_ROWS),)](
        leaves=leaves,
        x=x,
        **parameters,
        **members,
        out=output,
        rows=rows,
        FEATURES=x.shape[1],
        TREES=leaves.shape[1],
        LEAVES=count,
        TERMS=terms,
        BLOCK_ROWS=LINEAR_ROWS,
        BLOCK_TREES=LINEAR_TREES,
        num_warps=4,
    )
