"""OrderedAffine: `out[r, t] = f(((intercept[t] + x[r, 0] · weight[0, t]) + x[r, 1] · weight[1, t]) + …)` in float32.

`x`: `[rows, features]`, float32 or float64, which is rounded to float32 first; `weight`: `[features, targets]` float32;
`intercept`: `[targets]` float32; `out`: `[rows, targets]`, float32 or float64; `f`: a function of
`numerics/functions.py`. Each product and each sum is rounded to float32, and an `x` that is NaN adds nothing.
XGBoost's linear booster computes its answers this way. Its bits result neither from another order nor from fused
products and sums.
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
from ...cpu.tiles import apply
from ...format.errors import PlanError
from ...numerics.functions import FUNCTIONS, apply_function, check_function, function_suffix
from ...numerics.members import member_places, one_member
from ...plan.plan import Operation, Parameters
from .launch import ORDERED_AHEAD, ORDERED_ROWS, ORDERED_TARGETS

LARGEST_TERMS = 2**20
"""Products that plain torch holds at a time."""


@triton.jit(do_not_specialize=["rows", "first", "members"])
def ordered_affine_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    numbers,  # float32 or float64 [rows], the numbers of the rows' members where STACKED
    weight,  # float32 [FEATURES, TARGETS]; [members, FEATURES, TARGETS] where STACKED
    intercept,  # float32 [TARGETS]; [members, TARGETS] where STACKED
    out,  # float32 or float64 [rows, TARGETS]
    rows,
    first,  # the number of the first member
    members,
    STACKED: tl.constexpr,
    FEATURES: tl.constexpr,
    TARGETS: tl.constexpr,
    FUNCTION: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_TARGETS: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """A program makes `[BLOCK_ROWS, BLOCK_TARGETS]` of the output. Launches turn FP fusion off to round products."""
    row = (tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS))[:, None]
    target = (tl.program_id(1) * BLOCK_TARGETS + tl.arange(0, BLOCK_TARGETS))[None, :]
    inside = (row < rows) & (target < TARGETS)
    place = member_places(numbers, row, row < rows, first, members) if STACKED else 0 * row
    total = tl.load(intercept + place * TARGETS + target, mask=inside, other=0.0)
    for start in tl.range(0, FEATURES, AHEAD):
        for ahead in tl.static_range(AHEAD):
            feature = start + ahead
            held = (row < rows) & (feature < FEATURES)
            value = tl.load(x + row * FEATURES + feature, mask=held, other=float("nan")).to(tl.float32)
            held = (target < TARGETS) & (feature < FEATURES)
            at = feature * TARGETS + target
            if STACKED:
                at += place * (FEATURES * TARGETS)
            w = tl.load(weight + at, mask=held, other=0.0)
            total = tl.where(value == value, total + value * w, total)
    y = apply_function(total.to(tl.float64), FUNCTION)
    tl.store(out + row * TARGETS + target, y.to(out.dtype.element_ty), mask=inside)


@dataclass(frozen=True, eq=False)
class OrderedAffine(Operation):
    """An affine map whose terms are added up in float32, one after the other, then a function of each element."""

    weight: np.ndarray
    intercept: np.ndarray
    function: str = "identity"

    def check(self, *widths: int) -> None:
        (features,) = widths
        if self.weight.ndim != 2 or len(self.weight) != features or self.weight.dtype != np.float32:
            raise PlanError(f"ordered_affine: weight must be float32 [{features}, targets].")
        if self.intercept.shape != self.weight.shape[1:] or self.intercept.dtype != np.float32:
            raise PlanError(f"ordered_affine: intercept must be float32 {list(self.weight.shape[1:])}.")
        check_function(self.function)

    def output_width(self, *widths: int) -> int:
        return self.weight.shape[1]

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        x, intercept = inputs[0].float(), parameters["intercept"]
        total = intercept.repeat(len(x), 1)
        for column, weight in zip(x.T[:, :, None], parameters["weight"], strict=True):
            total = torch.where(column.isnan(), total, total + column * weight)
        return FUNCTIONS[self.function](total.double())

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        weight, intercept, x = parameters["weight"][:, None], parameters["intercept"], inputs[0].float()
        parts = x.split(max(LARGEST_TERMS // weight.numel(), 1))
        return apply(FUNCTIONS[self.function], torch.cat([sums_in_order(part, weight, intercept) for part in parts]))

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        launch_ordered_affine(inputs[0], parameters, output, rows, one_member(inputs[0]), self.function)

    def hides_nan(self) -> bool:
        return True

    def describe(self) -> str:
        return f"{self.weight.shape[0]} → {self.weight.shape[1]}" + function_suffix(self.function)


def sums_in_order(x: torch.Tensor, weight: torch.Tensor, intercept: torch.Tensor) -> torch.Tensor:
    """Return the sums of rows `[rows, features]` in plain torch, float64 `[rows, targets]`; all tensors are float32.

    The weight is `[features, 1, targets]`, or `[features, rows, targets]`, and the intercept `[targets]`, or
    `[rows, targets]`.
    """
    columns = x.T[:, :, None]
    terms = torch.where(columns.isnan(), -0.0, columns * weight)  # −0.0 changes no sum
    terms[0] += intercept
    return add_in_order(terms).double()


def launch_ordered_affine(
    x: torch.Tensor,
    parameters: Parameters,
    output: torch.Tensor,
    rows: int,
    members: Mapping[str, Any],
    function: str,
) -> None:
    """Launch the kernel on the first `rows` rows; `members` says how it finds each row's weights."""
    targets = output.shape[1]
    block_targets = min(triton.next_power_of_2(targets), ORDERED_TARGETS)
    ordered_affine_kernel[(triton.cdiv(rows, ORDERED_ROWS), triton.cdiv(targets, block_targets))](
        x=x,
        **parameters,
        **members,
        out=output,
        rows=rows,
        FEATURES=x.shape[1],
        TARGETS=targets,
        FUNCTION=function,
        BLOCK_ROWS=ORDERED_ROWS,
        BLOCK_TARGETS=block_targets,
        AHEAD=ORDERED_AHEAD,
        num_warps=1,
        enable_fp_fusion=False,
    )
