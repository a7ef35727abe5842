"""Launch shapes of the searches for neighbours: the block of a program, its warps, and how few rows are searched.

A search finds one set of points, and the sums over them have an order of their own. None of these shapes changes an
answer, except where a function says so.
"""

from __future__ import annotations

from typing import Any

import triton

from .distances import SQUARED, Metric

SEARCH_WARPS = 1
"""A search is a chain of small steps, which need no synchronisation within one warp."""

FEW_ROWS = 256
"""Up to this many rows a GPU has room for several warps each, which visit several groups at once."""

FEW_NEIGHBORS = 16
"""Up to this many neighbours, few rows are searched by a list of all distances or by bounds of parts of tiles."""

LISTED = {True: 2**23, False: 2**19}
"""Up to this many differences (rows × points × features) are listed; the key is has_many_float64_units."""

MOST_LISTED_POINTS = 2**15

MOST_VISITED = 2**15
"""The most points of a fleet's member, all of which a program visits for a row."""

PARTED_ROWS, MOST_TILES = 64, 2048
"""Up to this many rows and tiles of points, parts of the tiles get Euclidean bounds too."""

MOST_RANKED = 8192
"""The most pairs of neighbours that a program compares to sort its rows' neighbours."""

MOST_SUMS = 2048
"""The most sums within a radius that a program keeps, one for each row, output and place in a group."""

MANY_ROWS = 32
"""From this many rows on, several rows share the numbers that a program loads, if most groups hold neighbours."""

MOST_PARTS = 64
"""The most programs that share a row's points. Their sums are added in order, so the number follows the model alone."""

LEAST_IN_PART = 8
"""The fewest groups of points that a program visits."""

MOST_SUMMED = 2048
"""Points whose digits a program sums; float32 sums stay exact for several times as many."""

TILE_POINTS = 64
"""Points of a tile for products within a radius. If one of them needs a float64 distance, all of them get one."""

FEWEST_ROWS = 16
"""The rows of one block of the smallest matrix product."""

PROGRAMS = 400
"""Programs that fill a GPU; for few rows twice as many are needed."""

FUSED_NUMBERS, FUSED_WIDTH = 2048, 64
"""The most numbers of a block of rows and of a row for which each program rounds the rows that it bounds itself."""

LEAF_BLOCK: dict[str, Any] = {"BLOCK_LEAF": 32, "UNROLL": 4, "num_warps": 1}
"""The block of a program that repeats a tree's search for one row."""

GRAPH_BLOCK: dict[str, Any] = {"BLOCK_ROWS": 32, "BLOCK_POINTS": 64, "num_warps": 8}
"""The block of a graph of all points within a radius."""

MIN_PLUS_BLOCK: dict[str, Any] = {"BLOCK_ROWS": 32, "BLOCK_WIDTH": 64, "num_warps": 8}


def way_of_search(
    rows: int, points: int, features: int, neighbors: int, metric: Metric, tiles: int, many_float64_units: bool
) -> str:
    """Return how so many rows are searched by bounds: in a list of "all" distances, by "parts" or by "groups"."""
    if neighbors > FEW_NEIGHBORS or metric.whole is None:
        return "groups"
    if points <= MOST_LISTED_POINTS and rows * points * features <= LISTED[many_float64_units]:
        return "all"
    return "parts" if rows <= PARTED_ROWS and tiles <= MOST_TILES and metric.name in SQUARED else "groups"


