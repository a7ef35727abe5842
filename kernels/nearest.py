"""The nearest of stored points to each row, for the operations that answer from them.

Among equal distances the point with the smallest index is nearer. A kernel goes over tiles of points, all of them or
the most promising groups of a row (`bounds.py`), and keeps the best so far of each row in registers: while a tile
holds a point nearer than a row's worst, the nearest such point takes the worst one's place. What a row keeps depends
on no other row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from .bounds import bounds_of, grouping
from .distances import INFINITY, distances_between, finish_distance, reduced_distances
from .errors import PlanError
from .plan import Parameters

MAX_NEIGHBORS = 4096
"""How many neighbours of a row the registers of one program hold."""

WEIGHTS = ("uniform", "distance")
"""How a row's neighbours may be weighted."""

SEARCH_WARPS = 1
"""A search is a chain of small steps; within one warp they need not wait for others."""

FEW_ROWS = 256
"""So many rows leave room on a GPU for several warps each, which look at several groups together."""

NONE = tl.constexpr(2**31 - 1)


@triton.jit
def nearest(
    x,  # float32 or float64 [rows, FEATURES]
    columns,  # float64 [FEATURES, POINTS]
    factor,  # float64 [FEATURES]
    bounds,  # float32 [rows, GROUPS], see `bounds.py`; not read without groups
    unit,  # float64 [1], the reduced distance 1 as bounds have it
    row,  # int64 [BLOCK_ROWS], one row where there are groups
    rows,
    FEATURES: tl.constexpr,
    POINTS: tl.constexpr,
    NEIGHBORS: tl.constexpr,
    METRIC: tl.constexpr,
    P: tl.constexpr,
    WHOLE: tl.constexpr,
    WEIGHTED: tl.constexpr,
    GROUPS: tl.constexpr,
    BLOCK_GROUPS: tl.constexpr,
    BLOCK_NEIGHBORS: tl.constexpr,
    BLOCK_POINTS: tl.constexpr,
    AT_ONCE: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """Return the reduced distances and indices of the nearest points, `[BLOCK_ROWS, BLOCK_NEIGHBORS]` each.

    Always in the same order for a row, by their indices where there are groups (of BLOCK_POINTS points). The first
    NEIGHBORS slots count. A slot that was never filled holds an infinite distance and an index past the last point.
    """
    slot = tl.arange(0, BLOCK_NEIGHBORS)[None, :] + tl.zeros([row.shape[0], BLOCK_NEIGHBORS], tl.int32)
    best = tl.where(slot < NEIGHBORS, INFINITY, -INFINITY).to(tl.float64)
    chosen = tl.where(slot < NEIGHBORS, NONE - slot, -1)
    if GROUPS:
        group = tl.arange(0, BLOCK_GROUPS)[None, :]
        bound = tl.load(bounds + row[:, None] * GROUPS + group, mask=group < GROUPS, other=INFINITY)
        scale = tl.load(unit)
        lane = tl.arange(0, BLOCK_POINTS)[None, :]
        more = 1
        while more > 0:
            at, bound = next_groups(bound, GROUPS, AT_ONCE)
            point = at * BLOCK_POINTS + lane  # [AT_ONCE, BLOCK_POINTS]
            distance = distances_between(
                (x + row * FEATURES)[:, None], columns + at.to(tl.int64) * (FEATURES * BLOCK_POINTS) + lane, factor,
                (row < rows)[:, None], point < POINTS, FEATURES=FEATURES, STRIDE=BLOCK_POINTS,
                METRIC=METRIC, P=P, WHOLE=WHOLE, WEIGHTED=WEIGHTED, UNROLL=UNROLL,
            )  # fmt: skip
            distance = tl.reshape(distance, [1, AT_ONCE * BLOCK_POINTS])
            point = tl.reshape(point, [AT_ONCE * BLOCK_POINTS])
            best, chosen = keep_nearer(distance, tl.where(point < POINTS, point, NONE), best, chosen)
            more = worth_more(bound, best, scale)
        best, chosen = by_index(best, chosen, slot, NEIGHBORS)
    else:
        for start in tl.range(0, POINTS, BLOCK_POINTS):
            point = start + tl.arange(0, BLOCK_POINTS)
            distance = reduced_distances(
                x, columns, factor, row, point, rows,
                FEATURES=FEATURES, POINTS=POINTS, METRIC=METRIC, P=P, WHOLE=WHOLE, WEIGHTED=WEIGHTED,
            )  # fmt: skip
            best, chosen = keep_nearer(distance, tl.where(point < POINTS, point, NONE), best, chosen)
    return best, chosen


@triton.jit
def next_groups(bound, GROUPS: tl.constexpr, AT_ONCE: tl.constexpr):
    """Return the groups with the smallest bounds, `[AT_ONCE, 1]`, and bounds that are infinite for these too.

    `bound`: `[1, BLOCK_GROUPS]`, infinite for groups that do not count; where too few do, a group is `GROUPS`.
    """
    group = tl.arange(0, bound.shape[1])[None, :]
    which = tl.arange(0, AT_ONCE)[:, None]
    at = tl.zeros([AT_ONCE, 1], tl.int32)
    for i in tl.static_range(AT_ONCE):
        low, first = tl.min(bound, axis=1, return_indices=True)  # [1] each
        at = tl.where(which == i, tl.where(low < INFINITY, first, GROUPS)[:, None], at)
        bound = tl.where(group == first[:, None], INFINITY, bound)
    return at, bound


@triton.jit
def worth_more(bound, best, scale):
    """Return 1 if a group's bound, in units of `scale`, leaves room for a point nearer than a row's worst, else 0."""
    low = tl.min(bound, axis=1)
    worth = (low < INFINITY) & (low.to(tl.float64) <= tl.max(best, axis=1) * scale)
    return tl.max(worth.to(tl.int32), axis=0)


@triton.jit
def keep_nearer(distance, point, best, chosen):
    """Return the best so far, `[BLOCK_ROWS, BLOCK_NEIGHBORS]` each, the worst of them replaced by nearer points.

    `distance`: `[BLOCK_ROWS, BLOCK_POINTS]`; `point`: `[BLOCK_POINTS]`, `NONE` where it does not count.
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
    """Return neighbours, `[BLOCK_ROWS, BLOCK_NEIGHBORS]` each, in the order of their indices."""
    before = (chosen[:, None, :] < chosen[:, :, None]) & (slot < NEIGHBORS)[:, None, :]
    rank = tl.where(slot < NEIGHBORS, tl.sum(before.to(tl.int32), axis=2), slot)
    here = rank[:, :, None] == slot[:, None, :]
    return tl.sum(tl.where(here, best[:, :, None], 0.0), axis=1), tl.sum(tl.where(here, chosen[:, :, None], 0), axis=1)


@triton.jit
def neighbor_weights(best, real, METRIC: tl.constexpr, P: tl.constexpr, BY_DISTANCE: tl.constexpr):
    """Return the weights of neighbours with the reduced distances `best`, 0 where they are not `real`.

    Others weigh 1, or `BY_DISTANCE` 1 / distance; where that is infinite for some, these weigh 1 and the others 0.
    """
    weight = tl.where(real, 1.0, tl.zeros_like(best))
    if BY_DISTANCE:
        inverse = 1.0 / finish_distance(tl.where(real, best, 1.0), METRIC, P)
        hit = real & (inverse == INFINITY)
        any_hit = tl.max(hit.to(tl.int32), axis=1) > 0
        weight = tl.where(any_hit[:, None], hit.to(tl.float64), tl.where(real, inverse, 0.0))
    return weight


def reference_nearest(distance: torch.Tensor, neighbors: int) -> torch.Tensor:
    """Return the indices of the nearest of reduced distances `[rows, points]`, ascending, `[rows, neighbors]`."""
    values, index = distance.topk(min(neighbors + 1, distance.shape[1]), dim=1, largest=False)
    furthest = values[:, neighbors - 1, None]
    if values.shape[1] > neighbors and bool((values[:, neighbors, None] > furthest).all()):
        return index[:, :neighbors].sort(dim=1).values
    nearer, level = distance < furthest, distance == furthest
    room = neighbors - nearer.sum(1, keepdim=True)
    return (nearer | (level & (level.cumsum(1) <= room))).nonzero()[:, 1].view(len(distance), neighbors)


@dataclass(frozen=True)
class Search:
    """One launch of a kernel that calls `nearest`: for which rows, on which grid, with which of its arguments."""

    part: slice
    grid: tuple[int]
    arguments: dict[str, Any]
    warps: int


def searches(
    x: torch.Tensor,
    parameters: Parameters,
    rows: int,
    points: int,
    neighbors: int,
    constants: dict[str, Any],
    tile: dict[str, int] | None = None,
    alike: bool = False,
) -> Iterator[Search]:
    """Yield the launches that search the nearest of `points` points, after the launches that each of them needs.

    Where `parameters` has what bounds are made of, a program looks at one row's most promising groups of points, else
    at all points for several rows, as `tile` says.

    Args:
        x: the rows.
        parameters: of the operation.
        rows: how many there are.
        points: how many points there are.
        neighbors: how many of them are nearest.
        constants: the metric, as `metric_constants` returns it.
        tile: a program's rows, slots and points, where not as `neighbor_tile` says.
        alike: whether programs have one shape for all numbers of rows, as sums that follow it must have.
    """
    if "unit" not in parameters:
        tile = tile or neighbor_tile(neighbors)
        some = parameters["columns"]
        none = {"bounds": some, "unit": some, "GROUPS": 0, "BLOCK_GROUPS": 0, "AT_ONCE": 1, "UNROLL": 1}
        yield Search(slice(0, rows), (triton.cdiv(rows, tile["BLOCK_ROWS"]),), {**none, "rows": rows, **tile}, 8)
        return
    groups, group = grouping(points)
    shape = {
        "GROUPS": groups, "BLOCK_GROUPS": triton.next_power_of_2(groups),
        "BLOCK_ROWS": 1, "BLOCK_NEIGHBORS": triton.next_power_of_2(neighbors), "BLOCK_POINTS": group,
    }  # fmt: skip
    few = rows <= FEW_ROWS and not alike
    program, warps = search_program(few, x.shape[1], constants["WHOLE"] is not None)
    for part, bounds in bounds_of(x, parameters, rows, points, constants["METRIC"], constants["P"]):
        count = part.stop - part.start
        arguments = {"bounds": bounds, "unit": parameters["unit"], "rows": count, **shape, **program}
        yield Search(part, (count,), arguments, warps)


def search_program(few: bool, features: int, whole_power: bool) -> tuple[dict[str, int], int]:
    """Return how many groups a program looks at together, how many features it loads ahead, and its warps.

    Powers that are no whole number take many instructions, of which fewer are repeated.
    """
    unroll = 16 if not whole_power else 32 if few else 16 if features <= 32 else 64
    return {"AT_ONCE": 8 if few else 1, "UNROLL": unroll}, 8 if few else SEARCH_WARPS


def neighbor_tile(neighbors: int) -> dict[str, int]:
    """Return a program's rows, the slots for a row's neighbours and the points of a tile, for 8 warps."""
    slots = triton.next_power_of_2(neighbors)
    rows = max(1, min(32, 4096 // slots))
    return {"BLOCK_ROWS": rows, "BLOCK_NEIGHBORS": slots, "BLOCK_POINTS": 2048 // rows}


def check_neighbors(op: str, neighbors: int, points: int, most: int = MAX_NEIGHBORS) -> None:
    """Raise `PlanError` unless so many neighbours can be taken from so many points."""
    if not 1 <= neighbors <= min(points, most):
        raise PlanError(f"{op}: n_neighbors must lie in [1, {min(points, most)}], not {neighbors}.")


def check_targets(op: str, targets: np.ndarray, weights: str, points: int) -> None:
    """Raise `PlanError` unless every point has targets and the weights have a name."""
    if targets.ndim != 2 or len(targets) != points or not targets.shape[1]:
        raise PlanError(f"{op}: targets must be [{points}, outputs], not {list(targets.shape)}.")
    if weights not in WEIGHTS:
        raise PlanError(f"{op}: weights must be one of {WEIGHTS}, not '{weights}'.")
