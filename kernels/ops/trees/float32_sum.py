"""Sums of trees in float32, one tree after the other: `out[r] = f(((baseline + v₁) + v₂) + …)`, rounded at each step.

XGBoost sums this way, and no other order gives its bits. Descending the trees needs no order, and takes as many at a
time as a program has lanes: a first kernel writes the leaf values of each tree for each row, a second one sums them.
The tiles of neither kernel change the order.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from ...cpu.ordered_sum import add_in_order
from ...format.errors import PlanError
from ...numerics.functions import apply_function
from ...plan.plan import Parameters
from .launch import tree_tile
from .traverse import reach, rows_of_lanes

LARGEST_SCRATCH = 2**25
"""The most numbers that the first kernel writes before the second reads them: 128 MB."""

AT_ONCE = tl.constexpr(32)
"""Trees whose numbers the second kernel loads together; groups are padded to a multiple of it."""

BLOCK = tl.constexpr(32)
"""Rows that are contiguous between the kernels, so that the stride between trees does not depend on the row count."""

NOTHING = tl.constexpr(-(2**31))
"""The bits of −0.0, which changes no sum and pads groups."""


def check_ordered(values: np.ndarray, baseline: np.ndarray, starts: np.ndarray, trees: int, divisor: float) -> None:
    """Raise `PlanError` unless these fit an ordered output; `values` are `[leaves, outputs]`."""
    if values.dtype != np.float32 or baseline.dtype != np.float32 or divisor != 1:
        raise PlanError("tree_ensemble: values and baseline must be float32, and divisor 1, where output is 'ordered'.")
    if starts.dtype != np.int32 or starts.ndim != 1 or len(starts) < 2 or (np.diff(starts) < 0).any():
        raise PlanError("tree_ensemble: starts must be int32 [groups + 1], at least one group, and not descend.")
    if starts[0] != 0 or starts[-1] != trees:
        raise PlanError(f"tree_ensemble: starts must begin with 0 and end with {trees}.")


def fill_groups(starts: np.ndarray, order: np.ndarray) -> dict[str, np.ndarray]:
    """Return the places of the trees' numbers between the kernels.

    Args:
        starts: the first tree of each group, and the number of trees, int32 `[groups + 1]`.
        order: the order in which trees are descended, `[trees]`.

    Returns:
        `first_place`, the first place of each group, and the number of places; `places`, the places of the trees in
        the order of descent, followed by the places without a tree.
    """
    sizes = np.diff(starts)
    filled = np.append(0, np.cumsum(-(-sizes // AT_ONCE.value) * AT_ONCE.value))
    places = np.arange(len(order)) + np.repeat(filled[:-1] - starts[:-1], sizes)
    empty = np.setdiff1d(np.arange(filled[-1]), places)
    return {
        "first_place": filled.astype(np.int32),
        "places": np.append(places[order], empty).astype(np.int32),
    }


def leaf_bits(values: np.ndarray) -> np.ndarray:
    """Return the bits of leaves' values, int32 `[leaves + 1, width]`; the last row is for places without a tree."""
    return np.append(values.view(np.int32), np.full((1, values.shape[1]), NOTHING.value, dtype=np.int32), axis=0)


def ordered_sum(leaf: torch.Tensor, parameters: Parameters, rows: int) -> torch.Tensor:
    """Return the sums in plain torch, float32 `[rows, outputs]`.

    Args:
        leaf: the number of the leaf that each row reaches in each tree, int32 `[trees · rows]`.
        parameters: the parameters of a tree ensemble.
        rows: the number of rows.
    """
    leaves, starts, baseline = (parameters[name] for name in ("leaves", "starts", "baseline"))
    width, ends = leaves.shape[1], starts.tolist()
    sums = baseline.repeat(rows, 1)
    for group, (first, last) in enumerate(itertools.pairwise(ends)):
        if first == last:
            continue
        held = leaves.index_select(0, leaf[first * rows : last * rows]).view(torch.float32)
        total = sums[:, group * width : (group + 1) * width]
        held[:rows] += total
        total.copy_(add_in_order(held.view(last - first, rows, width)))
    return sums


@triton.jit(do_not_specialize=["rows"])
def tree_values_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    nodes,  # int64 [nodes]
    thresholds,  # float32 or float64 [nodes] where WIDE
    sets,  # int32 [sets, WORDS]
    roots,  # int32 [TREES]
    depths,  # int32 [TREES], the depth of the deepest tree so far
    places,  # int32 [PLACES], the place of each tree in the order of the sum, then the places without a tree
    plain,  # int64 [nodes] where FORM is "plain"
    quads,  # int64 [groups, 4, 2] where FORM is "quads"
    quad_roots,  # int32 [TREES] where FORM is "quads"
    leaves,  # int32 [leaves] where HOLDS
    held,  # int32 [⌈rows / BLOCK⌉, PLACES, BLOCK]
    rows,
    HOLDS: tl.constexpr,
    EMPTY: tl.constexpr,  # the content of a place without a tree
    FEATURES: tl.constexpr,
    TREES: tl.constexpr,
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
    """Write the content of the leaves that rows reach. A program does `BLOCK_ROWS` rows of `SPAN` trees in blocks."""
    first_row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS
    lane = tl.arange(0, BLOCK_TREES * BLOCK_ROWS)
    r = lane % BLOCK_ROWS
    row = first_row + r
    table, swizzle, complete = rows_of_lanes(
        x, first_row, rows, r,
        dtype=thresholds.dtype.element_ty, FEATURES=FEATURES, WIDTH=WIDTH, BLOCK_ROWS=BLOCK_ROWS,
    )  # fmt: skip
    first = tl.program_id(1) * SPAN
    held += first_row // BLOCK * (PLACES * BLOCK) + first_row % BLOCK
    at = r // BLOCK * (PLACES * BLOCK) + r % BLOCK  # programs begin at multiples of a power of two
    for start in tl.range(first, tl.minimum(first + SPAN, PLACES), BLOCK_TREES):
        tree = start + lane // BLOCK_ROWS
        inside = (tree < TREES) & (row < rows)
        levels = tl.load(depths + tl.minimum(start + BLOCK_TREES, TREES) - 1)
        found = reach(
            x, table, swizzle, complete, row, tree,
            nodes, thresholds, sets, roots, plain, quads, quad_roots, leaves, levels, inside,
            HOLDS=HOLDS, FEATURES=FEATURES, FEATURE_BITS=FEATURE_BITS, WIDE=WIDE, WORDS=WORDS, FLOOR=FLOOR,
            FORM=FORM, TOGETHER=False, WIDTH=WIDTH, BLOCK_ROWS=BLOCK_ROWS,
        )  # fmt: skip
        filled = (tree < PLACES) & (row < rows)
        place = tl.load(places + tree, mask=filled, other=0)
        tl.store(held + at + place * BLOCK, tl.where(inside, found.to(tl.int32), EMPTY), mask=filled)


