"""Member choice: rows of the members `start` to `stop` − 1 of a fleet from one matrix, all other rows from another.

`out[r] = b[r] if start ≤ number[r] < stop else a[r]`. `a`, `b` and `out`: `[rows, width]`, float32 or float64;
`number`: `[rows, 1]`, see `plan/stacked.py`. Elements are moved as they are.
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


@triton.jit(do_not_specialize=["size", "start", "stop"])
def member_choice_kernel(
    a,  # float32 or float64 [size]
    b,  # float32 or float64 [size]
    numbers,  # float32 or float64 [rows]
    out,  # float32 or float64 [size]
    size,  # rows * WIDTH
    start,
    stop,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Choose for each row; a program makes `BLOCK` elements of the flat output."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    number = tl.load(numbers + at // WIDTH, mask=inside, other=0.0)
    chosen = (number >= start) & (number < stop)
    first = tl.load(a + at, mask=inside & ~chosen, other=0.0).to(tl.float64)
    second = tl.load(b + at, mask=inside & chosen, other=0.0).to(tl.float64)
    tl.store(out + at, tl.where(chosen, second, first).to(out.dtype.element_ty), mask=inside)


@dataclass(frozen=True, eq=False)
class MemberChoice(Operation):
    """Choose rows by the numbers of their members."""

    start: int
    stop: int

    def check(self, *widths: int) -> None:
        a, b, number = widths
        if a != b or number != 1:
            raise PlanError("member_choice: the inputs must be two matrices of one width and [rows, 1].")
        if not 0 <= self.start < self.stop:
            raise PlanError(f"member_choice: there are no members from {self.start} to {self.stop}.")

    def output_width(self, *widths: int) -> int:
        return widths[0]

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        a, b, number = inputs
        chosen = (number >= self.start) & (number < self.stop)
        return torch.where(chosen, b.double(), a.double())

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        a, b, numbers = inputs
        size = rows * output.shape[1]
        member_choice_kernel[(triton.cdiv(size, BLOCK),)](
            a, b, numbers, output, size, self.start, self.stop, WIDTH=output.shape[1], BLOCK=BLOCK
        )

    def describe(self) -> str:
        return f"members {self.start:,} to {self.stop - 1:,}"
