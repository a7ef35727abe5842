"""Sums of trees as integers: `out[r] = f((baseline + unit · Σₜ leaf valueₜ) / divisor)`.

Integers have the same sum in any order. The tiling of rows and trees, which does follow the number of rows, therefore
cannot change an answer.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait

from ...numerics.functions import apply_function
from ...plan.devices import early_launch
from ...plan.plan import Parameters
from .launch import filling_a_warp, tree_tile
from .traverse import reach, rows_of_lanes

LARGEST_SCRATCH = 2**24
"""The most partial sums that wait to be added: 128 MB."""

ADDED = 32
"""The most sums that a program adds up, and parts of each at a time."""

ADDED_THERE, ADDED_ACROSS, CHUNKS_ADDED = (32, 8), (0, 128), 4
"""The rows and outputs whose chunks a program adds up, and the chunks at a time: few, so that there are many programs.

With 0 rows it makes answers that follow each other in memory, so that its lanes write whole lines over the bus.
"""

ROUND = tl.constexpr(1.5 * 2.0**52)
"""A number below 2⁵¹ plus this one, minus it, is the nearest whole number; that has the lowest bits of the sum."""


@triton.jit(do_not_specialize=["rows"])
def tree_sum_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    nodes,  # int64 [nodes]
    thresholds,  # float32 or float64 [nodes] where WIDE
    sets,  # int32 [sets, WORDS]
    roots,  # int32 [TREES]
    depths,  # int32 [TREES], the depth of the deepest tree so far
    first_tree,  # int32 [OUTPUTS + 1], of each output's trees, where GROUPED
    plain,  # int64 [nodes] where FORM is "plain"
    quads,  # int64 [groups, 4, 2] where FORM is "quads"
    quad_roots,  # int32 [TREES] where FORM is "quads"
    leaves,  # int64 [leaves, OUTPUTS]; where GROUPED [leaves, 1]
    unit,  # float64 [OUTPUTS]
    baseline,  # float64 [OUTPUTS]
    out,  # float32 or float64 [rows, OUTPUTS]; where PARTS int64 [parts, rows, OUTPUTS]
    rows,
    FEATURES: tl.constexpr,
    TREES: tl.constexpr,
    OUTPUTS: tl.constexpr,
    DIVISOR: tl.constexpr,
    FUNCTION: tl.constexpr,
    FEATURE_BITS: tl.constexpr,
    WIDE: tl.constexpr,
    WORDS: tl.constexpr,
    FLOOR: tl.constexpr,
    FORM: tl.constexpr,
    WIDTH: tl.constexpr,
    GROUPED: tl.constexpr,  # whether each output has trees of its own; BLOCK_OUTPUTS is then 1
    PARTS: tl.constexpr,  # whether sums are of `SPAN` trees instead of all
    SPAN: tl.constexpr,
    BLOCK_TREES: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_OUTPUTS: tl.constexpr,
):
    """Sum `SPAN` trees. A program makes `[BLOCK_ROWS, BLOCK_OUTPUTS]` sums from `BLOCK_TREES` trees at a time.

    Programs are launched in the order of their first number, so programs that run at the same time take the same trees.
    """
    first_row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS
    output = tl.program_id(1) * BLOCK_OUTPUTS + tl.arange(0, BLOCK_OUTPUTS)
    lane = tl.arange(0, BLOCK_TREES * BLOCK_ROWS)
    r = lane % BLOCK_ROWS
    row = first_row + r
    table, swizzle, complete = rows_of_lanes(
        x, first_row, rows, r,
        dtype=thresholds.dtype.element_ty, FEATURES=FEATURES, WIDTH=WIDTH, BLOCK_ROWS=BLOCK_ROWS,
    )  # fmt: skip
    total = tl.full([BLOCK_TREES * BLOCK_ROWS, BLOCK_OUTPUTS], 0, tl.int64)
    begin = tl.program_id(2) * SPAN if PARTS else 0
    end, span = TREES, SPAN
    if GROUPED:
        begin += tl.load(first_tree + tl.program_id(1))
        end = tl.load(first_tree + tl.program_id(1) + 1)
        span = tl.minimum(end - begin, SPAN)
    for ahead in tl.range(0, span, BLOCK_TREES):
        start = begin + ahead
        tree = start + lane // BLOCK_ROWS
        inside = (tree < end) & (row < rows)
        levels = tl.load(depths + tl.minimum(start + BLOCK_TREES, end) - 1)
        held = reach(
            x, table, swizzle, complete, row, tree,
            nodes, thresholds, sets, roots, plain, quads, quad_roots, leaves, levels, inside,
            HOLDS=GROUPED or OUTPUTS == 1, FEATURES=FEATURES, FEATURE_BITS=FEATURE_BITS, WIDE=WIDE, WORDS=WORDS,
            FLOOR=FLOOR, FORM=FORM, TOGETHER=PARTS, WIDTH=WIDTH, BLOCK_ROWS=BLOCK_ROWS,
        )  # fmt: skip
        if GROUPED or OUTPUTS == 1:
            total += held[:, None]
        else:
            mask = inside[:, None] & (output < OUTPUTS)[None, :]
            total += tl.load(leaves + held[:, None] * OUTPUTS + output[None, :], mask=mask, other=0)
    total = tl.sum(tl.reshape(total, [BLOCK_TREES, BLOCK_ROWS, BLOCK_OUTPUTS]), axis=0)
    row = first_row + tl.arange(0, BLOCK_ROWS)
    inside = (row < rows)[:, None] & (output < OUTPUTS)[None, :]
    at = row[:, None] * OUTPUTS + output[None, :]
    if PARTS:
        tl.store(out + tl.program_id(2).to(tl.int64) * rows * OUTPUTS + at, total, mask=inside)
    else:
        y = answer(total, unit + output[None, :], baseline + output[None, :], inside, DIVISOR, FUNCTION)
        tl.store(out + at, y.to(out.dtype.element_ty), mask=inside)


@triton.jit
def answer(total, unit, baseline, inside, DIVISOR: tl.constexpr, FUNCTION: tl.constexpr):
    """Return the answers for int64 sums of all trees, float64; `unit` and `baseline` are pointers."""
    scale, first = tl.load(unit, mask=inside, other=0.0), tl.load(baseline, mask=inside, other=0.0)
    return apply_function((first + total.to(tl.float64) * scale) / DIVISOR, FUNCTION)


@triton.jit
def store_sums(sums, unit, baseline, out, OUTPUTS: tl.constexpr, TOGETHER: tl.constexpr):
    """Store a program's int64 sums of one chunk: of `TOGETHER` rows as they are, and of one row as the answer.

    `out` is int64 `[chunks, blocks of rows, TOGETHER]`. For one row a chunk is an output, and `out` `[rows, OUTPUTS]`.
    """
    block, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    place = tl.arange(0, TOGETHER)
    if TOGETHER == 1:
        y = answer(sums, unit + chunk + place, baseline + chunk + place, place == 0, 1.0, "identity")
        tl.store(out + block * OUTPUTS + chunk + place, y.to(out.dtype.element_ty))
    else:
        tl.store(out + (chunk * tl.num_programs(0) + block) * TOGETHER + place, sums)


@triton.jit(do_not_specialize=["rows", "padded"])
def add_chunks_kernel(
    sums,  # int32 or int64 [chunks, padded]
    first_chunk,  # int32 [OUTPUTS + 1], of each output, then the number of chunks
    unit,  # float64 [OUTPUTS]
    baseline,  # float64 [OUTPUTS]
    out,  # float32 or float64 [rows, OUTPUTS]
    rows,
    padded,
    OUTPUTS: tl.constexpr,
    BLOCK_CHUNKS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_OUTPUTS: tl.constexpr,
    EARLY: tl.constexpr,  # see `early_launch`
):
    """Make `[BLOCK_ROWS, BLOCK_OUTPUTS]` answers from sums of chunks, of which it loads `BLOCK_CHUNKS` at a time.

    If `BLOCK_ROWS` is 0, make `BLOCK_OUTPUTS` answers that follow each other in memory.
    """
    if BLOCK_ROWS == 0:
        start = tl.program_id(0).to(tl.int64) * BLOCK_OUTPUTS
        place = (start % OUTPUTS).to(tl.int32) + tl.arange(0, BLOCK_OUTPUTS)[None, :]
        row, output = start // OUTPUTS + place // OUTPUTS, place % OUTPUTS
    else:
        row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
        output = tl.program_id(1) * BLOCK_OUTPUTS + tl.arange(0, BLOCK_OUTPUTS)[None, :]
    inside = (row < rows) & (output < OUTPUTS)
    first = tl.load(first_chunk + output, mask=output < OUTPUTS, other=0)
    end = tl.load(first_chunk + output + 1, mask=output < OUTPUTS, other=0)
    total = tl.zeros([BLOCK_ROWS if BLOCK_ROWS > 0 else 1, BLOCK_OUTPUTS], tl.int64)
    if EARLY:
        gdc_wait()
    for done in tl.range(0, tl.max(end - first), BLOCK_CHUNKS):
        for number in tl.static_range(BLOCK_CHUNKS):
            chunk = first + done + number
            total += tl.load(sums + chunk.to(tl.int64) * padded + row, mask=inside & (chunk < end), other=0)
    y = answer(total, unit + output, baseline + output, inside, 1.0, "identity")
    tl.store(out + row * OUTPUTS + output, y.to(out.dtype.element_ty), mask=inside)


def add_chunks(
    sums: torch.Tensor,
    first_chunk: torch.Tensor,
    parameters: Parameters,
    output: torch.Tensor,
    rows: int,
    *,
    after_a_kernel: bool = False,
) -> None:
    """Launch the sums over the chunks of each output, and write the answers of the first `rows`.

    `sums` is int32 or int64 `[all chunks, at least rows]`, and `first_chunk` int32 `[outputs + 1]`. The parameters used
    are `unit` and `baseline`.
    """
    outputs = output.shape[1]
    block_rows, block_outputs = ADDED_THERE if output.device == sums.device else ADDED_ACROSS
    grid = (
        (triton.cdiv(rows, block_rows), triton.cdiv(outputs, block_outputs))
        if block_rows
        else (triton.cdiv(rows * outputs, block_outputs), 1)
    )
    add_chunks_kernel[grid](
        sums=sums,
        first_chunk=first_chunk,
        **{name: parameters[name] for name in ("unit", "baseline")},
        out=output,
        rows=rows,
        padded=sums.shape[1],
        OUTPUTS=outputs,
        BLOCK_CHUNKS=CHUNKS_ADDED,
        BLOCK_ROWS=block_rows,
        BLOCK_OUTPUTS=block_outputs,
        **early_launch(sums.device, after_a_kernel=after_a_kernel),
        num_warps=4,
        enable_fp_fusion=False,  # so that a product is rounded before the sum, as in plain torch
    )


@triton.jit(do_not_specialize=["size", "parts"])
def add_parts_kernel(
    sums,  # int64 [parts, size]
    unit,  # float64 [OUTPUTS]
    baseline,  # float64 [OUTPUTS]
    out,  # float32 or float64 [size], a multiple of OUTPUTS
    size,
    parts,
    OUTPUTS: tl.constexpr,
    DIVISOR: tl.constexpr,
    FUNCTION: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_PARTS: tl.constexpr,
):
    """Make the answers from partial sums. A program makes `BLOCK` answers from `BLOCK_PARTS` parts at a time."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    part = tl.arange(0, BLOCK_PARTS)
    total = tl.zeros([BLOCK_PARTS, BLOCK], tl.int64)
    for start in tl.range(0, parts, BLOCK_PARTS):
        inside = (start + part < parts)[:, None] & (at < size)[None, :]
        total += tl.load(sums + (start + part).to(tl.int64)[:, None] * size + at[None, :], mask=inside, other=0)
    inside, output = at < size, at % OUTPUTS
    y = answer(tl.sum(total, axis=0), unit + output, baseline + output, inside, DIVISOR, FUNCTION)
    tl.store(out + at, y.to(out.dtype.element_ty), mask=inside)


