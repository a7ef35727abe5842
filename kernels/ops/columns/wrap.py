"""Wrap: `out[r, c] = low[c] + (x[r, c] − low[c]) mod period[c]`, where the remainder has the sign of the period.

`x`, `out`: `[rows, width]`, float32 or float64; `low`, `period`: `[width]` float64, the period above zero. All
arithmetic is float64.

The remainder `u − q · period` is exact, like that of `fmod`: the upper half of the period has exact products with whole
numbers below 2²⁶, and the lower half is subtracted after it. Beyond that many periods float64 says little of `x`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl

from ...format.errors import PlanError
from ...numerics.flat import below
from ...plan.plan import Operation, Parameters
from .launch import BLOCK


@triton.jit(do_not_specialize=["size"])
def wrap_kernel(
    x,  # float32 or float64 [size]
    low,  # float64 [WIDTH]
    upper,  # float64 [WIDTH]: the upper half of the period
    lower,  # float64 [WIDTH]: the rest of it
    out,  # float32 or float64 [size]
    size,  # rows * WIDTH
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A program makes `BLOCK` elements of a flat matrix."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = below(at, size, WIDTH)
    column = at % WIDTH
    start = tl.load(low + column, mask=inside, other=0.0)
    first = tl.load(upper + column, mask=inside, other=1.0)
    second = tl.load(lower + column, mask=inside, other=0.0)
    u = tl.load(x + at, mask=inside, other=0.0).to(tl.float64) - start
    period = first + second
    times = tl.floor(u / period)
    rest = (u - times * first) - times * second
    rest = tl.where(rest < 0.0, rest + period, rest)
    rest = tl.where(rest >= period, rest - period, rest)
    tl.store(out + at, (start + rest).to(out.dtype.element_ty), mask=inside)


@dataclass(frozen=True, eq=False)
class Wrap(Operation):
    """Map each column into one period that begins at `low`."""

    low: np.ndarray
    period: np.ndarray

    def check(self, *widths: int) -> None:
        (width,) = widths
        if self.low.shape != (width,) or self.period.shape != (width,):
            raise PlanError(f"wrap: low and period must be [{width}], not {self.low.shape}, {self.period.shape}.")
        if not (self.period > 0).all():
            raise PlanError("wrap: period must be above 0.")

    def output_width(self, *widths: int) -> int:
        return widths[0]

    def parameters(self) -> dict[str, np.ndarray]:
        """Return the period in two parts; the upper part has the first 26 of its 53 bits."""
        scale = 2.0 ** (np.frexp(self.period)[1] - 26)
        upper = np.floor(self.period / scale) * scale
        return {"low": self.low, "upper": upper, "lower": self.period - upper}

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,), low = inputs, parameters["low"]
        return low + torch.remainder(x - low, parameters["upper"] + parameters["lower"])

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        size, width = rows * output.shape[1], output.shape[1]
        wrap_kernel[(triton.cdiv(size, BLOCK),)](
            inputs[0], **parameters, out=output, size=size, WIDTH=width, BLOCK=BLOCK
        )

    def reads_input_once(self) -> bool:
        return True
