"""Polynomial, then affine: `out[r, t] = f(Σₘ weight[m, t] · Πₖ z[r, indices[m, k]] + intercept[t])`.

`z[r, j] = (x[r, j] − shift[j]) · factor[j]`, `z[r, F] = 1`. `x`: `[rows, F]` float32; `indices`: `[monomials, degree]`
int32; `shift`, `factor`: `[F]` float64; `weight`: `[monomials, targets]` float64; `intercept`: `[targets]` float64;
`out`: `[rows, targets]` float32. The monomials live in registers alone; everything is float64 and rounded once.

Any degree and any set of monomials; for degree 2 `quadratic.py` is faster.
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
from ..tiles import in_tiles
from .affine import function_suffix
from .elementwise import FUNCTIONS, apply_function, check_function
from .polynomial import BLOCK_MONOMIALS, BLOCK_ROWS, check_monomials, monomial_block, monomials


@triton.jit(do_not_specialize=["rows"])
def polynomial_affine_kernel(
    x,  # float32 [rows, FEATURES]
    indices,  # int32 [MONOMIALS, DEGREE]
    shift,  # float64 [FEATURES]
    factor,  # float64 [FEATURES]
    weight,  # float64 [MONOMIALS, TARGETS]
    intercept,  # float64 [TARGETS]
    out,  # float32 [rows, TARGETS]
    rows,
    FEATURES: tl.constexpr,
    MONOMIALS: tl.constexpr,
    DEGREE: tl.constexpr,
    TARGETS: tl.constexpr,
    FUNCTION: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_MONOMIALS: tl.constexpr,
):
    """A program makes `BLOCK_ROWS` rows of one target."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    target = tl.program_id(1)
    total = tl.zeros([BLOCK_ROWS, BLOCK_MONOMIALS], tl.float64)
    for start in tl.range(0, MONOMIALS, BLOCK_MONOMIALS):
        monomial = start + tl.arange(0, BLOCK_MONOMIALS)
        product = monomial_block(x, indices, shift, factor, row, monomial, rows, FEATURES, MONOMIALS, DEGREE)
        w = tl.load(weight + monomial.to(tl.int64) * TARGETS + target, mask=monomial < MONOMIALS, other=0.0)
        total += product * w[None, :]
    y = apply_function(tl.sum(total, axis=1) + tl.load(intercept + target), FUNCTION)
    tl.store(out + row * TARGETS + target, y.to(tl.float32), mask=row < rows)


@dataclass(frozen=True)
class PolynomialAffine(Operation):
    """Contract monomials with weights as they are made, then apply a function to each element."""

    indices: np.ndarray
    shift: np.ndarray
    factor: np.ndarray
    weight: np.ndarray
    intercept: np.ndarray
    function: str = "identity"

    def output_width(self, *widths: int) -> int:
        (features,) = widths
        check_monomials(self.indices, self.shift, self.factor, features)
        check_function(self.function)
        if self.weight.ndim != 2 or len(self.weight) != len(self.indices):
            raise PlanError(
                f"polynomial_affine: weight must be [{len(self.indices)}, targets], not {list(self.weight.shape)}."
            )
        if self.intercept.shape != self.weight.shape[1:]:
            raise PlanError(f"polynomial_affine: intercept must be {list(self.weight.shape[1:])}.")
        return self.weight.shape[1]

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,), weight = inputs, parameters["weight"]
        y = in_tiles(x, lambda tile: monomials(parameters, tile) @ weight, weight.shape[1], len(weight))
        return FUNCTIONS[self.function](y + parameters["intercept"]).to(x.dtype)

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        (x,), (monomials, degree), targets = inputs, self.indices.shape, self.weight.shape[1]
        tables = [parameters[name] for name in ("indices", "shift", "factor", "weight", "intercept")]
        shapes = (x.shape[1], monomials, degree, targets, self.function)
        polynomial_affine_kernel[(triton.cdiv(rows, BLOCK_ROWS), targets)](
            x, *tables, output, rows, *shapes, BLOCK_ROWS, BLOCK_MONOMIALS, num_warps=4
        )

    def describe(self) -> str:
        degree, monomials = self.indices.shape[1], len(self.indices)
        shape = f"{len(self.shift)} → {self.weight.shape[1]}"
        return f"{shape} by {monomials} monomials of degree ≤ {degree}" + function_suffix(self.function)
