"""Scale: `out[r, c] = (x[r, c] − shift[c]) · factor[c]`.

`x`, `out`: `[rows, width]` float32; `shift`, `factor`: `[width]` float64. Computed in float64 and rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl

from ..errors import PlanError
from ..plan import Operation, Parameters

BLOCK = 1024


@triton.jit(do_not_specialize=["size"])
def scale_kernel(
    x,  # float32 [size]
    shift,  # float64 [WIDTH]
    factor,  # float64 [WIDTH]
    out,  # float32 [size]
    size,  # rows * WIDTH
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Shift and scale the columns of a flat matrix; a program makes `BLOCK` elements."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    column = at % WIDTH
    value = tl.load(x + at, mask=inside).to(tl.float64)
    value = (value - tl.load(shift + column, mask=inside)) * tl.load(factor + column, mask=inside)
    tl.store(out + at, value.to(tl.float32), mask=inside)


@dataclass(frozen=True)
class Scale(Operation):
    """Shift and scale each column."""

    shift: np.ndarray
    factor: np.ndarray

    def output_width(self, *widths: int) -> int:
        (width,) = widths
        if self.shift.shape != (width,) or self.factor.shape != (width,):
            raise PlanError(f"scale: shift and factor must be [{width}], not {self.shift.shape}, {self.factor.shape}.")
        return width

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,) = inputs
        return ((x - parameters["shift"]) * parameters["factor"]).to(x.dtype)

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        width = output.shape[1]
        scale_kernel[(triton.cdiv(rows * width, BLOCK),)](
            inputs[0], parameters["shift"], parameters["factor"], output, rows * width, width, BLOCK
        )

    def reads_input_once(self) -> bool:
        return True
