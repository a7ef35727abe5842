"""Bounds for rows far from all points, where bounds of plain distances are useless; device functions.

The distance of a far row is nearly its distance to the points' centre, and neighbours differ in the last digits only.
A number of the row is therefore subtracted from a reduced distance `d`, and bounds are of `d · scale − offset`:

- Euclidean: `‖v − w‖² = ‖v‖² + (‖w‖² − 2 v · w)`. For points no longer than `W` the bracket is at least `−2 ‖v‖ W`. A
  product of float16 numbers gives it as precisely, in units of `‖v‖ W`, as for near rows: `v` is scaled by a power of
  two.
- manhattan: the part of a number that lies beyond all points adds the same to every distance, so it is cut off.
- chebyshev: the largest number decides alone, unless others come near it; all are moved by the same length.

A row is flat if rounding hides all differences between points in its float64 distances, or if its metric is none of
these and the row is too far for float16. Float64 sums are monotone in each difference. A row's distances therefore lie
between those to the nearest and to the furthest corner of the box around all points, computed in the same order. If
these two are the same number, all points are at one distance. Otherwise a flat row's bounds are its exact distances.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .distances import INFINITY, minkowski_term

FURTHEST = tl.constexpr(32768.0)
"""The largest number of a row, in units of `scale`, that is safe in float16."""

WIDEST = tl.constexpr(256.0)
"""A number above the largest number of a point in units of `scale`."""

HUGE = tl.constexpr(1e300)


@triton.jit
def euclidean_scale(squares, furthest, longest, FEATURES: tl.constexpr):
    """Return the power of two that scales a row, whether it is far, and whether it is flat.

    Args:
        squares: the sum of the squares of the row's numbers, float64.
        furthest: the largest of the numbers.
        longest: the largest norm of a point, float64.
        FEATURES: the number of features.
    """
    length = tl.sqrt(squares)
    tells = (length * (FEATURES + 16) * 2.0**-49 <= 2.0 * longest) & (squares < HUGE)
    far = tells & ((length > 2.0 * longest) | (furthest > FURTHEST))
    exponent = (furthest.to(tl.int64, bitcast=True) >> 52) & 2047
    power_of_two = ((2053 - tl.maximum(exponent, 1030)) << 52).to(tl.float64, bitcast=True)
    return tl.where(far, power_of_two, 1.0), far, tells == 0


@triton.jit
def euclidean_numbers(
    far, flat, by, squares, rounded, away, longest, lost, unit, SLACK: tl.constexpr, FEATURES: tl.constexpr
):
    """Return the numbers that bounds of a row are made of, and its `scale` and `offset`.

    The first two are float32: the term that is added to `by · ‖w‖² − 2 z · w`, and the most that rounding may take off
    the root of that sum, which is infinite for flat rows.

    Args:
        far: whether the row is far.
        flat: whether it is flat.
        by: the power of two by which the row is scaled.
        squares: the sum of the squares of its numbers before scaling.
        rounded: the sum of the squares of its rounded numbers after scaling.
        away: the sum of the squares of the rounding errors of these.
        longest: the largest norm of a point.
        lost: the largest distance between a point and its rounded one.
        unit: the reduced distance 1.
        SLACK: the error bound of float32 sums, as a share of the squared norms.
        FEATURES: the number of features.
    """
    length, off, reach = tl.sqrt(squares) * by, tl.sqrt(away), tl.sqrt(rounded)
    level = 2.0 * length * longest
    error = 2.0 * (by * longest * lost + off * longest + reach * lost + SLACK * reach * (longest + lost))
    error = (error + (level + by * longest * longest) * 2.0**-20) * 1.001
    square = tl.where(far, level - error, rounded * (1.0 - SLACK)).to(tl.float32)
    gone = tl.where(far, 0.0, (off + lost).to(tl.float32) * 1.001)
    offset = by * (squares - squares * ((FEATURES + 16) * 2.0**-49)) - level
    return square, tl.where(flat, INFINITY, gone), unit * by, tl.where(far, offset, 0.0)


@triton.jit
def moved_nearer(v, furthest, METRIC: tl.constexpr):
    """Return a row's numbers without the part that adds the same to all distances, and the size of each such part."""
    size = tl.abs(v)
    beyond = tl.zeros_like(size)
    if METRIC.name == "manhattan":
        beyond = tl.maximum(size - WIDEST, 0.0)
        size = tl.minimum(size, WIDEST)
    elif METRIC.name == "chebyshev":
        beyond += tl.maximum(furthest - 3.0 * WIDEST, 0.0)
        size = tl.where((beyond == 0.0) | (size - beyond >= WIDEST), size - beyond, 0.0)
    return tl.where(v < 0.0, -size, size), beyond