def add_parts(
    sums: torch.Tensor, parameters: Parameters, output: torch.Tensor, function: str, divisor: float = 1.0
) -> None:
    """Launch the sum of `[parts, rows, outputs]` over the parts, and write the answers to those rows of `output`.

    The parameters used are `unit` and `baseline`.
    """
    parts, rows, outputs = sums.shape
    block = ADDED if rows * outputs >= ADDED else 1
    add_parts_kernel[(triton.cdiv(rows * outputs, block),)](
        sums=sums,
        unit=parameters["unit"],
        baseline=parameters["baseline"],
        out=output,
        size=rows * outputs,
        parts=parts,
        OUTPUTS=outputs,
        DIVISOR=divisor,
        FUNCTION=function,
        BLOCK=block,
        BLOCK_PARTS=ADDED * ADDED // block,
        num_warps=4,
    )


def launch_sum(
    parameters: Parameters,
    x: torch.Tensor,
    output: torch.Tensor,
    rows: int,
    layout: dict[str, Any],
    trees: int,
    divisor: float,
    function: str,
) -> None:
    """Launch the sum of all trees, or that of each group of trees.

    A sum in parts is made for a limited number of rows at a time.

    Args:
        parameters: the parameters of a tree ensemble.
        x: `[rows, features]`.
        output: `[rows, outputs]`.
        rows: the number of rows.
        layout: the layout of nodes, as constants of the kernel.
        trees: the number of trees, of the largest group if there are groups.
        divisor: the divisor of the sums.
        function: the function of the sums.
    """
    outputs, grouped = output.shape[1], len(parameters["first_tree"]) > 0
    groups = outputs if grouped else 1
    nodes, packed = len(parameters["nodes"]) // groups, len(parameters["quads"]) > 0
    tile = tree_tile(rows, trees, outputs // groups, x.shape[1], nodes, packed, x.device)
    form = "nodes" if tile.width is None or not len(parameters[tile.form]) else tile.form
    tile = filling_a_warp(tile) if grouped else tile
    span = tile.block_trees if tile.parts else triton.cdiv(trees, tile.block_trees) * tile.block_trees
    parts, column_blocks = triton.cdiv(trees, span), triton.cdiv(outputs, tile.block_outputs)
    answers = {"OUTPUTS": outputs, "DIVISOR": divisor, "FUNCTION": function, "BLOCK_OUTPUTS": tile.block_outputs}
    most = rows if parts == 1 else max(LARGEST_SCRATCH // (parts * outputs), 1)
    chunks = [(x, output, rows)]
    if rows > most:
        pieces = zip(x[:rows].split(most), output[:rows].split(most), strict=True)
        chunks = [(piece, out, len(piece)) for piece, out in pieces]
    for piece, out, count in chunks:
        shape = (parts, count, outputs)
        sums = torch.empty(shape, dtype=torch.int64, device=x.device) if parts > 1 else out
        tree_sum_kernel[(triton.cdiv(count, tile.block_rows), column_blocks, parts)](
            x=piece,
            **parameters,
            out=sums,
            rows=count,
            **layout,
            **answers,
            TREES=len(parameters["roots"]),
            FORM=form,
            WIDTH=tile.width,
            GROUPED=grouped,
            PARTS=parts > 1,
            SPAN=span,
            BLOCK_TREES=tile.block_trees,
            BLOCK_ROWS=tile.block_rows,
            num_warps=tile.num_warps,
            maxnreg=tile.registers if form == "plain" else None,
        )
        if parts > 1:
            add_parts(sums, parameters, out, function, divisor)
