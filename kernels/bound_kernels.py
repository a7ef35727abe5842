"""The kernels that bound the distances of rows to groups of stored points; `bounds.py` says what the bounds are."""

from __future__ import annotations

import triton
import triton.language as tl

from .distances import INFINITY
from .powers import power

LARGEST = tl.constexpr(3e38)
SINGLE_SLACK = tl.constexpr(2.0**-22)
"""The share of a number that rounding it to float32 may take, and more."""

FURTHEST = tl.constexpr(32768.0)
"""A row with a number beyond it, in units of `scale`, has no bounds: float16 and float32 might overflow."""


@triton.jit
def store_bounds(bounds, distance, lost, row, tile, rows, groups, SLACK: tl.constexpr, ROOT: tl.constexpr):
    """Store for each row and group of a tile what no point is nearer than, as a reduced distance in units of `scale`.

    `distance` is the smallest reduced distance between rounded numbers, `[BLOCK_ROWS, groups of a tile]`, and `lost`
    what rounding may take off a distance; `ROOT` is the power of a distance that is a reduced one.
    """
    group = tile * distance.shape[1] + tl.arange(0, distance.shape[1])
    d = tl.maximum(distance, 0.0)
    if ROOT == 2.0:
        d = tl.sqrt(d)
    elif ROOT != 1.0:
        d = tl.exp(tl.log(d) / ROOT)
    d = tl.maximum(d * (1.0 - SLACK) - lost[:, None], 0.0)
    if ROOT == 2.0:
        d = d * d
    elif ROOT != 1.0:
        d = tl.exp(tl.log(d) * ROOT) * (1.0 - SLACK)
    d = tl.where(d == d, tl.minimum(d, LARGEST), 0.0)
    inside = (row < rows)[:, None] & (group < groups)[None, :]
    tl.store(bounds + row[:, None] * groups + group[None, :], d, mask=inside)


@triton.jit
def round_rows_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    shift,  # float64 [FEATURES]
    scale,  # float64 [FEATURES]
    lost,  # float64 [1], the largest distance between a point and its rounded one
    rounded,  # float16, or float32 where a distance is no matrix product, [rows, WIDTH]
    norms,  # float32 [rows], the rounded rows' squared norms less what sums may lose; written if SQUARED
    gone,  # float32 [rows], what rounding may take off a distance; infinite for a row that cannot be rounded
    FEATURES: tl.constexpr,
    WIDTH: tl.constexpr,
    SLACK: tl.constexpr,
    SQUARED: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
):
    """A program rounds a row."""
    row = tl.program_id(0).to(tl.int64)
    squares = tl.zeros([BLOCK_FEATURES], tl.float64)
    away = tl.zeros([BLOCK_FEATURES], tl.float64)
    furthest = tl.zeros([BLOCK_FEATURES], tl.float64)
    for start in tl.range(0, WIDTH, BLOCK_FEATURES):
        feature = start + tl.arange(0, BLOCK_FEATURES)
        real = feature < FEATURES
        u = tl.load(x + row * FEATURES + feature, mask=real, other=0.0).to(tl.float64)
        s = tl.load(shift + feature, mask=real, other=0.0)
        v = (u - s) * tl.load(scale + feature, mask=real, other=0.0)
        h = v.to(tl.float32).to(rounded.dtype.element_ty)
        tl.store(rounded + row * WIDTH + feature, h, mask=feature < WIDTH)
        g = h.to(tl.float64)
        squares += g * g
        away += (v - g) * (v - g) if SQUARED else tl.abs(v) * SINGLE_SLACK
        furthest = tl.maximum(furthest, tl.abs(v))
    total = tl.sum(away, axis=0)
    if SQUARED:
        total = tl.sqrt(total)
        tl.store(norms + row, (tl.sum(squares, axis=0) * (1.0 - SLACK)).to(tl.float32))
    total += tl.load(lost)
    safe = tl.max(furthest, axis=0) <= FURTHEST
    tl.store(gone + row, tl.where(safe, total.to(tl.float32) * 1.001, INFINITY))


