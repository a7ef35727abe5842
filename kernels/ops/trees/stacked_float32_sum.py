"""Sums in float32 of the trees of each row's own member, one tree after the other, rounded at each step.

A first kernel writes the baseline of each row's member and then its trees' leaf values, as many as the member with the
most trees has; a row of a member with fewer trees gets −0.0 after them, which changes no sum. It does so for each group
of trees. The second kernel is that of `float32_sum.py`, so that a row has the bits of its member alone.

If a leaf holds several numbers, the first kernel writes numbers of leaves. The members' baselines then are further rows
of `leaves`, and its last row is −0.0.
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
    first_tree,  # int32 [members * GROUPS + 1], of each group of each member's trees
    levels,  # int32 [members], of the deepest tree of each
    plain,  # int64 [nodes] where FORM is "plain"
    quads,  # int64 [groups, 4, 2] where FORM is "quads"
    quad_roots,  # int32 [trees] where FORM is "quads"
    leaves,  # int32 [leaves] where HOLDS, the bits of float32 numbers
    baseline,  # float32 [members * GROUPS] where HOLDS
    held,  # int32 [⌈rows / BLOCK⌉, GROUPS * PLACES, BLOCK], bits where HOLDS, else rows of `leaves`
    rows,
    first,  # the number of the first member
    members,
    HOLDS: tl.constexpr,
    LEAVES: tl.constexpr,
    FEATURES: tl.constexpr,
    GROUPS: tl.constexpr,
    PLACES: tl.constexpr,  # of a group
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
    """Write the terms of rows' sums. A program does `BLOCK_ROWS` rows of `SPAN` terms of one group in blocks."""
    first_row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS
    lane = tl.arange(0, BLOCK_TREES * BLOCK_ROWS)
    r = lane % BLOCK_ROWS
    row = first_row + r
    member = member_places(numbers, row, row < rows, first, members)
    ensemble = member * GROUPS + tl.program_id(2)
    begin = tl.load(first_tree + ensemble, mask=row < rows, other=0)
    end = tl.load(first_tree + ensemble + 1, mask=row < rows, other=0)
    deepest = tl.max(tl.load(levels + member, mask=row < rows, other=0), axis=0)
    table, swizzle, complete = rows_of_lanes(
        x, first_row, rows, r,
        dtype=thresholds.dtype.element_ty, FEATURES=FEATURES, WIDTH=WIDTH, BLOCK_ROWS=BLOCK_ROWS,
    )  # fmt: skip
    span = tl.program_id(1) * SPAN
    held += first_row // BLOCK * (GROUPS * PLACES * BLOCK) + tl.program_id(2) * (PLACES * BLOCK) + first_row % BLOCK
    at = r // BLOCK * (GROUPS * PLACES * BLOCK) + r % BLOCK  # programs begin at multiples of a power of two
    for start in tl.range(span, tl.minimum(span + SPAN, PLACES), BLOCK_TREES):
        place = start + lane // BLOCK_ROWS
        tree = begin + place - 1
        inside = (place > 0) & (tree < end)
        found = reach(
            x, table, swizzle, complete, row, tree,
            nodes, thresholds, sets, roots, plain, quads, quad_roots, leaves, deepest, inside,
            HOLDS=HOLDS, FEATURES=FEATURES, FEATURE_BITS=FEATURE_BITS, WIDE=WIDE, WORDS=WORDS, FLOOR=FLOOR,
            FORM=FORM, TOGETHER=False, WIDTH=WIDTH, BLOCK_ROWS=BLOCK_ROWS,
        )  # fmt: skip
        begins = (place == 0) & (row < rows)
        if HOLDS:
            other = tl.load(baseline + ensemble, mask=begins, other=0.0).to(tl.int32, bitcast=True)
            other = tl.where(begins, other, NOTHING)
        else:
            other = LEAVES + tl.where(begins, ensemble, members * GROUPS).to(tl.int32)
        bits = tl.where(inside, found.to(tl.int32), other)
        tl.store(held + at + place * BLOCK, bits, mask=(place < PLACES) & (row < rows))


def sum_places(trees: int, groups: int, outputs: int) -> dict[str, np.ndarray]:
    """Return parameters of the second kernel for at most that many trees of a group: groups, and its sums' start."""
    first_place = np.arange(groups + 1, dtype=np.int32) * np.int32(_places(trees))
    return {"first_place": first_place, "nothing": np.full(outputs, -0.0, dtype=np.float32)}


def with_baselines(leaves: np.ndarray, baseline: np.ndarray) -> np.ndarray:
    """Return leaves of several numbers, float32 `[leaves, width]`, with the members' baselines and −0.0 after them."""
    nothing = np.full((1, leaves.shape[1]), -0.0, dtype=np.float32)
    return np.concatenate([leaves, baseline.reshape(-1, leaves.shape[1]), nothing]) if leaves.shape[1] > 1 else leaves


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
        output: `[rows, outputs]`.
        rows: the number of rows.
        first: the number of the first member.
        layout: the layout of nodes, as constants of the first kernel.
        trees: the most trees of a member, or of a group of its trees.
        function: the function of the sums.
    """
    places = _places(trees)
    ensembles, nodes, packed = len(parameters["first_tree"]) - 1, len(parameters["nodes"]), len(parameters["quads"]) > 0
    (leaves, width), groups = parameters["leaves"].shape, len(parameters["first_place"]) - 1
    of_sums = ("first_place", "nothing")
    tables = {name: tensor for name, tensor in parameters.items() if name not in of_sums}
    for part, count in row_parts(rows, groups * places):
        tile = tree_tile(count, places, 1, x.shape[1], nodes, packed, x.device, ordered=True, ensembles=ensembles)
        form = "nodes" if tile.width is None or not len(parameters[tile.form]) else tile.form
        shape = triton.cdiv(count, BLOCK.value), groups * places, BLOCK.value
        held = torch.empty(shape, dtype=torch.int32, device=x.device)
        span = tile.block_trees if tile.block_rows == 1 else places
        stacked_values_kernel[(triton.cdiv(count, tile.block_rows), triton.cdiv(places, span), groups)](
            x=x[part],
            numbers=numbers[part],
            **tables,
            held=held,
            rows=count,
            first=first,
            members=ensembles // groups,
            HOLDS=width == 1,
            LEAVES=leaves - ensembles - 1,
            **layout,
            GROUPS=groups,
            PLACES=places,
            FORM=form,
            WIDTH=tile.width,
            SPAN=span,
            BLOCK_TREES=tile.block_trees,
            BLOCK_ROWS=tile.block_rows,
            num_warps=tile.num_warps,
            maxnreg=tile.registers if form == "plain" else None,
        )
        block_width = min(triton.next_power_of_2(width), 8)
        ordered_sum_kernel[(len(held), groups, triton.cdiv(width, block_width))](
            held=held,
            leaves=parameters["leaves"],
            first_place=parameters["first_place"],
            baseline=parameters["nothing"],
            out=output[part],
            rows=count,
            PLACES=groups * places,
            OUTPUTS=output.shape[1],
            WIDTH=width,
            FUNCTION=function,
            BLOCK_WIDTH=block_width,
            num_warps=1,
        )


def _places(trees: int) -> int:
    """Return the terms of a sum, the baseline and as many trees, rounded up to what the second kernel adds at once."""
    return triton.cdiv(trees + 1, AT_ONCE.value) * AT_ONCE.value
