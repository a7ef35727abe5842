"""Metrics that are no matrix product, manhattan and chi2, from columns of numbers prepared once for each row and point.

Manhattan: rows and points are whole multiples of a unit, the same for all features, such that the spans of the points
add up to less than 2³². `|z − s|` and its sums over features are then exact, by one integer instruction for each row,
point and feature. A number of a row outside the points' span is moved to the nearer end of the span. The length of the
move is added to every distance of the row, since it is the same for each point. The loss is half a unit of each number.

chi2: since `(z − s)² / (z + s) = z − 3 s + 4 s² / (z + s)`, a row and a point add one number each. The rest is a sum of
fractions; two fractions share a reciprocal. The loss is some 1e-12 of `z + 3 s`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl
from triton.runtime.jit import JITFunction

from ...numerics.dot import INTERPRETED, rounded_product
from ...numerics.double_float import FRACTION
from ...numerics.fast_math import LEAST_HIGH, exp2_of_fixed, of_halves, reciprocal
from ...plan.plan import Parameters
from .metrics import NEGATIVE, approximate_profile, load_offsets

BLOCK_ROWS = tl.constexpr(32)
BLOCK_FEATURES = 32
LEAST = tl.constexpr(1e-70)  # replaces zero in a row for chi2; MOST is the largest number, so sums have reciprocals
MOST = tl.constexpr(1e70)
SPANS, SPAN = 2.0**32, 2.0**31  # limits of all features together and of one, in units
LEAST_UNIT = 2.0**-500

ROUNDER = tl.constexpr(1.5 * 2.0**52)  # float64 numbers this large are whole numbers
FARTHEST = tl.constexpr(1e30)  # the limit of a row's numbers for chi2 in pairs
EXPONENT_ROUNDER = tl.constexpr(1.5 * 2.0 ** (52 - FRACTION))
FARTHEST_EXPONENT = tl.constexpr(-8192.0)

TWO_52 = tl.constexpr(2.0**52)
TWO_52_HIGH = tl.constexpr(0x43300000)  # the upper half of its bits


class PointColumns(NamedTuple):
    """Points in the layout of `column_block`, and the numbers that convert rows to it.

    Attributes:
        table: `[features, columns]`, int32 for manhattan, float64 for chi2, with zeros past the last point and feature.
        terms: float64 `[points]`: the number that each point adds to its metrics.
        unit: the value of 1 in the sums.
        ends: float64 `[2, features]`: the smallest and the largest number of the points.
    """

    table: np.ndarray
    terms: np.ndarray
    unit: float
    ends: np.ndarray


def point_columns(points: np.ndarray, metric: str, columns: int, rate: float = 0.0) -> PointColumns:
    """Return points `[points, features]` as `columns` columns; with a rate, manhattan's unit is a power of two over it.

    The other metrics ignore the rate.
    """
    count, features = points.shape
    ends = np.stack([points.min(axis=0), points.max(axis=0)])
    if metric == "chi2":
        table = np.zeros((even(features), columns))
        table[:features, :count] = points.T
        return PointColumns(table, -3.0 * points.sum(axis=1), 4.0, ends)
    spans = ends[1] - ends[0]
    unit = float(max(spans.sum() / (SPANS - 2.0 * features), spans.max() / (SPAN - 2.0), LEAST_UNIT))
    if rate:
        unit = 2.0 ** float(np.ceil(np.log2(unit * rate))) / rate
    table = np.zeros((features, columns), dtype=np.int32)
    table[:, :count] = _whole(points, ends, unit).T
    return PointColumns(table, np.zeros(count), unit, ends)


def even(features: int) -> int:
    """Return the number of features for chi2, rounded up to an even number, as they are added in twos."""
    return features + features % 2


def _whole(z: np.ndarray, ends: np.ndarray, unit: float) -> np.ndarray:
    found: np.ndarray = np.floor((z - ends[0]) * (1.0 / unit) + 0.5)
    return found


def emulated_metric(z: np.ndarray, columns: PointColumns, metric: str) -> np.ndarray:
    """Return the metric `[rows, points]` as kernels compute it from float64 rows `[rows, features]`; it drops NaN."""
    count = len(columns.terms)
    if metric != "chi2":
        clipped = np.clip(np.nan_to_num(z), *columns.ends)
        whole, sums = _whole(clipped, columns.ends, columns.unit), np.zeros((len(z), count))
        for row, point in zip(whole.T, columns.table[:, :count].astype(np.float64), strict=True):
            sums += np.abs(row[:, None] - point)
        return sums * columns.unit + np.abs(z - clipped).sum(axis=1)[:, None]
    padded = np.pad(np.clip(z, LEAST.value, MOST.value), ((0, 0), (0, z.shape[1] % 2)), constant_values=LEAST.value)
    fractions = np.zeros((len(z), count))
    for feature in range(0, padded.shape[1], 2):
        s0, s1 = columns.table[feature : feature + 2, :count]
        q0, q1 = padded[:, feature, None] + s0, padded[:, feature + 1, None] + s1
        product = q0 * q1
        y = ((1.0 / product).view(np.int64) >> 32 << 32).view(np.float64)  # the precision of a GPU's instruction
        fractions += (s0 * s0 * q1 + s1 * s1 * q0) * (y + y * (1.0 - product * y))
    found: np.ndarray = np.where(z < NEGATIVE.value, np.nan, z).clip(0.0).sum(axis=1)[:, None] + columns.terms
    return found + columns.unit * fractions


@triton.jit(do_not_specialize=["rows"])
def rows_as_columns_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    shift,  # float64 [FEATURES]
    factor,  # float64 [FEATURES]
    numbers,  # float64 [6 + 2 FEATURES] or more
    table,  # int32 or float64 [FEATURES, rows up to a whole block], for chi2 with an even number of features; in pairs
    # float32 [2, FEATURES, rows up to a whole block]
    terms,  # float64 [2, rows up to a whole block]: the row's summand, and zero or NaN; in pairs see `row_exponents`
    rows,
    FEATURES: tl.constexpr,
    METRIC: tl.constexpr,
    PAIRS: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
):
    """A program makes `BLOCK_ROWS` columns; columns past the last row are those of a row of zeros."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    store_columns(
        x, shift, factor, numbers, table, terms, row, row >= 0, rows,
        FEATURES=FEATURES, METRIC=METRIC, PAIRS=PAIRS, BLOCK_FEATURES=BLOCK_FEATURES,
    )  # fmt: skip


