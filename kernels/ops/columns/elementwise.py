"""Elementwise: `out[r, c] = f(x[r, c])`.

`x`, `out`: `[rows, width]`, float32 or float64; `f`: a function of `numerics/functions.py`. It is computed in float64,
so an answer in float32 is the one nearest to the exact number.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from ...cpu.tiles import in_tiles
from ...numerics.functions import FUNCTIONS, apply_function, check_function
from ...plan.plan import Operation, Parameters
from .launch import BLOCK


@triton.jit(do_not_specialize=["size"])
def elementwise_kernel(
    x,  # float32 or float64 [size]
    out,  # float32 or float64 [size]
    size,  # rows * width
    FUNCTION: tl.constexpr,
    LOW: tl.constexpr,
    HIGH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Apply one function to a flat matrix; a program makes `BLOCK` elements."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = apply_function(tl.load(x + at, mask=at < size).to(tl.float64), FUNCTION)
    if LOW is not None:
        low = tl.zeros([BLOCK], tl.float64) + LOW  # a bare constant would be rounded to float32
        value = tl.where(value < low, low, value)
    if HIGH is not None:
        high = tl.zeros([BLOCK], tl.float64) + HIGH
        value = tl.where(value > high, high, value)
    tl.store(out + at, value.to(out.dtype.element_ty), mask=at < size)


@dataclass(frozen=True, eq=False)
class Elementwise(Operation):
    """Apply `function`, then clip to `[low, high]` if these are given."""

    function: str = "identity"
    low: float | None = None
    high: float | None = None

    def check(self, *widths: int) -> None:
        (_,) = widths
        check_function(self.function)

    def output_width(self, *widths: int) -> int:
        return widths[0]

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        value = FUNCTIONS[self.function](inputs[0].double())
        return value if self.low is None and self.high is None else torch.clip(value, self.low, self.high)

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,) = inputs
        return in_tiles(x, functools.partial(self.reference, parameters), x.shape[1], x.shape[1])

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        size = rows * output.shape[1]
        elementwise_kernel[(triton.cdiv(size, BLOCK),)](
            inputs[0], output, size, FUNCTION=self.function, LOW=self.low, HIGH=self.high, BLOCK=BLOCK
        )

    def reads_input_once(self) -> bool:
        return True

    def writes_rows_whole(self) -> bool:
        return True

    def hides_nan(self) -> bool:
        return self.function == "isnan"

    def describe(self) -> str:
        clip = "" if self.low is None and self.high is None else f" clipped to [{self.low}, {self.high}]"
        return self.function + clip
