"""Polynomial: `out[r, m] = Πₖ z[r, indices[m, k]]` with `z[r, j] = (x[r, j] − shift[j]) · factor[j]` and `z[r, F] = 1`.

`x`: `[rows, F]`, float32 or float64; `indices`: `[monomials, degree]` int32, where the index `F` stands for the
constant one; `shift`, `factor`: `[F]` float64; `out`: `[rows, monomials]`, float32 or float64. Products are float64.

With `single` each product is rounded to float32, one factor after the other, as NumPy multiplies float32 columns. The
shift is then 0 and the factor 1.

This writes every monomial to memory. A plan keeps it only if no linear map follows; see `polynomial_affine.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl

from ...format.errors import PlanError
from ...plan.plan import Parameters
from .launch import POLYNOMIAL_MONOMIALS, POLYNOMIAL_ROWS
from .monomials import Monomials, monomial_block, monomials


@triton.jit(do_not_specialize=["rows"])
def polynomial_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    indices,  # int32 [MONOMIALS, DEGREE]
    shift,  # float64 [FEATURES]
    scale,  # float64 [MONOMIALS]
    out,  # float32 or float64 [rows, MONOMIALS]
    rows,
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
    product = monomial_block(
        x, indices, shift, row, monomial, rows, FEATURES=FEATURES, MONOMIALS=MONOMIALS, DEGREE=DEGREE, SINGLE=SINGLE
    )
    product *= tl.load(scale + monomial, mask=monomial < MONOMIALS, other=0.0)[None, :]
    inside = (row < rows)[:, None] & (monomial < MONOMIALS)[None, :]
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
        (x,), (monomials, degree) = inputs, self.indices.shape
        grid = (triton.cdiv(rows, POLYNOMIAL_ROWS), triton.cdiv(monomials, POLYNOMIAL_MONOMIALS))
        polynomial_kernel[grid](
            x,
            **parameters,
            out=output,
            rows=rows,
            FEATURES=x.shape[1],
            MONOMIALS=monomials,
            DEGREE=degree,
            SINGLE=self.single,
            BLOCK_ROWS=POLYNOMIAL_ROWS,
            BLOCK_MONOMIALS=POLYNOMIAL_MONOMIALS,
            num_warps=4,
        )

    def describe(self) -> str:
        single = " in float32" * self.single
        return f"{len(self.shift)} → {len(self.indices)} monomials of degree ≤ {self.indices.shape[1]}{single}"
