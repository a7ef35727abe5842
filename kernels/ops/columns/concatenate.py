"""Concatenate: `out = [x₀ | x₁ | …]`, the columns of several matrices side by side, or some of them in any order.

`xᵢ`: `[rows, widthᵢ]`, `out`: `[rows, Σ widthᵢ]`, float32 or float64. With `columns`, int32 `[selected]`,
`out[r, c] = [x₀ | x₁ | …][r, columns[c]]`. One launch takes `INPUTS_AT_ONCE` inputs.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl

from ...format.errors import PlanError
from ...plan.plan import Operation, Parameters
from .launch import BLOCK

INPUTS_AT_ONCE = 8


@triton.jit
def take(x, row, column, inside, value, FIRST: tl.constexpr, WIDTH: tl.constexpr):
    """Return `value` with its elements that lie in `x` filled in. The columns of `x` begin at column `FIRST`."""
    if WIDTH > 0:
        here = inside & (column >= FIRST) & (column < FIRST + WIDTH)
        value = tl.where(here, tl.load(x + row * WIDTH + (column - FIRST), mask=here, other=0.0).to(value.dtype), value)
    return value


@triton.jit(do_not_specialize=["size"])
def place_kernel(
    x0,  # float32 or float64 [rows, WIDTH0]; the others likewise, and unused where the width is 0
    x1,
    x2,
    x3,
    x4,
    x5,
    x6,
    x7,
    columns,  # int32 [TOTAL], read where SELECTED
    out,  # float32 or float64 [rows, TOTAL]
    size,  # rows * TOTAL
    FIRST: tl.constexpr,  # the first column of x0
    WIDTH0: tl.constexpr,
    WIDTH1: tl.constexpr,
    WIDTH2: tl.constexpr,
    WIDTH3: tl.constexpr,
    WIDTH4: tl.constexpr,
    WIDTH5: tl.constexpr,
    WIDTH6: tl.constexpr,
    WIDTH7: tl.constexpr,
    TOTAL: tl.constexpr,
    SELECTED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A program makes the elements that lie in these inputs, out of `BLOCK` elements of a flat matrix."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    row, column = at // TOTAL, (at % TOTAL).to(tl.int32)
    if SELECTED:
        column = tl.load(columns + column, mask=inside, other=0)
    FIRST1: tl.constexpr = FIRST + WIDTH0
    FIRST2: tl.constexpr = FIRST1 + WIDTH1
    FIRST3: tl.constexpr = FIRST2 + WIDTH2
    FIRST4: tl.constexpr = FIRST3 + WIDTH3
    FIRST5: tl.constexpr = FIRST4 + WIDTH4
    FIRST6: tl.constexpr = FIRST5 + WIDTH5
    FIRST7: tl.constexpr = FIRST6 + WIDTH6
    value = tl.zeros([BLOCK], out.dtype.element_ty)
    value = take(x0, row, column, inside, value, FIRST, WIDTH0)
    value = take(x1, row, column, inside, value, FIRST1, WIDTH1)
    value = take(x2, row, column, inside, value, FIRST2, WIDTH2)
    value = take(x3, row, column, inside, value, FIRST3, WIDTH3)
    value = take(x4, row, column, inside, value, FIRST4, WIDTH4)
    value = take(x5, row, column, inside, value, FIRST5, WIDTH5)
    value = take(x6, row, column, inside, value, FIRST6, WIDTH6)
    value = take(x7, row, column, inside, value, FIRST7, WIDTH7)
    tl.store(out + at, value, mask=inside & (column >= FIRST) & (column < FIRST7 + WIDTH7))


@dataclass(frozen=True, eq=False)
class Concatenate(Operation):
    """Put matrices side by side, or a selection of their columns."""

    columns: np.ndarray | None = None

    def check(self, *widths: int) -> None:
        if not widths:
            raise PlanError("concatenate: at least one input is needed.")
        if self.columns is not None:
            if self.columns.ndim != 1 or not len(self.columns):
                raise PlanError("concatenate: at least one column must be selected.")
            if self.columns.min() < 0 or self.columns.max() >= sum(widths):
                raise PlanError(f"concatenate: columns must lie in [0, {sum(widths)}).")

    def output_width(self, *widths: int) -> int:
        return sum(widths) if self.columns is None else len(self.columns)

    def parameters(self) -> dict[str, np.ndarray]:
        return {} if self.columns is None else {"columns": self.columns.astype(np.int32)}

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        together = torch.cat(inputs, dim=1)
        return together if self.columns is None else together.index_select(1, parameters["columns"])

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        size, total = rows * output.shape[1], output.shape[1]
        firsts = [0, *itertools.accumulate(x.shape[1] for x in inputs)]
        for start in range(0, len(inputs), INPUTS_AT_ONCE):
            part = inputs[start : start + INPUTS_AT_ONCE]
            unused = range(len(part), INPUTS_AT_ONCE)
            place_kernel[(triton.cdiv(size, BLOCK),)](
                **{f"x{index}": x for index, x in enumerate(part)},
                **{f"x{index}": part[0] for index in unused},
                columns=parameters.get("columns", part[0]),
                out=output,
                size=size,
                FIRST=firsts[start],
                **{f"WIDTH{index}": x.shape[1] for index, x in enumerate(part)},
                **{f"WIDTH{index}": 0 for index in unused},
                TOTAL=total,
                SELECTED=self.columns is not None,
                BLOCK=BLOCK,
            )

    def launches(self, inputs: int) -> int:
        return -(-inputs // INPUTS_AT_ONCE)

    def reads_input_once(self) -> bool:
        return self.columns is None or len(np.unique(self.columns)) == len(self.columns)

    def describe(self) -> str:
        return "" if self.columns is None else f"{len(self.columns)} selected"
