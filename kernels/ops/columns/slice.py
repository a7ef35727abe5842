"""Slice: `out[r, c] = x[r, start + c]`, neighbouring columns in the dtype that they have.

`x`: `[rows, width]`, `out`: `[rows, columns]`, both float32 or both float64. `columns.py` selects in any order, and
what it makes of a plan's input is float64. A slice of a plan's input is what the plan of a model with these columns
alone reads, so that kernels do with it what they do in that plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from ...format.errors import PlanError
from ...plan.plan import Operation, Parameters
from .launch import BLOCK


@triton.jit(do_not_specialize=["size"])
def slice_kernel(
    x,  # float32 or float64 [rows, WIDTH]
    out,  # the same dtype, [size]
    size,  # rows * COLUMNS
    WIDTH: tl.constexpr,
    START: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Copy neighbouring columns; a program makes `BLOCK` elements of the flat output."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    value = tl.load(x + at // COLUMNS * WIDTH + START + at % COLUMNS, mask=inside)
    tl.store(out + at, value.to(out.dtype.element_ty), mask=inside)


@dataclass(frozen=True, eq=False)
class Slice(Operation):
    """Select `columns` neighbouring columns from `start` on."""

    start: int
    columns: int

    def check(self, *widths: int) -> None:
        (width,) = widths
        if self.start < 0 or self.columns < 1 or self.start + self.columns > width:
            raise PlanError(f"slice: {self.columns} columns from {self.start} on must lie in [0, {width}).")

    def output_width(self, *widths: int) -> int:
        return self.columns

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        return inputs[0][:, self.start : self.start + self.columns].contiguous()

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        size = rows * self.columns
        slice_kernel[(triton.cdiv(size, BLOCK),)](
            inputs[0], output, size, WIDTH=inputs[0].shape[1], START=self.start, COLUMNS=self.columns, BLOCK=BLOCK
        )

    def keeps_dtype(self) -> bool:
        return True

    def reads_input_once(self) -> bool:
        return True

    def describe(self) -> str:
        return f"{self.columns} from {self.start} on"
