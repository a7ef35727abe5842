"""The nearest points, kept in registers by kernels that search for neighbours; the first of equals is nearer.

A reduced distance is at least 0, so its bits, read as an integer, rank as it does. A GPU takes the minimum of 32
integers of 32 bits in one step, but needs ten for float64 numbers: `take_nearest` and `next_least` compare integers.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .distances import INFINITY

NONE = tl.constexpr(2**31 - 1)
"""An index that belongs to no point."""

INFINITE_HALF = tl.constexpr(0x7FF00000)
"""The upper half of float64's infinity; the lower is 0."""

INFINITE_SINGLE = tl.constexpr(0x7F800000)
"""Float32's infinity."""


@triton.jit
def take_nearest(distance, index, NEIGHBORS: tl.constexpr, SLOTS: tl.constexpr):
    """Return the nearest candidates, the nearest first, as distances and indices `[rows, SLOTS]` each.

    Slots without a candidate hold infinite distances and indices past the last point. Slots from NEIGHBORS on hold
    −infinity and −1, as `keep_nearer` needs them.

    Args:
        distance: float64 `[rows, candidates]`.
        index: int32 of that shape, distinct within a row, `NONE` for a missing candidate.
        NEIGHBORS: how many are taken.
        SLOTS: a power of two, at least NEIGHBORS.
    """
    slot = tl.arange(0, SLOTS)[None, :]
    best = tl.where(slot < NEIGHBORS, INFINITY, -INFINITY) + tl.zeros([distance.shape[0], SLOTS], tl.float64)
    chosen = tl.where(slot < NEIGHBORS, NONE - slot, -1) + tl.zeros([distance.shape[0], SLOTS], tl.int32)
    bits = distance.to(tl.int64, bitcast=True)
    high = (bits >> 32).to(tl.int32)
    low = ((bits & 4294967295) - 2147483648).to(tl.int32)  # signed, but ranks as the unsigned lower half
    for s in tl.range(0, NEIGHBORS):
        upper = tl.min(high, axis=1)[:, None]
        lower = tl.min(tl.where(high == upper, low, NONE), axis=1)[:, None]
        first = tl.min(tl.where((high == upper) & (low == lower), index, NONE), axis=1)[:, None]
        nearest = ((upper.to(tl.int64) << 32) | (lower.to(tl.int64) + 2147483648)).to(tl.float64, bitcast=True)
        here = (slot == s) & (first < NONE)
        best = tl.where(here, nearest, best)
        chosen = tl.where(here, first, chosen)
        taken = index == first
        high = tl.where(taken, INFINITE_HALF, high)
        low = tl.where(taken, -2147483648, low)
        index = tl.where(taken, NONE, index)
    return best, chosen


@triton.jit
def ranked(bound, counts):
    """Return bounds, float32 `[1, bounds]` of at least 0, as integers that rank alike and hold the bounds' places.

    The place takes the lowest bits. The number in the other bits, which `bound_of` returns, is at most the bound.
    Bounds that do not count become infinite. The number of bounds is a power of two.
    """
    PLACES: tl.constexpr = bound.shape[1]
    place = tl.arange(0, PLACES)[None, :]
    bits = (bound.to(tl.int32, bitcast=True) & -PLACES) | place
    return tl.where(counts & (bound < INFINITY), bits, INFINITE_SINGLE)


@triton.jit
def bound_of(ranks, PLACES: tl.constexpr):
    """Return the bounds in the integers of `ranked`, each rounded down, or infinity."""
    return (ranks & -PLACES).to(tl.float32, bitcast=True)


@triton.jit
def next_least(ranks, COUNT: tl.constexpr, SLOTS: tl.constexpr):
    """Return the places of the COUNT smallest bounds, `[SLOTS, 1]`, and the `ranked` bounds, infinite at these places.

    A place is `NONE` if too few bounds count, and in the slots from COUNT on.
    """
    PLACES: tl.constexpr = ranks.shape[1]
    slot = tl.arange(0, SLOTS)[:, None]
    at = tl.zeros([SLOTS, 1], tl.int32) + NONE
    for i in tl.range(0, COUNT):
        low = tl.min(ranks, axis=1)[:, None]
        at = tl.where((slot == i) & (low < INFINITE_SINGLE), low & (PLACES - 1), at)
        ranks = tl.where(ranks == low, INFINITE_SINGLE, ranks)
    return at, ranks


@triton.jit
def upper_half(distance):
    """Return the upper halves of the bits of float64 numbers of at least 0, int32, which rank as the numbers do."""
    return (distance.to(tl.int64, bitcast=True) >> 32).to(tl.int32)


