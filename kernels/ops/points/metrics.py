"""Blocks of a kernel function or distance of rows and stored points, inside kernels: see `function.py`."""

from __future__ import annotations

import triton
import triton.language as tl

from ...numerics.dot import dot, rounded_product
from ...numerics.fast_math import LOG2_E, exp2, log2, reciprocal, sqrt
from ...numerics.functions import apply_function
from ...numerics.powers import power
from .row_digits import TINY_NORM

NEGATIVE = tl.constexpr(-1e-9)  # scaling to [0, 1] may turn a zero into a number this small, which counts as zero

PIECE_BITS = tl.constexpr(50)  # of a float64's 64; the others are the sign, the exponent and two bits of the fraction
PIECE_MASK = tl.constexpr(2**50 - 1)
FIRST_PIECE = tl.constexpr((1023 - 52) * 4)  # the piece that begins at 2⁻⁵²

SMALLEST = tl.constexpr(1e-30)
NEAR = tl.constexpr(1e-6)  # of the sum of two squared norms; below it products do not give the root precisely enough

NEGATIVE_LOG2_E = tl.constexpr(-LOG2_E)
THIRD = tl.constexpr(1.0 / 3.0)


@triton.jit
def table_profile(
    u,
    table,  # float64 [PIECES, TERMS]: lowest power first
    PIECES: tl.constexpr,
    TERMS: tl.constexpr,
):
    """Return a tabulated function of a float64 block `u ≥ 0`.

    Piece k is a quarter of an octave, from `2^(k // 4 − 52) · (1 + k % 4 / 4)` to the start of the next piece. It is a
    polynomial in a variable that runs over the piece from −1 to 1. Below the first piece the function is constant, past
    the last it is zero.
    """
    bits = u.to(tl.int64, bitcast=True)
    piece = (bits >> PIECE_BITS) - FIRST_PIECE
    local = (bits & PIECE_MASK).to(tl.float64) * 1.7763568394002505e-15 - 1.0  # 2⁻⁴⁹
    local = tl.where(piece < 0, -1.0, local)
    piece = tl.where(piece < 0, 0, piece)
    y = tl.zeros_like(u)
    for term in tl.static_range(TERMS):
        at = table + piece * TERMS + (TERMS - 1 - term)
        y = y * local + tl.load(at, mask=piece < PIECES, other=0.0)
    return tl.where(u == u, y, u)


@triton.jit
def point_profile(
    m,
    numbers,  # float64 [3]: gamma, coef0, exponent
    table,  # float64 [PIECES, TERMS]
    PROFILE: tl.constexpr,
    WHOLE: tl.constexpr,
    PIECES: tl.constexpr,
    TERMS: tl.constexpr,
    APPROXIMATE: tl.constexpr,
):
    """Return `f(γ m + c)` of a float64 block; the approximations do not keep NaN."""
    u = m * tl.load(numbers) + tl.load(numbers + 1)
    if APPROXIMATE:
        y = approximate_profile(u, tl.load(numbers + 2), PROFILE, WHOLE)
    elif PROFILE == "power":
        y = power(u, tl.load(numbers + 2), WHOLE)
    elif PROFILE == "matern_3_2":
        y = (1.0 + u) * tl.exp(-u)
    elif PROFILE == "matern_5_2":
        y = (1.0 + u + u * u / 3.0) * tl.exp(-u)
    elif PROFILE == "sine":
        sine = tl.sin(u)
        y = tl.exp(-tl.load(numbers + 2) * sine * sine)
    elif PROFILE == "table":
        y = table_profile(u, table, PIECES, TERMS)
    else:
        y = apply_function(u, PROFILE)
    return y


@triton.jit
def approximate_profile(u, exponent, PROFILE: tl.constexpr, WHOLE: tl.constexpr):
    """Return `f(u)` to ten digits, or float32's seven; exp is `2ᵘ`, and tanh is that of `t` where `2ᵘ = exp(2 t)`."""
    if PROFILE == "exp":
        y = exp2(u)
    elif PROFILE == "tanh":
        y = 1.0 - 2.0 * reciprocal(exp2(tl.minimum(tl.maximum(u, -40.0), 40.0)) + 1.0)
    elif PROFILE == "matern_3_2":
        y = (1.0 + u) * exp2(u * NEGATIVE_LOG2_E)
    elif PROFILE == "matern_5_2":
        y = (1.0 + u + u * u * THIRD) * exp2(u * NEGATIVE_LOG2_E)
    elif PROFILE == "power":
        y = exp2(exponent.to(u.dtype) * log2(u)) if WHOLE is None else power(u, exponent, WHOLE)
    else:
        y = u
    return y


