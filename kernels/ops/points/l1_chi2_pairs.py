"""Sums of exponential functions of manhattan and chi2 in pairs of float32 numbers: see `l1_chi2.py`.

Manhattan: the unit of the integers is such that one unit of the sum is a power of two in the exponent. The sum of 32
bits is split into two float32 numbers, the upper 24 bits and the lower 8.

chi2: a number of a row or a point is a whole multiple of its feature's unit, below 2²³ units, plus a small rest. Sums
of two such multiples are exact, and a float32 instruction gives their reciprocal. A fraction `4 γ s² / (z + s)` is
rounded as it is added to a total, which loses only the fraction's last digits. The remainder of `4 γ s²` is computed
exactly; its product with the reciprocal goes to a second total. Points are moved, by less than 2⁻²⁵ of their size, so
that `4 γ s²` is a float32 number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton.runtime.jit import JITFunction

from ...numerics.double_float import fma, power_of_fixed
from ...numerics.fast_math import reciprocal
from ...numerics.functions import apply_function
from ...plan.plan import Parameters
from .l1_chi2 import PointColumns, add_difference, columns_of_rows, emulated_metric, point_columns
from .launch import AT_ONCE, Shape, parts_of_a_program, slots
from .metrics import NEGATIVE

LEAST_SPAN = 1e-30
ABOVE = 1.01  # a margin on the sum of a point's fractions
EXPONENT = tl.constexpr(0x7F800000)


def pair_columns(points: np.ndarray, metric: str, columns: int, rate: float) -> PointColumns:
    """Return points `[points, features]` as `columns` columns, for `2^(−rate · metric)`.

    For chi2 the table is float32 `[3, features, columns]`: multiples and rests of the points, and `4 · rate · s²`.
    `unit` is that of the total, a power of two over the rate, and `ends` are the features' units.
    """
    if metric != "chi2":
        return point_columns(points, metric, columns, rate)
    units = 2.0 ** (np.ceil(np.log2(np.maximum(points.max(axis=0), LEAST_SPAN))) - 23)
    table, count = np.zeros((3, points.shape[1], columns), dtype=np.float32), len(points)
    squares = (4.0 * rate * points * points).astype(np.float32)
    moved = np.sqrt(squares.astype(np.float64) / (4.0 * rate))
    whole = np.rint(moved / units) * units
    for place, numbers in enumerate((whole, moved - whole, squares)):
        table[place, :, :count] = numbers.T
    sums = moved.sum(axis=1)
    unit = 2.0 ** float(np.ceil(np.log2(ABOVE * 4.0 * rate * max(sums.max(), LEAST_SPAN)))) / rate
    return PointColumns(table, -3.0 * sums, unit, np.stack([units, units]))


def emulated_pair_metric(z: np.ndarray, columns: PointColumns, metric: str) -> np.ndarray:
    """Return the metric as kernels compute it, see `emulated_metric`; chi2 is emulated to twelve digits."""
    if metric != "chi2":
        return emulated_metric(z, columns, metric)
    count, sums = len(columns.terms), np.zeros((len(z), len(columns.terms)))
    for row, (whole, rest) in zip(z.clip(0.0).T, columns.table[:2, :, :count].transpose(1, 0, 2), strict=True):
        s = whole.astype(np.float64) + rest
        q = row[:, None] + s
        sums += (row[:, None] - s) ** 2 / np.where(q > 0, q, 1.0)
    return np.where((z < NEGATIVE.value).any(axis=1)[:, None], np.nan, sums)


@triton.jit
def add_fraction(total, rest, z, z_rest, s, s_rest, square):
    """Return two float32 blocks with the sum `Σ square / (z + s)` for one more feature.

    `total` is larger than the numbers added to it, so the difference of two totals is exact.
    """
    q, q_rest = z + s, z_rest + s_rest
    square, y = tl.broadcast_to(square, q.shape), reciprocal(q)
    raised = fma(square, y, total)
    added = total - raised  # with the opposite sign
    left = fma(added, q, square)
    left = fma(added, q_rest, left)
    return raised, fma(left, y, rest)


@triton.jit(do_not_specialize=["rows", "program_parts"])
def column_pairs_kernel(
    table,  # int32 [FEATURES, rows up to a whole block], or for chi2 float32 [2, FEATURES, rows up to a whole block]
    terms,  # float64 [2, rows up to a whole block]: the row's summand, and the factor of its sums less 1
    points,  # int32 [FEATURES, COLUMNS], or for chi2 float32 [3, FEATURES, COLUMNS]
    offsets,  # float32 [2, POINTS]: rounded numbers and rests
    least,  # float32 [POINTS]
    numbers,  # float64 [8 + 2 FEATURES]
    intercept,  # float64 [PARTS]: zero except for the first part
    out,  # float32 or float64 [rows, PARTS]
    rows,
    program_parts,  # the number of parts that a program makes, one after the other
    FEATURES: tl.constexpr,
    POINTS: tl.constexpr,
    METRIC: tl.constexpr,
    PARTS: tl.constexpr,
    PART_POINTS: tl.constexpr,
    FUNCTION: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_POINTS: tl.constexpr,
):
    """A program makes `BLOCK_ROWS` rows of some parts."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    parts_of_column_pairs(
        table, terms, points, offsets, least, numbers, intercept, out, row, row < rows, rows, program_parts, POINTS,
        PARTS, PART_POINTS,
        FEATURES=FEATURES, METRIC=METRIC, WIDTH=PARTS, FUNCTION=FUNCTION, BLOCK_FEATURES=BLOCK_FEATURES,
        BLOCK_POINTS=BLOCK_POINTS,
    )  # fmt: skip


