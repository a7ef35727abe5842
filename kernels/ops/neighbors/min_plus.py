"""MinPlus: `out[r, j] = minᵢ (x[r, i] + lengths[i, j])`, the shortest path with one more edge.

`x`: `[rows, inner]`, infinite without an edge; `lengths`: `[inner, width]` float64, finite; `out`:
`[rows, width]`. A row of infinities answers infinity. NaN means no edge.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl

from ...format.errors import PlanError
from ...plan.plan import Operation, Parameters
from .distances import INFINITY
from .launch import MIN_PLUS_BLOCK


@triton.jit(do_not_specialize=["rows"])
def min_plus_kernel(
    x,  # float32 or float64 [rows, INNER]
    lengths,  # float64 [INNER, WIDTH]
    out,  # float32 or float64 [rows, WIDTH]
    rows,
    INNER: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
):
    """A program makes `[BLOCK_ROWS, BLOCK_WIDTH]` of the output."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    column = tl.program_id(1) * BLOCK_WIDTH + tl.arange(0, BLOCK_WIDTH)
    least = tl.full([BLOCK_ROWS, BLOCK_WIDTH], INFINITY, tl.float64)
    xs = x + row * INNER
    edges = lengths + column
    for i in tl.range(0, INNER, loop_unroll_factor=4):
        so_far = tl.load(xs + i, mask=row < rows, other=0.0).to(tl.float64)
        way = so_far[:, None] + tl.load(edges, mask=column < WIDTH, other=0.0)[None, :]
        least = tl.where(way < least, way, least)
        edges += WIDTH
    inside = (row < rows)[:, None] & (column < WIDTH)[None, :]
    tl.store(out + row[:, None] * WIDTH + column[None, :], least.to(out.dtype.element_ty), mask=inside)


@dataclass(frozen=True, eq=False)
class MinPlus(Operation):
    """The product with a matrix in the min-plus algebra."""

    lengths: np.ndarray

    def check(self, *widths: int) -> None:
        (inner,) = widths
        if self.lengths.ndim != 2 or self.lengths.shape[0] != inner or not self.lengths.shape[1]:
            raise PlanError(f"min_plus: lengths must be [{inner}, width], not {list(self.lengths.shape)}.")
        if not np.isfinite(self.lengths).all():
            raise PlanError("min_plus: lengths must be finite.")

    def output_width(self, *widths: int) -> int:
        return self.lengths.shape[1]

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,), lengths = inputs, parameters["lengths"]
        x = x.double()
        answer = torch.full((len(x), lengths.shape[1]), math.inf, dtype=torch.float64, device=x.device)
        for row, out in zip(x, answer, strict=True):  # in a graph of neighbours about one edge in a thousand exists
            edges = (row < math.inf).nonzero()[:, 0]
            if len(edges):
                torch.amin(row[edges, None] + lengths[edges], dim=0, out=out)
        return answer

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        (x,), (inner, width) = inputs, self.lengths.shape
        blocks = (triton.cdiv(rows, MIN_PLUS_BLOCK["BLOCK_ROWS"]), triton.cdiv(width, MIN_PLUS_BLOCK["BLOCK_WIDTH"]))
        min_plus_kernel[blocks](x, parameters["lengths"], output, rows, INNER=inner, WIDTH=width, **MIN_PLUS_BLOCK)

    def describe(self) -> str:
        return f"{self.lengths.shape[0]} → {self.lengths.shape[1]}"
