"""Functions of distances that are not smooth at distance zero, from products of digits, inside kernels.

Products are off by some 2⁻³⁵ of the norms, and the root of a squared distance near zero would enlarge that error. If a
row is near a point, their distance therefore comes from differences. Most blocks have few such pairs: their rows lie on
or next to stored points. Each turn of a loop takes the next near point of every row of the block. A row near many
points, for example equal ones or ones in narrow groups, would take many turns. A block with such a row computes all its
near pairs at once instead. A pair has the same bits either way, so a row's bits do not depend on other rows.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ...numerics.dot import rounded_product
from ...numerics.double_float import fma, pair_exp2, pair_sqrt
from ...numerics.fp16_digits import digit_product
from .products import digit_sum, function_of_product

NEAR = tl.constexpr(2.0**-12)  # of the row's squared norm; below it products do not give the root precisely enough
LEAST_SQUARE = tl.constexpr(1e-7)  # the least squared distance, in exponents of 2, that products give to float32 pairs
TINY_SQUARE = tl.constexpr(1e-18)  # a squared distance with the function value 1
AT_ONCE = tl.constexpr(8)  # features whose numbers are loaded together
MOST_TURNS = tl.constexpr(8)  # near points of a row beyond which processing the whole block at once takes less time
MOST_MOVED = tl.constexpr(64)  # features whose digits leave room in shared memory for a block of float64 numbers
NO_POINT = tl.constexpr(2**31 - 1)


@triton.jit
def next_near(near, after, point):
    """Return the next point near each row after point `after`, int32 `[BLOCK_ROWS]`, or `NO_POINT`."""
    candidate = near & (point[None, :] > after[:, None])
    return tl.min(tl.where(candidate, tl.broadcast_to(point[None, :], near.shape), NO_POINT), axis=1)


@triton.jit
def squared_distance(
    x,  # float32 or float64 [rows, FEATURES]
    shift,  # float64 [FEATURES]
    factor,  # float64 [FEATURES]
    points,  # float64 [FEATURES, POINTS]
    row,  # int64 [BLOCK_ROWS]
    other,  # int32 [BLOCK_ROWS]: a point for each row, or `NO_POINT`
    rows,
    FEATURES: tl.constexpr,
    POINTS,
):
    """Return `‖z − s‖²` of each row and its point from differences, float64 `[BLOCK_ROWS]`.

    Fused operations are explicit, so that no bit depends on a compiler's choice.
    """
    other = tl.gather(other, tl.arange(0, row.shape[0]), 0)  # moves it among threads once instead of for every feature
    inside = (row < rows) & (other < POINTS)
    m = tl.zeros([row.shape[0]], tl.float64)
    for feature in tl.range(0, FEATURES, loop_unroll_factor=AT_ONCE):
        z = tl.load(x + row * FEATURES + feature, mask=inside, other=0.0).to(tl.float64)
        s = tl.load(points + feature * POINTS + other, mask=inside, other=0.0)
        scale = tl.zeros_like(z) + tl.load(factor + feature)
        d = rounded_product(z - tl.load(shift + feature), scale) - s
        m = tl.fma(d, d, m)
    return m


@triton.jit
def near_squares(
    u,  # float64 [BLOCK_ROWS, BLOCK_POINTS]
    is_near,  # bool [BLOCK_ROWS, BLOCK_POINTS]
    x,  # like the next four as in `squared_distance`
    shift,
    factor,
    points,
    row,
    point,  # int32 [BLOCK_POINTS]
    rows,
    FEATURES: tl.constexpr,
    POINTS,
):
    """Return `‖z − s‖²` for the near pairs of a block and `u` for others, float64 `[BLOCK_ROWS, BLOCK_POINTS]`.

    A pair has the bits of `squared_distance`: both round and fuse alike. Sums that begin with zeros are faster. Their
    layout among threads differs from that of `u`, however, and converting it takes shared memory. Points of more than
    `MOST_MOVED` features leave no room there, so their sums begin with `u`.
    """
    m = tl.where(is_near, 0.0, u) if FEATURES > MOST_MOVED else tl.zeros([row.shape[0], point.shape[0]], tl.float64)
    for feature in tl.range(0, FEATURES, loop_unroll_factor=1):  # registers have no room for more at a time
        z = tl.load(x + row * FEATURES + feature, mask=row < rows, other=0.0).to(tl.float64)
        s = tl.load(points + feature * POINTS + point, mask=point < POINTS, other=0.0)
        scale = tl.zeros_like(z) + tl.load(factor + feature)
        d = rounded_product(z - tl.load(shift + feature), scale)[:, None] - s[None, :]
        if FEATURES > MOST_MOVED:
            d = tl.where(is_near, d, 0.0)
        m = tl.fma(d, d, m)
    return m if FEATURES > MOST_MOVED else tl.where(is_near, m, u)


@triton.jit
def distance_block(
    x,  # float32 or float64 [rows, FEATURES]
    shift,  # float64 [FEATURES]
    factor,  # float64 [FEATURES]
    points,  # float64 [FEATURES, POINTS]
    z0,  # like the next seven as in `digit_block`
    z1,
    z2,
    place,
    offset,
    digits,
    offsets,
    numbers,
    row,  # int64 [BLOCK_ROWS]
    point,  # int32 [BLOCK_POINTS]
    rows,
    FEATURES: tl.constexpr,
    POINTS,
    PROFILE: tl.constexpr,
    WHOLE: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
):
    """Return `f(γ m + c)` of distances from three digits, float64 `[BLOCK_ROWS, BLOCK_POINTS]`; see `digit_block`."""
    u = digit_sum(
        z0, z1, z2, place, offset, digits, offsets, point,
        POINTS=POINTS, METRIC="euclidean", PROFILE=PROFILE, WEIGHED=False, SHORT=False, BLOCK_FEATURES=BLOCK_FEATURES,
    )  # fmt: skip
    nearest = tl.min((u.to(tl.int64, bitcast=True) >> 32).to(tl.int32), axis=1)  # ranks as positive numbers do
    near = offset * NEAR
    if tl.max((nearest <= (near.to(tl.int64, bitcast=True) >> 32).to(tl.int32)).to(tl.int32), axis=0) > 0:
        is_near = u < near[:, None]
        other = tl.full([row.shape[0]], -1, tl.int32)
        turns = tl.max(tl.sum(is_near.to(tl.int32), axis=1), axis=0)
        if turns > MOST_TURNS:
            u = near_squares(
                u, is_near, x, shift, factor, points, row, point, rows, FEATURES=FEATURES, POINTS=POINTS
            )  # fmt: skip
        else:
            for _ in range(turns):
                other = next_near(is_near, other, point)
                square = squared_distance(x, shift, factor, points, row, other, rows, FEATURES=FEATURES, POINTS=POINTS)
                u = tl.where(point[None, :] == other[:, None], square[:, None], u)
    return function_of_product(u, numbers, METRIC="euclidean", PROFILE=PROFILE, WHOLE=WHOLE)


@triton.jit
def scaled_pair(square, scale):
    """Return the product of squared distances, float64, and a number, as pairs of float32 numbers."""
    square = rounded_product(square, tl.zeros_like(square) + scale)
    first = square.to(tl.float32)
    return first, (square - first.to(tl.float64)).to(tl.float32)


@triton.jit
def sums_of_distances(
    x,  # float32 or float64 [rows, FEATURES]
    shift,  # float64 [FEATURES]
    factor,  # float64 [FEATURES]
    points,  # float64 [FEATURES, POINTS]
    z0,  # like the next eleven as in `sums_of_points`
    z1,
    z2,
    place,
    offset,
    offset_rest,
    bound,
    after,
    digits,
    offsets,
    weight,
    numbers,
    row,  # int64 [BLOCK_ROWS]
    point,  # int32 [BLOCK_POINTS]
    rows,
    FEATURES: tl.constexpr,
    POINTS,
    BLOCK_FEATURES: tl.constexpr,
):
    """Return the sums over some points of `exp(γ ‖z − s‖)` times their weights, in the form of `sums_of_points`."""
    feature = tl.arange(0, BLOCK_FEATURES)
    at = digits + point[None, :] * BLOCK_FEATURES + feature[:, None]
    real = point < POINTS
    s0 = tl.load(at, mask=real[None, :], other=0.0)
    s1 = tl.load(at + POINTS * BLOCK_FEATURES, mask=real[None, :], other=0.0)
    s2 = tl.load(at + 2 * POINTS * BLOCK_FEATURES, mask=real[None, :], other=0.0)
    whole, small = digit_product(z0, z1, z2, s0, s1, s2)
    place = tl.broadcast_to(place[:, None], whole.shape)
    rest = tl.load(offsets + POINTS + point, mask=real, other=0.0)[None, :] + offset_rest[:, None]
    base = tl.load(offsets + point, mask=real, other=1.0)[None, :] + offset[:, None]
    u = fma(whole, place, base)
    rest = fma(small, place, rest) + fma(whole, place, base - u)
    near = tl.maximum(offset * NEAR, LEAST_SQUARE)
    if tl.max((tl.min(u + rest, axis=1) < near).to(tl.int32), axis=0) > 0:
        is_near = u + rest < near[:, None]
        other = tl.full([row.shape[0]], -1, tl.int32)
        turns = tl.max(tl.sum(is_near.to(tl.int32), axis=1), axis=0)
        scale = tl.load(numbers + 5)
        if turns > MOST_TURNS:
            squares = near_squares(
                u.to(tl.float64), is_near, x, shift, factor, points, row, point, rows, FEATURES=FEATURES, POINTS=POINTS
            )  # fmt: skip
            first, second = scaled_pair(squares, scale)
            u, rest = tl.where(is_near, first, u), tl.where(is_near, second, rest)
        else:
            for _ in range(turns):
                other = next_near(is_near, other, point)
                square = squared_distance(x, shift, factor, points, row, other, rows, FEATURES=FEATURES, POINTS=POINTS)
                first, second = scaled_pair(square, scale)
                chosen = point[None, :] == other[:, None]
                u, rest = tl.where(chosen, first[:, None], u), tl.where(chosen, second[:, None], rest)
    t, t_rest = pair_sqrt(u, rest, TINY_SQUARE)
    k, k_rest = pair_exp2(-t, -t_rest)
    w = tl.load(weight + point, mask=real, other=0.0)[None, :]
    w_rest = tl.load(weight + POINTS + point, mask=real, other=0.0)[None, :]
    bound = tl.broadcast_to(bound[:, None], k.shape)
    short = fma(k + k_rest, w, bound) - bound
    lost = fma(k_rest, w, fma(k, w_rest, fma(k, w, -short)))
    first, second = tl.sum(short, 1), tl.sum(lost, 1)
    return first, fma(first + second, after, second)
