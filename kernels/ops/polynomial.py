"""Polynomial: `out[r, m] = Πₖ z[r, indices[m, k]]` with `z[r, j] = (x[r, j] − shift[j]) · factor[j]` and `z[r, F] = 1`.

`x`: `[rows, F]` float32; `indices`: `[monomials, degree]` int32, where the index `F` stands for the constant one;
`shift`, `factor`: `[F]` float64; `out`: `[rows, monomials]` float32. Products are float64 and rounded once.

This writes every monomial to memory. A plan keeps it only where no linear map follows; see `polynomial_affine.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl

from ..errors import PlanError
from ..plan import Operation, Parameters

BLOCK_ROWS = 32
BLOCK_MONOMIALS = 64


@triton.jit
def monomial_block(
    x,  # float32 [rows, FEATURES]
    indices,  # int32 [MONOMIALS, DEGREE]
    shift,  # float64 [FEATURES]
    factor,  # float64 [FEATURES]
    row,  # int64 [BLOCK_ROWS]
    monomial,  # int32 [BLOCK_MONOMIALS]
    rows,
    FEATURES: tl.constexpr,
    MONOMIALS: tl.constexpr,
    DEGREE: tl.constexpr,
):
    """Return the monomials `[BLOCK_ROWS, BLOCK_MONOMIALS]` in float64; 1 past the last of them."""
    product = tl.full([row.shape[0], monomial.shape[0]], 1.0, tl.float64)
    for k in tl.static_range(DEGREE):
        feature = tl.load(indices + monomial * DEGREE + k, mask=monomial < MONOMIALS, other=FEATURES)
        real = feature < FEATURES
        inside = (row < rows)[:, None] & real[None, :]
        value = tl.load(x + row[:, None] * FEATURES + feature[None, :], mask=inside, other=0.0).to(tl.float64)
        away = tl.load(shift + feature, mask=real, other=0.0)[None, :]
        scale = tl.load(factor + feature, mask=real, other=0.0)[None, :]
        product *= tl.where(real[None, :], (value - away) * scale, 1.0)
    return product


@triton.jit(do_not_specialize=["rows"])
def polynomial_kernel(
    x,  # float32 [rows, FEATURES]
    indices,  # int32 [MONOMIALS, DEGREE]
    shift,  # float64 [FEATURES]
    factor,  # float64 [FEATURES]
    out,  # float32 [rows, MONOMIALS]
    rows,
    FEATURES: tl.constexpr,
    MONOMIALS: tl.constexpr,
    DEGREE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_MONOMIALS: tl.constexpr,
):
    """A program makes `[BLOCK_ROWS, BLOCK_MONOMIALS]` of the output."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    monomial = tl.program_id(1) * BLOCK_MONOMIALS + tl.arange(0, BLOCK_MONOMIALS)
    product = monomial_block(x, indices, shift, factor, row, monomial, rows, FEATURES, MONOMIALS, DEGREE)
    inside = (row < rows)[:, None] & (monomial < MONOMIALS)[None, :]
    tl.store(out + row[:, None] * MONOMIALS + monomial[None, :], product.to(tl.float32), mask=inside)


@dataclass(frozen=True)
class Polynomial(Operation):
    """Shift and scale the columns, then multiply them into monomials."""

    indices: np.ndarray
    shift: np.ndarray
    factor: np.ndarray

    def output_width(self, *widths: int) -> int:
        (features,) = widths
        check_monomials(self.indices, self.shift, self.factor, features)
        return len(self.indices)

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,) = inputs
        z = (x - parameters["shift"]) * parameters["factor"]
        return monomials(parameters["indices"], z).to(x.dtype)

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        (x,), (monomials, degree) = inputs, self.indices.shape
        grid = (triton.cdiv(rows, BLOCK_ROWS), triton.cdiv(monomials, BLOCK_MONOMIALS))
        tables = (parameters["indices"], parameters["shift"], parameters["factor"])
        features = x.shape[1]
        polynomial_kernel[grid](
            x, *tables, output, rows, features, monomials, degree, BLOCK_ROWS, BLOCK_MONOMIALS, num_warps=4
        )

    def describe(self) -> str:
        return f"{len(self.shift)} → {len(self.indices)} monomials of degree ≤ {self.indices.shape[1]}"


def check_monomials(indices: np.ndarray, shift: np.ndarray, factor: np.ndarray, features: int) -> None:
    """Raise `PlanError` unless the table and the scaling fit a matrix of `features` columns."""
    if indices.ndim != 2 or not indices.size:
        raise PlanError("polynomial: indices must be [monomials, degree] with at least one of each.")
    if indices.min() < 0 or indices.max() > features:
        raise PlanError(f"polynomial: indices must lie in [0, {features}].")
    if shift.shape != (features,) or factor.shape != (features,):
        raise PlanError(f"polynomial: shift and factor must be [{features}], not {shift.shape}, {factor.shape}.")


def monomials(indices: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    """Return the monomials of float64 `z`, `[rows, features]`, as `[rows, monomials]`; the index `features` is one."""
    product = torch.ones(len(z), len(indices), dtype=z.dtype, device=z.device)
    z = torch.cat([z, torch.ones(len(z), 1, dtype=z.dtype, device=z.device)], dim=1)
    for k in range(indices.shape[1]):
        product *= z.index_select(1, indices[:, k])
    return product
