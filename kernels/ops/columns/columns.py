"""Columns: `out[r, c] = x[r, indices[c]]`, a selection of columns in any order.

`x`: `[rows, width]`, `out`: `[rows, len(indices)]`, float32 or float64; `indices`: int32.
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
from .launch import BLOCK


@triton.jit(do_not_specialize=["size"])
def columns_kernel(
    x,  # float32 or float64 [rows, WIDTH]
    indices,  # int32 [SELECTED]
    out,  # float32 or float64 [size]
    size,  # rows * SELECTED
    WIDTH: tl.constexpr,
    SELECTED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Copy the selected columns; a program makes `BLOCK` elements of the flat output."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    column = tl.load(indices + at % SELECTED, mask=inside, other=0)
    tl.store(out + at, tl.load(x + at // SELECTED * WIDTH + column, mask=inside), mask=inside)


@dataclass(frozen=True, eq=False)
class Columns(Operation):
    """Select columns by index."""

    indices: np.ndarray

    def check(self, *widths: int) -> None:
        (width,) = widths
        if self.indices.ndim != 1 or not len(self.indices):
            raise PlanError("columns: at least one column must be selected.")
        if self.indices.min() < 0 or self.indices.max() >= width:
            raise PlanError(f"columns: indices must lie in [0, {width}).")

    def output_width(self, *widths: int) -> int:
        return len(self.indices)

    def parameters(self) -> dict[str, np.ndarray]:
        return {"indices": self.indices.astype(np.int32)}

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        return inputs[0].index_select(1, parameters["indices"])

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        width, selected = inputs[0].shape[1], output.shape[1]
        columns_kernel[(triton.cdiv(rows * selected, BLOCK),)](
            inputs[0], parameters["indices"], output, rows * selected, WIDTH=width, SELECTED=selected, BLOCK=BLOCK
        )

    def reads_input_once(self) -> bool:
        return True

    def describe(self) -> str:
        return f"{len(self.indices)} selected"
