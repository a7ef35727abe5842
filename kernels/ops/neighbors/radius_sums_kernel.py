"""The kernels that sum the targets of the points within a radius; `radius_sums.py` explains the method."""

from __future__ import annotations

import triton
import triton.language as tl

from .bounds_far_rows import FURTHEST
from .bounds_kernel import LARGEST
from .distances import distances_between

DIGITS = tl.constexpr(5)
"""Digits of a target."""

BASE = tl.constexpr(2048)
"""A digit lies within [-BASE / 2, BASE / 2]; the most significant one may exceed that by 1."""

SLACK_POINTS = tl.constexpr(32)
"""Points that share one bound on the error of float32 sums."""

TINY = tl.constexpr(2.0**-20)
"""Added to limits for the loss on numbers that are small even for float16."""

LENGTHY = tl.constexpr(1e18)
"""A distance beyond that of any point from a row that fits float16."""


@triton.jit
def in_two(x, shift, scale, row, feature, rows, FEATURES: tl.constexpr):
    """Write features of rows as two float16 numbers; return these, a fault code, and two arrays of squares.

    The code is 0 for no fault, 1 for a number too large for float16 and 2 for an infinite one or NaN. The squares, in
    float64, are of the written numbers and of their rounding errors. All arrays are `[rows, features]`.
    """
    real = feature < FEATURES
    u = tl.load(x + row[:, None] * FEATURES + feature, mask=real & (row < rows)[:, None], other=0.0).to(tl.float64)
    v = (u - tl.load(shift + feature, mask=real, other=0.0)) * tl.load(scale + feature, mask=real, other=0.0)
    fault = tl.where(u - u != 0.0, 2, tl.where(tl.abs(v) <= FURTHEST, 0, 1))
    v = tl.where(tl.abs(v) <= FURTHEST, v, 0.0)
    major = v.to(tl.float32).to(tl.float16)
    minor = (v - major.to(tl.float64)).to(tl.float32).to(tl.float16)
    g = major.to(tl.float64) + minor.to(tl.float64)
    return major, minor, fault, g * g, (v - g) * (v - g)


@triton.jit
def limits_of(fault, squares, away, radius, unit, lost, SLACK: tl.constexpr):
    """Return the limits of rows, float32, from the results of `in_two` reduced to one number for each row.

    No point lies within the radius of a row that is not finite. If a row is too far for float16, its limits exclude
    all points or leave all to float64.
    """
    reach = tl.minimum(tl.sqrt(tl.load(radius) * tl.load(unit)), LENGTHY)
    off = (tl.sqrt(away) + tl.load(lost)) * 1.001
    least = tl.maximum(reach - off, 0.0)
    least *= least
    most = (reach + off) * (reach + off)
    low = least - squares - SLACK * (squares + least + TINY)
    high = most - squares + SLACK * (squares + most + TINY)
    low = tl.where((fault > 0) | (reach <= off), -LARGEST, low)
    nothing = fault >= tl.where(reach < FURTHEST / 2, 1, 2)
    high = tl.where(nothing, -LARGEST, tl.where(fault > 0, LARGEST, high))
    return tl.minimum(low, LARGEST).to(tl.float32), tl.minimum(high, LARGEST).to(tl.float32)


@triton.jit
def row_limits_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    shift,  # float64 [FEATURES]
    scale,  # float64 [FEATURES]
    radius,  # float64 [1], reduced
    unit,  # float64 [1], the reduced distance 1 in units of `scale`
    lost,  # float64 [1], the largest distance between a point and its two numbers
    parts,  # float16 [rows, 2, WIDTH]
    limits,  # float32 [rows, 2]
    FEATURES: tl.constexpr,
    WIDTH: tl.constexpr,
    SLACK: tl.constexpr,
):
    """A program writes a row in float16 and makes its limits."""
    row = tl.program_id(0).to(tl.int64) + tl.zeros([1], tl.int64)
    feature = tl.arange(0, WIDTH)[None, :]
    major, minor, faults, squares, away = in_two(x, shift, scale, row, feature, row + 1, FEATURES=FEATURES)
    at = parts + row[:, None] * (2 * WIDTH) + feature
    tl.store(at, major)
    tl.store(at + WIDTH, minor)
    low, high = limits_of(
        tl.max(faults, axis=1), tl.sum(squares, axis=1), tl.sum(away, axis=1), radius, unit, lost, SLACK=SLACK
    )
    tl.store(limits + 2 * row, low)
    tl.store(limits + 2 * row + 1, high)


