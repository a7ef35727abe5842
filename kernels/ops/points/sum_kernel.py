"""The kernel that sums a function of rows and stored points with weights; see `pairwise_affine.py`."""

from __future__ import annotations

import triton
import triton.language as tl

from ...numerics.dot import dot, rounded_product
from ...numerics.fast_math import FIXED
from ...numerics.functions import apply_function
from .l1_chi2 import column_block, load_row_terms
from .metrics import expanded_metric, metric_by_features, nan_of_rows, point_profile
from .near_zero import distance_block
from .products import block_by_features, digit_block, norm_of_rows
from .row_digits import digits_of_rows


@triton.jit(do_not_specialize=["rows", "program_parts"])
def pairwise_affine_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    shift,  # float64 [FEATURES]
    factor,  # float64 [FEATURES]
    points,  # float64 [FEATURES, POINTS]
    norms,  # float64 [POINTS]
    numbers,  # float64 [3], or [6] for products and digits, or more for columns
    table,  # float64 [PIECES, TERMS]
    digits,  # float16 [3 or 2, POINTS, BLOCK_FEATURES]
    products,  # float64 or float32 [FEATURES, POINTS], or the points' columns
    offsets,  # float64 or float32 [POINTS]
    least,  # int32 [POINTS], or [1] unless WEIGHED
    row_digits,  # float16 [3 or 2, rows, BLOCK_FEATURES], or the rows' columns
    row_terms,  # float64 [3, rows], or [2, rows up to a whole block] for columns
    weight,  # float64 or float32 [POINTS, TARGETS]
    intercept,  # float64 [PARTS * TARGETS]: zero except for the first part
    out,  # float32 or float64 [rows, PARTS * TARGETS]
    rows,
    program_parts,  # the number of parts that a program makes, one after the other
    FEATURES: tl.constexpr,
    POINTS: tl.constexpr,
    METRIC: tl.constexpr,
    PROFILE: tl.constexpr,
    WHOLE: tl.constexpr,
    PIECES: tl.constexpr,
    TERMS: tl.constexpr,
    WAY: tl.constexpr,
    APPROXIMATE: tl.constexpr,
    SHORT: tl.constexpr,  # whether functions of rows and points are float32
    WEIGHED: tl.constexpr,  # whether functions include their weights
    BY_POINTS: tl.constexpr,  # whether blocks are [points, rows]
    TARGETS: tl.constexpr,
    PARTS: tl.constexpr,
    PART_POINTS: tl.constexpr,
    FUNCTION: tl.constexpr,
    OWN_ROWS: tl.constexpr,  # rows whose digits a program makes itself; 0 if the digits are given
    BLOCK_FEATURES: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_POINTS: tl.constexpr,
    BLOCK_TARGETS: tl.constexpr,
):
    """A program makes `BLOCK_ROWS` rows of some parts of `BLOCK_TARGETS` targets."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    parts_of_sums(
        x, shift, factor, points, norms, numbers, table, digits, products, offsets, least, row_digits, row_terms,
        weight, intercept, out, row, row < rows, rows, program_parts, POINTS, PARTS, PART_POINTS,
        FEATURES=FEATURES, METRIC=METRIC, PROFILE=PROFILE, WHOLE=WHOLE, PIECES=PIECES, TERMS=TERMS, WAY=WAY,
        APPROXIMATE=APPROXIMATE, SHORT=SHORT, WEIGHED=WEIGHED, BY_POINTS=BY_POINTS, PADDED=PARTS * PART_POINTS > POINTS,
        TARGETS=TARGETS, WIDTH=PARTS * TARGETS, FUNCTION=FUNCTION, OWN_ROWS=OWN_ROWS, BLOCK_FEATURES=BLOCK_FEATURES,
        BLOCK_POINTS=BLOCK_POINTS, BLOCK_TARGETS=BLOCK_TARGETS,
    )  # fmt: skip


@triton.jit
def parts_of_sums(
    x,  # like the next fifteen as in the kernel
    shift,
    factor,
    points,
    norms,
    numbers,
    table,
    digits,
    products,
    offsets,
    least,
    row_digits,
    row_terms,
    weight,
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
    PROFILE: tl.constexpr,
    WHOLE: tl.constexpr,
    PIECES: tl.constexpr,
    TERMS: tl.constexpr,
    WAY: tl.constexpr,
    APPROXIMATE: tl.constexpr,
    SHORT: tl.constexpr,
    WEIGHED: tl.constexpr,
    BY_POINTS: tl.constexpr,
    PADDED: tl.constexpr,  # whether the last block may have places past the last point
    TARGETS: tl.constexpr,
    WIDTH: tl.constexpr,  # of a row of `out`
    FUNCTION: tl.constexpr,
    OWN_ROWS: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
    BLOCK_POINTS: tl.constexpr,
    BLOCK_TARGETS: tl.constexpr,
):
    """Write the sums of a program's parts to the rows that are `mine`."""
    target = tl.program_id(2) * BLOCK_TARGETS + tl.arange(0, BLOCK_TARGETS)
    first = tl.program_id(1) * program_parts
    z0, z1, z2, place, offset, nothing = prepared_rows(
        x, shift, factor, numbers, row_digits, row_terms, row, rows,
        FEATURES=FEATURES, METRIC=METRIC, WAY=WAY, APPROXIMATE=APPROXIMATE, SHORT=SHORT, WEIGHED=WEIGHED,
        OWN_ROWS=OWN_ROWS, BLOCK_FEATURES=BLOCK_FEATURES,
    )  # fmt: skip
    for part in tl.range(first, tl.minimum(first + program_parts, PARTS)):
        if TARGETS > 1:
            total = tl.zeros([row.shape[0], BLOCK_TARGETS], tl.float64)
        elif APPROXIMATE:
            total = tl.zeros([row.shape[0]], tl.float64)
        else:
            total = tl.zeros([row.shape[0], BLOCK_POINTS], tl.float64)
        for start in tl.range(0, PART_POINTS, BLOCK_POINTS):
            point = part * PART_POINTS + start + tl.arange(0, BLOCK_POINTS)
            k = function_block(
                x, shift, factor, points, norms, numbers, table, digits, products, offsets, least, row_digits,
                z0, z1, z2, place, offset, row, point, rows,
                FEATURES=FEATURES, POINTS=POINTS, METRIC=METRIC, PROFILE=PROFILE, WHOLE=WHOLE, PIECES=PIECES,
                TERMS=TERMS, WAY=WAY, APPROXIMATE=APPROXIMATE, SHORT=SHORT, WEIGHED=WEIGHED, BY_POINTS=BY_POINTS,
                COLUMNS=PARTS * PART_POINTS, PADDED=PADDED, BLOCK_FEATURES=BLOCK_FEATURES,
            )  # fmt: skip
            if WEIGHED:
                total += tl.sum(k, axis=0 if BY_POINTS else 1)
            elif TARGETS == 1:
                w = tl.load(weight + point, mask=point < POINTS, other=0.0).to(k.dtype)
                w = w[:, None] if BY_POINTS else w[None, :]
                if APPROXIMATE:  # parts are short
                    terms = rounded_product(k, tl.broadcast_to(w, k.shape))
                    total += tl.sum(terms, axis=0 if BY_POINTS else 1).to(tl.float64)
                else:
                    total += k * w
            else:
                inside = (point < POINTS)[:, None] & (target < TARGETS)[None, :]
                at = point.to(tl.int64)[:, None] * TARGETS + target[None, :]
                w = tl.load(weight + at, mask=inside, other=0.0)
                k = k.to(tl.float64)
                total = dot(tl.trans(k) if BY_POINTS else k, w, total)
        if APPROXIMATE:
            total += nothing if TARGETS == 1 else nothing[:, None]
        if TARGETS == 1:
            if not APPROXIMATE:
                total = tl.sum(total, axis=1)
            y = apply_function(total + tl.load(intercept + part), FUNCTION)
            tl.store(out + row * WIDTH + part, y.to(out.dtype.element_ty), mask=mine)
        else:
            b = tl.load(intercept + part * TARGETS + target, mask=target < TARGETS, other=0.0)
            y = apply_function(total + b[None, :], FUNCTION)
            inside = mine[:, None] & (target < TARGETS)[None, :]
            at = row[:, None] * WIDTH + part * TARGETS + target[None, :]
            tl.store(out + at, y.to(out.dtype.element_ty), mask=inside)


