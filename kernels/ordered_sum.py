"""Sums of trees in float32, one tree after the other: `out[r] = f(((baseline + v₁) + v₂) + …)`, rounded at each step.

So XGBoost sums, whose bits no other order gives. The trees need no order to be descended, and as many at a time as a
program has lanes: a first kernel writes what each tree holds for each row, a second one adds that up. Neither the one's
tiles nor the other's change the order.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from .descent import feature_table, is_complete, reach
from .errors import PlanError
from .functions import apply_function
from .plan import Parameters
from .tree_tile import tree_tile

LARGEST_SCRATCH = 2**25
"""How many numbers the first kernel writes before the second reads them: 128 MB."""

FEWEST_ROWS = 32
"""How many rows these are of at least."""

AT_ONCE = 64
"""How many trees' numbers the second kernel waits for together."""

BLOCK_ROWS = 64
"""How many rows a program of the second kernel adds up."""

FEW_NUMBERS = 8
"""Fewer columns than these numpy adds up one by one; of more it adds rows to each other, never a column in parts."""

NOTHING = tl.constexpr(-(2**31))
"""The bits of −0.0, which changes no sum."""


def check_ordered(
    values: np.ndarray, baseline: np.ndarray, starts: np.ndarray, trees: int, divisor: float, ordered: bool
) -> None:
    """Raise `PlanError` unless these fit an output that is ordered, or is not; `values` are `[leaves, outputs]`."""
    if not ordered:
        if len(starts):
            raise PlanError("tree_ensemble: starts must be empty unless the output is 'ordered'.")
        return
    if values.dtype != np.float32 or baseline.dtype != np.float32 or divisor != 1:
        raise PlanError("tree_ensemble: values and baseline must be float32, and divisor 1, where output is 'ordered'.")
    if starts.dtype != np.int32 or starts.ndim != 1 or len(starts) < 2 or (np.diff(starts) < 0).any():
        raise PlanError("tree_ensemble: starts must be int32 [groups + 1], at least one group, and not descend.")
    if starts[0] != 0 or starts[-1] != trees:
        raise PlanError(f"tree_ensemble: starts must begin with 0 and end with {trees}.")