def neighbor_tile(neighbors: int) -> dict[str, Any]:
    """Return a program's rows, the slots for a row's neighbours and the points of a tile, for 8 warps."""
    slots = triton.next_power_of_2(neighbors)
    return _tile(slots, max(1, min(32, 4096 // slots)))


def ranked_tile(neighbors: int) -> dict[str, Any]:
    """Return the tile of a program that compares every two neighbours of a row at the end, with fewer rows."""
    slots = triton.next_power_of_2(neighbors)
    return _tile(slots, max(1, min(32, MOST_RANKED // slots**2)))


def gram_tile(neighbors: int) -> dict[str, Any]:
    """Return the tile of a program that keeps the Gram matrices of its rows' neighbours; sums follow its shape."""
    slots = triton.next_power_of_2(neighbors)
    return _tile(slots, max(1, min(32, 4096 // slots**2)))


def _tile(slots: int, rows: int) -> dict[str, Any]:
    return {"block_rows": rows, "slots": slots, "block_points": 2048 // rows}


def gram_warps(block_rows: int, slots: int) -> int:
    """Return the warps of a program that keeps Gram matrices."""
    return SEARCH_WARPS if block_rows == 1 and slots <= 16 else 8 if slots <= 64 else 16


def groups_at_once(rows: int, features: int, metric: Metric, alike: bool) -> tuple[dict[str, Any], int]:
    """Return how many groups a program visits together, how many features it loads ahead, and its warps.

    Fractional powers take many instructions, so their loops are unrolled less. `alike` asks for the shape of many rows.
    """
    few, whole_power = rows <= FEW_ROWS and not alike, metric.whole is not None
    unroll = 16 if not whole_power else 32 if few else 16 if features <= 32 else 64
    return {"at_once": 8 if few else 1, "unroll": unroll}, 8 if few else SEARCH_WARPS


def visits_of_rows(rows: int) -> tuple[dict[str, Any], int]:
    """Return how many points of a fleet's member a program visits together, the features ahead, and its warps."""
    few = rows <= FEW_ROWS
    return {"block_points": 1024 if few else 128, "unroll": 4}, 8 if few else SEARCH_WARPS


def list_block(rows: int, features: int) -> dict[str, int]:
    """Return the block of a program that lists distances."""
    block_rows, block_groups = (1, 1) if rows == 1 else (4, 2)
    unroll = unrolled(32 if rows == 1 else 16, features)
    return {"BLOCK_ROWS": block_rows, "BLOCK_GROUPS": block_groups, "UNROLL": unroll, "num_warps": 1}


def parts_at_once(rows: int, slots: int, features: int) -> dict[str, Any]:
    """Return the points of a part of a tile, the parts that a program visits together, and the features ahead."""
    part, at_once = 4 if rows <= 16 else 8, max(8, slots)
    return {"fine": part, "at_once": at_once, "unroll": unrolled(2048 // (at_once * part), features)}


def unrolled(most: int, features: int) -> int:
    """Return how many features a program loads ahead: as many as registers hold, but no more than exist."""
    return min(most, 1 << (features.bit_length() - 1))


def rounds_its_rows(rows: int, width: int) -> bool:
    """Return whether each program rounds the rows that it bounds by matrix products, `width` numbers each."""
    return width <= FUSED_WIDTH and product_rows(rows) * width <= FUSED_NUMBERS


def product_rows(rows: int) -> int:
    """Return the rows of a program that bounds them by matrix products."""
    return 128 if rows > 64 else 64 if rows > 16 else 16


def product_bounds_block(rows: int, block_points: int, fused: bool) -> dict[str, Any]:
    """Return the block of a program that bounds rows by matrix products."""
    block_rows = product_rows(rows)
    tiles = 4 if rows > 64 else 2 if rows > 16 else 1
    registers = {"maxnreg": {128: 168, 64: 128, 16: 80}[block_rows]} if fused or block_rows == 128 else {}
    return _bounds_block(block_rows, tiles, block_points, 4096) | {"num_warps": 4, **registers}


def difference_bounds_block(rows: int, block_points: int) -> dict[str, Any]:
    """Return the block of a program that bounds rows by absolute differences."""
    block_rows = 16 if rows > 4 else 4 if rows > 1 else 1
    unroll, warps, registers = (4, 4, 72) if block_rows > 1 else (16, 1, 255)
    options = {"UNROLL": unroll, "num_warps": warps, "maxnreg": registers}
    return _bounds_block(block_rows, 2 if rows > 16 else 1, block_points, 1024) | options


def _bounds_block(block_rows: int, tiles: int, block_points: int, numbers: int) -> dict[str, int]:
    """Return a program's rows and tiles, and the rows and tiles of at most `numbers` exact distances at once."""
    lines = min(8, block_rows)
    span = max(1, min(tiles, numbers // (lines * block_points)))
    return {"BLOCK_ROWS": block_rows, "TILES": tiles, "LINES": lines, "SPAN": span}


def groups_in_part(groups: int) -> int:
    """Return how many groups of points a program visits for sums within a radius; their order follows from it."""
    return max(LEAST_IN_PART, triton.cdiv(groups, MOST_PARTS))


def radius_block(rows: int, group: int, outputs: int, metric: Metric) -> dict[str, int]:
    """Return the block of a program that sums the targets of points within a radius, a place in a group at a time."""
    block_outputs = min(triton.next_power_of_2(outputs), max(MOST_SUMS // group, 1), 32)
    block_rows = 1 if rows < MANY_ROWS else max(MOST_SUMS // (group * block_outputs), 1)
    return {
        "BLOCK_ROWS": block_rows,
        "BLOCK_OUTPUTS": block_outputs,
        "UNROLL": 4 if block_rows > 1 or metric.whole is None else 32,
        "num_warps": 4 if block_rows > 1 or block_outputs > 8 else 1,
    }


def sums_shape(rows: int, points: int, matrix_units: bool) -> tuple[dict[str, int], int]:
    """Return the block that a program sums at a time, and the number of tiles that it goes through.

    Neither changes an answer. Few rows are shared among many small programs. Without matrix units the products of a
    thread lie in its registers, so a program has more threads.
    """
    few = rows <= FEWEST_ROWS
    block_rows, warps = ((16, 1) if few else (64, 4)) if matrix_units else (16, 8)
    shape = {"BLOCK_ROWS": block_rows, "BLOCK_POINTS": TILE_POINTS, "num_warps": warps}
    tiles = triton.cdiv(points, TILE_POINTS) * triton.cdiv(rows, block_rows)
    return shape, min(max(triton.cdiv(tiles, PROGRAMS * (2 if few else 1)), 1), MOST_SUMMED // TILE_POINTS)


def mean_shape(rows: int, columns: int) -> dict[str, int]:
    """Return the block of a row's sums that a program processes at a time.

    With enough sums in a program's registers the compiler lets it load many features of a point at once.
    """
    shares = (8192 if rows <= FEWEST_ROWS else 4096) // columns
    return {"BLOCK_TILES": 2048, "BLOCK_SHARES": shares, "BLOCK_COLUMNS": columns, "UNROLL": 32, "num_warps": 4}


def distances_block(rows: int, features: int, group: int) -> dict[str, int]:
    """Return the block of a program that makes distances of rows that miss a feature."""
    return {
        "BLOCK_ROWS": 16 if rows > 4 else 4 if rows > 1 else 1,
        "BLOCK_POINTS": max(128, group),
        "BLOCK_FEATURES": min(triton.next_power_of_2(features), 64),
        "num_warps": 4,
    }


def donors_block(neighbors: int, groups: int) -> dict[str, int]:
    """Return the block of a program that finds the donors of a feature of one row."""
    slots = triton.next_power_of_2(neighbors)
    return {
        "AT_ONCE": 2,
        "BLOCK_GROUPS": triton.next_power_of_2(groups),
        "BLOCK_NEIGHBORS": slots,
        "num_warps": 1 if slots <= 64 and groups <= 2048 else 4,
    }
