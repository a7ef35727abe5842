"""The kernels that bound the distances of rows to groups of stored points; `bounds.py` defines the bounds."""

from __future__ import annotations

import triton
import triton.language as tl

from .bounds_far_rows import (
    add_difference,
    box_distances,
    euclidean_numbers,
    euclidean_scale,
    flat_reach,
    moved_nearer,
    moved_offset,
)
from .distances import INFINITY, minkowski_term
from .top_k import INFINITE_SINGLE

LARGEST = tl.constexpr(3e38)
BIASES = tl.constexpr(896 << 23)
"""The difference between the exponent biases of float64 and float32, at the place of float32's exponent."""

SINGLE_SLACK = tl.constexpr(2.0**-22)
"""An upper bound on the relative error of rounding to float32."""


@triton.jit
def store_bounds(bounds, distance, lost, row, real, tile, groups, SLACK: tl.constexpr, ROOT: tl.constexpr):
    """Store for each row and group of a tile a lower bound on its reduced distances, in units of `scale`.

    `distance` is the smallest reduced distance between rounded numbers, `[BLOCK_ROWS, groups of a tile]`. `lost` is the
    most that rounding may take off a distance. `ROOT` is the power of a distance that equals the reduced one. Rows that
    are not `real` are left out.
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
    inside = real[:, None] & (group < groups)[None, :]
    tl.store(bounds + row[:, None] * groups + group[None, :], d, mask=inside)


@triton.jit
def store_least(
    bounds, distance, scale, offset, row, real, point, group, groups,
    POINTS: tl.constexpr, LENGTH: tl.constexpr, METRIC: tl.constexpr,
):  # fmt: skip
    """Store the minimum of every `LENGTH` float64 distances of rows as a bound, rounded down to float32.

    `distance` is `[rows, points]`, `point` numbers these points, and `group` is the first of their groups. By a `rough`
    metric the distances of a search may differ from these in their last places. Numbers of at least 0 rank as their
    bits do. Apart from the exponent's bias, the upper bits of a float64 number are those of the float32 number below.
    """
    GROUPS: tl.constexpr = distance.shape[1] // LENGTH
    if METRIC.rough:
        distance *= 1.0 - 2.0**-30
    exact = tl.minimum(tl.maximum(distance * scale[:, None] - offset[:, None], 0.0), LARGEST)
    bits = ((exact.to(tl.int64, bitcast=True) >> 29) - BIASES).to(tl.int32)
    bits = tl.where((point < POINTS)[None, :], tl.maximum(bits, 0), INFINITE_SINGLE)
    least = tl.min(tl.reshape(bits, [distance.shape[0], GROUPS, LENGTH]), axis=2).to(tl.float32, bitcast=True)
    group += tl.arange(0, GROUPS)
    inside = real[:, None] & (group < groups)[None, :]
    tl.store(bounds + row[:, None] * groups + group[None, :], tl.minimum(least, LARGEST), mask=inside)


@triton.jit
def numbers_at(values, places):
    """Return the numbers of a vector at these places."""
    here = tl.arange(0, values.shape[0])[None, :] == places[:, None]
    return tl.sum(tl.where(here, values[None, :], tl.zeros_like(values)[None, :]), axis=1)


@triton.jit
def bound_exactly(
    x,  # float32 or float64 [rows, FEATURES]
    columns,  # float64 [groups, FEATURES, STRIDE]
    factor,  # float64 [FEATURES]
    bounds,
    finer,
    exact,  # bool [BLOCK_ROWS], the rows to bound
    scale,  # float64 [BLOCK_ROWS], the factor of a reduced distance
    offset,  # float64 [BLOCK_ROWS], subtracted from the product
    first,  # the first row
    tile,  # the first tile
    groups,
    tiles,
    FEATURES: tl.constexpr,
    METRIC: tl.constexpr,
    POINTS: tl.constexpr,
    STRIDE: tl.constexpr,
    GROUP: tl.constexpr,
    PART: tl.constexpr,
    BLOCK_POINTS: tl.constexpr,
    TILES: tl.constexpr,
    LINES: tl.constexpr,
    SPAN: tl.constexpr,
):
    """Bound rows by their float64 distances to all points of `TILES` tiles, where rounded numbers are useless.

    LINES rows and SPAN tiles are processed at once: a loaded number of a row serves several points, and a number of a
    point serves several rows.
    """
    POINTS_AT_ONCE: tl.constexpr = SPAN * BLOCK_POINTS
    for start in tl.range(0, exact.shape[0], LINES):
        place = start + tl.arange(0, LINES)
        here = numbers_at(exact.to(tl.int32), place) > 0
        if tl.max(here.to(tl.int32), axis=0) > 0:
            row, a, c = first + place, numbers_at(scale, place), numbers_at(offset, place)
            for some in tl.range(tile, tl.minimum(tile + TILES, tiles), SPAN):
                point = some * BLOCK_POINTS + tl.arange(0, POINTS_AT_ONCE)
                xs = x + tl.where(here, row, first)[:, None] * FEATURES
                ys = (columns + (point // STRIDE).to(tl.int64) * (FEATURES * STRIDE) + point % STRIDE)[None, :]
                distance = tl.zeros([LINES, POINTS_AT_ONCE], tl.float64)
                for feature in tl.range(0, FEATURES, loop_unroll_factor=2):
                    v = tl.load(ys, mask=(point < POINTS)[None, :], other=0.0)
                    u = tl.load(xs + feature).to(tl.float64)
                    ys += STRIDE
                    weight = tl.load(factor + feature) if METRIC.weighted else 1.0
                    distance = add_difference(distance, tl.abs(u - v), weight, METRIC=METRIC)
                if PART:
                    EACH: tl.constexpr = BLOCK_POINTS // PART
                    store_least(
                        finer, distance, a, c, row, here, point, some * EACH, tiles * EACH,
                        POINTS=POINTS, LENGTH=PART, METRIC=METRIC,
                    )  # fmt: skip
                store_least(
                    bounds, distance, a, c, row, here, point, some * (BLOCK_POINTS // GROUP), groups,
                    POINTS=POINTS, LENGTH=GROUP, METRIC=METRIC,
                )  # fmt: skip


@triton.jit(do_not_specialize=["rows"])
def round_rows_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    shift,  # float64 [FEATURES]
    scale,  # float64 [FEATURES]
    lost,  # float64 [1], the largest distance between a point and its rounded one
    longest,  # float64 [1], the largest norm of a point in units of `scale`
    low,  # float64 [FEATURES], the smallest numbers of the points
    high,  # float64 [FEATURES], the largest
    unit,  # float64 [1], the reduced distance 1 in units of `scale`
    factor,  # float64 [FEATURES]
    rounded,  # float16, or float32 if a distance is no matrix product, [rows, WIDTH]
    numbers,  # float32 [3, rows]: of `euclidean_numbers`, and the scale; it is negative for a row with exact bounds
    reach,  # float64 [rows, 2], the scale and the offset of a reduced distance, see `bounds.py`
    wide,  # float64 [rows, FEATURES], receives copies of the rows with exact bounds
    rows,
    FEATURES: tl.constexpr,
    WIDTH: tl.constexpr,
    SUM_SLACK: tl.constexpr,
    METRIC: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
):
    """A program rounds a row."""
    row = tl.program_id(0).to(tl.int64)
    sizes = tl.zeros([BLOCK_FEATURES], tl.float64)
    furthest = tl.zeros([BLOCK_FEATURES], tl.float64)
    for start in tl.range(0, WIDTH, BLOCK_FEATURES):
        feature = start + tl.arange(0, BLOCK_FEATURES)
        real = feature < FEATURES
        u = tl.load(x + row * FEATURES + feature, mask=real, other=0.0).to(tl.float64)
        v = (u - tl.load(shift + feature, mask=real, other=0.0)) * tl.load(scale + feature, mask=real, other=0.0)
        sizes += v * v if METRIC.squared else tl.abs(v)
        furthest = tl.maximum(furthest, tl.abs(v))
    size, most = tl.sum(sizes, axis=0), tl.max(furthest, axis=0)
    w = tl.load(longest)
    by, far, flat = euclidean_scale(size, most, w, FEATURES)
    squares = tl.zeros([BLOCK_FEATURES], tl.float64)
    away = tl.zeros([BLOCK_FEATURES], tl.float64)
    beyond = tl.zeros([BLOCK_FEATURES], tl.float64)
    for start in tl.range(0, WIDTH, BLOCK_FEATURES):
        feature = start + tl.arange(0, BLOCK_FEATURES)
        real = feature < FEATURES
        u = tl.load(x + row * FEATURES + feature, mask=real, other=0.0).to(tl.float64)
        v = (u - tl.load(shift + feature, mask=real, other=0.0)) * tl.load(scale + feature, mask=real, other=0.0)
        if METRIC.squared:
            v *= by
        else:
            v, cut = moved_nearer(v, most, METRIC)
            beyond = beyond + cut if METRIC.name == "manhattan" else cut
        h = v.to(tl.float32).to(rounded.dtype.element_ty)
        tl.store(rounded + row * WIDTH + feature, h, mask=feature < WIDTH)
        g = h.to(tl.float64)
        squares += g * g
        away += (v - g) * (v - g) if METRIC.squared else tl.abs(v) * SINGLE_SLACK
    gone = tl.sum(away, axis=0)
    if METRIC.squared:
        square, gone, a, c = euclidean_numbers(
            far, flat, by, size, tl.sum(squares, axis=0), gone, w, tl.load(lost), tl.load(unit), SUM_SLACK, FEATURES
        )
        tl.store(numbers + row, square)
    else:
        cut = tl.sum(beyond, axis=0) if METRIC.name == "manhattan" else tl.max(beyond, axis=0)
        a = tl.load(unit)
        c, flat = moved_offset(cut, size, most, METRIC, FEATURES)
        gone = tl.where(flat, INFINITY, (gone + tl.load(lost)).to(tl.float32) * 1.001)
    by = by.to(tl.float32)
    if flat:
        line = row + tl.zeros([1], tl.int64)
        near, most_of_all = box_distances(
            x, low, high, factor, line, line < rows,
            FEATURES=FEATURES, METRIC=METRIC,
        )  # fmt: skip
        exact, scales, offsets = flat_reach(near, most_of_all, METRIC)
        a, c = tl.sum(scales, axis=0), tl.sum(offsets, axis=0)
        if tl.sum(exact.to(tl.int32), axis=0) > 0:
            by = -1.0 + 0.0 * by
            for start in tl.range(0, FEATURES, BLOCK_FEATURES):
                feature = start + tl.arange(0, BLOCK_FEATURES)
                u = tl.load(x + row * FEATURES + feature, mask=feature < FEATURES, other=0.0)
                tl.store(wide + row * FEATURES + feature, u.to(tl.float64), mask=feature < FEATURES)
    tl.store(numbers + rows + row, gone)
    tl.store(numbers + 2 * rows + row, by)
    tl.store(reach + 2 * row, a)
    tl.store(reach + 2 * row + 1, c)


@triton.jit(do_not_specialize=["rows", "groups", "tiles"])
def euclidean_bounds_kernel(
    x,  # float32 or float64 [rows, FEATURES]; unless FUSED the float64 copies of rows that `round_rows_kernel` makes
    shift,  # float64 [FEATURES]
    scale,  # float64 [FEATURES]
    lost,  # like the next five as in `round_rows_kernel`
    longest,
    low,
    high,
    unit,
    factor,
    rounded,  # float16 [rows, WIDTH]; like `numbers` not read if FUSED
    numbers,
    reach,  # written if FUSED
    near,  # float16 [tiles * BLOCK_POINTS, WIDTH], the rounded points
    norms,  # float32 [tiles * BLOCK_POINTS], their squared norms less the error of sums; infinite past the last point
    columns,  # float64 [points / STRIDE, FEATURES, STRIDE]
    bounds,  # float32 [rows, groups]
    finer,  # float32 [rows, tiles * BLOCK_POINTS // PART], bounds of parts of groups; written if there is a PART
    rows,
    groups,
    tiles,
    FEATURES: tl.constexpr,
    POINTS: tl.constexpr,
    METRIC: tl.constexpr,
    WIDTH: tl.constexpr,
    SUM_SLACK: tl.constexpr,
    FUSED: tl.constexpr,
    STRIDE: tl.constexpr,
    GROUP: tl.constexpr,
    PART: tl.constexpr,
    TILES: tl.constexpr,
    LINES: tl.constexpr,
    SPAN: tl.constexpr,
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
    if EARLY:  # all programs load their points at the same time, into registers
        point = first * BLOCK_POINTS + tl.arange(0, BLOCK_POINTS)
        only = tl.load(near + point.to(tl.int64)[None, :] * WIDTH + feature[:, None])
    if FUSED:
        real = (feature < FEATURES)[None, :]
        u = tl.load(x + row[:, None] * FEATURES + feature[None, :], mask=real & (row < rows)[:, None], other=0.0)
        s = tl.load(shift + feature, mask=feature < FEATURES, other=0.0)
        v = (u.to(tl.float64) - s[None, :]) * tl.load(scale + feature, mask=feature < FEATURES, other=0.0)[None, :]
        v = tl.where((row < rows)[:, None], v, 0.0)
        size, w = tl.sum(v * v, axis=1), tl.load(longest)
        scaled, far, flat = euclidean_scale(size, tl.max(tl.abs(v), axis=1), w, FEATURES)
        v *= scaled[:, None]
        h = v.to(tl.float32).to(tl.float16)
        g = h.to(tl.float64)
        squares, away, a, c = euclidean_numbers(
            far, flat, scaled, size, tl.sum(g * g, axis=1), tl.sum((v - g) * (v - g), axis=1), w, tl.load(lost),
            tl.load(unit), SUM_SLACK, FEATURES,
        )  # fmt: skip
        by = scaled.to(tl.float32)
        if tl.max(flat.to(tl.int32), axis=0) > 0:
            nearest, furthest = box_distances(
                x, low, high, factor, row, row < rows,
                FEATURES=FEATURES, METRIC=METRIC,
            )  # fmt: skip
            exactly, scales, offsets = flat_reach(nearest, furthest, METRIC)
            by = tl.where(flat & exactly, -1.0, by)
            a, c = tl.where(flat, scales, a), tl.where(flat, offsets, c)
        if tl.program_id(0) == 0:
            tl.store(reach + 2 * row, a, mask=row < rows)
            tl.store(reach + 2 * row + 1, c, mask=row < rows)
    else:
        if WIDTH == BLOCK_FEATURES:
            h = tl.load(lines, mask=(row < rows)[:, None], other=0.0)
        squares = tl.load(numbers + row, mask=row < rows, other=0.0)
        away = tl.load(numbers + rows + row, mask=row < rows, other=0.0)
        by = tl.load(numbers + 2 * rows + row, mask=row < rows, other=1.0)
    exact = by < 0.0
    stored = (row < rows) & (by >= 0.0)
    kinds = tl.sum(tl.where(exact, BLOCK_ROWS + 1, stored.to(tl.int32)), axis=0)  # one reduction counts both kinds
    last = tl.where(kinds % (BLOCK_ROWS + 1) > 0, tl.minimum(first + TILES, tiles), first)
    for tile in tl.range(first, last):
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
        distance = tl.load(norms + point)[None, :] * by[:, None] - 2.0 * product
        if PART:
            least = tl.min(tl.reshape(distance, [BLOCK_ROWS, BLOCK_POINTS // PART, PART]), axis=2) + squares[:, None]
            parts = tiles * (BLOCK_POINTS // PART)
            store_bounds(finer, least, away, row, stored, tile, parts, SLACK=2.0**-20, ROOT=2.0)
        least = tl.min(tl.reshape(distance, [BLOCK_ROWS, BLOCK_POINTS // GROUP, GROUP]), axis=2)
        least += squares[:, None]
        store_bounds(bounds, least, away, row, stored, tile, groups, SLACK=2.0**-20, ROOT=2.0)
    if kinds > BLOCK_ROWS:
        if not FUSED:
            a = tl.load(reach + 2 * row, mask=exact, other=0.0)
            c = tl.load(reach + 2 * row + 1, mask=exact, other=0.0)
        bound_exactly(
            x, columns, factor, bounds, finer, exact, a, c, tl.program_id(1).to(tl.int64) * BLOCK_ROWS, first,
            groups, tiles, FEATURES=FEATURES, METRIC=METRIC, POINTS=POINTS,
            STRIDE=STRIDE, GROUP=GROUP, PART=PART, BLOCK_POINTS=BLOCK_POINTS,
            TILES=TILES, LINES=LINES, SPAN=SPAN,
        )  # fmt: skip


@triton.jit(do_not_specialize=["rows", "groups", "tiles"])
def difference_bounds_kernel(
    wide,  # float64 [rows, FEATURES], see `round_rows_kernel`
    rounded,  # float32 [rows, FEATURES]
    numbers,  # float32 [3, rows]; the first line is not read
    reach,  # float64 [rows, 2]
    near,  # float16 [tiles, FEATURES, BLOCK_POINTS], the rounded points
    columns,  # float64 [points / STRIDE, FEATURES, STRIDE]
    factor,  # float64 [FEATURES]
    bounds,  # float32 [rows, groups]
    rows,
    groups,
    tiles,
    FEATURES: tl.constexpr,
    POINTS: tl.constexpr,
    METRIC: tl.constexpr,
    ROOT: tl.constexpr,
    SLACK: tl.constexpr,
    STRIDE: tl.constexpr,
    GROUP: tl.constexpr,
    TILES: tl.constexpr,
    LINES: tl.constexpr,
    SPAN: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_POINTS: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """Bound rows as `euclidean_bounds_kernel` does, for distances that are no matrix product."""
    row = tl.program_id(1).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    lost = tl.load(numbers + rows + row, mask=row < rows, other=0.0)
    by = tl.load(numbers + 2 * rows + row, mask=row < rows, other=1.0)
    exact = by < 0.0
    stored = (row < rows) & (by >= 0.0)
    first = tl.program_id(0) * TILES
    kinds = tl.sum(tl.where(exact, BLOCK_ROWS + 1, stored.to(tl.int32)), axis=0)  # one reduction counts both kinds
    last = tl.where(kinds % (BLOCK_ROWS + 1) > 0, tl.minimum(first + TILES, tiles), first)
    lane = tl.arange(0, BLOCK_POINTS)
    near += first.to(tl.int64) * (FEATURES * BLOCK_POINTS) + lane
    for tile in tl.range(first, last):
        distance = tl.zeros([BLOCK_ROWS, BLOCK_POINTS], tl.float32)
        for feature in tl.range(0, FEATURES, loop_unroll_factor=UNROLL):
            u = tl.load(rounded + row * FEATURES + feature, mask=row < rows, other=0.0)
            d = tl.abs(u[:, None] - tl.load(near).to(tl.float32)[None, :])
            near += BLOCK_POINTS
            if METRIC.name == "chebyshev":
                distance = tl.maximum(distance, d)
            elif METRIC.name == "minkowski":
                distance += minkowski_term(d, METRIC)
            else:
                distance += d
        distance = tl.where((tile * BLOCK_POINTS + lane < POINTS)[None, :], distance, INFINITY)
        least = tl.min(tl.reshape(distance, [BLOCK_ROWS, BLOCK_POINTS // GROUP, GROUP]), axis=2)
        store_bounds(bounds, least, lost, row, stored, tile, groups, SLACK=SLACK, ROOT=ROOT)
    if kinds > BLOCK_ROWS:
        a = tl.load(reach + 2 * row, mask=exact, other=0.0)
        c = tl.load(reach + 2 * row + 1, mask=exact, other=0.0)
        bound_exactly(
            wide, columns, factor, bounds, bounds, exact, a, c, tl.program_id(1).to(tl.int64) * BLOCK_ROWS, first,
            groups, tiles, FEATURES=FEATURES, METRIC=METRIC, POINTS=POINTS,
            STRIDE=STRIDE, GROUP=GROUP, PART=0, BLOCK_POINTS=BLOCK_POINTS,
            TILES=TILES, LINES=LINES, SPAN=SPAN,
        )  # fmt: skip