@triton.jit
def prepared_rows(
    x,
    shift,
    factor,
    numbers,
    row_digits,
    row_terms,
    row,
    rows,
    FEATURES: tl.constexpr,
    METRIC: tl.constexpr,
    WAY: tl.constexpr,
    APPROXIMATE: tl.constexpr,
    SHORT: tl.constexpr,
    WEIGHED: tl.constexpr,
    OWN_ROWS: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
):
    """Return a way's numbers of rows: three digits, the value of a unit of their products, the summand of the norm.

    The last number is zero, or NaN if the row has NaN. Numbers that a way does not use are zero.
    """
    nothing = tl.zeros([row.shape[0]], tl.float64)
    z0, z1, z2, place, offset = nothing, nothing, nothing, nothing, nothing
    if WAY == "digits":
        z0, z1, z2, place, offset, nothing = digits_of_rows(
            x, shift, factor, numbers, row_digits, row_terms, row, rows,
            FEATURES=FEATURES, METRIC=METRIC, COUNT=2 if SHORT else 3, BLOCK_FEATURES=BLOCK_FEATURES, OWN_ROWS=OWN_ROWS,
        )  # fmt: skip
    elif WAY == "products":
        norm = norm_of_rows(x, shift, factor, row, rows, FEATURES=FEATURES)
        offset, nothing = norm * tl.load(numbers + 5), norm * 0.0
    elif WAY == "columns":
        offset, nothing = load_row_terms(row_terms, row, rows)
    elif APPROXIMATE:
        nothing = nan_of_rows(x, shift, factor, row, rows, FEATURES=FEATURES, METRIC=METRIC)
    if WEIGHED:
        offset += FIXED
    if SHORT:
        farthest = 1e30 if METRIC == "euclidean" else 1e38
        offset = tl.minimum(tl.maximum(offset, -farthest), farthest).to(tl.float32)
        place = place.to(tl.float32)
    return z0, z1, z2, place, offset, nothing