@triton.jit
def moved_offset(beyond, size, furthest, METRIC: tl.constexpr, FEATURES: tl.constexpr):
    """Return a row's `offset` in units of `scale`, and whether it is flat.

    Args:
        beyond: the amount by which all of its distances became smaller.
        size: the sum of its numbers' sizes.
        furthest: the largest of these.
        METRIC: a metric that is not squared.
        FEATURES: the number of features.
    """
    error = (size + WIDEST) * ((FEATURES + 16) * 2.0**-50)
    tells = error <= WIDEST
    if METRIC.name == "minkowski":
        tells = tells & (furthest <= FURTHEST)
    return tl.where(beyond > 0.0, beyond - error, 0.0), tells == 0


@triton.jit
def add_difference(a, d, weight, METRIC: tl.constexpr):
    """Return the reduced distances `a` with one more feature, whose absolute differences are `d`.

    Squares are added as `distances_between` adds them. Other metrics may differ from it in the last place (`rough`).
    """
    if METRIC.name == "chebyshev":
        term = d * weight if METRIC.weighted else d
        a = tl.where((term > a) | (term != term), term, a)
    elif METRIC.name == "euclidean" or METRIC.name == "sqeuclidean":
        a = tl.fma(d * d, weight + tl.zeros_like(a), a) if METRIC.weighted else tl.fma(d, d, a)
    else:
        term = minkowski_term(d, METRIC) if METRIC.name == "minkowski" else d
        a += term * weight if METRIC.weighted else term
    return a


@triton.jit
def box_distances(
    x,  # float32 or float64 [rows, FEATURES]
    low,  # float64 [FEATURES], the smallest numbers of the points
    high,  # float64 [FEATURES], the largest
    factor,  # float64 [FEATURES]
    row,  # int64 [BLOCK_ROWS]
    real,  # bool [BLOCK_ROWS]
    FEATURES: tl.constexpr,
    METRIC: tl.constexpr,
):
    """Return reduced distances to the nearest and furthest corner of the box, in the order of `distances_between`."""
    near = tl.zeros([row.shape[0]], tl.float64)
    far = tl.zeros([row.shape[0]], tl.float64)
    for feature in tl.range(0, FEATURES):
        u = tl.load(x + row * FEATURES + feature, mask=real, other=0.0).to(tl.float64)
        first, last = tl.load(low + feature), tl.load(high + feature)
        d = tl.abs(u - tl.minimum(tl.maximum(u, first), last))
        e = tl.maximum(tl.abs(u - first), tl.abs(u - last))
        weight = tl.load(factor + feature) if METRIC.weighted else 1.0
        near = add_difference(near, d, weight, METRIC=METRIC)
        far = add_difference(far, e, weight, METRIC=METRIC)
    return tl.where(near == near, near, INFINITY), tl.where(far == far, far, INFINITY)


@triton.jit
def flat_reach(near, far, METRIC: tl.constexpr):
    """Return whether a flat row needs exact bounds, and its `scale` and `offset`, from `box_distances`.

    It needs none if all distances are one number; then no bound is beyond the row's first points. The scale is a power
    of two, so that float32 holds differences of a few units in the last place. By a `rough` metric, distances may
    differ from a search's by these units.
    """
    level = near == far
    if METRIC.name == "minkowski" and METRIC.whole is None:  # powers are not monotone in every last place
        level = near == INFINITY
    if METRIC.rough:
        near = tl.where(level, near, near * (1.0 - 2.0**-30))
    exponent = (near.to(tl.int64, bitcast=True) >> 52) & 2047
    scale = ((2106 - tl.maximum(exponent, 200)) << 52).to(tl.float64, bitcast=True)
    return level == 0, scale, tl.where(level, near, near * (1.0 - 2.0**-50)) * scale
