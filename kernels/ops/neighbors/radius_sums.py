"""Exact sums over the stored points within a radius of rows: matrix products decide nearly all, float64 the others.

For a squared distance, rows and points are written as two float16 numbers each, `v = (x − shift) · scale ≈ h + l`, and
matrix units compute `|y|² − 2 x · y` from them. A row's limits allow for rounding and for the error of float32 sums: a
number up to the lower limit says that a point lies within the radius, and one beyond the upper limit that it does not.
If one of a tile's points lies between the two, float64 distances decide about the tile; such tiles are few. The chosen
points are therefore those that float64 distances alone would choose, and neither rounding nor a program's shape can
change them.

Targets are whole multiples of a `quantum`, each written as `DIGITS` digits that float16 holds. A second matrix product
sums the digits of the points within the radius. Sums of whole numbers this small are exact in float32, in any order.
The first column of the digits is 1, so its sum is the number of points.
"""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl

from ...plan.devices import has_matrix_units
from ...plan.plan import Parameters
from .bounds import MOST_BLOCK_POINTS, centred, grouping, in_groups
from .bounds_far_rows import FURTHEST
from .bounds_kernel import LARGEST
from .distances import Metric, distances_between
from .launch import TILE_POINTS, mean_shape, sums_shape

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

BITS = 54
"""The most bits of a target: four digits and all but one bit of the fifth."""

MOST_FEATURES = 64
"""With this many features a block of rows and three of points fit the shared memory of any GPU with matrix units."""

MOST_COLUMNS = 64
"""The most sums of a row that a program makes."""

MOST_DOUBTS = 1 / 16
"""The largest share of a row's tiles left to float64; at a larger share another way is as fast."""

LAUNCHES = 3
"""Kernels that `launch_means` starts."""

SUMS_AT_ONCE = 2**23
"""Sums in memory at a time; more rows are computed part by part."""


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


def decided_by_products(
    points: np.ndarray, targets: np.ndarray, factor: np.ndarray, radius: float, some: np.ndarray, distance: np.ndarray
) -> bool:
    """Return whether products decide about nearly all points, estimated from a sample of rows.

    Args:
        points: `[points, features]`.
        targets: `[points, outputs]`.
        factor: `[features]`, the weights of the metric.
        radius: the reduced radius.
        some: the sample of rows.
        distance: their reduced distances to the points.
    """
    v, rounding = centred(points, factor, 2.0)
    unit = float(rounding["unit"][0])
    if points.shape[1] > MOST_FEATURES or not (1e-200 < unit < 1e200 and np.isfinite(targets).all()):
        return False
    squares, rows = (np.square(each).sum(axis=1) for each in (v, (some - rounding["shift"]) * rounding["scale"]))
    reach = min(radius, LENGTHY.value**2 / unit) * unit
    doubtful = np.abs(distance * unit - reach) <= (rows[:, None] + squares + reach) * slack_of(points.shape[1])
    pieces = np.logical_or.reduceat(doubtful, np.arange(0, len(points), TILE_POINTS), axis=1)
    return bool(pieces.mean() <= MOST_DOUBTS)


def within_parameters(points: np.ndarray, targets: np.ndarray, factor: np.ndarray) -> dict[str, np.ndarray]:
    """Return the kernels' tables of points and targets, without the factor, the radius and `empty`."""
    count, features = points.shape
    v, rounding = centred(points, factor, 2.0)
    padded = padded_points(count)
    near = np.zeros((padded, 2, padded_width(features)), np.float16)
    high, low = near[:count, 0, :features], near[:count, 1, :features]
    high[:] = v
    low[:] = v - high
    written = high.astype(np.float64) + low
    squares = np.square(written).sum(axis=1)
    norms = np.full(padded, np.inf, np.float32)
    norms[:count] = squares
    slack = np.zeros(padded)
    slack[:count] = squares * slack_of(features)
    digits, quantum = in_digits(targets)
    table = np.zeros((padded, padded_columns(targets.shape[1])), np.float16)
    table[:count, : digits.shape[1]] = digits
    return {
        "columns": in_groups(points),
        **rounding,
        "near": near,
        "norms": norms,
        "slack": slack.reshape(-1, SLACK_POINTS.value).max(axis=1).astype(np.float32) * np.float32(1.001),
        "lost": np.array([np.sqrt(np.square(v - written).sum(axis=1)).max()]),
        "digits": table,
        "quantum": quantum,
    }


