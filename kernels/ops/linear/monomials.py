"""Monomials of scaled columns: `Πₖ z[r, indices[m, k]]`, where `z[r, j] = (x[r, j] − shift[j]) · factor[j]`.

`indices`: `[monomials, degree]` int32, where the index `F` stands for a column of ones; `shift`, `factor`: `[F]`
float64. The factors of a monomial are one number, so neither the kernels nor the references apply them to `x`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl

from ...format.errors import PlanError
from ...plan.plan import Operation


@triton.jit
def monomial_block(
    x,  # float32 or float64 [rows, FEATURES]
    indices,  # int32 [MONOMIALS, DEGREE]
    shift,  # float64 [FEATURES]; for each row where SHIFTS: pointers, [BLOCK_ROWS, 1]
    row,  # int64 [BLOCK_ROWS]
    monomial,  # int32 [BLOCK_MONOMIALS]
    rows,
    FEATURES: tl.constexpr,
    MONOMIALS: tl.constexpr,
    DEGREE: tl.constexpr,
    SINGLE: tl.constexpr = False,
    SHIFTS: tl.constexpr = False,
):
    """Return the monomials of `x − shift`, `[BLOCK_ROWS, BLOCK_MONOMIALS]`, in float64; 1 past the last of them.

    With `SINGLE` each product is rounded to float32.
    """
    product = tl.full([row.shape[0], monomial.shape[0]], 1.0, tl.float64)
    for k in tl.static_range(DEGREE):
        feature = tl.load(indices + monomial * DEGREE + k, mask=monomial < MONOMIALS, other=FEATURES)
        real = feature < FEATURES
        inside = (row < rows)[:, None] & real[None, :]
        value = tl.load(x + row[:, None] * FEATURES + feature[None, :], mask=inside, other=0.0).to(tl.float64)
        if SHIFTS:
            away = tl.load(shift + feature[None, :], mask=inside, other=0.0)
        else:
            away = tl.load(shift + feature, mask=real, other=0.0)[None, :]
        product *= tl.where(real[None, :], value - away, 1.0)
        if SINGLE:
            product = product.to(tl.float32).to(tl.float64)
    return product


@dataclass(frozen=True, eq=False)
class Monomials(Operation):
    """The fields of an operation that makes monomials."""

    indices: np.ndarray
    shift: np.ndarray
    factor: np.ndarray

    def check_monomials(self, features: int) -> None:
        """Raise `PlanError` unless the table and the scaling fit a matrix of `features` columns."""
        indices, shift, factor = self.indices, self.shift, self.factor
        if indices.ndim != 2 or not indices.size:
            raise PlanError("polynomial: indices must be [monomials, degree] with at least one of each.")
        if indices.min() < 0 or indices.max() > features:
            raise PlanError(f"polynomial: indices must lie in [0, {features}].")
        if shift.shape != (features,) or factor.shape != (features,):
            raise PlanError(f"polynomial: shift and factor must be [{features}], not {shift.shape}, {factor.shape}.")

    def monomial_scale(self) -> np.ndarray:
        """Return the product of the factors of each monomial, float64 `[monomials]`."""
        return monomial_scale(self.factor, self.indices)


def monomial_scale(factor: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Return `Πₖ factor[…, indices[m, k]]`, float64 `[…, monomials]`; the index `F` is one."""
    padded = np.concatenate([factor, np.ones((*factor.shape[:-1], 1))], axis=-1)
    scale: np.ndarray = padded[..., indices].prod(axis=-1)
    return scale


def monomials(indices: torch.Tensor, u: torch.Tensor, single: bool = False) -> torch.Tensor:
    """Return the monomials of float64 `u`, `[rows, features]`, as `[rows, monomials]`; the index `features` is one.

    With `single` each product is rounded to float32.
    """
    product = torch.ones(len(u), len(indices), dtype=u.dtype)
    u = torch.cat([u, torch.ones(len(u), 1, dtype=u.dtype)], dim=1)
    for k in range(indices.shape[1]):
        product *= u.index_select(1, indices[:, k])
        product = product.float().double() if single else product
    return product