@triton.jit
def load_rows(
    x,  # float32 or float64 [rows, FEATURES]
    shift,  # float64 [FEATURES]
    factor,  # float64 [FEATURES]
    row,  # int64 [BLOCK_ROWS]
    rows,
    feature,
    FEATURES: tl.constexpr,
):
    """Return one feature of `z`, float64 `[BLOCK_ROWS]`."""
    z = tl.load(x + row * FEATURES + feature, mask=row < rows, other=0.0).to(tl.float64)
    return (z - tl.load(shift + feature)) * tl.load(factor + feature)


@triton.jit
def add_feature(
    m,
    norm,
    x,
    shift,
    factor,
    points,
    row,
    point,
    rows,
    feature,
    FEATURES: tl.constexpr,
    POINTS,
    METRIC: tl.constexpr,
    APPROXIMATE: tl.constexpr,
    BY_POINTS: tl.constexpr,
):
    """Return the sums of `metric_by_features` with one more feature."""
    z = load_rows(x, shift, factor, row, rows, feature, FEATURES)
    s = tl.load(points + feature * POINTS + point, mask=point < POINTS, other=0.0)
    if METRIC == "cosine":
        norm += z * z
    elif METRIC == "chi2":
        z = tl.where(z < NEGATIVE, float("nan"), tl.where(z < 0.0, 0.0, z))
    z = z[None, :] if BY_POINTS else z[:, None]
    s = s[:, None] if BY_POINTS else s[None, :]
    if METRIC == "dot" or METRIC == "cosine":
        m += z * s
    elif METRIC == "manhattan":
        m += tl.abs(z - s)
    elif METRIC == "chi2":
        d, total = z - s, z + s
        if APPROXIMATE:
            m += d * d * reciprocal(tl.maximum(total, SMALLEST))
        else:
            m += d * d / tl.where(total == 0.0, 1.0, total)
    else:
        d = z - s
        m += d * d
    return m, norm


@triton.jit
def metric_by_features(
    x,  # float32 or float64 [rows, FEATURES]
    shift,  # float64 [FEATURES]
    factor,  # float64 [FEATURES]
    points,  # float64 [FEATURES, POINTS]
    row,  # int64 [BLOCK_ROWS]
    point,  # int32 [BLOCK_POINTS]
    rows,
    FEATURES: tl.constexpr,
    POINTS,
    METRIC: tl.constexpr,
    APPROXIMATE: tl.constexpr,
    BY_POINTS: tl.constexpr,
):
    """Return a metric summed one feature after another, float64 `[BLOCK_ROWS, BLOCK_POINTS]`.

    With `BY_POINTS`, for few features, the result is `[BLOCK_POINTS, BLOCK_ROWS]`: neighbouring threads then have
    neighbouring rows, and a thread sums most of its points by itself.
    """
    if BY_POINTS:
        m = tl.zeros([point.shape[0], row.shape[0]], tl.float64)
    else:
        m = tl.zeros([row.shape[0], point.shape[0]], tl.float64)
    norm = tl.zeros([row.shape[0]], tl.float64)
    if BY_POINTS:
        for feature in tl.static_range(0, FEATURES):
            m, norm = add_feature(
                m, norm, x, shift, factor, points, row, point, rows, feature,
                FEATURES=FEATURES, POINTS=POINTS, METRIC=METRIC, APPROXIMATE=APPROXIMATE, BY_POINTS=BY_POINTS,
            )  # fmt: skip
    else:
        for feature in tl.range(0, FEATURES, loop_unroll_factor=4 if APPROXIMATE and METRIC != "chi2" else 1):
            m, norm = add_feature(
                m, norm, x, shift, factor, points, row, point, rows, feature,
                FEATURES=FEATURES, POINTS=POINTS, METRIC=METRIC, APPROXIMATE=APPROXIMATE, BY_POINTS=BY_POINTS,
            )  # fmt: skip
    if METRIC == "cosine":
        length = tl.sqrt(norm)
        length = tl.where(length < TINY_NORM, 1.0, length)
        m = m / (length[None, :] if BY_POINTS else length[:, None])
    elif METRIC == "euclidean":
        m = sqrt(m) if APPROXIMATE else tl.sqrt(m)
    return m


