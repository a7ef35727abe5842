"""Sums of trees of each row's own member, as integers: `out[r] = f((baseline[m] + unit[m] · Σₜ leafₜ) / divisor[m])`.

The trees of all members of a fleet lie one after the other, and those of a member group by group, if each output has
its own. A lane descends one of the trees of its row's member, and lanes of rows with fewer trees wait. Integers have
the same sum in any order, so that a row has the bits that the kernel of `integer_sum.py` gives for its member alone.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from ...numerics.functions import apply_function
from ...numerics.members import member_places
from ...plan.plan import Parameters
from .launch import filling_a_warp, tree_tile
from .traverse import reach, rows_of_lanes


@triton.jit(do_not_specialize=["rows", "first", "members"])
def stacked_sum_kernel(
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
    leaves,  # int64 [leaves, OUTPUTS // GROUPS]
    unit,  # float64 [members, OUTPUTS]
    baseline,  # float64 [members, OUTPUTS]
    divisor,  # float64 [members]
    out,  # float32 or float64 [rows, OUTPUTS]
    rows,
    first,  # the number of the first member
    members,
    FEATURES: tl.constexpr,
    OUTPUTS: tl.constexpr,
    GROUPS: tl.constexpr,  # of a member's trees; if there are several, each output has its own, and BLOCK_OUTPUTS is 1
    FUNCTION: tl.constexpr,
    FEATURE_BITS: tl.constexpr,
    WIDE: tl.constexpr,
    WORDS: tl.constexpr,
    FLOOR: tl.constexpr,
    FORM: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_TREES: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_OUTPUTS: tl.constexpr,
):
    """Sum all trees of each row's member. A program makes `[BLOCK_ROWS, BLOCK_OUTPUTS]`, `BLOCK_TREES` at a time."""
    first_row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS
    output = tl.program_id(1) * BLOCK_OUTPUTS + tl.arange(0, BLOCK_OUTPUTS)
    lane = tl.arange(0, BLOCK_TREES * BLOCK_ROWS)
    r = lane % BLOCK_ROWS
    row = first_row + r
    place = member_places(numbers, row, row < rows, first, members)
    ensemble = place * GROUPS + tl.program_id(1) if GROUPS > 1 else place
    begin = tl.load(first_tree + ensemble, mask=row < rows, other=0)
    end = tl.load(first_tree + ensemble + 1, mask=row < rows, other=0)
    most = tl.max(end - begin, axis=0)
    deepest = tl.max(tl.load(levels + place, mask=row < rows, other=0), axis=0)
    table, swizzle, complete = rows_of_lanes(
        x, first_row, rows, r,
        dtype=thresholds.dtype.element_ty, FEATURES=FEATURES, WIDTH=WIDTH, BLOCK_ROWS=BLOCK_ROWS,
    )  # fmt: skip
    total = tl.full([BLOCK_TREES * BLOCK_ROWS, BLOCK_OUTPUTS], 0, tl.int64)
    for start in tl.range(0, most, BLOCK_TREES):
        tree = begin + start + lane // BLOCK_ROWS
        inside = tree < end
        held = reach(
            x, table, swizzle, complete, row, tree,
            nodes, thresholds, sets, roots, plain, quads, quad_roots, leaves, deepest, inside,
            HOLDS=OUTPUTS == GROUPS, FEATURES=FEATURES, FEATURE_BITS=FEATURE_BITS, WIDE=WIDE, WORDS=WORDS,
            FLOOR=FLOOR, FORM=FORM, TOGETHER=False, WIDTH=WIDTH, BLOCK_ROWS=BLOCK_ROWS,
        )  # fmt: skip
        if OUTPUTS == GROUPS:
            total += held[:, None]
        else:
            mask = inside[:, None] & (output < OUTPUTS)[None, :]
            total += tl.load(leaves + held[:, None] * OUTPUTS + output[None, :], mask=mask, other=0)
    total = tl.sum(tl.reshape(total, [BLOCK_TREES, BLOCK_ROWS, BLOCK_OUTPUTS]), axis=0)
    row = first_row + tl.arange(0, BLOCK_ROWS)
    place = member_places(numbers, row, row < rows, first, members)
    inside = (row < rows)[:, None] & (output < OUTPUTS)[None, :]
    own = place[:, None] * OUTPUTS + output[None, :]
    scale, bias = tl.load(unit + own, mask=inside, other=0.0), tl.load(baseline + own, mask=inside, other=0.0)
    y = apply_function((bias + total.to(tl.float64) * scale) / tl.load(divisor + place)[:, None], FUNCTION)
    at = row[:, None] * OUTPUTS + output[None, :]
    tl.store(out + at, y.to(out.dtype.element_ty), mask=inside)


def launch_stacked_sum(
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
    """Launch the sums.

    Args:
        parameters: the parameters of stacked tree ensembles.
        x: `[rows, features]`.
        numbers: the numbers of the rows' members, `[rows, 1]`.
        output: `[rows, outputs]`.
        rows: the number of rows.
        first: the number of the first member.
        layout: the layout of nodes, as constants of the kernel.
        trees: the most trees of a member, or of a group of its trees.
        function: the function of the sums.
    """
    (members, outputs), ensembles = parameters["unit"].shape, len(parameters["first_tree"]) - 1
    groups, nodes, packed = ensembles // members, len(parameters["nodes"]), len(parameters["quads"]) > 0
    tile = tree_tile(rows, trees, outputs // groups, x.shape[1], nodes, packed, x.device, ensembles=ensembles)
    tile = filling_a_warp(tile)
    form = "nodes" if tile.width is None or not len(parameters[tile.form]) else tile.form
    stacked_sum_kernel[(triton.cdiv(rows, tile.block_rows), triton.cdiv(outputs, tile.block_outputs))](
        x=x,
        numbers=numbers,
        **parameters,
        out=output,
        rows=rows,
        first=first,
        members=members,
        **layout,
        OUTPUTS=outputs,
        GROUPS=groups,
        FUNCTION=function,
        FORM=form,
        WIDTH=tile.width,
        BLOCK_TREES=tile.block_trees,
        BLOCK_ROWS=tile.block_rows,
        BLOCK_OUTPUTS=tile.block_outputs,
        num_warps=tile.num_warps,
        maxnreg=tile.registers if form == "plain" else None,
    )
