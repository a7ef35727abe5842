"""Sums of a kernel function of rows and stored points in pairs of float32 numbers, inside kernels.

`z · s` in units is an integer plus a small rest (`numerics/fp16_digits.py`). The points' digits include the function's
factor, so a power of two turns `z · s` into the function's argument. Sums with the integer are exact, or their rounding
error is.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ...numerics.double_float import (
    SMALLEST,
    fma,
    pair_matern,
    pair_power,
    pair_sqrt,
    pair_sum,
    pair_tanh,
    power_of_fixed,
)
from ...numerics.fp16_digits import digit_product
from ...numerics.functions import apply_function
from ...numerics.powers import power
from .near_zero import sums_of_distances
from .row_digits import digits_of_rows

FARTHEST_EXPONENT = tl.constexpr(8192.0)  # an exponent of 2; a row whose norm alone adds this is far from all points
FARTHEST_SQUARE = tl.constexpr(131072.0)  # the limit of a squared distance in exponents of 2
FARTHEST_PLACE = tl.constexpr(64.0)  # the limit of `place` for tanh: nonzero integers times it have the tanh 1 or −1
FARTHEST = tl.constexpr(1e30)  # the limit of anything else, so that no sum is a difference of infinities
EXPONENT = tl.constexpr(0x7F800000)


@triton.jit
def row_pairs(
    place,  # float64 [BLOCK_ROWS]
    offset,  # float64 [BLOCK_ROWS]: the summand of the row's norm, or the square of the largest product with a point
    nothing,  # float64 [BLOCK_ROWS]: NaN if the row has NaN, else zero
    numbers,  # float64 [8]
    METRIC: tl.constexpr,
    PROFILE: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """Return the rows' arguments of `sums_of_points`, float32: `place`, `offset`, `offset_rest`, `bound` and `after`.

    A row so far away that its functions vanish is moved nearer, to where they still vanish in float32.
    """
    EXPONENTS: tl.constexpr = PROFILE == "exp" and METRIC != "euclidean"
    if METRIC == "dot":
        largest = 1.01 * tl.sqrt(tl.minimum(offset, FARTHEST)) + tl.load(numbers + 6)
        place = tl.minimum(place, FARTHEST_PLACE if PROFILE == "tanh" else FARTHEST)
        first = tl.zeros_like(offset).to(tl.float32)
        rest, after = first, nothing
    else:
        limit = FARTHEST_EXPONENT if EXPONENTS else FARTHEST if PROFILE == "power" else FARTHEST_SQUARE
        far = tl.abs(offset) > limit
        offset = tl.where(far, -limit if EXPONENTS else limit, offset)
        place = tl.where(far, 0.0, place)
        rounder = tl.load(numbers + 6)
        first = ((offset + rounder) - rounder).to(tl.float32)
        rest64 = offset - first.to(tl.float64)
        rest, after = rest64.to(tl.float32), nothing
        if EXPONENTS:
            after += rest64 * (0.6931471805599453 + rest64 * 0.24022650695910072)
    bound = tl.load(numbers + 7)
    if METRIC == "dot" and PROFILE == "power":
        bound *= power(largest, tl.load(numbers + 2), WHOLE)
    bound = tl.minimum(tl.zeros_like(offset) + bound, FARTHEST).to(tl.float32)
    bound = (bound.to(tl.int32, bitcast=True) & EXPONENT).to(tl.float32, bitcast=True) * 192.0
    return place.to(tl.float32), first, rest, bound, after.to(tl.float32)


@triton.jit
def sums_of_points(
    z0,  # float16 [BLOCK_ROWS, BLOCK_FEATURES]
    z1,
    z2,
    place,  # float32 [BLOCK_ROWS], like the next four
    offset,
    offset_rest,
    bound,
    after,  # the factor of sums less 1; NaN if the row has NaN
    digits,  # float16 [3, POINTS, BLOCK_FEATURES]
    offsets,  # float32 [2, POINTS]: rounded numbers and rests
    least,  # float32 [POINTS], or [1] if weights are not part of the exponents
    weight,  # float32 [2, POINTS]: rounded numbers and rests
    numbers,  # float64 [8]
    point,  # int32 [BLOCK_POINTS]
    POINTS,
    METRIC: tl.constexpr,
    PROFILE: tl.constexpr,
    WHOLE: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
):
    """Return the sums over some points of their functions times their weights, as two float32 numbers for each row.

    The first parts of products, at most 128 of them, are rounded to numbers whose sum is exact: `bound`, 1.5 times a
    power of two that is 64 times one above them all, is added and subtracted. The second sum holds the rounding errors.
    """
    feature = tl.arange(0, BLOCK_FEATURES)
    at = digits + point[None, :] * BLOCK_FEATURES + feature[:, None]
    real = point < POINTS
    s0 = tl.load(at, mask=real[None, :], other=0.0)
    s1 = tl.load(at + POINTS * BLOCK_FEATURES, mask=real[None, :], other=0.0)
    s2 = tl.load(at + 2 * POINTS * BLOCK_FEATURES, mask=real[None, :], other=0.0)
    whole, small = digit_product(z0, z1, z2, s0, s1, s2)
    bound, place = bound[:, None], tl.broadcast_to(place[:, None], whole.shape)
    u = tl.load(offsets + point, mask=real, other=1.0)[None, :]
    u_rest = tl.load(offsets + POINTS + point, mask=real, other=0.0)[None, :]
    rest = fma(small, place, tl.broadcast_to(u_rest, whole.shape))
    if PROFILE == "exp":
        lowest = tl.load(least + point, mask=real, other=512.0)[None, :]
        base = u + offset[:, None]
        fixed = tl.maximum(fma(whole, place, base) + rest, lowest)
        first, scale, correction = power_of_fixed(fixed, fma(whole, place, base - fixed) + rest)
        short = (fma(scale, correction, first) + bound) - bound
        lost = fma(scale, correction, first - short)
    else:
        if METRIC == "dot":
            u, lost = pair_sum(whole * place, tl.broadcast_to(u, whole.shape))
        else:
            base = u + offset[:, None]
            u = fma(whole, place, base)
            lost = fma(whole, place, base - u)
            rest += offset_rest[:, None]
        rest += lost
        if PROFILE == "tanh":
            k, k_rest = pair_tanh(u, rest)
        elif PROFILE == "power":
            exponent = tl.load(numbers + 2)
            exponent_first = exponent.to(tl.float32)
            exponent_rest = (exponent - exponent_first.to(tl.float64)).to(tl.float32)
            k, k_rest = pair_power(u, rest, exponent_first, exponent_rest, WHOLE)
        else:
            u, rest = pair_sqrt(u, rest, SMALLEST)
            k, k_rest = pair_matern(u, rest, 3 if PROFILE == "matern_3_2" else 5)
        w = tl.load(weight + point, mask=real, other=0.0)[None, :]
        w_rest = tl.load(weight + POINTS + point, mask=real, other=0.0)[None, :]
        rounded = k
        if METRIC == "euclidean" or WHOLE is None:  # the second number is larger here
            rounded = k + k_rest
        short = fma(rounded, w, tl.broadcast_to(bound, k.shape)) - bound
        lost = fma(k, w, -short)
        lost = fma(k, w_rest, lost)
        lost = fma(k_rest, w, lost)
    first, second = tl.sum(short, 1), tl.sum(lost, 1)
    return first, fma(first + second, after, second)


@triton.jit(do_not_specialize=["rows", "program_parts"])
def sums_of_pairs_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    shift,  # float64 [FEATURES]
    factor,  # float64 [FEATURES]
    points,  # float64 [FEATURES, POINTS] for exponential functions of distances, else [1]
    numbers,  # float64 [8]
    digits,  # float16 [3, POINTS, BLOCK_FEATURES]
    offsets,  # float32 [2, POINTS]
    least,  # float32 [POINTS], or [1] if weights are not part of the exponents
    weight,  # float32 [2, POINTS]
    intercept,  # float64 [PARTS]
    row_digits,  # float16 [3, rows, BLOCK_FEATURES]
    row_terms,  # float64 [3, rows]
    out,  # float32 or float64 [rows, PARTS]
    rows,
    program_parts,  # the number of parts that a program makes, one after the other
    FEATURES: tl.constexpr,
    POINTS: tl.constexpr,
    METRIC: tl.constexpr,
    PROFILE: tl.constexpr,
    WHOLE: tl.constexpr,
    PARTS: tl.constexpr,
    PART_POINTS: tl.constexpr,
    FUNCTION: tl.constexpr,
    OWN_ROWS: tl.constexpr,  # rows whose digits a program makes itself; 0 if the digits are given
    BLOCK_FEATURES: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_POINTS: tl.constexpr,
):
    """A program makes `BLOCK_ROWS` rows of some parts of sums of one target."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    parts_of_pairs(
        x, shift, factor, points, numbers, digits, offsets, least, weight, intercept, row_digits, row_terms, out,
        row, row < rows, rows, program_parts, POINTS, PARTS, PART_POINTS,
        FEATURES=FEATURES, METRIC=METRIC, PROFILE=PROFILE, WHOLE=WHOLE, WIDTH=PARTS, FUNCTION=FUNCTION,
        OWN_ROWS=OWN_ROWS, BLOCK_FEATURES=BLOCK_FEATURES, BLOCK_POINTS=BLOCK_POINTS,
    )  # fmt: skip


