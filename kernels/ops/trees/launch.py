"""Launch shapes of trees' kernels: the trees and rows that a program takes at a time, and its form of nodes."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton

from ...plan.launch_shapes import Shape, launch_shapes

MOST_CACHED = 2**15
"""The most nodes of a small ensemble: 256 KB."""

MOST_NARROW = 64
"""The widest table of features that is not broad."""

MOST_PLAIN = 2**18
"""The most nodes of an ensemble for which plain nodes are packed: 2 MB."""

LARGEST_TABLE = 2**12
"""The most numbers of a program's table of features."""

MOST_WRITES = 4
"""The most numbers of such a table written for each one read: each level of the trees writes the whole table."""

MOST_SHALLOW = 2**12
"""The largest mean number of nodes of trees that are not deep."""

LINEAR_ROWS, LINEAR_TREES = 4, 32
"""Rows of a program of linear leaves, and trees of which it computes leaves together.

The number of trees is the same for any batch, since their sums are added across lanes.
"""

LEAVES_BLOCK = {"BLOCK_ROWS": 64, "BLOCK_LEAVES": 32, "num_warps": 4}
"""The block of a program that writes which leaves rows reach."""

COUNTS_BLOCK, COUNTS_COLUMNS = 1024, 32
"""The border counts that a program makes, and the most columns of them."""

FEW_PAIRS = 2**20
"""Up to this many row–tree pairs, symmetric trees skip the border-count pass."""

VERY_FEW_PAIRS = 2**14
"""Up to this many such pairs, each program has few trees."""

SYMMETRIC_PROGRAMS = 960
"""Programs that keep every multiprocessor of a large GPU busy; if each has few trees, it takes twice as many."""

SYMMETRIC_TILES = ((1024, 1, 64), (512, 1, 32), (128, 4, 32), (32, 16, 64))
"""The rows of a program, the trees that it takes at a time, and the fewest trees that it has in all."""


class Tile(NamedTuple):
    """The work that a program does at a time."""

    block_trees: int
    block_rows: int
    block_outputs: int
    width: int | None  # of its table of features, a power of two; None without a table
    form: str  # of the nodes that a sum's rows without missing numbers descend, if the ensemble has it
    num_warps: int
    registers: int | None = None  # the most of a thread
    parts: bool = False  # whether a program takes only these trees, and the results of programs are added up