@triton.jit
def function_block(
    x,
    shift,
    factor,
    points,
    norms,
    numbers,
    table,
    digits,
    products,
    offsets,
    least,
    row_digits,
    z0,  # like the next four from `prepared_rows`
    z1,
    z2,
    place,
    offset,
    row,
    point,
    rows,
    FEATURES: tl.constexpr,
    POINTS,
    METRIC: tl.constexpr,
    PROFILE: tl.constexpr,
    WHOLE: tl.constexpr,
    PIECES: tl.constexpr,
    TERMS: tl.constexpr,
    WAY: tl.constexpr,
    APPROXIMATE: tl.constexpr,
    SHORT: tl.constexpr,
    WEIGHED: tl.constexpr,
    BY_POINTS: tl.constexpr,
    COLUMNS,
    PADDED: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
):
    """Return `f(γ m + c)` of some rows and points, `[rows, points]`, or `[points, rows]` if `BY_POINTS`."""
    if WAY == "digits" and METRIC == "euclidean" and PROFILE == "exp":
        k = distance_block(
            x, shift, factor, points, z0, z1, z2, place, offset, digits, offsets, numbers, row, point, rows,
            FEATURES=FEATURES, POINTS=POINTS, PROFILE=PROFILE, WHOLE=WHOLE, BLOCK_FEATURES=BLOCK_FEATURES,
        )  # fmt: skip
    elif WAY == "digits":
        k = digit_block(
            z0, z1, z2, place, offset, digits, offsets, least, numbers, point,
            POINTS=POINTS, METRIC=METRIC, PROFILE=PROFILE, WHOLE=WHOLE,
            WEIGHED=WEIGHED, SHORT=SHORT, BLOCK_FEATURES=BLOCK_FEATURES,
        )  # fmt: skip
    elif WAY == "products":
        k = block_by_features(
            x, shift, factor, products, offsets, least, numbers, offset, row, point, rows,
            FEATURES=FEATURES, POINTS=POINTS, METRIC=METRIC, PROFILE=PROFILE, WHOLE=WHOLE, WEIGHED=WEIGHED,
        )  # fmt: skip
    elif WAY == "columns":
        k = column_block(
            row_digits, products, offset, offsets, least, numbers, row, point, rows,
            FEATURES=FEATURES, POINTS=POINTS, COLUMNS=COLUMNS, METRIC=METRIC, PROFILE=PROFILE,
            WHOLE=WHOLE, WEIGHED=WEIGHED, BLOCK_FEATURES=BLOCK_FEATURES,
        )  # fmt: skip
    else:
        if WAY == "expanded":
            m = expanded_metric(
                x, shift, factor, points, norms, row, point, rows,
                FEATURES=FEATURES, POINTS=POINTS, METRIC=METRIC, BLOCK_FEATURES=BLOCK_FEATURES,
            )  # fmt: skip
        else:
            m = metric_by_features(
                x, shift, factor, points, row, point, rows,
                FEATURES=FEATURES, POINTS=POINTS, METRIC=METRIC, APPROXIMATE=APPROXIMATE, BY_POINTS=BY_POINTS,
            )  # fmt: skip
        k = point_profile(
            m, numbers, table,
            PROFILE=PROFILE, WHOLE=WHOLE, PIECES=PIECES, TERMS=TERMS, APPROXIMATE=APPROXIMATE,
        )  # fmt: skip
        if PADDED:
            real = point < POINTS
            k = tl.where(real[:, None] if BY_POINTS else real[None, :], k, 0.0)
    return k
