"""Interval end: `out[r, c] = m − h` rounded down to a float32, or `m + h` rounded up, with `h >= 0` in most forms.

The form defines the middle `m` and the half width `h`, with `q` for `quantile[c]`:

    absolute     x: y              m = y                  h = q
    scaled       x: y and std      m = y                  h = q · std
    quantiles    x: l and u        m = l / 2 + u / 2      h = max(|u / 2 − l / 2| + q, 0)

`x`, `out`: `[rows, width]`, float32 or float64; `quantile`: `[width]` float64. `m ± h` is float64, rounded after each
sum and product; the answer is then the nearest float32 that does not lie inside of `m ± h`, as IEEE 754 rounds toward
−∞ and +∞. Every number between the two float64 ends therefore lies between the two float32 ends, and so does the
float32 nearest to it. A lower end above the range of float32 becomes its largest number, and an upper end below the
range its smallest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import triton
import triton.language as tl

from ...format.errors import PlanError
from ...plan.plan import Operation, Parameters
from .launch import BLOCK


@triton.jit
def round_outwards(value, UPPER: tl.constexpr):
    """Return float64 rounded to float32, up if `UPPER`, else down.

    Rounding to nearest may land on the wrong side; the answer is then the adjacent float32. The bits of a float32
    without its sign grow with its magnitude, so adding one gives the next number away from zero.
    """
    near = value.to(tl.float32)
    wrong = near.to(tl.float64) < value if UPPER else near.to(tl.float64) > value
    bits = near.to(tl.int32, bitcast=True)
    away = bits >= 0 if UPPER else bits < 0
    beside = tl.where(away, bits + 1, bits - 1).to(tl.float32, bitcast=True)
    return tl.where(wrong, beside, near)


@triton.jit(do_not_specialize=["size"])
def interval_end_kernel(
    first,  # float32 or float64 [size]: y, or a quantile
    second,  # float32 or float64 [size]: std, or the other quantile; unread with the form "absolute"
    quantile,  # float64 [WIDTH]
    out,  # float32 or float64 [size]
    size,  # rows * WIDTH
    WIDTH: tl.constexpr,
    FORM: tl.constexpr,
    UPPER: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A program makes `BLOCK` elements of a flat matrix."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    middle = tl.load(first + at, mask=inside, other=0.0).to(tl.float64)
    half = tl.load(quantile + at % WIDTH, mask=inside, other=0.0)
    if FORM == "scaled":
        half = half * tl.load(second + at, mask=inside, other=0.0).to(tl.float64)
    if FORM == "quantiles":
        low = 0.5 * middle
        high = 0.5 * tl.load(second + at, mask=inside, other=0.0).to(tl.float64)
        middle = low + high
        half = tl.abs(high - low) + half
        half = tl.where(half < 0.0, 0.0, half)
    end = middle + half if UPPER else middle - half
    tl.store(out + at, round_outwards(end, UPPER).to(out.dtype.element_ty), mask=inside)


@dataclass(frozen=True, eq=False)
class IntervalEnd(Operation):
    """One end of a prediction interval, "lower" or "upper", rounded outwards to float32."""

    FORMS: ClassVar[dict[str, int]] = {"absolute": 1, "scaled": 2, "quantiles": 2}
    """The number of inputs of each form."""

    end: str
    form: str
    quantile: np.ndarray

    def check(self, *widths: int) -> None:
        if self.end not in ("lower", "upper"):
            raise PlanError(f"interval_end: end must be 'lower' or 'upper', not {self.end!r}.")
        if self.form not in self.FORMS:
            raise PlanError(f"interval_end: form must be one of {tuple(self.FORMS)}, not {self.form!r}.")
        if len(widths) != self.FORMS[self.form] or len(set(widths)) != 1:
            raise PlanError(
                f"interval_end: the form '{self.form}' takes {self.FORMS[self.form]} inputs of one width, not "
                f"{list(widths)}."
            )
        if self.quantile.shape != widths[:1]:
            raise PlanError(f"interval_end: quantile must be [{widths[0]}], not {list(self.quantile.shape)}.")

    def output_width(self, *widths: int) -> int:
        return widths[0]

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        middle, half = inputs[0].double(), parameters["quantile"]
        if self.form == "scaled":
            half = half * inputs[1]
        if self.form == "quantiles":
            low, high = 0.5 * middle, 0.5 * inputs[1].double()
            middle, half = low + high, ((high - low).abs() + half).clamp(min=0.0)
        upper = self.end == "upper"
        end = middle + half if upper else middle - half
        near = end.float()
        wrong = near < end if upper else near > end
        outwards = torch.tensor(torch.inf if upper else -torch.inf)
        return torch.where(wrong, torch.nextafter(near, outwards), near).double()

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        width = output.shape[1]
        interval_end_kernel[(triton.cdiv(rows * width, BLOCK),)](
            inputs[0],
            inputs[-1],
            parameters["quantile"],
            output,
            rows * width,
            WIDTH=width,
            FORM=self.form,
            UPPER=self.end == "upper",
            BLOCK=BLOCK,
            enable_fp_fusion=False,  # so that a product is rounded before the sum, as in the reference
        )

    def reads_input_once(self) -> bool:
        return True

    def describe(self) -> str:
        return f"{self.end}, {self.form}"
