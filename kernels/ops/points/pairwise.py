"""Pairwise: `out[r, i] = k(z_r, sᵢ)`, a kernel function or distance of each row and each stored point.

The function and the points are those of `function.py`. `x`: `[rows, F]`, float32 or float64; `out`: `[rows, P]`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl

from ...plan.devices import has_many_float64_units, shared_memory
from ...plan.plan import Parameters, Step
from .cpu_function import PointMatrix
from .cpu_fusion import SharedPoints, share_points
from .function import PointFunction, digit_features
from .launch import BLOCK_OF_DIGITS, matrix_shape
from .metrics import expanded_metric, metric_by_features, point_profile
from .near_zero import distance_block
from .products import digit_block
from .row_digits import load_row_digits, rows_as_digits

TABLES = ("shift", "factor", "points", "norms", "numbers", "table")
DIGIT_TABLES = ("shift", "factor", "numbers", "offsets", "digits")


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
    store_functions(
        x, shift, factor, points, norms, numbers, table, out, row, row < rows, point, rows, POINTS,
        FEATURES=FEATURES, WIDTH=POINTS, METRIC=METRIC, PROFILE=PROFILE, WHOLE=WHOLE, PIECES=PIECES, TERMS=TERMS,
        EXPANDED=EXPANDED, BLOCK_FEATURES=BLOCK_FEATURES,
    )  # fmt: skip


@triton.jit
def store_functions(
    x,  # like the next seven as in the kernel
    shift,
    factor,
    points,
    norms,
    numbers,
    table,
    out,  # float32 or float64 [rows, WIDTH]
    row,  # int64 [BLOCK_ROWS]
    mine,  # bool [BLOCK_ROWS]: the rows to write
    point,  # int32 [BLOCK_POINTS]
    rows,
    POINTS,  # a constant for one model, and for a fleet the number of a member's points
    FEATURES: tl.constexpr,
    WIDTH: tl.constexpr,
    METRIC: tl.constexpr,
    PROFILE: tl.constexpr,
    WHOLE: tl.constexpr,
    PIECES: tl.constexpr,
    TERMS: tl.constexpr,
    EXPANDED: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
):
    """Write the functions of the rows that are `mine` and of some points, in float64."""
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
    store_block(y, out, row, mine, point, POINTS, WIDTH=WIDTH)


@triton.jit
def store_block(y, out, row, mine, point, POINTS, WIDTH: tl.constexpr):
    """Write a block of functions to the rows that are `mine`, and zeros past a member's last point."""
    inside = mine[:, None] & (point < WIDTH)[None, :]
    y = tl.where((point < POINTS)[None, :], y, 0.0)
    tl.store(out + row[:, None] * WIDTH + point[None, :], y.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows"])
def pairwise_digits_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    shift,  # float64 [FEATURES]
    factor,  # float64 [FEATURES]
    points,  # float64 [FEATURES, POINTS] for functions that are not smooth at distance zero, else unread
    numbers,  # float64 [6]
    digits,  # float16 [3, POINTS, BLOCK_FEATURES]
    offsets,  # float64 [POINTS]
    row_digits,  # float16 [3, rows, BLOCK_FEATURES]
    row_terms,  # float64 [3, rows]
    out,  # float32 or float64 [rows, POINTS]
    rows,
    FEATURES: tl.constexpr,
    POINTS: tl.constexpr,
    METRIC: tl.constexpr,
    PROFILE: tl.constexpr,
    WHOLE: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_POINTS: tl.constexpr,
):
    """A program makes `[BLOCK_ROWS, BLOCK_POINTS]` of the output to ten digits."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    point = tl.program_id(1) * BLOCK_POINTS + tl.arange(0, BLOCK_POINTS)
    store_functions_of_digits(
        x, shift, factor, points, numbers, digits, offsets, row_digits, row_terms, out, row, row < rows, point, rows,
        POINTS,
        FEATURES=FEATURES, WIDTH=POINTS, METRIC=METRIC, PROFILE=PROFILE, WHOLE=WHOLE, BLOCK_FEATURES=BLOCK_FEATURES,
    )  # fmt: skip


@triton.jit
def store_functions_of_digits(
    x,  # like the next nine as in the kernel
    shift,
    factor,
    points,
    numbers,
    digits,
    offsets,
    row_digits,
    row_terms,
    out,  # float32 or float64 [rows, WIDTH]
    row,  # int64 [BLOCK_ROWS]
    mine,  # bool [BLOCK_ROWS]: the rows to write
    point,  # int32 [BLOCK_POINTS]
    rows,
    POINTS,  # a constant for one model, and for a fleet the number of a member's points
    FEATURES: tl.constexpr,
    WIDTH: tl.constexpr,
    METRIC: tl.constexpr,
    PROFILE: tl.constexpr,
    WHOLE: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
):
    """Write the functions of the rows that are `mine` and of some points, to ten digits."""
    z0, z1, z2, place, offset, nothing = load_row_digits(
        row_digits, row_terms, row, rows, COUNT=3, BLOCK_FEATURES=BLOCK_FEATURES
    )
    if METRIC == "euclidean" and PROFILE == "exp":
        y = distance_block(
            x, shift, factor, points, z0, z1, z2, place, offset, digits, offsets, numbers, row, point, rows,
            FEATURES=FEATURES, POINTS=POINTS, PROFILE=PROFILE, WHOLE=WHOLE, BLOCK_FEATURES=BLOCK_FEATURES,
        )  # fmt: skip
    else:
        y = digit_block(
            z0, z1, z2, place, offset, digits, offsets, offsets, numbers, point,
            POINTS=POINTS, METRIC=METRIC, PROFILE=PROFILE, WHOLE=WHOLE,
            WEIGHED=False, SHORT=False, BLOCK_FEATURES=BLOCK_FEATURES,
        )  # fmt: skip
    store_block(y + nothing[:, None], out, row, mine, point, POINTS, WIDTH=WIDTH)


@dataclass(frozen=True, eq=False, kw_only=True)
class Pairwise(PointFunction):
    """Write the function of each row and each point."""

    def precisions(self) -> tuple[str, ...]:
        """Return float64, and ten digits if they take less time."""
        several = self._smooth_way() == "digits" and "ten digits" in super().precisions()
        return ("float64", "ten digits") if several else ("float64",)

    def check(self, *widths: int) -> None:
        (features,) = widths
        self.check_points(features)

    def output_width(self, *widths: int) -> int:
        return len(self.points)

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        return self.values(inputs[0])

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,), points = inputs, len(self.points)
        answer = torch.empty(x.shape[0], points, dtype=torch.float64)
        for start, matrix in self.matrix.tiles(x):
            answer[start : start + matrix.shape[0]] = matrix[:, :points]
        return answer

    @functools.cached_property
    def matrix(self) -> PointMatrix:
        """Return the matrix of functions in plain torch."""
        return self.plain()

    def join(self, step: Step, steps: Sequence[Step], readers: Mapping[str, int]) -> SharedPoints | None:
        return share_points(step, self.matrix, steps, readers)

    def emulate(self, *inputs: np.ndarray) -> np.ndarray:
        return self.emulated(inputs[0])

    def launches(self, inputs: int) -> int:
        return 2 if self.way() == "digits" else 1

    def on_device(self, device: torch.device) -> Pairwise:
        """Return the operation, in float64 on GPUs without matrix units or with float64 ones that are as fast.

        Those multiply in the same time. With few features, however, float64 takes differences, which is slower.
        """
        exact = dataclasses.replace(self, precision="float64")
        suited = not has_many_float64_units(device) or not exact.expanded()
        return self if self.precision == "float64" or (suited and shared_memory(device)) else exact

    def parameters(self) -> dict[str, np.ndarray]:
        found = super().parameters()
        if self.way() != "digits":
            return {name: found[name] for name in TABLES}
        return {name: found[name] for name in (*DIGIT_TABLES, *["points"] * self.by_distance())}

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        if self.way() == "digits":
            self._launch_digits(parameters, inputs[0], output, rows)
            return
        (points, features), expanded = self.points.shape, self.expanded()
        shape = matrix_shape(expanded, features)
        grid = (triton.cdiv(rows, shape.rows), triton.cdiv(points, shape.points))
        pairwise_kernel[grid](
            inputs[0],
            **parameters,
            out=output,
            rows=rows,
            **self.constants(),
            PIECES=self.table.shape[0],
            TERMS=self.table.shape[1],
            EXPANDED=expanded,
            BLOCK_FEATURES=shape.features,
            BLOCK_ROWS=shape.rows,
            BLOCK_POINTS=shape.points,
            num_warps=shape.warps,
        )

    def _launch_digits(self, parameters: Parameters, x: torch.Tensor, output: torch.Tensor, rows: int) -> None:
        points, features = self.points.shape
        row_digits, row_terms = rows_as_digits(parameters, x, rows, self.metric, self.digits_shape())
        shape = BLOCK_OF_DIGITS
        pairwise_digits_kernel[(triton.cdiv(rows, shape["BLOCK_ROWS"]), triton.cdiv(points, shape["BLOCK_POINTS"]))](
            x=x,
            shift=parameters["shift"],
            factor=parameters["factor"],
            points=parameters["points" if self.by_distance() else "numbers"],
            numbers=parameters["numbers"],
            digits=parameters["digits"],
            offsets=parameters["offsets"],
            row_digits=row_digits,
            row_terms=row_terms,
            out=output,
            rows=rows,
            **self.constants(),
            BLOCK_FEATURES=digit_features(features),
            **shape,
        )

    def reads_input_once(self) -> bool:
        return self.way() != "digits" and len(self.points) <= matrix_shape(self.expanded(), self.points.shape[1]).points

    def describe(self) -> str:
        return self.what()
