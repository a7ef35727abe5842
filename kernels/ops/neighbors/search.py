"""The nearest stored points to each row, for the operations that answer from them.

Among equal distances the point with the smallest index is nearer. A kernel goes over tiles of points, all of them or
the most promising groups of a row (`bounds.py`), and keeps the best so far of each row in registers: while a tile
holds a point nearer than a row's worst, the nearest such point takes the worst one's place. The points that a row keeps
do not depend on other rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from ...format.errors import PlanError
from ...plan.devices import has_many_float64_units
from ...plan.plan import Parameters
from .bounds import bounds_of, grouping, padded_points, tile_points
from .distances import INFINITY, SQUARED, distances_between, finish_distance, reduced_distances
from .search_few_rows import list_distances_kernel, nearest_in_parts, nearest_listed
from .top_k import NONE, by_index, comes_before, keep_nearer, next_groups, worth_more

MAX_NEIGHBORS = 4096
"""Neighbours of a row that fit the registers of one program."""

WEIGHTS = ("uniform", "distance")
"""The ways to weight a row's neighbours."""

SEARCH_WARPS = 1
"""A search is a chain of small steps, which need no synchronisation within one warp."""

FEW_ROWS = 256
"""Up to this many rows a GPU has room for several warps each, which visit several groups at once."""

FEW_NEIGHBORS = 16
"""Up to this many neighbours, few rows are searched by `search_few_rows.py`."""

LISTED = {True: 2**23, False: 2**19}
"""Up to this many differences (rows × points × features) need no bounds; the key is has_many_float64_units."""

MOST_LISTED_POINTS = 2**15

PARTED_ROWS, MOST_TILES = 64, 2048
"""Up to this many rows and tiles of points, parts of the tiles get Euclidean bounds too."""

COARSE = tl.constexpr(512)
"""The most bounds that a search of such parts starts from."""


@triton.jit
def nearest(
    x,  # float32 or float64 [rows, FEATURES]
    columns,  # float64 [FEATURES, POINTS]
    factor,  # float64 [FEATURES]
    bounds,  # float32 [rows, GROUPS], see `bounds.py`, or an array of `search_few_rows.py`; not read without groups
    finer,  # not read without FINE: distances or bounds of `search_few_rows.py`, of single points or of parts of tiles
    reach,  # float64 [rows, 2], see `bounds.py`; not read unless searches use bounds
    row,  # int64 [BLOCK_ROWS], one row if there are groups
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
    FINE: tl.constexpr,
    TILE: tl.constexpr,
    AT_ONCE: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """Return the reduced distances and indices of the nearest points, `[BLOCK_ROWS, BLOCK_NEIGHBORS]` each.

    The order is always the same for a row: by index if there are groups (of BLOCK_POINTS points). The first NEIGHBORS
    slots are valid. A slot that was never filled holds an infinite distance and an index past the last point. FINE is
    0, or the number of points for each entry of `finer`; a bound is then of TILE points.
    """
    slot = tl.arange(0, BLOCK_NEIGHBORS)[None, :] + tl.zeros([row.shape[0], BLOCK_NEIGHBORS], tl.int32)
    best = tl.where(slot < NEIGHBORS, INFINITY, -INFINITY).to(tl.float64)
    chosen = tl.where(slot < NEIGHBORS, NONE - slot, -1)
    if FINE == 1:
        best, chosen = nearest_listed(
            bounds, finer, row, rows, NEIGHBORS=NEIGHBORS, GROUPS=GROUPS, GROUP=BLOCK_POINTS,
            BLOCK_GROUPS=BLOCK_GROUPS, BLOCK_NEIGHBORS=BLOCK_NEIGHBORS,
        )  # fmt: skip
        best, chosen = by_index(best, chosen, slot, NEIGHBORS)
    elif FINE:
        best, chosen = nearest_in_parts(
            x, columns, factor, bounds, finer, reach, row, rows, FEATURES=FEATURES, POINTS=POINTS, NEIGHBORS=NEIGHBORS,
            METRIC=METRIC, P=P, WHOLE=WHOLE, WEIGHTED=WEIGHTED, TILES=GROUPS, BLOCK_TILES=BLOCK_GROUPS,
            PARTS=TILE // FINE, PART=FINE, TOGETHER=BLOCK_GROUPS // COARSE if BLOCK_GROUPS > COARSE else 1,
            GROUP=BLOCK_POINTS, AT_ONCE=AT_ONCE, BLOCK_NEIGHBORS=BLOCK_NEIGHBORS, UNROLL=UNROLL,
        )  # fmt: skip
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
                METRIC=METRIC, P=P, WHOLE=WHOLE, WEIGHTED=WEIGHTED, UNROLL=UNROLL,
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
                FEATURES=FEATURES, POINTS=POINTS, METRIC=METRIC, P=P, WHOLE=WHOLE, WEIGHTED=WEIGHTED,
            )  # fmt: skip
            best, chosen = keep_nearer(distance, tl.where(point < POINTS, point, NONE), best, chosen)
    return best, chosen


