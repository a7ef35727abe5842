"""Float32: `out[r, c]` is the float32 nearest to `x[r, c]`, for estimators that cast their input to float32.

`x`, `out`: `[rows, width]`. With `rounded`, `[width]` uint8, columns that have 0 there stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
import triton
import triton.language as tl

from ...format.errors import PlanError
from ...numerics.flat import below
from ...plan.plan import Operation, Parameters
from .launch import BLOCK


@triton.jit(do_not_specialize=["size"])
def float32_kernel(
    x,  # float32 or float64 [size]
    out,  # float32 or float64 [size]
    rounded,  # uint8 [WIDTH]: which columns are rounded; unread where SOME is False
    size,  # rows * WIDTH
    WIDTH: tl.constexpr,
    SOME: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Round a flat matrix; a program makes `BLOCK` elements."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = below(at, size, WIDTH)
    given = tl.load(x + at, mask=inside)
    value = given.to(tl.float32).to(out.dtype.element_ty)
    if SOME:
        value = tl.where(tl.load(rounded + at % WIDTH, mask=inside) != 0, value, given.to(out.dtype.element_ty))
    tl.store(out + at, value, mask=inside)


@dataclass(frozen=True, eq=False)
class Float32(Operation):
    """Round each element to float32, or those of the columns that `rounded` marks."""

    rounded: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.uint8))

    def check(self, *widths: int) -> None:
        (width,) = widths
        if self.rounded.dtype != np.uint8 or self.rounded.shape not in ((0,), (width,)):
            raise PlanError(
                f"float32: rounded must be uint8 [{width}] or [0], not {self.rounded.dtype} {self.rounded.shape}."
            )

    def output_width(self, *widths: int) -> int:
        return widths[0]

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,) = inputs
        rounded = x.float().double()
        return torch.where(parameters["rounded"] != 0, rounded, x.double()) if len(self.rounded) else rounded

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        width = output.shape[1]
        float32_kernel[(triton.cdiv(rows * width, BLOCK),)](
            inputs[0],
            output,
            parameters["rounded"],
            rows * width,
            WIDTH=width,
            SOME=len(self.rounded) > 0,
            BLOCK=BLOCK,
        )

    def reads_input_once(self) -> bool:
        return True

    def describe(self) -> str:
        return f"{int(self.rounded.sum())} of {len(self.rounded)} columns" if len(self.rounded) else ""
