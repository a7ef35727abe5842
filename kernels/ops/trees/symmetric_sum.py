"""Sums of symmetric trees as integers: `out[r] = f(baseline + unit · Σₜ leaf valueₜ)`; see `symmetric_trees.py`.

For few rows each lane takes one row and one tree, and answers the tree's questions itself. For more rows all questions
are answered beforehand (`border_counts.py`), and a lane takes four rows of a tree. Few rows are spread over programs by
their trees; `integer_sum.py` adds up the sums of these. Integers have the same sum in any order.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ...plan.plan import Parameters
from .border_counts import ROWS_IN_WORD, launch_counts
from .integer_sum import add_parts, answer
from .launch import symmetric_tile

MOST_COUNTS, FEWEST_ROWS = 2**26, 2**12
"""The most border counts in memory at a time, a byte each, and the fewest rows of a pass."""


@triton.jit(do_not_specialize=["rows", "span"])
def symmetric_sum_kernel(
    counts,  # int32 [⌈rows / (4 * BLOCK_WORDS)⌉, COLUMNS, BLOCK_WORDS], four rows in a word
    questions,  # int64 [DEPTH, TREES], words of `count_columns`; 0, whose answer is no, past a tree's last question
    first_tree,  # int32 [OUTPUTS + 1], of each output's trees, where GROUPED
    first_leaf,  # int32 [TREES]
    leaves,  # int64 [OUTPUTS, LEAVES]; where GROUPED [1, LEAVES]
    unit,  # float64 [OUTPUTS]
    baseline,  # float64 [OUTPUTS]
    out,  # float32 or float64 [rows, OUTPUTS]; where PARTS int64 [⌈TREES / span⌉, rows, OUTPUTS]
    rows,
    span,
    COLUMNS: tl.constexpr,
    LEAVES: tl.constexpr,
    TREES: tl.constexpr,
    DEPTH: tl.constexpr,
    OUTPUTS: tl.constexpr,
    FUNCTION: tl.constexpr,
    GROUPED: tl.constexpr,  # whether each output has trees of its own
    PARTS: tl.constexpr,  # whether sums are of `span` trees instead of all
    BLOCK_TREES: tl.constexpr,
    BLOCK_WORDS: tl.constexpr,
):
    """Sum `span` trees. A program makes one output of `4 * BLOCK_WORDS` rows from `BLOCK_TREES` trees at a time."""
    lane = tl.arange(0, BLOCK_TREES * BLOCK_WORDS)
    word = lane % BLOCK_WORDS
    output = tl.program_id(1)
    begin = tl.program_id(2) * span
    end = TREES
    if GROUPED:
        begin += tl.load(first_tree + output)
        end = tl.load(first_tree + output + 1)
    end = tl.minimum(begin + span, end)
    first_row = tl.program_id(0).to(tl.int64) * (4 * BLOCK_WORDS)
    left = (rows - first_row).to(tl.int32) - 4 * word  # the number of rows from each lane's first one on
    counts += tl.program_id(0).to(tl.int64) * (COLUMNS * BLOCK_WORDS)
    if not GROUPED:
        leaves += output.to(tl.int64) * LEAVES
    sum0 = tl.zeros([BLOCK_TREES * BLOCK_WORDS], tl.int64)
    sum1, sum2, sum3 = sum0, sum0, sum0
    for start in tl.range(begin, end, BLOCK_TREES, loop_unroll_factor=2):
        tree = start + lane // BLOCK_WORDS
        inside = tree < end
        tree = tl.minimum(tree, end - 1)
        low = tl.zeros([BLOCK_TREES * BLOCK_WORDS], tl.uint32)
        high = low
        for level in tl.static_range(DEPTH):
            asked = tl.load(questions + level * TREES + tree)
            four = tl.load(counts + ((asked >> 32).to(tl.int32) * BLOCK_WORDS + word)).to(tl.uint32, bitcast=True)
            # The answers are the bytes' highest bits, which move down as further questions are answered.
            if level < 8:
                low = (low >> 1) | ((four + asked.to(tl.uint32)) & 0x80808080)
            else:
                high = (high >> 1) | ((four + asked.to(tl.uint32)) & 0x80808080)
        if DEPTH < 8:
            low = low >> (8 - DEPTH)
        elif DEPTH > 8 and DEPTH < 16:
            high = high >> (16 - DEPTH)
        place = leaves + tl.load(first_leaf + tree)
        sum0 += tl.load(place + _byte(low, high, 0, DEPTH), mask=inside & (left > 0), other=0)
        sum1 += tl.load(place + _byte(low, high, 1, DEPTH), mask=inside & (left > 1), other=0)
        sum2 += tl.load(place + _byte(low, high, 2, DEPTH), mask=inside & (left > 2), other=0)
        sum3 += tl.load(place + _byte(low, high, 3, DEPTH), mask=inside & (left > 3), other=0)
    out += tl.program_id(2).to(tl.int64) * rows * OUTPUTS + output
    row = first_row + 4 * tl.arange(0, BLOCK_WORDS)
    for number in tl.static_range(4):
        part = sum0 if number == 0 else sum1 if number == 1 else sum2 if number == 2 else sum3
        total = tl.sum(tl.reshape(part, [BLOCK_TREES, BLOCK_WORDS]), axis=0)
        inside = row + number < rows
        if not PARTS:
            at = output + 0 * row
            total = answer(total, unit + at, baseline + at, inside, 1.0, FUNCTION)
        tl.store(out + (row + number) * OUTPUTS, total.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows", "span"])
def few_rows_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    numbers,  # int32 [DEPTH, TREES], twice a question's feature, plus 1 if the answer to NaN is yes
    thresholds,  # float32 or float64 [DEPTH, TREES], infinity past a tree's last question
    first_tree,  # int32 [OUTPUTS + 1], of each output's trees, where GROUPED
    first_leaf,  # int32 [TREES]
    leaves,  # int64 [OUTPUTS, LEAVES]; where GROUPED [1, LEAVES]
    unit,  # float64 [OUTPUTS]
    baseline,  # float64 [OUTPUTS]
    out,  # float32 or float64 [rows, OUTPUTS]; where PARTS int64 [⌈TREES / span⌉, rows, OUTPUTS]
    rows,
    span,
    FEATURES: tl.constexpr,
    LEAVES: tl.constexpr,
    TREES: tl.constexpr,
    DEPTH: tl.constexpr,
    OUTPUTS: tl.constexpr,
    FUNCTION: tl.constexpr,
    GROUPED: tl.constexpr,  # whether each output has trees of its own
    PARTS: tl.constexpr,
    BLOCK_TREES: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
):
    """Sum `span` trees without counts. A program makes one output of `BLOCK_ROWS` rows, by `BLOCK_TREES` at a time.

    Neighbouring lanes have neighbouring trees and the same row.
    """
    lane = tl.arange(0, BLOCK_ROWS * BLOCK_TREES)
    first_row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS
    output = tl.program_id(1)
    begin = tl.program_id(2) * span
    end = TREES
    if GROUPED:
        begin += tl.load(first_tree + output)
        end = tl.load(first_tree + output + 1)
    end = tl.minimum(begin + span, end)
    there = first_row + lane // BLOCK_TREES < rows
    x += (first_row + lane // BLOCK_TREES) * FEATURES
    if not GROUPED:
        leaves += output.to(tl.int64) * LEAVES
    total = tl.zeros([BLOCK_ROWS * BLOCK_TREES], tl.int64)
    for start in tl.range(begin, end, BLOCK_TREES):
        tree = start + lane % BLOCK_TREES
        inside = there & (tree < end)
        leaf = tl.load(first_leaf + tree, mask=inside, other=0)
        for level in tl.static_range(DEPTH):
            number = tl.load(numbers + level * TREES + tree, mask=inside, other=0)
            threshold = tl.load(thresholds + level * TREES + tree, mask=inside, other=0.0)
            value = tl.load(x + (number >> 1), mask=inside, other=0.0).to(threshold.dtype)
            yes = (value > threshold) | ((value != value) & (number & 1 != 0))
            leaf += yes.to(tl.int32) << level
        total += tl.load(leaves + leaf, mask=inside, other=0)
    sums = tl.sum(tl.reshape(total, [BLOCK_ROWS, BLOCK_TREES]), axis=1)
    row = first_row + tl.arange(0, BLOCK_ROWS)
    if not PARTS:
        at = output + 0 * row
        sums = answer(sums, unit + at, baseline + at, row < rows, 1.0, FUNCTION)
    out += tl.program_id(2).to(tl.int64) * rows * OUTPUTS + output
    tl.store(out + row * OUTPUTS, sums.to(out.dtype.element_ty), mask=row < rows)


@triton.jit
def _byte(low, high, number: tl.constexpr, DEPTH: tl.constexpr):
    """Return a byte of each word of `low`, with that of `high` above it if the trees are deeper than 8."""
    found = (low >> (8 * number)) & 255
    if DEPTH > 8:
        found |= ((high >> (8 * number)) & 255) << 8
    return found.to(tl.int32)


def launch_symmetric(
    parameters: Parameters, x: torch.Tensor, output: torch.Tensor, rows: int, largest: int, function: str
) -> None:
    """Launch the sum of all trees, or of each group, for as many rows at a time as the limit on counts allows.

    Args:
        parameters: the parameters of symmetric trees.
        x: `[rows, features]`.
        output: `[rows, outputs]`.
        rows: the number of rows.
        largest: the number of trees, of the largest group if there are groups.
        function: the function of the sums.
    """
    most = max(MOST_COUNTS // max(len(parameters["asked"]), 1), FEWEST_ROWS)
    for part, out in zip(x[:rows].split(most), output[:rows].split(most), strict=True):
        _launch(parameters, part, out, largest, function)


def _launch(parameters: Parameters, x: torch.Tensor, output: torch.Tensor, largest: int, function: str) -> None:
    """Launch the kernels for all of these rows."""
    (rows, outputs), (depth, trees) = output.shape, parameters["questions"].shape
    tile = symmetric_tile(rows, largest, outputs)
    parts = triton.cdiv(largest, tile.span)
    shape = (parts, rows, outputs)
    sums = torch.empty(shape, dtype=torch.int64, device=x.device) if parts > 1 else output
    values = {
        **{name: parameters[name] for name in ("first_tree", "first_leaf", "leaves", "unit", "baseline")},
        "out": sums,
        "rows": rows,
        "span": tile.span,
        "LEAVES": parameters["leaves"].shape[1],
        "TREES": trees,
        "DEPTH": depth,
        "OUTPUTS": outputs,
        "FUNCTION": function,
        "GROUPED": len(parameters["first_tree"]) > 0,
        "PARTS": parts > 1,
        "BLOCK_TREES": tile.block_trees,
    }
    blocks = triton.cdiv(rows, tile.block_rows)
    if tile.counted:
        words = tile.block_rows // ROWS_IN_WORD
        counts = launch_counts(x, parameters["asked"], parameters["borders"], rows, words)
        symmetric_sum_kernel[(blocks, outputs, parts)](
            counts=counts,
            questions=parameters["questions"],
            **values,
            COLUMNS=counts.shape[1],
            BLOCK_WORDS=words,
            num_warps=tile.num_warps,
        )
    else:
        few_rows_kernel[(blocks, outputs, parts)](
            x=x,
            numbers=parameters["numbers"],
            thresholds=parameters["thresholds"],
            **values,
            FEATURES=x.shape[1],
            BLOCK_ROWS=tile.block_rows,
            num_warps=tile.num_warps,
        )
    if parts > 1:
        add_parts(sums, parameters, output, function)
