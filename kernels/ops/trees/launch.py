"""How many trees and rows a program of a tree ensemble's kernels takes at a time, and which nodes they go down."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton

from ...plan.launch_shapes import Shape, launch_shapes

MOST_CACHED = 2**15
"""How many nodes a small ensemble has at most: 256 KB."""

MOST_NARROW = 64
"""The widest table of features that is not broad."""

MOST_PLAIN = 2**18
"""How many nodes an ensemble has at most for plain nodes to be packed: 2 MB."""

LARGEST_TABLE = 2**12
"""How many numbers a program's table of features holds at most."""

MOST_WRITES = 4
"""How many numbers of such a table may be written for each that is read: all are written at each level of the trees."""

MOST_SHALLOW = 2**12
"""How many nodes trees have in the mean at most that are not deep."""


class Tile(NamedTuple):
    """How much of its work a program does at a time."""

    block_trees: int
    block_rows: int
    block_outputs: int
    width: int | None  # of its table of features, a power of two; None where it has none
    form: str  # of the nodes that a sum's complete rows go down, where they have it
    num_warps: int
    registers: int | None = None  # of a thread at most
    parts: bool = False  # whether a program takes these trees alone, and what programs find is added up


def tree_tile(
    rows: int,
    trees: int,
    outputs: int,
    features: int,
    nodes: int,
    packed: bool,
    device: torch.device,
    ordered: bool = False,
) -> Tile:
    """Return the tile for so many rows.

    `packed` says whether there are quads, and `ordered` whether a program writes what its trees hold, which others add.

    There is no table where that were large, or written for few trees' reading.
    """
    block_outputs = min(triton.next_power_of_2(outputs), 32)
    width = triton.next_power_of_2(features)
    of_outputs = "ordered" if ordered else "one" if outputs == 1 else "several"
    shape = tree_ensemble_shape.of(device, *tree_class(rows, trees, nodes, width, packed), of_outputs)
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


def tree_class(rows: int, trees: int, nodes: int, width: int, packed: bool) -> tuple[str, str, str]:
    """Return the classes of the number of rows, of the ensemble's size, and of its nodes and table of features."""
    of_rows = "few" if rows < 512 else "some" if rows < 16384 else "many"
    of_large = "deep" if nodes > MOST_SHALLOW * trees else "large"
    of_nodes = "small" if nodes <= MOST_CACHED else "middle" if nodes <= MOST_PLAIN else of_large
    return of_rows, of_nodes, "broad" if width > MOST_NARROW else "packed" if packed else "unpacked"


@launch_shapes
def tree_ensemble_shape(rows: str, size: str, nodes: str, outputs: str) -> Shape:
    """Return how many rows and elements a program has at a time, and which nodes they go down.

    Few rows wait for memory, and so do many rows in trees that are larger than the caches: quads halve that. Many rows
    in small trees wait for arithmetic, of which plain nodes need less. Of an ordered sum a program need not take all
    trees: of few rows several programs do.

    Where PARTS is true, a program takes as many trees as it has at a time, and programs that are launched one after the
    other take the same ones. So a processor goes down few deep trees with many rows, and finds more nodes in its cache.
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
    # The way for missing numbers needs more registers, and fewer programs would share a processor.
    return {"BLOCK_ROWS": 32, "ELEMENTS": 2048, "FORM": "plain", "num_warps": 8, "maxnreg": 64}
