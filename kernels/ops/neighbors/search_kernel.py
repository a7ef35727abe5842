"""The nearest stored points to each row, in the Triton language, for the kernels of operations that answer from them.

Among equal distances the point with the smallest index is nearer. A program goes over tiles of points, all of them or
the most promising groups of a row (`bounds.py`), and keeps the best so far of each row in registers: while a tile
holds a point nearer than a row's worst, the nearest such point takes the worst one's place. The points that a row keeps
do not depend on other rows.

Searches for few rows are limited by their chain of steps and not by their arithmetic, and go one of two other ways. If
points are so few that all distances are quickly computed, a first kernel writes these, float64, and the minimum of
each group. The nearest k points lie in the k groups with the smallest minima (the first ones among equals): k points
are at least as near as any point of the other groups. With more points a first kernel bounds distances, see
`bounds.py`, to tiles of points and to parts of these. A program then visits a row's tiles by their bounds, a few at a
time, and in these the parts, with exact distances, until all bounds are beyond the worst neighbour so far.
"""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl

from .distances import INFINITY, Metric, distances_between, finish_distance, reduced_distances
from .top_k import (
    NONE,
    bound_of,
    by_index,
    comes_before,
    keep_nearer,
    next_groups,
    next_least,
    ranked,
    take_nearest,
    worth_more,
)

MOST_COARSE = tl.constexpr(512)
"""The most bounds that a search by parts of tiles starts from."""


@dataclass(frozen=True)
class SearchShape:
    """The points that are searched and the block of a program: the compile-time argument SEARCH of kernels that search.

    Without groups a program visits all points for several rows. With groups, which have bounds, it has one row. `fine`
    is 0, or the number of points for each entry of `finer`; a bound is then of `tile` points.
    """

    features: int
    points: int
    neighbors: int
    metric: Metric
    block_rows: int
    slots: int  # for the neighbours of a row, a power of two
    block_points: int  # of a tile, or of a group
    groups: int = 0
    fine: int = 0
    tile: int = 0
    at_once: int = 1
    unroll: int = 1

    @property
    def block_groups(self) -> int:
        """The number of groups rounded up to a power of two, 0 without groups."""
        return int(triton.next_power_of_2(self.groups))


