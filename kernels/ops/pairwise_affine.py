"""Pairwise, then affine: `out[r, t] = g(Σᵢ k(z_r, sᵢ) · weight[i, t] + intercept[t])`.

`k`, the points and `z` are those of `point_function.py`; `weight`: `[P, targets]` float64;
`intercept`: `[targets]` float64; `g`: a function of `functions.py`; `out`: `[rows, targets]`. The matrix of `k` lives
in registers alone; everything is float64.

A few rows leave most of a GPU idle while one program goes through all the points. So with many points the sum is made
in `parts`, each over a range of points that depends on the model alone: `out` is then `[rows, parts · targets]`, part
by part, `g` must be the identity, and an affine step adds the parts up.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl

from ..contraction import Contraction, target_block
from ..dots import dot
from ..errors import PlanError
from ..functions import FUNCTIONS, apply_function, function_suffix
from ..plan import Parameters
from ..point_function import PointFunction, pairwise_block
from ..tiles import apply, product, tile_rows

MAX_TARGETS = 64


@triton.jit(do_not_specialize=["rows"])
def pairwise_affine_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    shift,  # float64 [FEATURES]
    factor,  # float64 [FEATURES]
    points,  # float64 [FEATURES, POINTS]
    norms,  # float64 [POINTS]
    numbers,  # float64 [3]
    table,  # float64 [PIECES, TERMS]
    weight,  # float64 [POINTS, TARGETS]
    intercept,  # float64 [PARTS * TARGETS]: zero but for the first part
    out,  # float32 or float64 [rows, PARTS * TARGETS]
    rows,
    FEATURES: tl.constexpr,
    POINTS: tl.constexpr,
    METRIC: tl.constexpr,
    PROFILE: tl.constexpr,
    WHOLE: tl.constexpr,
    PIECES: tl.constexpr,
    TERMS: tl.constexpr,
    EXPANDED: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
    TARGETS: tl.constexpr,
    PARTS: tl.constexpr,
    PART_POINTS: tl.constexpr,
    FUNCTION: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_POINTS: tl.constexpr,
    BLOCK_TARGETS: tl.constexpr,
):
    """A program makes `BLOCK_ROWS` rows of one part of `BLOCK_TARGETS` targets."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    part = tl.program_id(1)
    target = tl.program_id(2) * BLOCK_TARGETS + tl.arange(0, BLOCK_TARGETS)
    out += part * TARGETS
    intercept += part * TARGETS
    if TARGETS == 1:
        total = tl.zeros([BLOCK_ROWS, BLOCK_POINTS], tl.float64)
    else:
        total = tl.zeros([BLOCK_ROWS, BLOCK_TARGETS], tl.float64)
    for start in tl.range(0, PART_POINTS, BLOCK_POINTS):
        point = part * PART_POINTS + start + tl.arange(0, BLOCK_POINTS)
        k = pairwise_block(
            x, shift, factor, points, norms, numbers, table, row, point, rows,
            FEATURES=FEATURES, POINTS=POINTS, METRIC=METRIC, PROFILE=PROFILE, WHOLE=WHOLE,
            PIECES=PIECES, TERMS=TERMS, EXPANDED=EXPANDED, BLOCK_FEATURES=BLOCK_FEATURES,
        )  # fmt: skip
        k = tl.where((point < POINTS)[None, :], k, 0.0)
        if TARGETS == 1:
            total += k * tl.load(weight + point, mask=point < POINTS, other=0.0)[None, :]
        else:
            inside = (point < POINTS)[:, None] & (target < TARGETS)[None, :]
            at = point.to(tl.int64)[:, None] * TARGETS + target[None, :]
            total = dot(k, tl.load(weight + at, mask=inside, other=0.0), total)
    if TARGETS == 1:
        b = tl.load(intercept)
        y = apply_function(tl.sum(total, axis=1) + b, FUNCTION)
        tl.store(out + row * PARTS, y.to(out.dtype.element_ty), mask=row < rows)
    else:
        b = tl.load(intercept + target, mask=target < TARGETS, other=0.0)
        y = apply_function(total + b[None, :], FUNCTION)
        inside = (row < rows)[:, None] & (target < TARGETS)[None, :]
        tl.store(out + row[:, None] * (PARTS * TARGETS) + target[None, :], y.to(out.dtype.element_ty), mask=inside)


@dataclass(frozen=True, eq=False, kw_only=True)
class PairwiseAffine(Contraction, PointFunction):
    """Contract the function of each row and each point with weights as it is made."""

    parts: int = 1

    def check(self, *widths: int) -> None:
        (features,) = widths
        self.check_points(features)
        self.check_contraction(len(self.points))
        if self.parts < 1 or (self.parts > 1 and self.function != "identity"):
            raise PlanError(f"pairwise_affine: parts must be at least 1, and 1 before {self.function}.")

    def output_width(self, *widths: int) -> int:
        return self.parts * self.weight.shape[1]

    def parameters(self) -> dict[str, np.ndarray]:
        intercept = np.zeros((self.parts, len(self.intercept)))
        intercept[0] = self.intercept  # not a choice in the kernel: ptxas 12.8 miscompiles a chosen accumulator
        return {**super().parameters(), "weight": self.weight, "intercept": intercept.ravel()}

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,), size, weight = inputs, self.part_points(), parameters["weight"]
        answer = torch.zeros(len(x), self.parts, weight.shape[1], dtype=torch.float64, device=x.device)
        rows = 2 * tile_rows(len(self.points))
        for start in range(0, len(x), rows):
            k = self.matrix(parameters, x[start : start + rows].double())
            for part in range(-(-len(weight) // size)):  # the last parts may have no points
                points = slice(part * size, (part + 1) * size)
                answer[start : start + rows, part] = product(k[:, points], weight[points])
        y = answer.flatten(1) + parameters["intercept"]
        return y if self.function == "identity" else apply(FUNCTIONS[self.function], y)

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        targets, (block_rows, block_points) = self.weight.shape[1], self.block()
        block_targets = 1 if targets == 1 else target_block(targets)
        grid = (triton.cdiv(rows, block_rows), self.parts, triton.cdiv(targets, block_targets))
        pairwise_affine_kernel[grid](
            inputs[0],
            **parameters,
            out=output,
            rows=rows,
            **self.constants(),
            TARGETS=targets,
            PARTS=self.parts,
            PART_POINTS=self.part_points(),
            FUNCTION=self.function,
            BLOCK_ROWS=block_rows,
            BLOCK_POINTS=block_points,
            BLOCK_TARGETS=block_targets,
            num_warps=self.warps(),
        )

    def part_points(self) -> int:
        """Return how many points a part covers: whole blocks."""
        block = self.block()[1]
        return triton.cdiv(triton.cdiv(len(self.points), self.parts), block) * block

    def describe(self) -> str:
        parts = f" in {self.parts} parts" if self.parts > 1 else ""
        shape = f"{self.points.shape[1]} → {self.weight.shape[1]}"
        return f"{shape} by {self.what()}{parts}" + function_suffix(self.function)


def contract(
    first: PointFunction, weight: np.ndarray, intercept: np.ndarray, function: str = "identity"
) -> PairwiseAffine | None:
    """Return the operation that does both, in one part.

    None for more targets than one program makes: each block of them would compute the matrix anew.
    """
    if weight.shape[1] > MAX_TARGETS:
        return None
    fields = {field.name: getattr(first, field.name) for field in dataclasses.fields(first)}
    return PairwiseAffine(**fields, weight=weight, intercept=intercept, function=function)