@triton.jit
def neighbor_weights(best, real, METRIC: tl.constexpr, P: tl.constexpr, BY_DISTANCE: tl.constexpr):
    """Return the weights of neighbours with the reduced distances `best`, 0 if they are not `real`.

    Real ones weigh 1, or `BY_DISTANCE` 1 / distance; if that is infinite for some, these weigh 1 and the others 0.
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
    """One launch of a kernel that calls `nearest`: its rows, its grid, some of its arguments and its warps."""

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

    If `parameters` has the tables for bounds, a program visits one row's most promising groups of points. Otherwise it
    visits all points for several rows, see `tile`.

    Args:
        x: the rows.
        parameters: the operation's parameters.
        rows: the number of rows.
        points: the number of points.
        neighbors: the number of nearest points.
        constants: the metric, as `metric_constants` returns it.
        tile: a program's rows, slots and points; None for those of `neighbor_tile`.
        alike: whether programs must have one shape for any number of rows, because sums follow that shape.
    """
    if "unit" not in parameters:
        tile = tile or neighbor_tile(neighbors)
        some = parameters["columns"]
        none = {"bounds": some, "finer": some, "reach": some, "GROUPS": 0, "BLOCK_GROUPS": 0, "FINE": 0, "TILE": 0}
        none |= {"AT_ONCE": 1, "UNROLL": 1}
        yield Search(slice(0, rows), (triton.cdiv(rows, tile["BLOCK_ROWS"]),), {**none, "rows": rows, **tile}, 8)
        return
    groups, group = grouping(points)
    shape: dict[str, Any] = {
        "GROUPS": groups, "BLOCK_GROUPS": triton.next_power_of_2(groups), "BLOCK_ROWS": 1,
        "BLOCK_NEIGHBORS": triton.next_power_of_2(neighbors), "BLOCK_POINTS": group, "FINE": 0, "TILE": 0,
    }  # fmt: skip
    metric, whole_power, features = constants["METRIC"], constants["WHOLE"] is not None, x.shape[1]
    if neighbors <= FEW_NEIGHBORS and whole_power and not alike:
        numbers = rows * points * features
        if points <= MOST_LISTED_POINTS and numbers <= LISTED[has_many_float64_units(x.device)]:
            yield _listed(x, parameters, rows, points, shape, constants)
            return
        if rows <= PARTED_ROWS and points <= MOST_TILES * tile_points(points) and metric in SQUARED:
            yield _in_parts(x, parameters, rows, points, shape, constants)
            return
    few = rows <= FEW_ROWS and not alike
    program, warps = search_program(few, features, whole_power)
    for part, bounds, reach in bounds_of(x, parameters, rows, points, constants):
        count = part.stop - part.start
        given = {"bounds": bounds, "finer": bounds, "reach": reach, "rows": count}
        yield Search(part, (count,), {**shape, **program, **given}, warps)