@triton.jit(do_not_specialize=["rows", "groups", "tiles"])
def euclidean_bounds_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    shift,  # float64 [FEATURES]
    scale,  # float64 [FEATURES]
    lost,  # float64 [1], see `round_rows_kernel`
    rounded,  # float16 [rows, WIDTH]; like the norms and `gone` not read if FUSED
    row_norms,  # float32 [rows]
    gone,  # float32 [rows]
    near,  # float16 [tiles * BLOCK_POINTS, WIDTH], the rounded points
    norms,  # float32 [tiles * BLOCK_POINTS], like `row_norms`; infinite past the last point
    bounds,  # float32 [rows, groups]
    finer,  # float32 [rows, tiles * BLOCK_POINTS // PART], bounds of parts of groups; written if there is a PART
    rows,
    groups,
    tiles,
    FEATURES: tl.constexpr,
    WIDTH: tl.constexpr,
    SUM_SLACK: tl.constexpr,
    FUSED: tl.constexpr,
    GROUP: tl.constexpr,
    PART: tl.constexpr,
    TILES: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_POINTS: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
):
    """A program bounds `BLOCK_ROWS` rows and `TILES` tiles of points, and rounds the rows first if FUSED."""
    row = tl.program_id(1).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    feature = tl.arange(0, BLOCK_FEATURES)
    lines = rounded + row[:, None] * WIDTH + feature[None, :]
    first = tl.program_id(0) * TILES
    EARLY: tl.constexpr = TILES == 1 and WIDTH == BLOCK_FEATURES and not FUSED
    if EARLY:  # all programs' points are under way together, in registers
        point = first * BLOCK_POINTS + tl.arange(0, BLOCK_POINTS)
        only = tl.load(near + point.to(tl.int64)[None, :] * WIDTH + feature[:, None])
    if FUSED:
        real = (feature < FEATURES)[None, :]
        u = tl.load(x + row[:, None] * FEATURES + feature[None, :], mask=real & (row < rows)[:, None], other=0.0)
        s = tl.load(shift + feature, mask=feature < FEATURES, other=0.0)
        v = (u.to(tl.float64) - s[None, :]) * tl.load(scale + feature, mask=feature < FEATURES, other=0.0)[None, :]
        h = v.to(tl.float32).to(tl.float16)
        g = h.to(tl.float64)
        squares = (tl.sum(g * g, axis=1) * (1.0 - SUM_SLACK)).to(tl.float32)
        away = (tl.sqrt(tl.sum((v - g) * (v - g), axis=1)) + tl.load(lost)).to(tl.float32) * 1.001
        away = tl.where(tl.max(tl.abs(v), axis=1) <= FURTHEST, away, INFINITY)
    else:
        if WIDTH == BLOCK_FEATURES:
            h = tl.load(lines, mask=(row < rows)[:, None], other=0.0)
        squares = tl.load(row_norms + row, mask=row < rows, other=0.0)
        away = tl.load(gone + row, mask=row < rows, other=0.0)
    for tile in tl.range(first, tl.minimum(first + TILES, tiles)):
        point = tile * BLOCK_POINTS + tl.arange(0, BLOCK_POINTS)
        places = near + point.to(tl.int64)[None, :] * WIDTH + feature[:, None]
        if EARLY:
            product = tl.dot(h, only)
        elif WIDTH == BLOCK_FEATURES:
            product = tl.dot(h, tl.load(places))
        else:
            product = tl.zeros([BLOCK_ROWS, BLOCK_POINTS], tl.float32)
            for start in tl.range(0, WIDTH, BLOCK_FEATURES):
                line = tl.load(lines + start, mask=(row < rows)[:, None], other=0.0)
                product = tl.dot(line, tl.load(places + start), acc=product)
        distance = tl.load(norms + point)[None, :] - 2.0 * product
        if PART:
            least = tl.min(tl.reshape(distance, [BLOCK_ROWS, BLOCK_POINTS // PART, PART]), axis=2) + squares[:, None]
            parts = tiles * (BLOCK_POINTS // PART)
            store_bounds(finer, least, away, row, tile, rows, parts, SLACK=2.0**-20, ROOT=2.0)
        least = tl.min(tl.reshape(distance, [BLOCK_ROWS, BLOCK_POINTS // GROUP, GROUP]), axis=2)
        least += squares[:, None]
        store_bounds(bounds, least, away, row, tile, rows, groups, SLACK=2.0**-20, ROOT=2.0)


@triton.jit(do_not_specialize=["rows", "groups", "tiles"])
def difference_bounds_kernel(
    rounded,  # float32 [rows, FEATURES]
    gone,  # float32 [rows]
    near,  # float16 [tiles, FEATURES, BLOCK_POINTS], the rounded points
    bounds,  # float32 [rows, groups]
    rows,
    groups,
    tiles,
    FEATURES: tl.constexpr,
    POINTS: tl.constexpr,
    METRIC: tl.constexpr,
    P: tl.constexpr,
    WHOLE: tl.constexpr,
    SLACK: tl.constexpr,
    GROUP: tl.constexpr,
    TILES: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_POINTS: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """Do what `euclidean_bounds_kernel` does where a distance is no matrix product."""
    row = tl.program_id(1).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    lost = tl.load(gone + row, mask=row < rows, other=0.0)
    lane = tl.arange(0, BLOCK_POINTS)
    first = tl.program_id(0) * TILES
    near += first.to(tl.int64) * (FEATURES * BLOCK_POINTS) + lane
    for tile in tl.range(first, tl.minimum(first + TILES, tiles)):
        distance = tl.zeros([BLOCK_ROWS, BLOCK_POINTS], tl.float32)
        for feature in tl.range(0, FEATURES, loop_unroll_factor=UNROLL):
            u = tl.load(rounded + row * FEATURES + feature, mask=row < rows, other=0.0)
            d = tl.abs(u[:, None] - tl.load(near).to(tl.float32)[None, :])
            near += BLOCK_POINTS
            if METRIC == "chebyshev":
                distance = tl.maximum(distance, d)
            elif METRIC == "minkowski":
                distance += power(d, P, WHOLE)
            else:
                distance += d
        distance = tl.where((tile * BLOCK_POINTS + lane < POINTS)[None, :], distance, INFINITY)
        least = tl.min(tl.reshape(distance, [BLOCK_ROWS, BLOCK_POINTS // GROUP, GROUP]), axis=2)
        store_bounds(bounds, least, lost, row, tile, rows, groups, SLACK=SLACK, ROOT=P)
