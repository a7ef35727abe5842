"""The nearest points of few rows, for searches limited by their chain of steps and not by their arithmetic.

If points are so few that all distances are quickly computed, a first kernel writes these, float64, and the minimum of
each group. The nearest k points lie in the k groups with the smallest minima (the first ones among equals): k points
are at least as near as any point of the other groups. With more points a first kernel bounds distances, see
`bounds.py`, to tiles of points and to parts of these. A program then visits a row's tiles by their bounds, a few at a
time, and in these the parts, with exact distances, until all bounds are beyond the worst neighbour so far.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .distances import INFINITY, distances_between
from .top_k import NONE, bound_of, comes_before, keep_nearer, next_least, ranked, take_nearest, worth_more


@triton.jit(do_not_specialize=["rows"])
def list_distances_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    columns,  # float64 [GROUPS, FEATURES, GROUP]
    factor,  # float64 [FEATURES]
    least,  # float64 [rows, GROUPS]
    listed,  # float64 [rows, GROUPS * GROUP]
    rows,
    FEATURES: tl.constexpr,
    POINTS: tl.constexpr,
    METRIC: tl.constexpr,
    P: tl.constexpr,
    WHOLE: tl.constexpr,
    WEIGHTED: tl.constexpr,
    GROUPS: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_GROUPS: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """A program writes the reduced distances of `BLOCK_ROWS` rows to `BLOCK_GROUPS` groups of points."""
    row = tl.program_id(1).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    first = tl.program_id(0) * BLOCK_GROUPS
    point = first * GROUP + tl.arange(0, BLOCK_GROUPS * GROUP)
    group = first + tl.arange(0, BLOCK_GROUPS)
    there = (row < rows)[:, None]
    distance = distances_between(
        (x + row * FEATURES)[:, None],
        (columns + (point // GROUP).to(tl.int64) * (FEATURES * GROUP) + point % GROUP)[None, :],
        factor, there, (point < POINTS)[None, :], FEATURES=FEATURES, STRIDE=GROUP,
        METRIC=METRIC, P=P, WHOLE=WHOLE, WEIGHTED=WEIGHTED, UNROLL=UNROLL,
    )  # fmt: skip
    inside = there & (point < GROUPS * GROUP)[None, :]
    tl.store(listed + row[:, None] * (GROUPS * GROUP) + point[None, :], distance, mask=inside)
    low = tl.min(tl.reshape(distance, [BLOCK_ROWS, BLOCK_GROUPS, GROUP]), axis=2)
    tl.store(least + row[:, None] * GROUPS + group[None, :], low, mask=there & (group < GROUPS)[None, :])


@triton.jit
def nearest_listed(
    least,  # float64 [rows, GROUPS]
    listed,  # float64 [rows, GROUPS * GROUP]
    row,  # int64 [BLOCK_ROWS]
    rows,
    NEIGHBORS: tl.constexpr,
    GROUPS: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK_GROUPS: tl.constexpr,
    BLOCK_NEIGHBORS: tl.constexpr,
):
    """Return the result of `take_nearest` over all points."""
    group = tl.arange(0, BLOCK_GROUPS)[None, :]
    there = (row < rows)[:, None]
    low = tl.load(least + row[:, None] * GROUPS + group, mask=there & (group < GROUPS), other=INFINITY)
    which = tl.where(group < GROUPS, group, NONE) + tl.zeros([row.shape[0], BLOCK_GROUPS], tl.int32)
    _, near = take_nearest(low, which, NEIGHBORS=NEIGHBORS, SLOTS=BLOCK_NEIGHBORS)
    real = (near >= 0) & (near < GROUPS)
    point = near[:, :, None] * GROUP + tl.arange(0, GROUP)[None, None, :]
    real = (there & real)[:, :, None] & (point >= 0)
    distance = tl.load(listed + row[:, None, None] * (GROUPS * GROUP) + point, mask=real, other=INFINITY)
    point = tl.where(real, point, NONE)
    shape: tl.constexpr = [row.shape[0], BLOCK_NEIGHBORS * GROUP]
    return take_nearest(
        tl.reshape(distance, shape), tl.reshape(point, shape), NEIGHBORS=NEIGHBORS, SLOTS=BLOCK_NEIGHBORS
    )


@triton.jit
def nearest_in_parts(
    x,  # float32 or float64 [rows, FEATURES]
    columns,  # float64 [groups, FEATURES, GROUP]
    factor,  # float64 [FEATURES]
    bounds,  # float32 [rows, TILES]
    finer,  # float32 [rows, TILES * PARTS]
    reach,  # float64 [rows, 2], see `bounds.py`
    row,  # int64 [1]
    rows,
    FEATURES: tl.constexpr,
    POINTS: tl.constexpr,
    NEIGHBORS: tl.constexpr,
    METRIC: tl.constexpr,
    P: tl.constexpr,
    WHOLE: tl.constexpr,
    WEIGHTED: tl.constexpr,
    TILES: tl.constexpr,
    BLOCK_TILES: tl.constexpr,
    PARTS: tl.constexpr,
    PART: tl.constexpr,
    TOGETHER: tl.constexpr,
    GROUP: tl.constexpr,
    AT_ONCE: tl.constexpr,
    BLOCK_NEIGHBORS: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """Return the result of `take_nearest` over points within bounds; a tile has `PARTS` parts of `PART` points.

    TOGETHER tiles count as one: those at the same place in each of TOGETHER equal sections of the tiles.
    """
    COARSE: tl.constexpr = BLOCK_TILES // TOGETHER
    SPAN: tl.constexpr = TOGETHER * PARTS
    FINE: tl.constexpr = AT_ONCE * SPAN
    LOOKS: tl.constexpr = NEIGHBORS + 1 if NEIGHBORS < AT_ONCE else AT_ONCE
    tile = tl.arange(0, BLOCK_TILES)[None, :]
    bound = tl.load(bounds + row[:, None] * TILES + tile, mask=tile < TILES, other=INFINITY)
    bound = tl.min(tl.reshape(bound, [1, TOGETHER, COARSE]), axis=1)
    coarse = ranked(bound, bound < INFINITY)
    scale, offset = tl.load(reach + 2 * row), tl.load(reach + 2 * row + 1)
    slot = tl.arange(0, BLOCK_NEIGHBORS)[None, :]
    best = tl.where(slot < NEIGHBORS, INFINITY, -INFINITY).to(tl.float64)
    chosen = tl.where(slot < NEIGHBORS, NONE - slot, -1)
    within = tl.arange(0, SPAN)[None, :]
    begun = 0
    more = 1
    while more > 0:
        at, coarse = next_least(coarse, COUNT=LOOKS, SLOTS=AT_ONCE)
        part = (at + within // PARTS * COARSE) * PARTS + within % PARTS  # [AT_ONCE, SPAN]
        real = (at < NONE) & (part < TILES * PARTS)
        finest = tl.load(finer + row[:, None] * (TILES * PARTS) + part, mask=real, other=INFINITY)
        fine = ranked(tl.reshape(finest, [1, FINE]), tl.reshape(real, [1, FINE]))
        at = tl.reshape(at, [1, AT_ONCE])
        again = 1
        while again > 0:
            some, fine = next_least(fine, COUNT=LOOKS, SLOTS=AT_ONCE)
            here = tl.arange(0, AT_ONCE)[None, :] == some // SPAN  # [AT_ONCE, AT_ONCE]
            first = tl.sum(tl.where(here, at, 0), axis=1)[:, None] + some % SPAN // PARTS * COARSE  # tiles
            point = (first * PARTS + some % PARTS) * PART + tl.arange(0, PART)[None, :]  # [AT_ONCE, PART]
            counts = (some < NONE) & (point < POINTS)
            group = (point // GROUP).to(tl.int64)
            distance = distances_between(
                (x + row * FEATURES)[:, None], columns + group * (FEATURES * GROUP) + point % GROUP, factor,
                (row < rows)[:, None], counts, FEATURES=FEATURES, STRIDE=GROUP,
                METRIC=METRIC, P=P, WHOLE=WHOLE, WEIGHTED=WEIGHTED, UNROLL=UNROLL,
            )  # fmt: skip
            distance = tl.reshape(distance, [1, AT_ONCE * PART])
            point = tl.reshape(tl.where(counts, point, NONE), [1, AT_ONCE * PART])
            if begun == 0:
                best, chosen = take_nearest(distance, point, NEIGHBORS=NEIGHBORS, SLOTS=BLOCK_NEIGHBORS)
            else:
                best, chosen = keep_nearer(distance, tl.reshape(point, [AT_ONCE * PART]), best, chosen)
            begun = 1
            low = bound_of(tl.min(fine, axis=1), FINE)
            again = worth_more(low, best, scale, offset)
            if again == 2:
                index = tl.reshape(at, [AT_ONCE, 1]) + within // PARTS * COARSE
                index = (index * PARTS + within % PARTS) * PART
                index = tl.where(bound_of(fine, FINE) == low[:, None], tl.reshape(index, [1, FINE]), NONE)
                again = comes_before(tl.min(index, axis=1), best, chosen)
        rank = tl.min(coarse, axis=1)
        more = worth_more(bound_of(rank, COARSE), best, scale, offset)
        if more == 2:
            more = comes_before((rank & (COARSE - 1)) * (PARTS * PART), best, chosen)
    return best, chosen
