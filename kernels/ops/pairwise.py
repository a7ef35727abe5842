"""Pairwise: `out[r, i] = k(z_r, sᵢ)`, a kernel function or distance of each row and each stored point.

The function and the points are those of `point_function.py`. `x`: `[rows, F]`, float32 or float64; `out`: `[rows, P]`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from ..plan import Parameters
from ..point_blocks import expanded_metric, metric_by_features, point_profile
from ..point_function import PointFunction
from ..point_matrix import PointMatrix


@triton.jit(do_not_specialize=["rows"])
def pairwise_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    shift,  # float64 [FEATURES]
    factor,  # float64 [FEATURES]
    points,  # float64 [FEATURES, POINTS]
    norms,  # float64 [POINTS]
    numbers,  # float64 [3]
    table,  # float64 [PIECES, TERMS]
    out,  # float32 or float64 [rows, POINTS]
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
    BLOCK_ROWS: tl.constexpr,
    BLOCK_POINTS: tl.constexpr,
):
    """A program makes `[BLOCK_ROWS, BLOCK_POINTS]` of the output."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    point = tl.program_id(1) * BLOCK_POINTS + tl.arange(0, BLOCK_POINTS)
    if EXPANDED:
        m = expanded_metric(
            x, shift, factor, points, norms, row, point, rows,
            FEATURES=FEATURES, POINTS=POINTS, METRIC=METRIC, BLOCK_FEATURES=BLOCK_FEATURES,
        )  # fmt: skip
    else:
        m = metric_by_features(
            x, shift, factor, points, row, point, rows,
            FEATURES=FEATURES, POINTS=POINTS, METRIC=METRIC, APPROXIMATE=False, BY_POINTS=False,
        )  # fmt: skip
    y = point_profile(
        m, numbers, table,
        PROFILE=PROFILE, WHOLE=WHOLE, PIECES=PIECES, TERMS=TERMS, APPROXIMATE=False,
    )  # fmt: skip
    inside = (row < rows)[:, None] & (point < POINTS)[None, :]
    tl.store(out + row[:, None] * POINTS + point[None, :], y.to(out.dtype.element_ty), mask=inside)


@dataclass(frozen=True, eq=False, kw_only=True)
class Pairwise(PointFunction):
    """Write the function of each row and each point."""

    def precisions(self) -> tuple[str, ...]:
        """Return float64: what reads the matrix may enlarge its errors without bounds, as a variance near zero does."""
        return self.PRECISIONS[:1]

    def check(self, *widths: int) -> None:
        (features,) = widths
        self.check_points(features)

    def output_width(self, *widths: int) -> int:
        return len(self.points)

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,), points = inputs, len(self.points)
        answer = torch.empty(x.shape[0], points, dtype=torch.float64)
        for start, matrix in self.matrix.tiles(x.cpu()):
            answer[start : start + matrix.shape[0]] = matrix[:, :points]
        return answer.to(x.device)

    @functools.cached_property
    def matrix(self) -> PointMatrix:
        """What makes the functions in plain torch."""
        return self.plain()

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        block_rows, block_points = self._block()
        grid = (triton.cdiv(rows, block_rows), triton.cdiv(len(self.points), block_points))
        pairwise_kernel[grid](
            inputs[0],
            **parameters,
            out=output,
            rows=rows,
            **self.constants(),
            EXPANDED=self.expanded(),
            BLOCK_FEATURES=16 if self.points.shape[1] <= 16 else 32,
            BLOCK_ROWS=block_rows,
            BLOCK_POINTS=block_points,
            num_warps=8 if self.expanded() else 4,
        )

    def _block(self) -> tuple[int, int]:
        """Return the rows and points of a block; matrix products want it square, single features few rows."""
        return (64, 64) if self.expanded() else (16, 128)

    def reads_input_once(self) -> bool:
        return len(self.points) <= self._block()[1]

    def describe(self) -> str:
        return self.what()