@triton.jit
def store_columns(
    x,  # like the next five as in the kernel
    shift,
    factor,
    numbers,
    table,
    terms,
    row,  # int64 [BLOCK_ROWS]
    mine,  # bool [BLOCK_ROWS]: the columns to write
    rows,
    FEATURES: tl.constexpr,
    METRIC: tl.constexpr,
    PAIRS: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
):
    """Write the columns and the terms of the rows that are `mine`."""
    stride = columns_of_rows(rows)
    FILLED: tl.constexpr = FEATURES + FEATURES % 2 if METRIC == "chi2" and not PAIRS else FEATURES
    term = tl.zeros([row.shape[0]], tl.float64)
    nothing = tl.zeros([row.shape[0]], tl.float64)
    for start in tl.range(0, FEATURES, BLOCK_FEATURES):
        feature = start + tl.arange(0, BLOCK_FEATURES)
        real = feature < FEATURES
        inside = (row < rows)[:, None] & real[None, :]
        z = tl.load(x + row[:, None] * FEATURES + feature[None, :], mask=inside, other=0.0).to(tl.float64)
        z -= tl.load(shift + feature, mask=real, other=0.0)[None, :]
        z *= tl.load(factor + feature, mask=real, other=0.0)[None, :]
        if METRIC == "chi2":
            z = tl.where(z < NEGATIVE, float("nan"), tl.where(z < 0.0, 0.0, z))
            term += tl.sum(z, axis=1)
            nothing += tl.sum(z * 0.0, axis=1)
            column = tl.where(z < MOST, tl.where(z > LEAST, z, LEAST), MOST)
        else:
            low = tl.load(numbers + 6 + feature, mask=real, other=0.0)[None, :]
            high = tl.load(numbers + 6 + FEATURES + feature, mask=real, other=0.0)[None, :]
            nothing += tl.sum(z * 0.0, axis=1)
            near = tl.where(z > low, tl.where(z < high, z, high), low)
            term += tl.sum(tl.abs(z - near), axis=1)
            column = ((near - low) * tl.load(numbers + 3) + 0.5).to(tl.int32)
        at = table + feature.to(tl.int64)[None, :] * stride + row[:, None]
        if METRIC == "chi2" and PAIRS:
            unit = tl.load(numbers + 6 + feature, mask=real, other=1.0)[None, :]
            rounder = unit * ROUNDER
            column = tl.minimum(column, FARTHEST)
            whole = tl.maximum((column + rounder) - rounder, unit)
            tl.store(at, whole.to(tl.float32), mask=mine[:, None] & real[None, :])
            tl.store(at + FEATURES * stride, (column - whole).to(tl.float32), mask=mine[:, None] & real[None, :])
        else:
            tl.store(at, column, mask=mine[:, None] & (feature < FILLED)[None, :])
    term *= tl.load(numbers + 5)
    if PAIRS:
        term, nothing = row_exponents(term, nothing)
    tl.store(terms + row, term, mask=mine)
    tl.store(terms + stride + row, nothing, mask=mine)