def tree_tile(
    rows: int,
    trees: int,
    outputs: int,
    features: int,
    nodes: int,
    packed: bool,
    device: torch.device,
    ordered: bool = False,
    ensembles: int = 1,
) -> Tile:
    """Return the tile for `rows` rows.

    `packed` says whether there are quads, and `ordered` whether a program only writes leaf values, which others add. If
    there are several ensembles, each row descends the trees of one: `trees` are those of one, and `nodes` those of all.

    There is no table if it would be large, or written for the reads of few trees.
    """
    block_outputs = min(triton.next_power_of_2(outputs), 32)
    width = triton.next_power_of_2(features)
    of_outputs = "ordered" if ordered else "one" if outputs == 1 else "several"
    shape = tree_ensemble_shape.of(device, *tree_class(rows, trees * ensembles, nodes, width, packed), of_outputs)
    block_rows = shape["BLOCK_ROWS"]
    most_trees = max(shape["ELEMENTS"] // (block_rows * block_outputs), 1)
    block_trees = min(triton.next_power_of_2(trees), most_trees)
    num_warps = min(shape["num_warps"], max(block_trees * block_rows // 32, 4))
    table = width if width * block_rows <= LARGEST_TABLE and width <= MOST_WRITES * block_trees else None
    return Tile(
        block_trees,
        block_rows,
        block_outputs,
        table,
        shape["FORM"],
        num_warps,
        shape["maxnreg"],
        shape.get("PARTS", False),
    )


def filling_a_warp(tile: Tile) -> Tile:
    """Return the tile with at least 32 elements, for trees in groups.

    The compiler of the Triton language 3.6 does not end on 16 trees of a group and one row.
    """
    return tile._replace(block_trees=max(tile.block_trees, 32 // tile.block_rows))


def tree_class(rows: int, trees: int, nodes: int, width: int, packed: bool) -> tuple[str, str, str]:
    """Return the classes of the number of rows, of the ensemble's size, and of its nodes and table of features."""
    of_rows = "few" if rows < 512 else "some" if rows < 16384 else "many"
    of_large = "deep" if nodes > MOST_SHALLOW * trees else "large"
    of_nodes = "small" if nodes <= MOST_CACHED else "middle" if nodes <= MOST_PLAIN else of_large
    return of_rows, of_nodes, "broad" if width > MOST_NARROW else "packed" if packed else "unpacked"


@launch_shapes
def tree_ensemble_shape(rows: str, size: str, nodes: str, outputs: str) -> Shape:
    """Return how many rows and elements a program has at a time, and the form of the nodes that they descend.

    Few rows wait for memory, and so do many rows in trees larger than the caches: quads halve that wait. Many rows in
    small trees wait for arithmetic; plain nodes need less of it. A program with an ordered sum need not take all trees:
    for few rows several programs share them.

    If PARTS is true, a program takes only one block of trees, and programs launched one after the other take the same
    trees. A multiprocessor then descends few deep trees with many rows, and finds more nodes in its cache.
    """
    if rows == "few" and outputs == "ordered":
        return {"BLOCK_ROWS": 1, "ELEMENTS": 128, "FORM": "quads", "num_warps": 4, "maxnreg": None}
    if rows == "few":
        elements = 512 if outputs == "one" else 1024
        return {"BLOCK_ROWS": 1, "ELEMENTS": elements, "FORM": "quads", "num_warps": 16, "maxnreg": None}
    if rows == "some":
        return {"BLOCK_ROWS": 8, "ELEMENTS": 1024, "FORM": "quads", "num_warps": 8, "maxnreg": None}
    if size in ("large", "deep"):
        return {"BLOCK_ROWS": 32, "ELEMENTS": 4096, "FORM": "quads", "num_warps": 8, "maxnreg": None, "PARTS": False}
    # The code for missing numbers needs more registers; with those, fewer programs would share a multiprocessor.
    return {"BLOCK_ROWS": 32, "ELEMENTS": 2048, "FORM": "plain", "num_warps": 8, "maxnreg": 64}


class SymmetricTile(NamedTuple):
    """The work that a program does, in all and at a time."""

    counted: bool  # whether questions are answered beforehand
    block_rows: int
    block_trees: int
    span: int  # of trees
    num_warps: int


def symmetric_tile(rows: int, trees: int, outputs: int) -> SymmetricTile:
    """Return the largest tile that leaves enough programs for the rows, each with enough trees."""
    if rows * trees <= FEW_PAIRS:
        most = 128 if rows * trees <= VERY_FEW_PAIRS else 256 if trees > 1024 else 1024
        block_trees = min(triton.next_power_of_2(trees), most)
        num_warps = 4 if block_trees < 1024 else 8
        return SymmetricTile(False, max(128 // block_trees, 1), block_trees, block_trees, num_warps)
    tiles = (
        tile
        for tile in SYMMETRIC_TILES
        if triton.cdiv(rows, tile[0]) * outputs * max(trees // tile[2], 1) >= SYMMETRIC_PROGRAMS
    )
    block_rows, block_trees, fewest = next(tiles, SYMMETRIC_TILES[-1])
    programs = triton.cdiv(rows, block_rows) * outputs
    few = programs < SYMMETRIC_PROGRAMS
    parts = min(triton.cdiv(2 * SYMMETRIC_PROGRAMS, programs), max(trees // fewest, 1)) if few else 1
    span = triton.cdiv(triton.cdiv(trees, parts), block_trees) * block_trees
    return SymmetricTile(True, block_rows, block_trees, span, 4)


def stacked_symmetric_tile(rows: int, trees: int) -> tuple[int, int, int]:
    """Return the rows of a program of stacked symmetric trees, the trees that it takes at a time, and its warps.

    `trees` is the most trees of a member. A program has one row, all of whose trees it takes together if there are few
    rows: many rows keep a GPU busy with fewer lanes each.
    """
    most = 1024 if rows * trees <= FEW_PAIRS else 256
    block_trees = min(triton.next_power_of_2(trees), most)
    return max(128 // block_trees, 1), block_trees, 4 if block_trees < 1024 else 8


MOST_ENTRIES = 512
"""The most entries that a program of contributions adds up at a time."""


class ContributionsTile(NamedTuple):
    """The work that programs of contributions do at a time."""

    together: int  # rows, one or a multiple of 32
    block_entries: int  # entries that a program adds up
    num_warps: int  # of a program that adds up


FEW_ROWS, FEW_LOOK_UPS = 64, 3 * 2**19
"""Up to so many rows, and entries times rows, each row has programs of its own."""


def contributions_tile(rows: int, entries: int) -> ContributionsTile:
    """Return the tile for `rows` rows: few rows are spread over as many programs as possible.

    `entries` is the number of entries of all outputs.
    """
    few = rows <= FEW_ROWS and rows * entries <= FEW_LOOK_UPS
    return ContributionsTile(1, MOST_ENTRIES, 4) if few else ContributionsTile(64, 4, 1)


class WalkTile(NamedTuple):
    """How programs walk over trees (`path_kernels.py`)."""

    programs: int  # each a warp, as many as run together on a large GPU
    registers: int  # of a thread, as many as these programs leave it


WALK_TILE = WalkTile(2640, 96)
"""20 programs of a warp on each multiprocessor hide how long loads take behind each other."""