@triton.jit(do_not_specialize=["rows"])
def ordered_sum_kernel(
    held,  # int32 [⌈rows / BLOCK⌉, PLACES, BLOCK], the bits of a float32 if WIDTH is 1, else the number of a leaf
    leaves,  # int32 [leaves, WIDTH], the bits of float32 numbers
    first_place,  # int32 [OUTPUTS // WIDTH + 1], of each group
    baseline,  # float32 [OUTPUTS]
    out,  # float32 or float64 [rows, OUTPUTS]
    rows,
    PLACES: tl.constexpr,
    OUTPUTS: tl.constexpr,
    WIDTH: tl.constexpr,
    FUNCTION: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
):
    """Sum over the trees. A program makes `[BLOCK, BLOCK_WIDTH]` of the outputs of one group."""
    r = tl.arange(0, BLOCK)
    row = tl.program_id(0).to(tl.int64) * BLOCK + r
    block = held + tl.program_id(0).to(tl.int64) * (PLACES * BLOCK) + r
    group = tl.program_id(1)
    column = tl.program_id(2) * BLOCK_WIDTH + tl.arange(0, BLOCK_WIDTH)
    inside = (row < rows)[:, None] & (column < WIDTH)[None, :]
    at = row[:, None] * OUTPUTS + (group * WIDTH + column)[None, :]
    total = tl.load(baseline + (group * WIDTH + column)[None, :] + 0 * row[:, None], mask=inside, other=0.0)
    for start in tl.range(tl.load(first_place + group), tl.load(first_place + group + 1), AT_ONCE):
        for ahead in tl.static_range(AT_ONCE):
            bits = tl.load(block + start * BLOCK + ahead * BLOCK)[:, None]  # rows past the last hold arbitrary bits
            if WIDTH > 1:
                bits = tl.load(leaves + bits.to(tl.int64) * WIDTH + column[None, :], mask=inside, other=NOTHING)
            total += bits.to(tl.float32, bitcast=True)
    y = apply_function(total.to(tl.float64), FUNCTION)
    tl.store(out + at, y.to(out.dtype.element_ty), mask=inside)


def launch_ordered(
    parameters: Parameters,
    x: torch.Tensor,
    output: torch.Tensor,
    rows: int,
    layout: dict[str, Any],
    function: str,
) -> None:
    """Launch both kernels, for limited numbers of rows at a time.

    Args:
        parameters: the parameters of a tree ensemble.
        x: `[rows, features]`.
        output: `[rows, outputs]`.
        rows: the number of rows.
        layout: the layout of nodes, as constants of the first kernel.
        function: the function of the sums.
    """
    tables = {name: parameters[name] for name in ("nodes", "thresholds", "sets", "roots", "depths", "places")}
    tables |= {name: parameters[name] for name in ("plain", "quads", "quad_roots", "leaves")}
    leaves, trees, places = (len(parameters[name]) for name in ("leaves", "roots", "places"))
    groups, width = len(parameters["first_place"]) - 1, parameters["leaves"].shape[1]
    nodes, packed = len(parameters["nodes"]), len(parameters["quads"]) > 0
    for part, count in row_parts(rows, places):
        tile = tree_tile(count, places, 1, x.shape[1], nodes, packed, x.device, ordered=True)
        form = "nodes" if tile.width is None or not len(parameters[tile.form]) else tile.form
        held = torch.empty(triton.cdiv(count, BLOCK.value), places, BLOCK.value, dtype=torch.int32, device=x.device)
        span = tile.block_trees if tile.block_rows == 1 else places
        tree_values_kernel[(triton.cdiv(count, tile.block_rows), triton.cdiv(places, span))](
            x=x[part],
            **tables,
            held=held,
            rows=count,
            HOLDS=width == 1,
            EMPTY=NOTHING.value if width == 1 else leaves - 1,
            **layout,
            TREES=trees,
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
            baseline=parameters["baseline"],
            out=output[part],
            rows=count,
            PLACES=places,
            OUTPUTS=output.shape[1],
            WIDTH=width,
            FUNCTION=function,
            BLOCK_WIDTH=block_width,
            num_warps=1,
        )


def row_parts(rows: int, places: int) -> Iterator[tuple[slice, int]]:
    """Yield the slices of rows processed together, and their numbers of rows."""
    most = max(LARGEST_SCRATCH // (places * BLOCK.value), 1) * BLOCK.value
    for start in range(0, rows, most):
        yield slice(start, min(start + most, rows)), min(most, rows - start)
