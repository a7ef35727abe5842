"""Outside: the number of entries of a row that lie outside the range of their column.

    out[r, 0] = Σ_c [x[r, c] < low[c]] + [x[r, c] > high[c]] + missing[c] · [x[r, c] is NaN]

`x`: `[rows, width]`, float32 or float64; `low`, `high`: float64 `[width]`; `missing`: uint8 `[width]`, 1 where NaN
counts; `out`: `[rows, 1]`. Numbers are compared as float64, and the sum is a whole number, the same in every order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl

from ...format.errors import PlanError
from ...plan.plan import Operation, Parameters
from .launch import OUTSIDE_BLOCK, OUTSIDE_COLUMNS


@triton.jit(do_not_specialize=["rows"])
def outside_kernel(
    x,  # float32 or float64 [rows, WIDTH]
    low,  # float64 [WIDTH]
    high,  # float64 [WIDTH]
    missing,  # uint8 [WIDTH]
    out,  # float32 or float64 [rows]
    rows,
    WIDTH: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):
    """A program counts in `BLOCK_ROWS` rows, some columns at a time."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    count = tl.zeros([BLOCK_ROWS], tl.int32)
    for start in tl.range(0, WIDTH, BLOCK_COLUMNS):
        column = start + tl.arange(0, BLOCK_COLUMNS)
        there = column < WIDTH
        inside = (row < rows)[:, None] & there[None, :]
        v = tl.load(x + row[:, None] * WIDTH + column[None, :], mask=inside, other=0.0).to(tl.float64)
        least = tl.load(low + column, mask=there, other=0.0)[None, :]
        most = tl.load(high + column, mask=there, other=0.0)[None, :]
        counted = tl.load(missing + column, mask=there, other=0)[None, :] != 0
        found = (v < least) | (v > most) | ((v != v) & counted)
        count += tl.sum((found & inside).to(tl.int32), axis=1)
    tl.store(out + row, count.to(out.dtype.element_ty), mask=row < rows)


@dataclass(frozen=True, eq=False)
class Outside(Operation):
    """Count the numbers of a row that lie outside their column's range."""

    low: np.ndarray
    high: np.ndarray
    missing: np.ndarray

    def check(self, *widths: int) -> None:
        (width,) = widths
        for name in ("low", "high", "missing"):
            shape = getattr(self, name).shape
            if shape != (width,):
                raise PlanError(f"outside: {name} must be [{width}], not {list(shape)}.")

    def output_width(self, *widths: int) -> int:
        return 1

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        v = inputs[0].double()
        found = (v < parameters["low"]) | (v > parameters["high"]) | (v.isnan() & parameters["missing"].bool())
        return found.sum(dim=1, keepdim=True).double()

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        width = inputs[0].shape[1]
        block_columns = min(triton.next_power_of_2(width), OUTSIDE_COLUMNS)
        block_rows = OUTSIDE_BLOCK // block_columns
        outside_kernel[(triton.cdiv(rows, block_rows),)](
            inputs[0],
            **parameters,
            out=output,
            rows=rows,
            WIDTH=width,
            BLOCK_ROWS=block_rows,
            BLOCK_COLUMNS=block_columns,
        )

    def reads_input_once(self) -> bool:
        return True

    def hides_nan(self) -> bool:
        return True