def _listed(
    x: torch.Tensor, parameters: Parameters, rows: int, points: int, shape: dict[str, Any], constants: dict[str, Any]
) -> Search:
    """Launch the kernel that writes the distances of rows to all points; return the search among these."""
    groups, group, features = shape["GROUPS"], shape["BLOCK_POINTS"], x.shape[1]
    least = torch.empty(rows, groups, dtype=torch.float64, device=x.device)
    listed = torch.empty(rows, groups * group, dtype=torch.float64, device=x.device)
    block_rows, block_groups = (1, 1) if rows == 1 else (4, 2)
    list_distances_kernel[(triton.cdiv(groups, block_groups), triton.cdiv(rows, block_rows))](
        x=x,
        columns=parameters["columns"],
        factor=parameters["factor"],
        least=least,
        listed=listed,
        rows=rows,
        FEATURES=features,
        POINTS=points,
        **constants,
        GROUPS=groups,
        GROUP=group,
        BLOCK_ROWS=block_rows,
        BLOCK_GROUPS=block_groups,
        UNROLL=unrolled(32 if rows == 1 else 16, features),
        num_warps=1,
    )
    found = {"bounds": least, "finer": listed, "reach": least, "rows": rows, "FINE": 1, "AT_ONCE": 1, "UNROLL": 1}
    return Search(slice(0, rows), (rows,), shape | found, SEARCH_WARPS)


def _in_parts(
    x: torch.Tensor, parameters: Parameters, rows: int, points: int, shape: dict[str, Any], constants: dict[str, Any]
) -> Search:
    """Launch the kernels that bound the distances of rows to tiles and their parts; return the search among these."""
    tile, part = tile_points(points), 4 if rows <= 16 else 8
    tiles, at_once = triton.cdiv(points, tile), max(8, shape["BLOCK_NEIGHBORS"])
    finer = torch.empty(rows, padded_points(points) // part, dtype=torch.float32, device=x.device)
    ((_, bounds, reach),) = bounds_of(x, parameters, rows, points, constants, finer)
    found = {
        "bounds": bounds, "finer": finer, "reach": reach, "rows": rows, "GROUPS": tiles, "FINE": part, "TILE": tile,
        "BLOCK_GROUPS": triton.next_power_of_2(tiles), "AT_ONCE": at_once,
        "UNROLL": unrolled(2048 // (at_once * part), x.shape[1]),
    }  # fmt: skip
    return Search(slice(0, rows), (rows,), shape | found, SEARCH_WARPS)


def unrolled(most: int, features: int) -> int:
    """Return how many features a program loads ahead: as many as registers hold, but no more than exist."""
    return min(most, 1 << (features.bit_length() - 1))


def search_program(few: bool, features: int, whole_power: bool) -> tuple[dict[str, int], int]:
    """Return how many groups a program visits together, how many features it loads ahead, and its warps.

    Fractional powers take many instructions, so their loops are unrolled less.
    """
    unroll = 16 if not whole_power else 32 if few else 16 if features <= 32 else 64
    return {"AT_ONCE": 8 if few else 1, "UNROLL": unroll}, 8 if few else SEARCH_WARPS


def neighbor_tile(neighbors: int) -> dict[str, int]:
    """Return a program's rows, the slots for a row's neighbours and the points of a tile, for 8 warps."""
    slots = triton.next_power_of_2(neighbors)
    rows = max(1, min(32, 4096 // slots))
    return {"BLOCK_ROWS": rows, "BLOCK_NEIGHBORS": slots, "BLOCK_POINTS": 2048 // rows}


def check_neighbors(op: str, neighbors: int, points: int, most: int = MAX_NEIGHBORS) -> None:
    """Raise `PlanError` unless the points suffice for the neighbours."""
    if not 1 <= neighbors <= min(points, most):
        raise PlanError(f"{op}: n_neighbors must lie in [1, {min(points, most)}], not {neighbors}.")


def check_targets(op: str, targets: np.ndarray, weights: str, points: int) -> None:
    """Raise `PlanError` unless every point has targets and the weights are a known kind."""
    if targets.ndim != 2 or len(targets) != points or not targets.shape[1]:
        raise PlanError(f"{op}: targets must be [{points}, outputs], not {list(targets.shape)}.")
    if weights not in WEIGHTS:
        raise PlanError(f"{op}: weights must be one of {WEIGHTS}, not '{weights}'.")