def ordered_sum(leaf: torch.Tensor, parameters: Parameters, rows: int) -> torch.Tensor:
    """Return the sums in plain torch, float32 `[rows, outputs]`.

    Args:
        leaf: the number of the leaf that each row reaches in each tree, int32 `[trees · rows]`.
        parameters: of a tree ensemble.
        rows: how many.
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
        terms = held.view(last - first, rows * width).cpu().numpy()
        few = terms.shape[1] < FEW_NUMBERS
        with np.errstate(all="ignore"):  # infinity is an answer
            added = np.add.accumulate(terms, axis=0)[-1] if few else np.add.reduce(terms, axis=0)  # row after row
        total.copy_(torch.from_numpy(added).view(rows, width))
    return sums


@triton.jit(do_not_specialize=["rows"])
def tree_values_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    nodes,  # int64 [nodes]
    thresholds,  # float32 or float64 [nodes] where WIDE
    sets,  # int32 [sets, WORDS]
    roots,  # int32 [TREES]
    depths,  # int32 [TREES], of the deepest tree so far
    places,  # int32 [TREES], of each tree in the order of the sum
    plain,  # int64 [nodes] where FORM is "plain"
    quads,  # int64 [groups, 4, 2] where FORM is "quads"
    quad_roots,  # int32 [TREES] where FORM is "quads"
    leaves,  # int32 [leaves] where HOLDS
    held,  # int32 [TREES, rows]
    rows,
    HOLDS: tl.constexpr,
    FEATURES: tl.constexpr,
    TREES: tl.constexpr,
    FEATURE_BITS: tl.constexpr,
    WIDE: tl.constexpr,
    WORDS: tl.constexpr,
    FLOOR: tl.constexpr,
    FORM: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_TREES: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
):
    """What the leaves hold that rows reach. A program does `BLOCK_ROWS` rows of `BLOCK_TREES` trees."""
    first_row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS
    lane = tl.arange(0, BLOCK_TREES * BLOCK_ROWS)
    r = lane % BLOCK_ROWS
    row = first_row + r
    tree = tl.program_id(1) * BLOCK_TREES + lane // BLOCK_ROWS
    inside = (tree < TREES) & (row < rows)
    levels = tl.load(depths + tl.minimum((tl.program_id(1) + 1) * BLOCK_TREES, TREES) - 1)
    table = None
    if WIDTH is not None:
        table = feature_table(
            x, first_row, rows,
            dtype=thresholds.dtype.element_ty, FEATURES=FEATURES, WIDTH=WIDTH, BLOCK_ROWS=BLOCK_ROWS,
        )  # fmt: skip
    swizzle = (r & (WIDTH - 1)) * BLOCK_ROWS + r if WIDTH is not None else None
    complete = is_complete(table) if FORM != "nodes" else 0
    found = reach(
        x, table, swizzle, complete, row, tree,
        nodes, thresholds, sets, roots, plain, quads, quad_roots, leaves, levels, inside,
        HOLDS=HOLDS, FEATURES=FEATURES, FEATURE_BITS=FEATURE_BITS, WIDE=WIDE, WORDS=WORDS, FLOOR=FLOOR,
        FORM=FORM, WIDTH=WIDTH, BLOCK_ROWS=BLOCK_ROWS,
    )  # fmt: skip
    place = tl.load(places + tree, mask=inside, other=0)
    tl.store(held + place.to(tl.int64) * rows + row, found.to(tl.int32), mask=inside)


@triton.jit(do_not_specialize=["rows"])
def ordered_sum_kernel(
    held,  # int32 [trees, rows], the bits of a float32 where WIDTH is 1, else the number of a leaf
    leaves,  # int32 [leaves, WIDTH], the bits of float32 numbers
    starts,  # int32 [OUTPUTS // WIDTH + 1], the first tree of each group
    baseline,  # float32 [OUTPUTS]
    out,  # float32 or float64 [rows, OUTPUTS]
    rows,
    OUTPUTS: tl.constexpr,
    WIDTH: tl.constexpr,
    FUNCTION: tl.constexpr,
    AT_ONCE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
):
    """The sums over the trees. A program makes `[BLOCK_ROWS, BLOCK_WIDTH]` of the outputs of one group."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    group = tl.program_id(1)
    column = tl.program_id(2) * BLOCK_WIDTH + tl.arange(0, BLOCK_WIDTH)
    inside = (row < rows)[:, None] & (column < WIDTH)[None, :]
    at = row[:, None] * OUTPUTS + (group * WIDTH + column)[None, :]
    total = tl.load(baseline + (group * WIDTH + column)[None, :] + 0 * row[:, None], mask=inside, other=0.0)
    last = tl.load(starts + group + 1)
    for start in tl.range(tl.load(starts + group), last, AT_ONCE):
        for ahead in tl.static_range(AT_ONCE):
            tree = start + ahead
            mask = (row < rows) & (tree < last)
            bits = tl.load(held + tree.to(tl.int64) * rows + row, mask=mask, other=NOTHING)[:, None]
            if WIDTH > 1:
                leaf = tl.where(mask[:, None], bits, 0).to(tl.int64)
                bits = tl.load(leaves + leaf * WIDTH + column[None, :], mask=mask[:, None] & inside, other=NOTHING)
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
    """Launch both kernels, for as many rows at a time as may wait in between.

    Args:
        parameters: of a tree ensemble.
        x: `[rows, features]`.
        output: `[rows, outputs]`.
        rows: how many.
        layout: how nodes lie, as constants of the first kernel.
        function: of the sums.
    """
    tables = {name: parameters[name] for name in ("nodes", "thresholds", "sets", "roots", "depths", "places")}
    tables |= {name: parameters[name] for name in ("plain", "quads", "quad_roots", "leaves")}
    trees, groups, width = len(parameters["roots"]), len(parameters["starts"]) - 1, parameters["leaves"].shape[1]
    nodes, packed = len(parameters["nodes"]), len(parameters["quads"]) > 0
    for part, count in _parts(rows, trees):
        tile = tree_tile(count, trees, 1, x.shape[1], nodes, packed, x.device, ordered=True)
        form = "nodes" if tile.width is None or not len(parameters[tile.form]) else tile.form
        held = torch.empty(trees, count, dtype=torch.int32, device=x.device)
        tree_values_kernel[(triton.cdiv(count, tile.block_rows), triton.cdiv(trees, tile.block_trees))](
            x=x[part],
            **tables,
            held=held,
            rows=count,
            HOLDS=width == 1,
            **layout,
            TREES=trees,
            FORM=form,
            WIDTH=tile.width,
            BLOCK_TREES=tile.block_trees,
            BLOCK_ROWS=tile.block_rows,
            num_warps=tile.num_warps,
            maxnreg=tile.registers if form == "plain" else None,
        )
        block_width = min(triton.next_power_of_2(width), 8)
        ordered_sum_kernel[(triton.cdiv(count, BLOCK_ROWS), groups, triton.cdiv(width, block_width))](
            held=held,
            leaves=parameters["leaves"],
            starts=parameters["starts"],
            baseline=parameters["baseline"],
            out=output[part],
            rows=count,
            OUTPUTS=output.shape[1],
            WIDTH=width,
            FUNCTION=function,
            AT_ONCE=min(triton.next_power_of_2(trees), AT_ONCE),
            BLOCK_ROWS=BLOCK_ROWS,
            BLOCK_WIDTH=block_width,
            num_warps=BLOCK_ROWS // 32,
        )


def _parts(rows: int, trees: int) -> Iterator[tuple[slice, int]]:
    """Yield which rows wait together, and how many they are."""
    most = max(LARGEST_SCRATCH // trees // FEWEST_ROWS * FEWEST_ROWS, FEWEST_ROWS)
    for start in range(0, rows, most):
        yield slice(start, min(start + most, rows)), min(most, rows - start)
