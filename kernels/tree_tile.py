"""How many trees and rows a program of a tree ensemble's kernels takes at a time, and which nodes they go down."""

from __future__ import annotations

from typing import NamedTuple

import triton

MOST_PLAIN = 2**18
"""How many nodes an ensemble has at most for plain nodes to be packed: 2 MB."""

LARGEST_TABLE = 2**12
"""How many numbers a program's table of features holds at most."""

MOST_WRITES = 4
"""How many numbers of such a table may be written for each that is read: all are written at each level of the trees."""


class Tile(NamedTuple):
    """How much of its work a program does at a time."""

    block_trees: int
    block_rows: int
    block_outputs: int
    width: int | None  # of its table of features, a power of two; None where it has none
    form: str  # of the nodes that a sum's complete rows go down, where they have it
    num_warps: int
    registers: int | None = None  # of a thread at most


def tree_tile(rows: int, trees: int, outputs: int, features: int, nodes: int) -> Tile:
    """Return the tile for so many rows: what measured best on a GPU.

    Few rows wait for memory, and so do many rows in trees that are larger than the caches: quads halve that. Many rows
    in small trees wait for arithmetic, of which plain nodes need less. There is no table where that were large, or
    written for few trees' reading.
    """
    block_outputs = min(triton.next_power_of_2(outputs), 32)
    most_trees, registers = triton.next_power_of_2(trees), None
    if rows < 512:
        block_rows, form = 1, "quads"
        block_trees = min(most_trees, 1024 // max(block_outputs, 2))
        num_warps = max(block_trees // 32, 4)
    else:
        num_warps = 8
        if rows < 16384:
            block_rows, lanes, form = 8, 1024, "quads"
        elif nodes > MOST_PLAIN:
            block_rows, lanes, form = 32, 4096, "quads"
        else:
            block_rows, lanes, form = 32, 2048, "plain"
            registers = 64  # the way for missing numbers needs more, and fewer programs would share a processor
        block_trees = min(most_trees, max(lanes // (block_rows * block_outputs), 1))
    width = triton.next_power_of_2(features)
    table = width if width * block_rows <= LARGEST_TABLE and width <= MOST_WRITES * block_trees else None
    return Tile(block_trees, block_rows, block_outputs, table, form, num_warps, registers)
