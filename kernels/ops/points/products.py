"""Blocks of a function of rows and stored points from their products, inside kernels: see `function.py`.

The products are float64 for few features, otherwise products of digits (`numerics/fp16_digits.py`).
"""

from __future__ import annotations

import triton
import triton.language as tl

from ...numerics.fast_math import LEAST_HIGH, exp2_of_fixed, sqrt
from ...numerics.fp16_digits import digit_product, short_product
from .metrics import approximate_profile, load_offsets, load_rows


@triton.jit
def norm_of_rows(
    x,  # float32 or float64 [rows, FEATURES]
    shift,  # float64 [FEATURES]
    factor,  # float64 [FEATURES]
    row,  # int64 [BLOCK_ROWS]
    rows,
    FEATURES: tl.constexpr,
):
    """Return `‖z‖²`, float64 `[BLOCK_ROWS]`."""
    norm = tl.zeros([row.shape[0]], tl.float64)
    for feature in tl.static_range(0, FEATURES):
        z = load_rows(x, shift, factor, row, rows, feature, FEATURES)
        norm += z * z
    return norm


@triton.jit
def block_by_features(
    x,  # float32 or float64 [rows, FEATURES]
    shift,  # float64 [FEATURES]
    factor,  # float64 [FEATURES]
    products,  # float64 or float32 [FEATURES, POINTS]: the points, times the factor of their product with a row
    offsets,  # float64 or float32 [POINTS]
    least,  # int32 [POINTS], or [1] if weights are not part of the exponents
    numbers,  # float64 [6]
    offset,  # [BLOCK_ROWS]: the summand of the row's norm
    row,  # int64 [BLOCK_ROWS]
    point,  # int32 [BLOCK_POINTS]
    rows,
    FEATURES: tl.constexpr,
    POINTS,
    METRIC: tl.constexpr,
    PROFILE: tl.constexpr,
    WHOLE: tl.constexpr,
    WEIGHED: tl.constexpr,
):
    """Return `f(γ m + c)` from products of few features, `[BLOCK_POINTS, BLOCK_ROWS]`; see `digit_block`."""
    real = point < POINTS
    u = load_offsets(offsets, point, real, PROFILE, WEIGHED)[:, None]
    for feature in tl.static_range(0, FEATURES):
        z = load_rows(x, shift, factor, row, rows, feature, FEATURES)
        if u.dtype == tl.float32:
            farthest = 1e36 if METRIC == "dot" else 1e15  # so that no sum is a difference of infinities
            z = tl.minimum(tl.maximum(z, -farthest), farthest)
        z = z.to(u.dtype)
        u = tl.load(products + feature * POINTS + point, mask=real, other=0.0)[:, None] * z[None, :] + u
    u += offset[None, :]
    if WEIGHED:
        k = exp2_of_fixed(u, tl.load(least + point, mask=real, other=LEAST_HIGH)[:, None])
    else:
        k = function_of_product(u, numbers, METRIC=METRIC, PROFILE=PROFILE, WHOLE=WHOLE)
    return k


@triton.jit
def function_of_product(u, numbers, METRIC: tl.constexpr, PROFILE: tl.constexpr, WHOLE: tl.constexpr):
    """Return the profile of a sum of products; for the euclidean metric `u` is the squared distance."""
    if METRIC == "euclidean":
        u = sqrt(u) * tl.load(numbers).to(u.dtype) + tl.load(numbers + 1).to(u.dtype)
    return approximate_profile(u, tl.load(numbers + 2), PROFILE, WHOLE)


@triton.jit
def digit_block(
    z0,  # like the next four from `load_row_digits`
    z1,
    z2,
    place,
    offset,
    digits,  # float16 [3 or 2, POINTS, BLOCK_FEATURES]
    offsets,  # float64 or float32 [POINTS]
    least,  # int32 [POINTS], or [1] if weights are not part of the exponents
    numbers,  # float64 [6]
    point,  # int32 [BLOCK_POINTS]
    POINTS,
    METRIC: tl.constexpr,
    PROFILE: tl.constexpr,
    WHOLE: tl.constexpr,
    WEIGHED: tl.constexpr,
    SHORT: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
):
    """Return `f(γ m + c)` from products of digits, `[BLOCK_ROWS, BLOCK_POINTS]`, float64 or, if `SHORT`, float32.

    The result is finite past the last point, where the metric is that to zero; NaN is not kept. If `WEIGHED`, it is
    multiplied by the points' weights, whose logarithms and signs `offsets` and `least` hold, and `offset` is that of a
    fixed-point number: see `exp2_of_fixed`.
    """
    u = digit_sum(
        z0, z1, z2, place, offset, digits, offsets, point,
        POINTS=POINTS, METRIC=METRIC, PROFILE=PROFILE, WEIGHED=WEIGHED, SHORT=SHORT, BLOCK_FEATURES=BLOCK_FEATURES,
    )  # fmt: skip
    real = point < POINTS
    if WEIGHED:
        k = exp2_of_fixed(u, tl.load(least + point, mask=real, other=LEAST_HIGH)[None, :])
    else:
        k = function_of_product(u, numbers, METRIC=METRIC, PROFILE=PROFILE, WHOLE=WHOLE)
    return k


@triton.jit
def digit_sum(
    z0,
    z1,
    z2,
    place,
    offset,
    digits,
    offsets,
    point,
    POINTS,
    METRIC: tl.constexpr,
    PROFILE: tl.constexpr,
    WEIGHED: tl.constexpr,
    SHORT: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
):
    """Return the sum of products of digits that is the argument of the function in `digit_block`."""
    feature = tl.arange(0, BLOCK_FEATURES)
    at = digits + point[None, :] * BLOCK_FEATURES + feature[:, None]
    real = point < POINTS
    s0 = tl.load(at, mask=real[None, :], other=0.0)
    s1 = tl.load(at + POINTS * BLOCK_FEATURES, mask=real[None, :], other=0.0)
    u = load_offsets(offsets, point, real, PROFILE, WEIGHED)[None, :]
    if SHORT:
        u = short_product(z0, z1, s0, s1) * place[:, None] + u
    else:
        s2 = tl.load(at + 2 * POINTS * BLOCK_FEATURES, mask=real[None, :], other=0.0)
        whole, small = digit_product(z0, z1, z2, s0, s1, s2)
        u = whole.to(tl.float64) * place[:, None] + u
        u = small.to(tl.float64) * place[:, None] + u
    if WEIGHED or METRIC == "squared_euclidean" or METRIC == "euclidean":
        u += offset[:, None]
    return u
