"""Weighted median: `out[r] = x[r, j]`, the first number in ascending order at which the weights reach half their sum.

`x`: `[rows, estimators]`; `weights`: `[estimators]` float64; `out`: `[rows, 1]`. Weights are added one after another in
the ascending order of the row, equal numbers in the order of their columns. These are the same float64 sums as in
scikit-learn's `AdaBoostRegressor` (AdaBoost.R2, Drucker 1997), so a tie between two numbers is decided as it is there.

The kernel stores no order: it walks up each row twice, from each number to the next larger one. The first walk sums all
weights, and the second stops at half of that sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from ...format.errors import PlanError
from ...numerics.members import member_places, one_member
from ...plan.plan import Operation, Parameters
from .launch import MEDIAN_BLOCK

TILE_ELEMENTS = 2**20


@triton.jit
def next_larger(value, column, last, at, COLUMNS: tl.constexpr):
    """Return the number that follows `last` (at column `at`) in ascending order, and its column; NaN comes last."""
    after = (value > last[:, None]) | ((value == last[:, None]) & (column > at[:, None]))
    smallest = tl.min(tl.where(after, value, float("inf")), axis=1)
    found = tl.min(tl.where(after & (value == smallest[:, None]), column, COLUMNS - 1), axis=1)
    return smallest, found


@triton.jit(do_not_specialize=["rows", "first", "members"])
def weighted_median_kernel(
    x,  # float32 or float64 [rows, COLUMNS]
    numbers,  # float32 or float64 [rows], the numbers of the rows' members where STACKED
    weights,  # float64 [COLUMNS]; where STACKED [members, COLUMNS], −1 past a member's last estimator
    out,  # float32 or float64 [rows]
    rows,
    first,  # the number of the first member
    members,
    STACKED: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):
    """A program makes `BLOCK_ROWS` rows."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    column = tl.arange(0, BLOCK_COLUMNS)[None, :]
    inside = (row < rows)[:, None] & (column < COLUMNS)
    value = tl.load(x + row[:, None] * COLUMNS + column, mask=inside, other=float("nan")).to(tl.float64)
    value = tl.where((value != value) & (column < COLUMNS), float("inf"), value)
    own = weights
    if STACKED:
        own += member_places(numbers, row, row < rows, first, members) * COLUMNS
        of_columns = tl.load(own[:, None] + column, mask=column < COLUMNS, other=0.0)
        value = tl.where(of_columns < 0.0, float("nan"), value)  # is after no number
    total = tl.zeros([BLOCK_ROWS], tl.float64)
    last = tl.full([BLOCK_ROWS], float("-inf"), tl.float64)
    at = tl.full([BLOCK_ROWS], -1, tl.int32)
    for _ in tl.range(0, COLUMNS):
        last, at = next_larger(value, column, last, at, COLUMNS)
        total += tl.maximum(tl.load(own + at), 0.0) if STACKED else tl.load(own + at)
    half = 0.5 * total
    total = tl.zeros([BLOCK_ROWS], tl.float64)
    last = tl.full([BLOCK_ROWS], float("-inf"), tl.float64)
    at = tl.full([BLOCK_ROWS], -1, tl.int32)
    median = tl.full([BLOCK_ROWS], COLUMNS - 1, tl.int32)
    found = total > half
    for _ in tl.range(0, COLUMNS):
        last, at = next_larger(value, column, last, at, COLUMNS)
        total += tl.maximum(tl.load(own + at), 0.0) if STACKED else tl.load(own + at)
        median = tl.where(found, median, at)
        found = found | (total >= half)
    y = tl.load(x + row * COLUMNS + median, mask=row < rows)
    tl.store(out + row, y.to(out.dtype.element_ty), mask=row < rows)


@dataclass(frozen=True, eq=False)
class WeightedMedian(Operation):
    """The weighted median of each row's numbers."""

    weights: np.ndarray

    def check(self, *widths: int) -> None:
        (width,) = widths
        if self.weights.shape != (width,) or not (self.weights >= 0).all():
            raise PlanError(f"weighted_median: weights must be [{width}] and not negative.")

    def output_width(self, *widths: int) -> int:
        return 1

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        return medians(inputs[0], parameters["weights"].expand(len(inputs[0]), -1))

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        parts = inputs[0].split(max(TILE_ELEMENTS // len(self.weights), 1))
        return torch.cat([self.reference(parameters, part) for part in parts])

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        launch_medians(inputs[0], parameters, output, rows, one_member(inputs[0]))

    def hides_nan(self) -> bool:
        return True

    def describe(self) -> str:
        return f"of {len(self.weights)}"


def medians(x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return the weighted median of each row, float64 `[rows, 1]`; both matrices are `[rows, estimators]`."""
    order = x.argsort(dim=1, stable=True)
    sums = weights.gather(1, order).cumsum(1)
    median = (sums >= 0.5 * sums[:, -1:]).byte().argmax(1, keepdim=True)
    return x.gather(1, order.gather(1, median)).double()


def launch_medians(
    x: torch.Tensor, parameters: Parameters, output: torch.Tensor, rows: int, members: Mapping[str, Any]
) -> None:
    """Launch the kernel on the first `rows` rows; `members` says how it finds each row's weights."""
    columns = x.shape[1]
    block_columns = triton.next_power_of_2(columns)
    block_rows = max(MEDIAN_BLOCK // block_columns, 1)
    weighted_median_kernel[(triton.cdiv(rows, block_rows),)](
        x=x,
        **parameters,
        **members,
        out=output,
        rows=rows,
        COLUMNS=columns,
        BLOCK_ROWS=block_rows,
        BLOCK_COLUMNS=block_columns,
        num_warps=4,
    )
