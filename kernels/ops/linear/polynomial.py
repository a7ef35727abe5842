"""Polynomial: `out[r, m] = Πₖ z[r, indices[m, k]]` with `z[r, j] = (x[r, j] − shift[j]) · factor[j]` and `z[r, F] = 1`.

`x`: `[rows, F]`, float32 or float64; `indices`: `[monomials, degree]` int32, where the index `F` stands for the
constant one; `shift`, `factor`: `[F]` float64; `out`: `[rows, monomials]`, float32 or float64. Products are float64.

With `single` each product is rounded to float32, one factor after the other, as NumPy multiplies float32 columns. The
shift is then 0 and the factor 1.

This writes every monomial to memory. A plan keeps it only if no linear map follows; see `polynomial_affine.py`.
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
from ...numerics.members import member_places, one_member
from ...plan.plan import Parameters
from .launch import POLYNOMIAL_MONOMIALS, POLYNOMIAL_ROWS
from .monomials import Monomials, monomial_block, monomials


@triton.jit(do_not_specialize=["rows", "first", "members"])
def polynomial_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    numbers,  # float32 or float64 [rows], the numbers of the rows' members where STACKED
    indices,  # int32 [MONOMIALS, DEGREE]
    shift,  # float64 [FEATURES]; [members, FEATURES] where STACKED
    scale,  # float64 [MONOMIALS]; [members, MONOMIALS] where STACKED
    out,  # float32 or float64 [rows, MONOMIALS]
    rows,
    first,  # the number of the first member
    members,
    STACKED: tl.constexpr,
    FEATURES: tl.constexpr,
    MONOMIALS: tl.constexpr,
    DEGREE: tl.constexpr,
    SINGLE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_MONOMIALS: tl.constexpr,
):
    """A program makes `[BLOCK_ROWS, BLOCK_MONOMIALS]` of the output."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    monomial = tl.program_id(1) * BLOCK_MONOMIALS + tl.arange(0, BLOCK_MONOMIALS)
    inside = (row < rows)[:, None] & (monomial < MONOMIALS)[None, :]
    away, factor = shift, scale + monomial[None, :]
    if STACKED:
        place = member_places(numbers, row, row < rows, first, members)[:, None]
        away += place * FEATURES
        factor += place * MONOMIALS
    product = monomial_block(
        x, indices, away, row, monomial, rows,
        FEATURES=FEATURES, MONOMIALS=MONOMIALS, DEGREE=DEGREE, SINGLE=SINGLE, SHIFTS=STACKED,
    )  # fmt: skip
    product *= tl.load(factor, mask=inside if STACKED else (monomial < MONOMIALS)[None, :], other=0.0)
    tl.store(out + row[:, None] * MONOMIALS + monomial[None, :], product.to(out.dtype.element_ty), mask=inside)


@dataclass(frozen=True, eq=False)
class Polynomial(Monomials):
    """Shift and scale the columns, then multiply them into monomials."""

    single: bool = False

    def check(self, *widths: int) -> None:
        (features,) = widths
        self.check_monomials(features)
        if self.single and (self.shift.any() or (self.factor != 1).any()):
            raise PlanError("polynomial: with single, shift must be 0 and factor 1.")

    def output_width(self, *widths: int) -> int:
        return len(self.indices)

    def parameters(self) -> dict[str, np.ndarray]:
        """Return the table and each monomial's product of factors, so that no factor is applied to `x`."""
        return {"indices": self.indices, "shift": self.shift, "scale": self.monomial_scale()}

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,) = inputs
        return monomials(parameters["indices"], x - parameters["shift"], self.single) * parameters["scale"]

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        launch_polynomial(inputs[0], parameters, output, rows, one_member(inputs[0]), single=self.single)

    def describe(self) -> str:
        single = " in float32" * self.single
        return f"{len(self.shift)} → {len(self.indices)} monomials of degree ≤ {self.indices.shape[1]}{single}"


def launch_polynomial(
    x: torch.Tensor,
    parameters: Parameters,
    output: torch.Tensor,
    rows: int,
    members: Mapping[str, Any],
    *,
    single: bool,
) -> None:
    """Launch the kernel on the first `rows` rows; `members` says how it finds each row's scaling."""
    monomials, degree = parameters["indices"].shape
    polynomial_kernel[(triton.cdiv(rows, POLYNOMIAL_ROWS), triton.cdiv(monomials, POLYNOMIAL_MONOMIALS))](
        x=x,
        **parameters,
        **members,
        out=output,
        rows=rows,
        FEATURES=x.shape[1],
        MONOMIALS=monomials,
        DEGREE=degree,
        SINGLE=single,
        BLOCK_ROWS=POLYNOMIAL_ROWS,
        BLOCK_MONOMIALS=POLYNOMIAL_MONOMIALS,
        num_warps=4,
    )