@triton.jit
def from_upper_half(bits):
    """Return the smallest float64 number with this upper half."""
    return (bits.to(tl.int64) << 32).to(tl.float64, bitcast=True)


@triton.jit
def next_groups(bound, GROUPS: tl.constexpr, AT_ONCE: tl.constexpr, INFINITE: tl.constexpr):
    """Return the groups with the smallest bounds, `[AT_ONCE, 1]`, and the bounds with infinity for these groups.

    `bound`: `[1, BLOCK_GROUPS]`, `INFINITE` for groups that do not count. If too few count, a group is `GROUPS`.
    """
    group = tl.arange(0, bound.shape[1])[None, :]
    which = tl.arange(0, AT_ONCE)[:, None]
    at = tl.zeros([AT_ONCE, 1], tl.int32)
    for i in tl.static_range(AT_ONCE):
        low, first = tl.min(bound, axis=1, return_indices=True)  # [1] each
        at = tl.where(which == i, tl.where(low < INFINITE, first, GROUPS)[:, None], at)
        bound = tl.where(group == first[:, None], INFINITE, bound)
    return at, bound


@triton.jit
def worth_more(low, best, scale, offset):
    """Return 1 if the lowest bound leaves room for a point nearer than a row's worst, 2 for one as near, else 0.

    A bound is on the scale of a reduced distance times `scale` minus `offset`. A row whose points are all infinitely
    far has an infinite offset; then every bound is as near.

    Args:
        low: float32 or float64 `[1]`.
        best: float64 `[1, slots]`, the reduced distances of the nearest so far.
        scale: float64 `[1]`.
        offset: float64 `[1]`.
    """
    limit = tl.max(best, axis=1) * scale - offset
    low = tl.where(low < INFINITY, low.to(tl.float64), float("nan"))
    worth = tl.where(low < limit, 1, tl.where((low == limit) | ((limit != limit) & (low == low)), 2, 0))
    return tl.max(worth, axis=0)


@triton.jit
def comes_before(index, best, chosen):
    """Return 1 if a point with this index, int32 `[1]`, precedes a row's worst at the same distance, else 0."""
    worst = tl.max(best, axis=1)[:, None]
    last = tl.max(tl.where(best == worst, chosen, -1), axis=1)
    return tl.max((index < last).to(tl.int32), axis=0)


@triton.jit
def keep_nearer(distance, point, best, chosen):
    """Return the best so far, `[BLOCK_ROWS, BLOCK_NEIGHBORS]` each, the worst of them replaced by nearer points.

    `distance`: `[BLOCK_ROWS, BLOCK_POINTS]`; `point`: `[BLOCK_POINTS]`, `NONE` if it does not count.
    """
    index = point[None, :] + tl.zeros([distance.shape[0], distance.shape[1]], tl.int32)
    worst = tl.max(best, axis=1)
    worst_index = tl.max(tl.where(best == worst[:, None], chosen, -1), axis=1)
    more = tl.max((tl.min(distance, axis=1) <= worst).to(tl.int32), axis=0)
    while more > 0:
        low = tl.min(distance, axis=1)
        at = tl.min(tl.where(distance == low[:, None], index, NONE), axis=1)
        take = (low < worst) | ((low == worst) & (at < worst_index))
        replace = take[:, None] & (chosen == worst_index[:, None])
        best = tl.where(replace, low[:, None], best)
        chosen = tl.where(replace, at[:, None], chosen)
        taken = take[:, None] & (index == at[:, None])
        distance = tl.where(taken, INFINITY, distance)
        index = tl.where(taken, NONE, index)
        worst = tl.max(best, axis=1)
        worst_index = tl.max(tl.where(best == worst[:, None], chosen, -1), axis=1)
        more = tl.max(take.to(tl.int32), axis=0)
    return best, chosen


@triton.jit
def by_index(best, chosen, slot, NEIGHBORS: tl.constexpr):
    """Return neighbours, `[BLOCK_ROWS, BLOCK_NEIGHBORS]` each, sorted by their indices."""
    before = (chosen[:, None, :] < chosen[:, :, None]) & (slot < NEIGHBORS)[:, None, :]
    rank = tl.where(slot < NEIGHBORS, tl.sum(before.to(tl.int32), axis=2), slot)
    here = rank[:, :, None] == slot[:, None, :]
    return tl.sum(tl.where(here, best[:, :, None], 0.0), axis=1), tl.sum(tl.where(here, chosen[:, :, None], 0), axis=1)
