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
    row,  # int64 [BLOCK_ROWS]
    monomial,  # int32 [BLOCK_MONOMIALS]
    rows,
    FEATURES: tl.constexpr,
    MONOMIALS: tl.constexpr,
    DEGREE: tl.constexpr,
):
    """Return the monomials of `x − shift`, `[BLOCK_ROWS, BLOCK_MONOMIALS]`, in float64; 1 past the last of them."""
    product = tl.full([row.shape[0], monomial.shape[0]], 1.0, tl.float64)
    for k in tl.static_range(DEGREE):
        feature = tl.load(indices + monomial * DEGREE + k, mask=monomial < MONOMIALS, other=FEATURES)
        real = feature < FEATURES
        inside = (row < rows)[:, None] & real[None, :]
        value = tl.load(x + row[:, None] * FEATURES + feature[None, :], mask=inside, other=0.0).to(tl.float64)
        away = tl.load(shift + feature, mask=real, other=0.0)[None, :]
        product *= tl.where(real[None, :], value - away, 1.0)
    return product


@triton.jit(do_not_specialize=["rows"])
def polynomial_kernel(
    x,  # float32 [rows, FEATURES]
    indices,  # int32 [MONOMIALS, DEGREE]
    shift,  # float64 [FEATURES]
    scale,  # float64 [MONOMIALS]
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
    product = monomial_block(x, indices, shift, row, monomial, rows, FEATURES, MONOMIALS, DEGREE)
    product *= tl.load(scale + monomial, mask=monomial < MONOMIALS, other=0.0)[None, :]
    inside = (row < rows)[:, None] & (monomial < MONOMIALS)[None, :]
    tl.store(out + row[:, None] * MONOMIALS + monomial[None, :], product.to(out.dtype.element_ty), mask=inside)


@dataclass(frozen=True, eq=False)
class Polynomial(Operation):
    """Shift and scale the columns, then multiply them into monomials."""

    indices: np.ndarray
    shift: np.ndarray
    factor: np.ndarray

    def check(self, *widths: int) -> None:
        (features,) = widths
        check_monomials(self.indices, self.shift, self.factor, features)

    def output_width(self, *widths: int) -> int:
        return len(self.indices)

    def parameters(self) -> dict[str, np.ndarray]:
        """Return the table with each monomial's product of factors, so that none is applied to `x`."""
        scale = monomial_scale(self.indices, self.factor)
        return {"indices": self.indices, "shift": self.shift, "scale": scale}

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,) = inputs
        return monomials(parameters["indices"], x - parameters["shift"]) * parameters["scale"]

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        (x,), (monomials, degree) = inputs, self.indices.shape
        grid = (triton.cdiv(rows, BLOCK_ROWS), triton.cdiv(monomials, BLOCK_MONOMIALS))
        tables = (parameters["indices"], parameters["shift"], parameters["scale"])
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


def monomial_scale(indices: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """Return `Πₖ factor[indices[m, k]]` in float64, `[monomials]`; the index `features` is one."""
    scale: np.ndarray = np.append(factor, 1.0)[indices].prod(axis=1)
    return scale


def monomials(indices: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """Return the monomials of float64 `u`, `[rows, features]`, as `[rows, monomials]`; the index `features` is one."""
    product = torch.ones(len(u), len(indices), dtype=u.dtype, device=u.device)
    u = torch.cat([u, torch.ones(len(u), 1, dtype=u.dtype, device=u.device)], dim=1)
    for k in range(indices.shape[1]):
        product *= u.index_select(1, indices[:, k])
    return product
