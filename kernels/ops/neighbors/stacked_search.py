"""The nearest of the points of each row's own member, for operations that hold the points of a fleet's members.

A program has one row and visits all points of the row's member, in their order. It finds the neighbours that a search
by bounds finds (`search_kernel.py`), which are one set, and returns them in the same order.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from ...numerics.members import member_places
from .distances import INFINITY, Metric, distances_between
from .launch import visits_of_rows
from .search_kernel import SearchShape
from .top_k import NONE, by_index, keep_nearer


@triton.jit
def row_of_program(numbers, rows, first, members):
    """Return a program's row, int64 `[1]`, and the place of its member, int64."""
    row = tl.program_id(0).to(tl.int64) + tl.arange(0, 1)
    return row, tl.max(member_places(numbers, row, row < rows, first, members), axis=0)


@triton.jit
def nearest_of_member(
    x,  # float32 or float64 [rows, FEATURES]
    columns,  # float64 [FEATURES, POINTS], the points of one member after those of another
    factor,  # float64 [members, FEATURES]
    first_point,  # int64 [members + 1]
    row,  # int64 [1]
    member,  # int64
    rows,
    SEARCH: tl.constexpr,
):
    """Return the reduced distances and indices of the points of a member that are nearest to a row, by index.

    They are `[1, slots]` each, and as in `nearest`. An index counts from the member's first point.
    """
    FEATURES: tl.constexpr = SEARCH.features
    POINTS: tl.constexpr = SEARCH.points
    NEIGHBORS: tl.constexpr = SEARCH.neighbors
    METRIC: tl.constexpr = SEARCH.metric
    BLOCK_POINTS: tl.constexpr = SEARCH.block_points
    UNROLL: tl.constexpr = SEARCH.unroll
    slot = tl.arange(0, SEARCH.slots)[None, :]
    best = tl.where(slot < NEIGHBORS, INFINITY, -INFINITY).to(tl.float64)
    chosen = tl.where(slot < NEIGHBORS, NONE - slot, -1)
    begin = tl.load(first_point + member)
    count = (tl.load(first_point + member + 1) - begin).to(tl.int32)
    for start in tl.range(0, count, BLOCK_POINTS):
        point = start + tl.arange(0, BLOCK_POINTS)
        distance = distances_between(
            (x + row * FEATURES)[:, None], (columns + begin + point)[None, :], factor + member * FEATURES,
            (row < rows)[:, None], (point < count)[None, :], FEATURES=FEATURES, STRIDE=POINTS,
            METRIC=METRIC, UNROLL=UNROLL,
        )  # fmt: skip
        best, chosen = keep_nearer(distance, tl.where(point < count, point, NONE), best, chosen)
    return by_index(best, chosen, slot, NEIGHBORS)


def shape_of_search(rows: int, features: int, points: int, neighbors: int, metric: Metric) -> dict[str, Any]:
    """Return the compile-time argument SEARCH of a kernel that calls `nearest_of_member`, and its warps.

    Args:
        rows: the rows of the batch.
        features: their features.
        points: the number of points of all members.
        neighbors: how many are searched.
        metric: the metric of all members.
    """
    block, warps = visits_of_rows(rows)
    slots = triton.next_power_of_2(neighbors)
    shape = SearchShape(features, points, neighbors, metric, block_rows=1, slots=slots, **block)
    return {"SEARCH": shape, "num_warps": warps}