@triton.jit
def parts_of_column_pairs(
    table,  # like the next seven as in the kernel
    terms,
    points,
    offsets,
    least,
    numbers,
    intercept,
    out,
    row,  # int64 [BLOCK_ROWS]
    mine,  # bool [BLOCK_ROWS]: the rows to write
    rows,
    program_parts,
    POINTS,  # a constant for one model, and for a fleet the number of a member's points, like the next two
    PARTS,
    PART_POINTS,
    FEATURES: tl.constexpr,
    METRIC: tl.constexpr,
    WIDTH: tl.constexpr,  # of a row of `out`
    FUNCTION: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
    BLOCK_POINTS: tl.constexpr,
):
    """Write the sums of a program's parts to the rows that are `mine`."""
    COLUMNS = PARTS * PART_POINTS
    stride = columns_of_rows(rows)
    offset = tl.load(terms + row).to(tl.float32)
    after = tl.load(terms + stride + row).to(tl.float32)
    bound = tl.load(numbers + 7 + 2 * FEATURES).to(tl.float32)
    bound = (bound.to(tl.int32, bitcast=True) & EXPONENT).to(tl.float32, bitcast=True) * 192.0
    unit = -tl.load(numbers + 4).to(tl.float32)
    first = tl.program_id(1) * program_parts
    for part in tl.range(first, tl.minimum(first + program_parts, PARTS)):
        total = tl.zeros([row.shape[0]], tl.float64)
        for start in tl.range(0, PART_POINTS, BLOCK_POINTS):
            point = part * PART_POINTS + start + tl.arange(0, BLOCK_POINTS)
            real = point < POINTS
            z_at, s_at = table + row, points + point[None, :]  # a block, so that its layout is that of the loads
            if METRIC == "chi2":
                whole = tl.zeros([row.shape[0], BLOCK_POINTS], tl.float32) + unit
                small = tl.zeros([row.shape[0], BLOCK_POINTS], tl.float32)
                for _ in tl.range(0, FEATURES, loop_unroll_factor=BLOCK_FEATURES):
                    whole, small = add_fraction(
                        whole, small, tl.load(z_at)[:, None], tl.load(z_at + FEATURES * stride)[:, None],
                        tl.load(s_at), tl.load(s_at + FEATURES * COLUMNS), tl.load(s_at + 2 * FEATURES * COLUMNS),
                    )  # fmt: skip
                    z_at += stride
                    s_at += COLUMNS
                whole -= unit
                small = -small
            else:
                sums = tl.zeros([row.shape[0], BLOCK_POINTS], tl.int32)
                for _ in tl.range(0, FEATURES, loop_unroll_factor=BLOCK_FEATURES):
                    sums = add_difference(sums, tl.load(z_at)[:, None], tl.load(s_at))
                    z_at += stride
                    s_at += COLUMNS
                sums = sums.to(tl.uint32, bitcast=True)
                whole = (sums >> 8).to(tl.float32) * (256.0 * unit)  # exact, since the factor is a power of two
                small = (sums & 255).to(tl.float32) * -unit
            base = tl.load(offsets + point, mask=real, other=1.0)[None, :] + offset[:, None]
            rest = tl.load(offsets + POINTS + point, mask=real, other=0.0)[None, :] + small
            lowest = tl.load(least + point, mask=real, other=512.0)[None, :]
            fixed = tl.maximum((base - whole) + rest, lowest)
            leading, scale, correction = power_of_fixed(fixed, ((base - fixed) - whole) + rest)
            short = (fma(scale, correction, leading) + bound) - bound
            lost = fma(scale, correction, leading - short)
            sums, rests = tl.sum(short, 1), tl.sum(lost, 1)
            total += sums.to(tl.float64)
            total += fma(sums + rests, after, rests).to(tl.float64)
        y = apply_function(total + tl.load(intercept + part), FUNCTION)
        tl.store(out + row * WIDTH + part, y.to(out.dtype.element_ty), mask=mine)


def launch_column_pairs(
    kernel: JITFunction[Any],
    parameters: Parameters,
    columns: tuple[torch.Tensor, torch.Tensor],
    output: torch.Tensor,
    rows: int,
    parts: int,
    constants: Mapping[str, object],
    metric: str,
    shape: Shape,
) -> None:
    """Launch a kernel that sums.

    Args:
        kernel: `column_pairs_kernel`, or that of a fleet.
        parameters: the tables of a sum over points in float32 pairs.
        columns: the rows by columns, and their terms.
        output: `[rows, parts or more]`.
        rows: the number of rows.
        parts: the most parts of a sum.
        constants: `FEATURES`, `FUNCTION`, and the points and parts of the model or of its fleet.
        metric: "manhattan" or "chi2".
        shape: the block of a program.
    """
    device, row_blocks = parameters["numbers"].device, triton.cdiv(rows, shape.rows)
    at_once = int(slots(device) // shape.warps * AT_ONCE["columns"])
    program_parts = parts_of_a_program(row_blocks, parts, at_once)
    kernel[(row_blocks, triton.cdiv(parts, program_parts))](
        table=columns[0],
        terms=columns[1],
        points=parameters["products"],
        offsets=parameters["offsets"],
        least=parameters["least"],
        numbers=parameters["numbers"],
        intercept=parameters["intercept"],
        out=output,
        rows=rows,
        program_parts=program_parts,
        **constants,
        METRIC=metric,
        BLOCK_FEATURES=shape.features,
        BLOCK_ROWS=shape.rows,
        BLOCK_POINTS=shape.points,
        num_warps=shape.warps,
        num_stages=shape.stages,
    )
