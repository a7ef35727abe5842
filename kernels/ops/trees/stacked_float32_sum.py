"""Sums in float32 of the trees of each row's own member, one tree after the other, rounded at each step.

A first kernel writes the baseline of each row's member and then its trees' leaf values, as many as the member with the
most trees has; a row of a member with fewer trees gets −0.0 after them, which changes no sum. The second kernel is that
of `float32_sum.py`, so that a row has the bits of its member alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from ...numerics.members import member_places
from ...plan.plan import Parameters
from .float32_sum import AT_ONCE, BLOCK, NOTHING, ordered_sum_kernel, row_parts
from .launch import tree_tile
from .traverse import reach, rows_of_lanes


@triton.jit(do_not_specialize=["rows", "first", "members"])
def stacked_values_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    numbers,  # float32 or float64 [rows], the numbers of the rows' members
    nodes,  # int64 [nodes]
    thresholds,  # float32 or float64 [nodes] where WIDE
    sets,  # int32 [sets, WORDS]
    roots,  # int32 [trees]
    first_tree,  # int32 [members + 1], of each member's trees
    levels,  # int32 [members], of the deepest tree of each
    plain,  # int64 [nodes] where FORM is "plain"
    quads,  # int64 [groups, 4, 2] where FORM is "quads"
    quad_roots,  # int32 [trees] where FORM is "quads"
    leaves,  # int32 [leaves], the bits of float32 numbers
    baseline,  # float32 [members]
    held,  # int32 [⌈rows / BLOCK⌉, PLACES, BLOCK], the bits of float32 numbers
    rows,
    first,  # the number of the first member
    members,
    FEATURES: tl.constexpr,
    PLACES: tl.constexpr,
    FEATURE_BITS: tl.constexpr,
    WIDE: tl.constexpr,
    WORDS: tl.constexpr,
    FLOOR: tl.constexpr,
    FORM: tl.constexpr,
    WIDTH: tl.constexpr,
    SPAN: tl.constexpr,
    BLOCK_TREES: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
):
    """Write the terms of rows' sums. A program does `BLOCK_ROWS` rows of `SPAN` terms in blocks."""
    first_row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS
    lane = tl.arange(0, BLOCK_TREES * BLOCK_ROWS)
    r = lane % BLOCK_ROWS
    row = first_row + r
    member = member_places(numbers, row, row < rows, first, members)
    begin = tl.load(first_tree + member, mask=row < rows, other=0)
    end = tl.load(first_tree + member + 1, mask=row < rows, other=0)
    deepest = tl.max(tl.load(levels + member, mask=row < rows, other=0), axis=0)
    table, swizzle, complete = rows_of_lanes(
        x, first_row, rows, r,
        dtype=thresholds.dtype.element_ty, FEATURES=FEATURES, WIDTH=WIDTH, BLOCK_ROWS=BLOCK_ROWS,
    )  # fmt: skip
    span = tl.program_id(1) * SPAN
    held += first_row // BLOCK * (PLACES * BLOCK) + first_row % BLOCK
    at = r // BLOCK * (PLACES * BLOCK) + r % BLOCK  # programs begin at multiples of a power of two
    for start in tl.range(span, tl.minimum(span + SPAN, PLACES), BLOCK_TREES):
        place = start + lane // BLOCK_ROWS
        tree = begin + place - 1
        inside = (place > 0) & (tree < end)
        found = reach(
            x, table, swizzle, complete, row, tree,
            nodes, thresholds, sets, roots, plain, quads, quad_roots, leaves, deepest, inside,
            HOLDS=True, FEATURES=FEATURES, FEATURE_BITS=FEATURE_BITS, WIDE=WIDE, WORDS=WORDS, FLOOR=FLOOR,
            FORM=FORM, TOGETHER=False, WIDTH=WIDTH, BLOCK_ROWS=BLOCK_ROWS,
        )  # fmt: skip
        begins = (place == 0) & (row < rows)
        other = tl.load(baseline + member, mask=begins, other=-0.0).to(tl.int32, bitcast=True)
        bits = tl.where(inside, found.to(tl.int32), tl.where(begins, other, NOTHING))
        tl.store(held + at + place * BLOCK, bits, mask=(place < PLACES) & (row < rows))


def sum_places(trees: int) -> dict[str, np.ndarray]:
    """Return parameters of the second kernel for members of at most that many trees: its group, and its sums' start."""
    return {"first_place": np.array([0, _places(trees)], dtype=np.int32), "nothing": np.array([-0.0], dtype=np.float32)}


def launch_stacked_ordered(
    parameters: Parameters,
    x: torch.Tensor,
    numbers: torch.Tensor,
    output: torch.Tensor,
    rows: int,
    first: int,
    layout: dict[str, Any],
    trees: int,
    function: str,
) -> None:
    """Launch both kernels, for limited numbers of rows at a time.

    Args:
        parameters: the parameters of stacked tree ensembles.
        x: `[rows, features]`.
        numbers: the numbers of the rows' members, `[rows, 1]`.
        output: `[rows, 1]`.
        rows: the number of rows.
        first: the number of the first member.
        layout: the layout of nodes, as constants of the first kernel.
        trees: the most trees of a member.
        function: the function of the sums.
    """
    places = _places(trees)
    members, nodes, packed = len(parameters["baseline"]), len(parameters["nodes"]), len(parameters["quads"]) > 0
    tables = {name: tensor for name, tensor in parameters.items() if name not in ("first_place", "nothing")}
    for part, count in row_parts(rows, places):
        tile = tree_tile(count, places, 1, x.shape[1], nodes, packed, x.device, ordered=True, ensembles=members)
        form = "nodes" if tile.width is None or not len(parameters[tile.form]) else tile.form
        held = torch.empty(triton.cdiv(count, BLOCK.value), places, BLOCK.value, dtype=torch.int32, device=x.device)
        span = tile.block_trees if tile.block_rows == 1 else places
        stacked_values_kernel[(triton.cdiv(count, tile.block_rows), triton.cdiv(places, span))](
            x=x[part],
            numbers=numbers[part],
            **tables,
            held=held,
            rows=count,
            first=first,
            members=members,
            **layout,
            PLACES=places,
            FORM=form,
            WIDTH=tile.width,
            SPAN=span,
            BLOCK_TREES=tile.block_trees,
            BLOCK_ROWS=tile.block_rows,
            num_warps=tile.num_warps,
            maxnreg=tile.registers if form == "plain" else None,
        )
        ordered_sum_kernel[(len(held), 1, 1)](
            held=held,
            leaves=parameters["leaves"],
            first_place=parameters["first_place"],
            baseline=parameters["nothing"],
            out=output[part],
            rows=count,
            PLACES=places,
            OUTPUTS=1,
            WIDTH=1,
            FUNCTION=function,
            BLOCK_WIDTH=1,
            num_warps=1,
        )


def _places(trees: int) -> int:
    """Return the terms of a sum, the baseline and as many trees, rounded up to what the second kernel adds at once."""
    return triton.cdiv(trees + 1, AT_ONCE.value) * AT_ONCE.value
