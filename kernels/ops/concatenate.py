"""Concatenate: `out = [x₀ | x₁ | …]`, the columns of several matrices side by side.

`xᵢ`: `[rows, widthᵢ]`, `out`: `[rows, Σ widthᵢ]`, float32 or float64. One launch for each input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from ..errors import PlanError
from ..plan import Operation, Parameters

BLOCK = 1024


@triton.jit(do_not_specialize=["size"])
def place_kernel(
    x,  # float32 or float64 [size]
    out,  # float32 or float64 [rows, TOTAL]
    size,  # rows * WIDTH
    WIDTH: tl.constexpr,
    TOTAL: tl.constexpr,
    OFFSET: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Copy a matrix into columns `OFFSET` and on of a wider one; a program copies `BLOCK` elements."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    tl.store(out + at // WIDTH * TOTAL + OFFSET + at % WIDTH, tl.load(x + at, mask=inside), mask=inside)


@dataclass(frozen=True, eq=False)
class Concatenate(Operation):
    """Put matrices side by side."""

    def check(self, *widths: int) -> None:
        if not widths:
            raise PlanError("concatenate: at least one input is needed.")

    def output_width(self, *widths: int) -> int:
        return sum(widths)

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        return torch.cat(inputs, dim=1)

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        offset = 0
        for x in inputs:
            width = x.shape[1]
            size, shape = rows * width, {"WIDTH": width, "TOTAL": output.shape[1], "OFFSET": offset}
            place_kernel[(triton.cdiv(size, BLOCK),)](x, output, size, **shape, BLOCK=BLOCK)
            offset += width

    def launches(self, inputs: int) -> int:
        return inputs

    def reads_input_once(self) -> bool:
        return True