@triton.jit(do_not_specialize=["rows", "tiles", "tiles_each", "shares"])
def sums_within_kernel(
    parts,  # float16 [rows, 2, WIDTH], see `row_limits_kernel`
    limits,  # float32 [rows, 2]
    near,  # float16 [tiles * BLOCK_POINTS, 2, WIDTH], the points like `parts`
    norms,  # float32 [tiles * BLOCK_POINTS], their squared norms; infinite past the last point
    slack,  # float32 [tiles * BLOCK_POINTS / SLACK_POINTS], the error bound of sums with such norms
    digits,  # float16 [tiles * BLOCK_POINTS, COLUMNS]
    sums,  # float32 [rows, shares, COLUMNS]
    doubts,  # uint8 [rows, tiles], 1 if a tile's points were left out because limits do not decide about one of them
    rows,
    tiles,
    tiles_each,
    shares,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_POINTS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):
    """A program makes `BLOCK_COLUMNS` sums of `BLOCK_ROWS` rows over `tiles_each` tiles of points."""
    share = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    column = tl.program_id(2) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    feature = tl.arange(0, WIDTH)
    real = (row < rows)[:, None]
    lines = parts + row[:, None] * (2 * WIDTH) + feature[None, :]
    major = tl.load(lines, mask=real, other=0.0)
    minor = tl.load(lines + WIDTH, mask=real, other=0.0)
    low = tl.load(limits + 2 * row, mask=row < rows, other=-LARGEST)
    high = tl.load(limits + 2 * row + 1, mask=row < rows, other=-LARGEST)
    total = tl.zeros([BLOCK_ROWS, BLOCK_COLUMNS], tl.float32)
    first = share * tiles_each
    for tile in tl.range(first, tl.minimum(first + tiles_each, tiles)):
        point = (tile * BLOCK_POINTS + tl.arange(0, BLOCK_POINTS)).to(tl.int64)
        places = near + point[None, :] * (2 * WIDTH) + feature[:, None]
        most = tl.load(places)
        product = tl.dot(minor, most)
        product = tl.dot(major, tl.load(places + WIDTH), acc=product)
        product = tl.dot(major, most, acc=product)
        value = tl.load(norms + point)[None, :] - 2.0 * product
        piece = tile * (BLOCK_POINTS // SLACK_POINTS) + tl.arange(0, BLOCK_POINTS // SLACK_POINTS)
        allowed = tl.max(tl.load(slack + piece), axis=0)
        inside = value <= (low - allowed)[:, None]
        maybe = value <= (high + allowed)[:, None]
        doubt = tl.max((maybe ^ inside).to(tl.int32), axis=1)
        tl.store(doubts + row * tiles + tile, doubt.to(tl.uint8), mask=row < rows)
        chosen = (inside & (doubt == 0)[:, None]).to(tl.float16)
        total = tl.dot(chosen, tl.load(digits + point[:, None] * COLUMNS + column[None, :]), acc=total)
    at = sums + (row * shares + share)[:, None] * COLUMNS + column[None, :]
    tl.store(at, total, mask=real)


@triton.jit(do_not_specialize=["tiles", "shares"])
def mean_within_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    columns,  # float64 [groups, FEATURES, GROUP]
    factor,  # float64 [FEATURES]
    radius,  # float64 [1], reduced
    digits,  # float16 [tiles * BLOCK_POINTS, COLUMNS]
    sums,  # float32 [rows, shares, COLUMNS]
    doubts,  # uint8 [rows, tiles]
    quantum,  # float64 [OUTPUTS]
    empty,  # float64 [OUTPUTS]
    out,  # float32 or float64 [rows, OUTPUTS]
    tiles,
    shares,
    FEATURES: tl.constexpr,
    POINTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    GROUP: tl.constexpr,
    COLUMNS: tl.constexpr,
    METRIC: tl.constexpr,
    BLOCK_POINTS: tl.constexpr,
    BLOCK_TILES: tl.constexpr,
    BLOCK_SHARES: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    BLOCK_OUTPUTS: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """A program makes `BLOCK_OUTPUTS` outputs of a row, and adds the points of the tiles that were left out.

    Every sum is exact, so the order does not matter.
    """
    row = tl.program_id(0).to(tl.int64)
    output = tl.program_id(1) * BLOCK_OUTPUTS + tl.arange(0, BLOCK_OUTPUTS)
    column = tl.arange(0, BLOCK_COLUMNS)
    digit = (column - 1) // BLOCK_OUTPUTS
    place = tl.where(
        column == 0, 0, 1 + digit * OUTPUTS + tl.program_id(1) * BLOCK_OUTPUTS + (column - 1) % BLOCK_OUTPUTS
    )
    real = column < 1 + DIGITS * BLOCK_OUTPUTS
    real = real & (place < COLUMNS)
    found = tl.zeros([BLOCK_SHARES, BLOCK_COLUMNS], tl.float64)
    for start in tl.range(0, shares, BLOCK_SHARES):
        share = start + tl.arange(0, BLOCK_SHARES)
        at = sums + (row * shares + share)[:, None] * COLUMNS + place[None, :]
        found += tl.load(at, mask=(share < shares)[:, None] & real[None, :], other=0.0).to(tl.float64)
    total = tl.sum(found, axis=0)
    furthest = tl.load(radius)
    lane = tl.arange(0, BLOCK_POINTS)
    for start in tl.range(0, tiles, BLOCK_TILES):
        tile = start + tl.arange(0, BLOCK_TILES)
        doubt = tl.load(doubts + row * tiles + tile, mask=tile < tiles, other=0)
        waiting = tl.where(doubt != 0, tile, tiles)
        first = tl.min(waiting, axis=0)
        while first < tiles:
            waiting = tl.where(waiting == first, tiles, waiting)
            point = first * BLOCK_POINTS + lane
            ys = columns + (point // GROUP).to(tl.int64) * (FEATURES * GROUP) + point % GROUP
            distance = distances_between(
                (x + row * FEATURES + lane * 0), ys, factor, point >= 0, point < POINTS, FEATURES=FEATURES,
                STRIDE=GROUP, METRIC=METRIC, UNROLL=UNROLL,
                FUSED=False,
            )  # fmt: skip
            at = digits + point.to(tl.int64)[:, None] * COLUMNS + place[None, :]
            value = tl.load(at, mask=(distance <= furthest)[:, None] & real[None, :], other=0.0)
            total += tl.sum(value.to(tl.float32), axis=0).to(tl.float64)
            first = tl.min(waiting, axis=0)
    number = tl.sum(tl.where(column == 0, total, 0.0), axis=0)
    y = tl.zeros([BLOCK_OUTPUTS], tl.float64)
    for i in tl.static_range(DIGITS):
        mine = (column[None, :] - 1) == (i * BLOCK_OUTPUTS + tl.arange(0, BLOCK_OUTPUTS))[:, None]
        y = y * BASE + tl.sum(tl.where(mine, total[None, :], 0.0), axis=1)
    nothing = tl.load(empty + output, mask=output < OUTPUTS, other=0.0)
    y = y / tl.where(number > 0.0, number, 1.0) * tl.load(quantum + output, mask=output < OUTPUTS, other=0.0)
    y = tl.where(number > 0.0, y, nothing)
    tl.store(out + row * OUTPUTS + output, y.to(out.dtype.element_ty), mask=output < OUTPUTS)