@triton.jit
def parts_of_pairs(
    x,  # like the next twelve as in the kernel
    shift,
    factor,
    points,
    numbers,
    digits,
    offsets,
    least,
    weight,
    intercept,
    row_digits,
    row_terms,
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
    WIDTH: tl.constexpr,  # of a row of `out`
    FUNCTION: tl.constexpr,
    OWN_ROWS: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
    BLOCK_POINTS: tl.constexpr,
):
    """Write the sums of a program's parts to the rows that are `mine`."""
    first = tl.program_id(1) * program_parts
    z0, z1, z2, place, offset, nothing = digits_of_rows(
        x, shift, factor, numbers, row_digits, row_terms, row, rows,
        FEATURES=FEATURES, METRIC=METRIC, COUNT=3, BLOCK_FEATURES=BLOCK_FEATURES, OWN_ROWS=OWN_ROWS,
    )  # fmt: skip
    place, offset, offset_rest, bound, after = row_pairs(
        place, offset, nothing, numbers, METRIC=METRIC, PROFILE=PROFILE, WHOLE=WHOLE
    )
    for part in tl.range(first, tl.minimum(first + program_parts, PARTS)):
        total = tl.zeros([row.shape[0]], tl.float64)
        for start in tl.range(0, PART_POINTS, BLOCK_POINTS):
            point = part * PART_POINTS + start + tl.arange(0, BLOCK_POINTS)
            if METRIC == "euclidean" and PROFILE == "exp":
                sums, rests = sums_of_distances(
                    x, shift, factor, points, z0, z1, z2, place, offset, offset_rest, bound, after,
                    digits, offsets, weight, numbers, row, point, rows,
                    FEATURES=FEATURES, POINTS=POINTS, BLOCK_FEATURES=BLOCK_FEATURES,
                )  # fmt: skip
            else:
                sums, rests = sums_of_points(
                    z0, z1, z2, place, offset, offset_rest, bound, after,
                    digits, offsets, least, weight, numbers, point,
                    POINTS=POINTS, METRIC=METRIC, PROFILE=PROFILE, WHOLE=WHOLE, BLOCK_FEATURES=BLOCK_FEATURES,
                )  # fmt: skip
            total += sums.to(tl.float64)
            total += rests.to(tl.float64)
        y = apply_function(total + tl.load(intercept + part), FUNCTION)
        tl.store(out + row * WIDTH + part, y.to(out.dtype.element_ty), mask=mine)