@triton.jit
def expanded_metric(
    x,  # float32 or float64 [rows, FEATURES]
    shift,  # float64 [FEATURES]
    factor,  # float64 [FEATURES]
    points,  # float64 [FEATURES, POINTS]
    norms,  # float64 [POINTS]
    row,  # int64 [BLOCK_ROWS]
    point,  # int32 [BLOCK_POINTS]
    rows,
    FEATURES: tl.constexpr,
    POINTS,
    METRIC: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
):
    """Return a metric computed from matrix products, float64 `[BLOCK_ROWS, BLOCK_POINTS]`.

    Distances near zero, to ten digits, come from differences: products have an error of 1e-16 of the squares.
    """
    m = tl.zeros([row.shape[0], point.shape[0]], tl.float64)
    norm = tl.zeros([row.shape[0]], tl.float64)
    for start in tl.range(0, FEATURES, BLOCK_FEATURES):
        feature = start + tl.arange(0, BLOCK_FEATURES)
        real = feature < FEATURES
        inside = (row < rows)[:, None] & real[None, :]
        z = tl.load(x + row[:, None] * FEATURES + feature[None, :], mask=inside, other=0.0).to(tl.float64)
        z -= tl.load(shift + feature, mask=real, other=0.0)[None, :]
        z *= tl.load(factor + feature, mask=real, other=0.0)[None, :]
        inside = real[:, None] & (point < POINTS)[None, :]
        s = tl.load(points + feature.to(tl.int64)[:, None] * POINTS + point[None, :], mask=inside, other=0.0)
        m = dot(z, s, m)
        norm += tl.sum(rounded_product(z, z), axis=1)
    if METRIC == "squared_euclidean" or METRIC == "euclidean":
        total = norm[:, None] + tl.load(norms + point, mask=point < POINTS, other=0.0)[None, :]
        m = total - 2.0 * m
        m = tl.where(m < 0.0, 0.0, m)
        if METRIC == "euclidean":
            near = m < total * NEAR
            m = sqrt(m)
            if tl.max(tl.max(near.to(tl.int32), axis=1), axis=0) > 0:
                differences = metric_by_features(
                    x, shift, factor, points, row, point, rows,
                    FEATURES=FEATURES, POINTS=POINTS, METRIC=METRIC, APPROXIMATE=True, BY_POINTS=False,
                )  # fmt: skip
                m = tl.where(near, differences, m)
    elif METRIC == "cosine":
        length = tl.sqrt(norm)
        m = m / tl.where(length < TINY_NORM, 1.0, length)[:, None]
    return m


@triton.jit
def load_offsets(offsets, point, real, PROFILE: tl.constexpr, WEIGHED: tl.constexpr):
    """Return the points' summands; past the last point a number that makes the function finite, or of no weight."""
    past = 1.0 if PROFILE == "power" else -1e5 if WEIGHED else 0.0
    return tl.load(offsets + point, mask=real, other=past)


@triton.jit
def nan_of_rows(
    x,  # float32 or float64 [rows, FEATURES]
    shift,  # float64 [FEATURES]
    factor,  # float64 [FEATURES]
    row,  # int64 [BLOCK_ROWS]
    rows,
    FEATURES: tl.constexpr,
    METRIC: tl.constexpr,
):
    """Return zero, or NaN for a row whose metric is NaN or infinite, float64 `[BLOCK_ROWS]`."""
    nothing = tl.zeros([row.shape[0]], tl.float64)
    for feature in tl.range(0, FEATURES):
        z = load_rows(x, shift, factor, row, rows, feature, FEATURES)
        if METRIC == "chi2":
            z = tl.where(z < NEGATIVE, float("nan"), z)
        nothing += z * 0.0
    return nothing