@triton.jit
def nearest(
    x,  # float32 or float64 [rows, FEATURES]
    columns,  # float64 [FEATURES, POINTS]
    factor,  # float64 [FEATURES]
    bounds,  # float32 [rows, GROUPS], see `bounds.py`, or minima of listed distances; not read without groups
    finer,  # listed distances, or bounds of parts of tiles; not read unless SEARCH is `fine`
    reach,  # float64 [rows, 2], see `bounds.py`; not read unless searches use bounds
    rows,
    SEARCH: tl.constexpr,
):
    """Return a program's rows and the reduced distances and indices of their nearest points.

    The first are int64 `[block_rows]`, the others `[block_rows, slots]` each. The order is always the same for a row:
    by index if there are groups. The first `neighbors` slots are valid. A slot that was never filled holds an infinite
    distance and an index past the last point.
    """
    FEATURES: tl.constexpr = SEARCH.features
    POINTS: tl.constexpr = SEARCH.points
    NEIGHBORS: tl.constexpr = SEARCH.neighbors
    METRIC: tl.constexpr = SEARCH.metric
    GROUPS: tl.constexpr = SEARCH.groups
    BLOCK_GROUPS: tl.constexpr = SEARCH.block_groups
    BLOCK_NEIGHBORS: tl.constexpr = SEARCH.slots
    BLOCK_POINTS: tl.constexpr = SEARCH.block_points
    AT_ONCE: tl.constexpr = SEARCH.at_once
    UNROLL: tl.constexpr = SEARCH.unroll
    row = tl.program_id(0).to(tl.int64) * SEARCH.block_rows + tl.arange(0, SEARCH.block_rows)
    slot = tl.arange(0, BLOCK_NEIGHBORS)[None, :] + tl.zeros([row.shape[0], BLOCK_NEIGHBORS], tl.int32)
    best = tl.where(slot < NEIGHBORS, INFINITY, -INFINITY).to(tl.float64)
    chosen = tl.where(slot < NEIGHBORS, NONE - slot, -1)
    if SEARCH.fine == 1:
        best, chosen = nearest_listed(bounds, finer, row, rows, SEARCH)
        best, chosen = by_index(best, chosen, slot, NEIGHBORS)
    elif SEARCH.fine:
        best, chosen = nearest_in_parts(x, columns, factor, bounds, finer, reach, row, rows, SEARCH)
        best, chosen = by_index(best, chosen, slot, NEIGHBORS)
    elif GROUPS:
        group = tl.arange(0, BLOCK_GROUPS)[None, :]
        bound = tl.load(bounds + row[:, None] * GROUPS + group, mask=group < GROUPS, other=INFINITY)
        scale, offset = tl.load(reach + 2 * row), tl.load(reach + 2 * row + 1)
        lane = tl.arange(0, BLOCK_POINTS)[None, :]
        more = 1
        while more > 0:
            at, bound = next_groups(bound, GROUPS, AT_ONCE, INFINITY)
            point = at * BLOCK_POINTS + lane  # [AT_ONCE, BLOCK_POINTS]
            distance = distances_between(
                (x + row * FEATURES)[:, None], columns + at.to(tl.int64) * (FEATURES * BLOCK_POINTS) + lane, factor,
                (row < rows)[:, None], point < POINTS, FEATURES=FEATURES, STRIDE=BLOCK_POINTS,
                METRIC=METRIC, UNROLL=UNROLL,
            )  # fmt: skip
            distance = tl.reshape(distance, [1, AT_ONCE * BLOCK_POINTS])
            point = tl.reshape(point, [AT_ONCE * BLOCK_POINTS])
            best, chosen = keep_nearer(distance, tl.where(point < POINTS, point, NONE), best, chosen)
            more = worth_more(tl.min(bound, axis=1), best, scale, offset)
            if more == 2:
                _, first = tl.min(bound, axis=1, return_indices=True)
                more = comes_before(first * BLOCK_POINTS, best, chosen)
        best, chosen = by_index(best, chosen, slot, NEIGHBORS)
    else:
        for start in tl.range(0, POINTS, BLOCK_POINTS):
            point = start + tl.arange(0, BLOCK_POINTS)
            distance = reduced_distances(
                x, columns, factor, row, point, rows,
                FEATURES=FEATURES, POINTS=POINTS, METRIC=METRIC,
            )  # fmt: skip
            best, chosen = keep_nearer(distance, tl.where(point < POINTS, point, NONE), best, chosen)
    return row, best, chosen


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
        METRIC=METRIC, UNROLL=UNROLL,
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
    SEARCH: tl.constexpr,
):
    """Return the result of `take_nearest` over all points."""
    NEIGHBORS: tl.constexpr = SEARCH.neighbors
    GROUPS: tl.constexpr = SEARCH.groups
    GROUP: tl.constexpr = SEARCH.block_points
    BLOCK_GROUPS: tl.constexpr = SEARCH.block_groups
    BLOCK_NEIGHBORS: tl.constexpr = SEARCH.slots
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
    SEARCH: tl.constexpr,
):
    """Return the result of `take_nearest` over points within bounds; a tile has `PARTS` parts of `PART` points.

    TOGETHER tiles count as one: those at the same place in each of TOGETHER equal sections of the tiles.
    """
    FEATURES: tl.constexpr = SEARCH.features
    POINTS: tl.constexpr = SEARCH.points
    NEIGHBORS: tl.constexpr = SEARCH.neighbors
    METRIC: tl.constexpr = SEARCH.metric
    TILES: tl.constexpr = SEARCH.groups
    BLOCK_TILES: tl.constexpr = SEARCH.block_groups
    PARTS: tl.constexpr = SEARCH.tile // SEARCH.fine
    PART: tl.constexpr = SEARCH.fine
    GROUP: tl.constexpr = SEARCH.block_points
    AT_ONCE: tl.constexpr = SEARCH.at_once
    BLOCK_NEIGHBORS: tl.constexpr = SEARCH.slots
    UNROLL: tl.constexpr = SEARCH.unroll
    TOGETHER: tl.constexpr = BLOCK_TILES // MOST_COARSE if BLOCK_TILES > MOST_COARSE else 1
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
                METRIC=METRIC, UNROLL=UNROLL,
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


@triton.jit
def neighbor_weights(best, real, METRIC: tl.constexpr, BY_DISTANCE: tl.constexpr):
    """Return the weights of neighbours with the reduced distances `best`, 0 if they are not `real`.

    Real ones weigh 1, or `BY_DISTANCE` 1 / distance; if that is infinite for some, these weigh 1 and the others 0.
    """
    weight = tl.where(real, 1.0, tl.zeros_like(best))
    if BY_DISTANCE:
        inverse = 1.0 / finish_distance(tl.where(real, best, 1.0), METRIC)
        hit = real & (inverse == INFINITY)
        any_hit = tl.max(hit.to(tl.int32), axis=1) > 0
        weight = tl.where(any_hit[:, None], hit.to(tl.float64), tl.where(real, inverse, 0.0))
    return weight