@triton.jit
def row_exponents(term, nothing):
    """Return a row's summand of exponents of 2, rounded, and the factor of its sums less 1, or NaN if the row has NaN.

    A row so far away that its functions vanish is moved nearer, to where they still vanish in float32.
    """
    term = tl.maximum(term, FARTHEST_EXPONENT)
    rounded = (term + EXPONENT_ROUNDER) - EXPONENT_ROUNDER
    rest = term - rounded
    return rounded, nothing + rest * (0.6931471805599453 + rest * 0.24022650695910072)


def rows_as_columns(
    parameters: Parameters,
    x: torch.Tensor,
    rows: int,
    metric: str,
    pairs: bool = False,
    kernel: JITFunction[Any] = rows_as_columns_kernel,
    more: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[torch.Tensor, torch.Tensor]:
    """Launch a kernel on the first rows of `x`; return their columns and their terms.

    Args:
        parameters: the tables of the points, with `shift`, `factor` and `numbers`.
        x: `[rows or more, features]`, float32 or float64.
        rows: the number of rows to make.
        metric: "manhattan" or "chi2".
        pairs: whether the columns are for `l1_chi2_pairs.py`.
        kernel: the kernel, which for a fleet is another.
        more: further arguments of such a kernel.
    """
    features, blocks = x.shape[1], triton.cdiv(rows, BLOCK_ROWS.value)
    if metric != "chi2":
        lines, dtype = features, torch.int32
    else:
        lines, dtype = (2 * features, torch.float32) if pairs else (even(features), torch.float64)
    table = torch.empty(lines, blocks * BLOCK_ROWS.value, dtype=dtype, device=x.device)
    terms = torch.empty(2, blocks * BLOCK_ROWS.value, dtype=torch.float64, device=x.device)
    kernel[(blocks,)](
        x=x,
        shift=parameters["shift"],
        factor=parameters["factor"],
        numbers=parameters["numbers"],
        table=table,
        terms=terms,
        rows=rows,
        **more,
        FEATURES=features,
        METRIC=metric,
        PAIRS=pairs,
        BLOCK_FEATURES=BLOCK_FEATURES,
        BLOCK_ROWS=BLOCK_ROWS.value,
        num_warps=4,
    )
    return table, terms


@triton.jit
def columns_of_rows(rows):
    """Return the number of columns of rows, padded to whole blocks."""
    return ((rows + BLOCK_ROWS - 1) // BLOCK_ROWS).to(tl.int64) * BLOCK_ROWS


@triton.jit
def load_row_terms(terms, row, rows):
    """Return the rows' summands, and zeros or NaN to add to their results, float64 `[BLOCK_ROWS]`."""
    return tl.load(terms + row), tl.load(terms + columns_of_rows(rows) + row)


@triton.jit
def add_difference(total, z, s):
    """Return `total + |z − s|` of int32 blocks; the sum is an unsigned 32-bit number."""
    if INTERPRETED:
        y = total + tl.abs(z - s)
    else:
        y = tl.inline_asm_elementwise("sad.u32 $0, $1, $2, $3;", "=r,r,r,r", [z, s, total], tl.int32, True, 1)
    return y


@triton.jit
def float64_of(whole):
    """Return unsigned numbers in int32 as float64."""
    return of_halves(whole, tl.full(whole.shape, TWO_52_HIGH, tl.int32)) - TWO_52


@triton.jit
def add_fractions(total, z_at, s_at, stride, COLUMNS):
    """Return a float64 block of sums of `s² / (z + s)` with two more features."""
    s0, s1 = tl.load(s_at), tl.load(s_at + COLUMNS)
    q0, q1 = tl.load(z_at)[:, None] + s0, tl.load(z_at + stride)[:, None] + s1
    numerator = (s1 * s1) * q0 + rounded_product(tl.broadcast_to(s0 * s0, q1.shape), q1)
    return numerator * reciprocal(q0 * q1) + total


@triton.jit
def column_block(
    table,  # int32 or float64, from `rows_as_columns`
    points,  # int32 or float64 [FEATURES, COLUMNS], for chi2 with an even number of features
    offset,  # [BLOCK_ROWS]: the row's summand
    offsets,  # float64 or float32 [POINTS]: the points' summands
    least,  # int32 [POINTS], or [1] if weights are not part of the exponents
    numbers,  # float64 [6 + 2 FEATURES]
    row,  # int64 [BLOCK_ROWS]
    point,  # int32 [BLOCK_POINTS]
    rows,
    FEATURES: tl.constexpr,
    POINTS,
    COLUMNS,
    METRIC: tl.constexpr,
    PROFILE: tl.constexpr,
    WHOLE: tl.constexpr,
    WEIGHED: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
):
    """Return `f(γ m + c)`, `[BLOCK_ROWS, BLOCK_POINTS]`, in the type of `offset`; see `digit_block`.

    `BLOCK_FEATURES` is the number of features in one pass of a loop.
    """
    stride = columns_of_rows(rows)
    z_at = table + row
    s_at = points + point[None, :]  # a block, so that its layout is that of the loads
    if METRIC == "chi2":
        m = tl.zeros([row.shape[0], point.shape[0]], tl.float64)
        for _ in tl.range(0, FEATURES, 2, loop_unroll_factor=BLOCK_FEATURES // 2):
            m = add_fractions(m, z_at, s_at, stride, COLUMNS=COLUMNS)
            z_at += 2 * stride
            s_at += 2 * COLUMNS
    else:
        whole = tl.zeros([row.shape[0], point.shape[0]], tl.int32)
        for _ in tl.range(0, FEATURES, loop_unroll_factor=BLOCK_FEATURES):
            whole = add_difference(whole, tl.load(z_at)[:, None], tl.load(s_at))
            z_at += stride
            s_at += COLUMNS
        m = float64_of(whole) if offset.dtype == tl.float64 else whole.to(tl.uint32, bitcast=True).to(tl.float32)
    real = point < POINTS
    u = load_offsets(offsets, point, real, PROFILE, WEIGHED)[None, :] + offset[:, None]
    u = m * tl.load(numbers + 4).to(u.dtype) + u
    if WEIGHED:
        k = exp2_of_fixed(u, tl.load(least + point, mask=real, other=LEAST_HIGH)[None, :])
    else:
        k = approximate_profile(u, tl.load(numbers + 2), PROFILE, WHOLE)
    return k
