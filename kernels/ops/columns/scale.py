"""Scale: `out[r, c] = (x[r, c] − shift[c]) · factor[c]`.

`x`, `out`: `[rows, width]`, float32 or float64; `shift`, `factor`: `[width]` float64. All arithmetic is float64.

Other formulas give the same numbers except for the last digits. These digits matter where a number meets a threshold
that was fitted on numbers scaled in exactly this way. The kernel therefore rounds where scikit-learn does: the form
"divisor" is `(x − shift) / last`, and "offset" is `x · factor + last`. Passes that fold a scale into another operation
read `shift` and `factor`.

With `single` each of the two results is rounded to float32, as NumPy rounds in-place arithmetic on a float32 array. No
pass folds such a scale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
import triton
import triton.language as tl

from ...format.errors import PlanError
from ...numerics.flat import below
from ...numerics.members import member_places, one_member
from ...plan.plan import Operation, Parameters
from .launch import BLOCK


@triton.jit(do_not_specialize=["size", "first", "members"])
def scale_kernel(
    x,  # float32 or float64 [size]
    numbers,  # float32 or float64 [rows], the numbers of the rows' members where STACKED
    shift,  # float64 [WIDTH]; this and the next two are [members, WIDTH] where STACKED
    factor,  # float64 [WIDTH]
    out,  # float32 or float64 [size]
    last,  # float64 [WIDTH]: the divisor or the offset, if there is one
    size,  # rows * WIDTH
    first,  # the number of the first member
    members,
    STACKED: tl.constexpr,
    WIDTH: tl.constexpr,
    FORM: tl.constexpr,
    SINGLE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Shift and scale the columns of a flat matrix; a program makes `BLOCK` elements."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = below(at, size, WIDTH)
    column = at % WIDTH
    if STACKED:
        column += member_places(numbers, at // WIDTH, inside, first, members) * WIDTH
    value = tl.load(x + at, mask=inside).to(tl.float64)
    if FORM == "offset":  # FP fusion is off at launch, so the product is rounded before the sum
        value = value * tl.load(factor + column, mask=inside)
        if SINGLE:
            value = value.to(tl.float32).to(tl.float64)
        value = value + tl.load(last + column, mask=inside)
    else:
        value = value - tl.load(shift + column, mask=inside)
        if SINGLE:
            value = value.to(tl.float32).to(tl.float64)
        if FORM == "divisor":
            value = value / tl.load(last + column, mask=inside, other=1.0)
        else:
            value = value * tl.load(factor + column, mask=inside)
    if SINGLE:
        value = value.to(tl.float32)
    tl.store(out + at, value.to(out.dtype.element_ty), mask=inside)


@dataclass(frozen=True, eq=False)
class Scale(Operation):
    """Shift and scale each column."""

    FORMS: ClassVar[tuple[str, ...]] = ("factor", "divisor", "offset")

    shift: np.ndarray
    factor: np.ndarray
    form: str = "factor"
    last: np.ndarray = field(default_factory=lambda: np.zeros(0))
    single: bool = False

    def check(self, *widths: int) -> None:
        (width,) = widths
        if self.shift.shape != (width,) or self.factor.shape != (width,):
            raise PlanError(f"scale: shift and factor must be [{width}], not {self.shift.shape}, {self.factor.shape}.")
        if self.form not in self.FORMS:
            raise PlanError(f"scale: form must be one of {self.FORMS}, not {self.form!r}.")
        if self.last.shape != (0 if self.form == "factor" else width,):
            raise PlanError(f"scale: last must be [{width}] for the form '{self.form}', not {self.last.shape}.")

    def output_width(self, *widths: int) -> int:
        return widths[0]

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        return scaled(inputs[0], **parameters, form=self.form, single=self.single)

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        (x,) = inputs
        launch_scale(x, parameters, output, rows, one_member(x), self.form, single=self.single)

    def reads_input_once(self) -> bool:
        return True

    def writes_rows_whole(self) -> bool:
        return True

    def describe(self) -> str:
        return "in float32" if self.single else ""


def scaled(
    x: torch.Tensor, shift: torch.Tensor, factor: torch.Tensor, last: torch.Tensor, form: str, *, single: bool
) -> torch.Tensor:
    """Return a matrix scaled by one of `FORMS`; the other arrays are `[width]`, or have a row for each of its rows."""

    def held(result: torch.Tensor) -> torch.Tensor:
        return result.float().double() if single else result

    if form == "offset":
        return held(held(x * factor) + last)
    moved = held(x - shift)
    return held(moved / last if form == "divisor" else moved * factor)


def launch_scale(
    x: torch.Tensor,
    parameters: Parameters,
    output: torch.Tensor,
    rows: int,
    members: Mapping[str, Any],
    form: str,
    *,
    single: bool,
) -> None:
    """Launch the kernel on the first `rows` rows; `members` says how it finds each row's arrays."""
    width = output.shape[1]
    scale_kernel[(triton.cdiv(rows * width, BLOCK),)](
        x=x,
        **parameters,
        **members,
        out=output,
        size=rows * width,
        WIDTH=width,
        FORM=form,
        SINGLE=single,
        BLOCK=BLOCK,
        enable_fp_fusion=False,
    )
