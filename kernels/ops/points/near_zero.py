"""Functions of distances that are not smooth where these are zero, from products of digits, inside kernels.

Products are off by some 2⁻³⁵ of the norms, and the root of a squared distance near zero would enlarge that. Where a row
is that near a point of its block, the block's distances are computed from differences too, and the near ones are taken
from these.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ...numerics.double_float import fma, pair_exp2, pair_sqrt
from ...numerics.fp16_digits import digit_product
from .metrics import metric_by_features
from .products import digit_sum, function_of_product

NEAR = tl.constexpr(2.0**-12)  # of the row's squared norm: a squared distance whose root products do not give
LEAST_SQUARE = tl.constexpr(1e-7)  # of a distance in exponents of 2 that products give to float32 pairs
TINY_SQUARE = tl.constexpr(1e-18)  # of one whose function is 1


@triton.jit
def distance_block(
    x,  # float32 or float64 [rows, FEATURES]
    shift,  # float64 [FEATURES]
    factor,  # float64 [FEATURES]
    points,  # float64 [FEATURES, POINTS]
    z0,  # as `digit_block` takes them
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
    POINTS: tl.constexpr,
    PROFILE: tl.constexpr,
    WHOLE: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
):
    """Return `f(γ m + c)` of distances from three digits, float64 `[BLOCK_ROWS, BLOCK_POINTS]`; see `digit_block`."""
    u = digit_sum(
        z0, z1, z2, place, offset, digits, offsets, point,
        POINTS=POINTS, METRIC="euclidean", PROFILE=PROFILE, WEIGHED=False, SHORT=False, BLOCK_FEATURES=BLOCK_FEATURES,
    )  # fmt: skip
    nearest = tl.min((u.to(tl.int64, bitcast=True) >> 32).to(tl.int32), axis=1)  # in the order of positive numbers
    near = offset * NEAR
    if tl.max((nearest <= (near.to(tl.int64, bitcast=True) >> 32).to(tl.int32)).to(tl.int32), axis=0) > 0:
        differences = metric_by_features(
            x, shift, factor, points, row, point, rows,
            FEATURES=FEATURES, POINTS=POINTS, METRIC="squared_euclidean", APPROXIMATE=False, BY_POINTS=False,
        )  # fmt: skip
        u = tl.where(u < near[:, None], differences, u)
    return function_of_product(u, numbers, METRIC="euclidean", PROFILE=PROFILE, WHOLE=WHOLE)


@triton.jit
def sums_of_distances(
    x,  # float32 or float64 [rows, FEATURES]
    shift,  # float64 [FEATURES]
    factor,  # float64 [FEATURES]
    points,  # float64 [FEATURES, POINTS]
    z0,  # as `sums_of_points` takes them
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
    POINTS: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
):
    """Return the sums over some points of `exp(γ ‖z − s‖)` times their weights, as `sums_of_points` does."""
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
        differences = metric_by_features(
            x, shift, factor, points, row, point, rows,
            FEATURES=FEATURES, POINTS=POINTS, METRIC="squared_euclidean", APPROXIMATE=False, BY_POINTS=False,
        )  # fmt: skip
        differences *= tl.load(numbers + 5)
        first = differences.to(tl.float32)
        second = (differences - first.to(tl.float64)).to(tl.float32)
        is_near = u + rest < near[:, None]
        u, rest = tl.where(is_near, first, u), tl.where(is_near, second, rest)
    t, t_rest = pair_sqrt(u, rest, TINY_SQUARE)
    k, k_rest = pair_exp2(-t, -t_rest)
    w = tl.load(weight + point, mask=real, other=0.0)[None, :]
    w_rest = tl.load(weight + POINTS + point, mask=real, other=0.0)[None, :]
    bound = tl.broadcast_to(bound[:, None], k.shape)
    short = fma(k + k_rest, w, bound) - bound
    lost = fma(k_rest, w, fma(k, w_rest, fma(k, w, -short)))
    first, second = tl.sum(short, 1), tl.sum(lost, 1)
    return first, fma(first + second, after, second)
