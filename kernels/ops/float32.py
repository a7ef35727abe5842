"""Float32: `out[r, c]` is the float32 nearest to `x[r, c]`, for estimators that cast what they are given.

`x`, `out`: `[rows, width]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from ..plan import Operation, Parameters

BLOCK = 1024


@triton.jit(do_not_specialize=["size"])
def float32_kernel(
    x,  # float32 or float64 [size]
    out,  # float32 or float64 [size]
    size,  # rows * width
    BLOCK: tl.constexpr,
):
    """Round a flat matrix; a program makes `BLOCK` elements."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < size).to(tl.float32)
    tl.store(out + at, value.to(out.dtype.element_ty), mask=at < size)


@dataclass(frozen=True, eq=False)
class Float32(Operation):
    """Round each element to float32."""

    def check(self, *widths: int) -> None:
        (_,) = widths

    def output_width(self, *widths: int) -> int:
        return widths[0]

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        return inputs[0].float().double()

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        size = rows * output.shape[1]
        float32_kernel[(triton.cdiv(size, BLOCK),)](inputs[0], output, size, BLOCK=BLOCK)

    def reads_input_once(self) -> bool:
        return True
