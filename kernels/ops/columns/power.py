"""Power: the transforms of Box and Cox (1964) and of Yeo and Johnson (2000) of each column, and their inverses.

    box-cox:      y = (x^λ − 1) / λ for x > 0, else NaN
    yeo-johnson:  y = ((1 + x)^λ − 1) / λ for x ≥ 0, else y = −((1 − x)^(2 − λ) − 1) / (2 − λ)

with the logarithm where a divisor is zero. `x`, `out`: `[rows, width]`, float32 or float64; `right`: λ, `left`: 2 − λ,
`[width]` float64; the Box-Cox transform reads `right` only. Powers are computed as `expm1(λ log1p(x)) / λ` and inverted
as `expm1(log1p(λ y) / λ)` in float64, which is exact near zero.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import triton
import triton.language as tl

from ...cpu.tiles import in_tiles
from ...format.errors import PlanError
from ...numerics.flat import below
from ...numerics.members import member_places, one_member
from ...numerics.special import expm1, log1p
from ...plan.plan import Operation, Parameters
from .launch import POWER_BLOCK


@triton.jit(do_not_specialize=["size", "first", "members"])
def power_kernel(
    x,  # float32 or float64 [size]
    numbers,  # float32 or float64 [rows], the numbers of the rows' members where STACKED
    right,  # float64 [WIDTH]: the exponent for numbers above zero, 0 for the logarithm; [members, WIDTH] where STACKED
    left,  # float64 as large: the exponent for numbers below zero
    out,  # float32 or float64 [size]
    size,  # rows * WIDTH
    first,  # the number of the first member
    members,
    STACKED: tl.constexpr,
    WIDTH: tl.constexpr,
    METHOD: tl.constexpr,
    INVERSE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A program makes `BLOCK` elements of a flat matrix."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = below(at, size, WIDTH)
    column = at % WIDTH
    if STACKED:
        column += member_places(numbers, at // WIDTH, inside, first, members) * WIDTH
    value = tl.load(x + at, mask=inside, other=1.0).to(tl.float64)
    power = tl.load(right + column, mask=inside, other=1.0)
    a = value
    if METHOD == "yeo-johnson":
        power = tl.where(value < 0.0, tl.load(left + column, mask=inside, other=1.0), power)
        a = tl.abs(value)
    divisor = tl.where(power == 0.0, 1.0, power)
    if INVERSE:
        logarithm = tl.where(power == 0.0, a, log1p(power * a) / divisor)
        y = expm1(logarithm) if METHOD == "yeo-johnson" else tl.exp(logarithm)
    else:
        logarithm = log1p(a) if METHOD == "yeo-johnson" else tl.log(tl.where(a > 0.0, a, float("nan")))
        y = tl.where(power == 0.0, logarithm, expm1(power * logarithm) / divisor)
    if METHOD == "yeo-johnson":
        y = tl.where(value < 0.0, -y, y)
    tl.store(out + at, y.to(out.dtype.element_ty), mask=inside)


@dataclass(frozen=True, eq=False)
class Power(Operation):
    """Apply a power transform, or its inverse, to each column."""

    METHODS: ClassVar[tuple[str, ...]] = ("box-cox", "yeo-johnson")

    right: np.ndarray
    left: np.ndarray
    method: str
    inverse: bool = False

    def check(self, *widths: int) -> None:
        (width,) = widths
        if self.right.shape != (width,) or self.left.shape != (width,):
            raise PlanError(f"power: right and left must be [{width}], not {self.right.shape}, {self.left.shape}.")
        if self.method not in self.METHODS:
            raise PlanError(f"power: method must be one of {self.METHODS}, not {self.method!r}.")

    def output_width(self, *widths: int) -> int:
        return widths[0]

    def parameters(self) -> dict[str, np.ndarray]:
        return exponents(self.arrays(), self.method)

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        return powers(inputs[0].double(), **parameters, method=self.method, inverse=self.inverse)

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,) = inputs
        return in_tiles(x, functools.partial(self.reference, parameters), x.shape[1], 6 * x.shape[1])

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        (x,) = inputs
        launch_power(x, parameters, output, rows, one_member(x), self.method, inverse=self.inverse)

    def reads_input_once(self) -> bool:
        return True

    def describe(self) -> str:
        return f"inverse {self.method}" if self.inverse else self.method


def exponents(arrays: Iterable[tuple[str, np.ndarray]], method: str) -> dict[str, np.ndarray]:
    """Return exponents by their names, with 0 in place of those that mean the logarithm."""
    epsilon = np.finfo(np.float64).eps if method == "yeo-johnson" else 1e-19
    return {side: np.where(np.abs(power) <= epsilon, 0.0, power) for side, power in arrays}


def powers(x: torch.Tensor, right: torch.Tensor, left: torch.Tensor, method: str, *, inverse: bool) -> torch.Tensor:
    """Return the powers of a float64 matrix; the exponents are `[width]`, or have a row for each of its rows."""
    both, power, a = method == "yeo-johnson", right, x
    if both:
        power, a = torch.where(x < 0, left, power), x.abs()
    divisor = torch.where(power == 0, 1.0, power)
    if inverse:
        logarithm = torch.where(power == 0, a, torch.log1p(power * a) / divisor)
        y = torch.expm1(logarithm) if both else torch.exp(logarithm)
    else:
        logarithm = torch.log1p(a) if both else torch.log(torch.where(a > 0, a, torch.nan))
        y = torch.where(power == 0, logarithm, torch.expm1(power * logarithm) / divisor)
    return torch.where(x < 0, -y, y) if both else y


def launch_power(
    x: torch.Tensor,
    parameters: Parameters,
    output: torch.Tensor,
    rows: int,
    members: Mapping[str, Any],
    method: str,
    *,
    inverse: bool,
) -> None:
    """Launch the kernel on the first `rows` rows; `members` says how it finds each row's exponents."""
    width = output.shape[1]
    power_kernel[(triton.cdiv(rows * width, POWER_BLOCK),)](
        x=x,
        **parameters,
        **members,
        out=output,
        size=rows * width,
        WIDTH=width,
        METHOD=method,
        INVERSE=inverse,
        BLOCK=POWER_BLOCK,
    )
