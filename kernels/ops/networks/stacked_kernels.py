"""The kernels of networks for the members of a fleet, and their launch; see `stacked_dense_layers.py`.

A program takes its rows through all layers of one member after the other, with the code of a single network. The rows
of other members stand for rows past the last one meanwhile, which are neither read nor written. A row has the same bits
whatever the other rows of its block are. A program takes as long as its rows have members: few rows are spread over as
many programs as run at the same time, and neighbouring rows should have the same member.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from ...numerics.members import member_places
from ...plan.devices import program_limit
from ...plan.plan import Parameters
from .float16_fused import float16_arguments, take_float16_layers
from .int8_fused import digit_arguments, take_digit_layers
from .launch import digit_shape, float16_blocks, spread_rows


@triton.jit
def rows_of_block(numbers, block, rows, first, members, taken, BLOCK_ROWS: tl.constexpr):
    """Return a block of `taken` rows, int64 `[BLOCK_ROWS]`, and the places of their members.

    The place is `members` for a row past the last one, and for rows that are not taken.
    """
    mine = tl.arange(0, BLOCK_ROWS)
    row = block * taken + mine.to(tl.int64)
    inside = (mine < taken) & (row < rows)
    return row, tl.where(inside, member_places(numbers, row, inside, first, members), members)


@triton.jit(do_not_specialize=["rows", "first", "members", "taken"])
def stacked_digit_layers_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    numbers,  # float32 or float64 [rows], the numbers of the rows' members
    shift,  # like the next ten as in `digit_layers_kernel`, those of all members, but for `shapes`
    scale,
    used,
    shapes,  # int32 [HIDDEN, 2], the same for all members
    weight,  # int8 [members, WEIGHTS]
    limits,
    intercept,
    last_weight,
    last_unit,
    last_intercept,
    values,  # int32 [programs, 2, BLOCK_ROWS, WIDTH]
    out,  # float32 or float64 [rows, TARGETS]
    rows,
    first,  # the number of the first member
    members,
    taken,  # the rows that a program takes at once, at most BLOCK_ROWS
    WEIGHTS: tl.constexpr,
    FEATURES: tl.constexpr,
    INPUTS: tl.constexpr,
    HIDDEN: tl.constexpr,
    WIDTH: tl.constexpr,
    TARGETS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    FUNCTION: tl.constexpr,
    SHIFTED: tl.constexpr,
    SPARSE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_UNITS: tl.constexpr,
    BLOCK_TARGETS: tl.constexpr,
):
    """A program takes every `num_programs(0)`-th block of rows through all layers, in digits of eight bits."""
    values += tl.program_id(0).to(tl.int64) * (2 * BLOCK_ROWS * WIDTH)
    for block in tl.range(tl.program_id(0), tl.cdiv(rows, taken), tl.num_programs(0), num_stages=1):
        row, place = rows_of_block(numbers, block, rows, first, members, taken, BLOCK_ROWS)
        member = tl.min(place)
        while member < members:
            take_digit_layers(
                x, shift + member * FEATURES, scale + member * FEATURES, used + member * FEATURES, shapes,
                weight + member * WEIGHTS, limits + member * (3 * HIDDEN), intercept + member * (HIDDEN * WIDTH),
                last_weight + member * (TARGETS * WIDTH), last_unit + member * TARGETS,
                last_intercept + member * TARGETS, values, out, tl.where(place == member, row, rows), rows,
                FEATURES, INPUTS, HIDDEN, WIDTH, TARGETS, ACTIVATION, FUNCTION, SHIFTED, SPARSE,
                BLOCK_ROWS, BLOCK_UNITS, BLOCK_TARGETS,
            )  # fmt: skip
            place = tl.where(place == member, members, place)
            member = tl.min(place)


@triton.jit(do_not_specialize=["rows", "first", "members", "taken"])
def stacked_float16_layers_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    numbers,  # float32 or float64 [rows], the numbers of the rows' members
    shift,  # like the next eight as in `float16_layers_kernel`, those of all members, but for `shapes`
    used,
    shapes,  # int32 [HIDDEN, 3], the same for all members
    weight,  # float16 [members, WEIGHTS] like the next
    weight_low,
    scale,
    intercept,
    last_weight,
    last_intercept,
    values,  # float16 [programs, 2, 2, BLOCK_ROWS, WIDTH]
    scales,  # float32 [programs, 2, BLOCK_ROWS, WIDTH / BLOCK_UNITS]
    out,  # float32 or float64 [rows, TARGETS]
    rows,
    first,  # the number of the first member
    members,
    taken,  # the rows that a program takes at once, at most BLOCK_ROWS
    WEIGHTS: tl.constexpr,
    FEATURES: tl.constexpr,
    HIDDEN: tl.constexpr,
    WIDTH: tl.constexpr,
    TARGETS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    FUNCTION: tl.constexpr,
    MATRIX_UNITS: tl.constexpr,
    SHIFTED: tl.constexpr,
    SPARSE: tl.constexpr,
    ROW_TOP: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_UNITS: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
    BLOCK_INNER: tl.constexpr,
    BLOCK_TARGETS: tl.constexpr,
    FIRST_STAGES: tl.constexpr,
    STAGES: tl.constexpr,
):
    """A program takes every `num_programs(0)`-th block of rows through all layers, in pairs of float16 numbers."""
    program = tl.program_id(0).to(tl.int64)
    values += program * (4 * BLOCK_ROWS * WIDTH)
    scales += program * (2 * BLOCK_ROWS * (WIDTH // BLOCK_UNITS))
    for block in tl.range(tl.program_id(0), tl.cdiv(rows, taken), tl.num_programs(0), num_stages=1):
        row, place = rows_of_block(numbers, block, rows, first, members, taken, BLOCK_ROWS)
        member = tl.min(place)
        while member < members:
            take_float16_layers(
                x, shift + member * FEATURES, used + member * FEATURES, shapes, weight + member * WEIGHTS,
                weight_low + member * WEIGHTS, scale + member * (HIDDEN * WIDTH), intercept + member * (HIDDEN * WIDTH),
                last_weight + member * (TARGETS * WIDTH), last_intercept + member * TARGETS, values, scales,
                out, tl.where(place == member, row, rows), rows,
                FEATURES, HIDDEN, WIDTH, TARGETS, ACTIVATION, FUNCTION, MATRIX_UNITS, SHIFTED, SPARSE,
                ROW_TOP, BLOCK_ROWS, BLOCK_UNITS, BLOCK_FEATURES, BLOCK_INNER, BLOCK_TARGETS, FIRST_STAGES, STAGES,
            )  # fmt: skip
            place = tl.where(place == member, members, place)
            member = tl.min(place)


def launch_stacked_digit_layers(
    parameters: Parameters,
    output: torch.Tensor,
    widths: tuple[int, ...],
    constants: dict[str, Any],
    of_rows: dict[str, Any],
) -> None:
    """Launch all layers of all members on `rows` rows.

    Args:
        parameters: the tables of `digit_tables` and the masks of used features, stacked over the members.
        output: `[…, widths[-1]]`.
        widths: the features, the units of each hidden layer, and the targets.
        constants: `ACTIVATION`, `FUNCTION`, `SHIFTED` and `SPARSE` of the kernels.
        of_rows: `x`, `rows`, and by what a kernel finds each row's member.
    """
    device, rows = parameters["weight"].device, of_rows["rows"]
    arguments, most = digit_arguments(parameters, output, widths, constants), program_limit(device)
    arguments |= digit_shape(rows, arguments["WIDTH"], most // 2)
    taken, programs = spread_rows(rows, arguments["BLOCK_ROWS"], most)
    size = 2 * programs * arguments["BLOCK_ROWS"] * arguments["WIDTH"]
    stacked_digit_layers_kernel[(programs,)](
        **of_rows,
        **arguments,
        shapes=parameters["shapes"],
        weight=parameters["weight"],
        values=torch.empty(size, dtype=torch.int32, device=device),
        taken=taken,
        WEIGHTS=parameters["weight"].shape[1],
        BLOCK_TARGETS=triton.next_power_of_2(widths[-1]),
    )


def launch_stacked_float16_layers(
    parameters: Parameters,
    output: torch.Tensor,
    widths: tuple[int, ...],
    constants: dict[str, Any],
    of_rows: dict[str, Any],
) -> None:
    """Do the work of `launch_stacked_digit_layers`, with the tables of `float16_tables`."""
    most = program_limit(parameters["weight"].device)
    taken, programs = spread_rows(of_rows["rows"], float16_blocks(widths)["BLOCK_ROWS"], most)
    stacked_float16_layers_kernel[(programs,)](
        **of_rows,
        **float16_arguments(parameters, output, programs, widths, constants),
        taken=taken,
        WEIGHTS=parameters["weight"].shape[1],
    )