def in_digits(targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return targets `[points, outputs]` in digits, `[points, 1 + DIGITS · outputs]`, and each output's quantum.

    The first column is 1. Then come the most significant digits of all outputs, and so on.
    """
    exponent = np.frexp(np.abs(targets).max(axis=0))[1]
    rest = np.rint(np.ldexp(targets, BITS - exponent)).astype(np.int64)
    digits = []
    for _ in range(DIGITS.value - 1):
        digit = (rest + BASE.value // 2) % BASE.value - BASE.value // 2
        digits.append(digit)
        rest = (rest - digit) // BASE.value
    return np.hstack([np.ones((len(targets), 1)), rest, *digits[::-1]]), np.ldexp(1.0, exponent - BITS)


def launch_means(
    x: torch.Tensor,
    parameters: Parameters,
    metric: Metric,
    points: int,
    output: torch.Tensor,
) -> None:
    """Launch the kernels that write the mean of the targets of the points within the radius of each row."""
    (rows, features), outputs = x.shape, output.shape[1]
    shape, tiles_each = sums_shape(rows, points, has_matrix_units(x.device))
    block_points = shape["BLOCK_POINTS"]
    tiles = triton.cdiv(points, block_points)
    shares = triton.cdiv(tiles, tiles_each)
    width, columns = padded_width(features), padded_columns(outputs)
    step = max(SUMS_AT_ONCE // (shares * columns), 1)
    written = torch.empty(min(rows, step), 2, width, dtype=torch.float16, device=x.device)
    limits = torch.empty(min(rows, step), 2, dtype=torch.float32, device=x.device)
    sums = torch.empty(min(rows, step), shares, columns, dtype=torch.float32, device=x.device)
    doubts = torch.empty(min(rows, step), tiles, dtype=torch.uint8, device=x.device)
    for start in range(0, rows, step):
        part = slice(start, min(start + step, rows))
        count = part.stop - start
        row_limits_kernel[(count,)](
            x=x[part],
            **{name: parameters[name] for name in ("shift", "scale", "radius", "unit", "lost")},
            parts=written,
            limits=limits,
            FEATURES=features,
            WIDTH=width,
            SLACK=slack_of(features),
            num_warps=1,
        )
        block_columns = min(columns, MOST_COLUMNS)
        sums_within_kernel[(shares, triton.cdiv(count, shape["BLOCK_ROWS"]), columns // block_columns)](
            **{name: parameters[name] for name in ("near", "norms", "slack", "digits")},
            parts=written,
            limits=limits,
            sums=sums,
            doubts=doubts,
            rows=count,
            tiles=tiles,
            tiles_each=tiles_each,
            shares=shares,
            WIDTH=width,
            COLUMNS=columns,
            BLOCK_COLUMNS=block_columns,
            **shape,
        )
        block_outputs = min(triton.next_power_of_2(outputs), 8)
        mean_within_kernel[(count, triton.cdiv(outputs, block_outputs))](
            x=x[part],
            **{name: parameters[name] for name in ("columns", "factor", "radius", "digits", "quantum", "empty")},
            sums=sums,
            doubts=doubts,
            out=output[part],
            tiles=tiles,
            shares=shares,
            FEATURES=features,
            POINTS=points,
            OUTPUTS=outputs,
            GROUP=grouping(points)[1],
            COLUMNS=columns,
            METRIC=metric,
            BLOCK_POINTS=block_points,
            BLOCK_OUTPUTS=block_outputs,
            enable_fp_fusion=False,  # so that a distance has the reference's bits
            **mean_shape(rows, int(triton.next_power_of_2(1 + DIGITS.value * block_outputs))),
        )


def slack_of(features: int) -> float:
    """Return the bound on the error of float32 sums of products, as a share of the squared norms."""
    return (3 * features + 16) * 2.0**-22


def padded_points(points: int) -> int:
    """Return the point count rounded up to whole tiles."""
    return int(triton.cdiv(points, MOST_BLOCK_POINTS)) * MOST_BLOCK_POINTS


def padded_width(features: int) -> int:
    """Return the features of a row padded to a whole block."""
    return max(16, int(triton.next_power_of_2(features)))


def padded_columns(outputs: int) -> int:
    """Return the columns for the digits of all outputs and the number of points, padded to whole blocks."""
    columns = max(16, int(triton.next_power_of_2(1 + DIGITS.value * outputs)))
    return columns if columns <= MOST_COLUMNS else -(-(1 + DIGITS.value * outputs) // MOST_COLUMNS) * MOST_COLUMNS
