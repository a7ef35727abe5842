"""Combine one to four matrices: `out[r, c] = (Σᵢ (fᵢ · xᵢ[r, c] + oᵢ))ᵖ`, or the product in place of the sum.

`xᵢ`: `[rows, width]`, or `[rows, 1]` for a column that stands for all of them, float32 or float64; `fᵢ`, `oᵢ`: the
numbers `factors[i]`, `offsets[i]`, by default 1 and 0; `p`: `exponent`; `out`: `[rows, width]`. Everything is float64.

A whole exponent is repeated multiplication; any other is `exp(p · log base)`, so NaN for a negative base.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from ...format.errors import PlanError
from ...numerics.flat import below
from ...numerics.members import member_places, one_member
from ...numerics.powers import power, torch_power, whole
from ...plan.plan import Operation, Parameters
from .launch import BLOCK

MAX_INPUTS = 4


@triton.jit
def combine_term(x, terms, at, inside, INPUT: tl.constexpr, WIDTH: tl.constexpr, COLUMN: tl.constexpr):
    """Return `f · x + o` for the elements `at` of a flat matrix. `COLUMN` says that `x` has one column."""
    index = at // WIDTH if COLUMN else at
    value = tl.load(x + index, mask=inside, other=0.0).to(tl.float64)
    return value * tl.load(terms + 2 * INPUT + 1) + tl.load(terms + 2 * INPUT + 2)


@triton.jit(do_not_specialize=["size", "first", "members"])
def combine_kernel(
    x0,  # float32 or float64 [size], or [rows] where COLUMN0; the others likewise, and unused past the last input
    x1,
    x2,
    x3,
    numbers,  # float32 or float64 [rows], the numbers of the rows' members where STACKED
    terms,  # float64 [TERMS]: the exponent, then factor and offset of each input; [members, TERMS] where STACKED
    out,  # float32 or float64 [size]
    size,  # rows * WIDTH
    first,  # the number of the first member
    members,
    STACKED: tl.constexpr,
    TERMS: tl.constexpr,
    INPUTS: tl.constexpr,
    PRODUCT: tl.constexpr,
    WHOLE: tl.constexpr,
    WIDTH: tl.constexpr,
    COLUMN0: tl.constexpr,
    COLUMN1: tl.constexpr,
    COLUMN2: tl.constexpr,
    COLUMN3: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A program makes `BLOCK` elements of a flat matrix."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = below(at, size, WIDTH)
    own = terms
    if STACKED:
        own += member_places(numbers, at // WIDTH, inside, first, members) * TERMS
    y = combine_term(x0, own, at, inside, 0, WIDTH, COLUMN0)
    if INPUTS > 1:
        term = combine_term(x1, own, at, inside, 1, WIDTH, COLUMN1)
        y = y * term if PRODUCT else y + term
    if INPUTS > 2:
        term = combine_term(x2, own, at, inside, 2, WIDTH, COLUMN2)
        y = y * term if PRODUCT else y + term
    if INPUTS > 3:
        term = combine_term(x3, own, at, inside, 3, WIDTH, COLUMN3)
        y = y * term if PRODUCT else y + term
    y = power(y, tl.load(own), WHOLE)
    tl.store(out + at, y.to(out.dtype.element_ty), mask=inside)


@dataclass(frozen=True, eq=False)
class Combine(Operation):
    """Scale and shift each input, add or multiply them element by element, and raise the result to a power."""

    operation: str
    factors: tuple[float, ...] = ()
    offsets: tuple[float, ...] = ()
    exponent: float = 1.0

    def check(self, *widths: int) -> None:
        if not 1 <= len(widths) <= MAX_INPUTS:
            raise PlanError(f"combine: there must be 1 to {MAX_INPUTS} inputs, not {len(widths)}.")
        if self.operation not in ("sum", "product"):
            raise PlanError(f"combine: operation must be 'sum' or 'product', not '{self.operation}'.")
        for name, numbers in (("factors", self.factors), ("offsets", self.offsets)):
            if len(numbers) not in (0, len(widths)):
                raise PlanError(f"combine: {name} must be {len(widths)} numbers, not {len(numbers)}.")
        width = max(widths)
        if any(other not in (1, width) for other in widths):
            raise PlanError(f"combine: widths must be {width} or 1, not {list(widths)}.")

    def output_width(self, *widths: int) -> int:
        return max(widths)

    def parameters(self) -> dict[str, np.ndarray]:
        """Return the exponent, then factor and offset of each input, which the kernel reads in float64."""
        return {"terms": self.terms()}

    def terms(self) -> np.ndarray:
        """Return the exponent, then factor and offset of each input, and of further ones if none has them."""
        factors, offsets = self.factors or (1.0,) * MAX_INPUTS, self.offsets or (0.0,) * MAX_INPUTS
        numbers = [number for pair in zip(factors, offsets, strict=False) for number in pair]
        return np.array([self.exponent, *numbers])

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        return torch_power(combined(inputs, parameters["terms"], self.operation), self.exponent)

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        launch_combine(inputs, parameters, output, rows, one_member(inputs[0]), self.operation, self.exponent)

    def describe(self) -> str:
        return self.operation + ("" if self.exponent == 1 else f" to the power {self.exponent:g}")


def combined(inputs: Sequence[torch.Tensor], terms: torch.Tensor, operation: str) -> torch.Tensor:
    """Return the sum or the product, float64, by `terms` as `Combine.terms` has them, or a column of each for rows."""
    found = [x.double() * terms[2 * index + 1] + terms[2 * index + 2] for index, x in enumerate(inputs)]
    total = found[0]
    for term in found[1:]:
        total = total * term if operation == "product" else total + term
    return total


def launch_combine(
    inputs: Sequence[torch.Tensor],
    parameters: Parameters,
    output: torch.Tensor,
    rows: int,
    members: Mapping[str, Any],
    operation: str,
    exponent: float,
) -> None:
    """Launch the kernel on the first `rows` rows; `members` says how it finds each row's terms."""
    width = output.shape[1]
    padded = [*inputs, *[inputs[0]] * (MAX_INPUTS - len(inputs))]
    columns = {f"COLUMN{index}": x.shape[1] == 1 and width > 1 for index, x in enumerate(padded)}
    combine_kernel[(triton.cdiv(rows * width, BLOCK),)](
        **{f"x{index}": x for index, x in enumerate(padded)},
        **parameters,
        **members,
        out=output,
        size=rows * width,
        TERMS=parameters["terms"].shape[-1],
        INPUTS=len(inputs),
        PRODUCT=operation == "product",
        WHOLE=whole(exponent),
        WIDTH=width,
        **columns,
        BLOCK=BLOCK,
    )
