"""OrderedAffine: `out[r, t] = f(((intercept[t] + x[r, 0] · weight[0, t]) + x[r, 1] · weight[1, t]) + …)` in float32.

`x`: `[rows, features]`, float32 or float64, which is rounded to float32 first; `weight`: `[features, targets]` float32;
`intercept`: `[targets]` float32; `out`: `[rows, targets]`, float32 or float64; `f`: a function of
`numerics/functions.py`. Each product and each sum is rounded to float32, and an `x` that is NaN adds nothing.
XGBoost's linear booster computes its answers this way. Its bits result neither from another order nor from fused
products and sums.
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
from ...numerics.functions import FUNCTIONS, apply_function, check_function, function_suffix
from ...plan.plan import Operation, Parameters
from .launch import ORDERED_AHEAD, ORDERED_ROWS, ORDERED_TARGETS

LARGEST_TERMS = 2**20
"""Products that plain torch holds at a time."""


@triton.jit(do_not_specialize=["rows"])
def ordered_affine_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    weight,  # float32 [FEATURES, TARGETS]
    intercept,  # float32 [TARGETS]
    out,  # float32 or float64 [rows, TARGETS]
    rows,
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
    total = tl.load(intercept + target + 0 * row, mask=inside, other=0.0)
    for start in tl.range(0, FEATURES, AHEAD):
        for ahead in tl.static_range(AHEAD):
            feature = start + ahead
            held = (row < rows) & (feature < FEATURES)
            value = tl.load(x + row * FEATURES + feature, mask=held, other=float("nan")).to(tl.float32)
            w = tl.load(weight + feature * TARGETS + target, mask=(target < TARGETS) & (feature < FEATURES), other=0.0)
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
        answer = torch.empty(len(x), len(intercept), dtype=torch.float64)
        step = max(LARGEST_TERMS // weight.numel(), 1)
        for start in range(0, len(x), step):
            part = x[start : start + step].T[:, :, None]
            terms = torch.where(part.isnan(), -0.0, part * weight)  # −0.0 changes no sum
            terms[0] += intercept
            answer[start : start + step] = add_in_order(terms)
        return FUNCTIONS[self.function](answer)

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        features, targets = self.weight.shape
        block_targets = min(triton.next_power_of_2(targets), ORDERED_TARGETS)
        ordered_affine_kernel[(triton.cdiv(rows, ORDERED_ROWS), triton.cdiv(targets, block_targets))](
            x=inputs[0],
            **parameters,
            out=output,
            rows=rows,
            FEATURES=features,
            TARGETS=targets,
            FUNCTION=self.function,
            BLOCK_ROWS=ORDERED_ROWS,
            BLOCK_TARGETS=block_targets,
            AHEAD=ORDERED_AHEAD,
            num_warps=1,
            enable_fp_fusion=False,
        )

    def hides_nan(self) -> bool:
        return True

    def describe(self) -> str:
        return f"{self.weight.shape[0]} → {self.weight.shape[1]}" + function_suffix(self.function)
