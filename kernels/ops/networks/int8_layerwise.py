"""One launch for each layer of a neural network, by digits of eight bits: for batches too small for `int8_fused.py`.

In `int8_fused.py` a program takes a block of rows through all layers, which leaves most of a GPU idle if blocks are
few. Here programs share a layer: each makes a block of its units for a block of rows. It leaves the integers and each
row's unit to the next launch. The sums that give a row's next unit, integers too, are computed by each program anew.
The bits are therefore those of one launch.

On Hopper GPUs a launch begins while the previous one still runs: it loads its weights, then waits until the previous
launch has ended and its results can be read (programmatic dependent launch).
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ...numerics.int8_digits import split
from ...plan.devices import early_launch
from ...plan.plan import Parameters
from .int8_device import activated, answer, first_numbers, last_sums, multiply_apart, next_units, squares
from .int8_tables import UNITS, whole_width
from .launch import HALF_UNITS_ROWS, LAST_LAYER_ROWS, LAYER_ROWS


@triton.jit(do_not_specialize=["rows", "layer"])
def digit_layer_kernel(
    x,  # float32 or float64 [rows, FEATURES], read where FIRST
    shift,  # float64 [FEATURES]
    scale,  # float64 [FEATURES]
    used,  # float32 [FEATURES], read where SPARSE: 0 for an ignored feature
    weight,  # int8 [4, units, INPUTS]
    limits,  # float64 [HIDDEN, 3]
    intercept,  # float64 [HIDDEN, WIDTH]
    source,  # int32 [rows, INPUTS]: the outputs of the previous layer
    source_unit,  # float64 [2, rows]: each row's unit, and NaN for rows without an answer
    result,  # int32 [rows, WIDTH]
    result_unit,  # float64 [2, rows]
    rows,
    inputs,  # the number of INPUTS that were written
    units,
    layer,
    FIRST: tl.constexpr,
    FEATURES: tl.constexpr,
    INPUTS: tl.constexpr,
    WIDTH: tl.constexpr,
    ACTIVATION: tl.constexpr,
    SHIFTED: tl.constexpr,
    SPARSE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_UNITS: tl.constexpr,
    EARLY: tl.constexpr,  # see `early_launch`
):
    """A program makes a block of a hidden layer's units for a block of rows.

    If EARLY, it loads its weights before the previous launch has ended, and then waits for that end.
    """
    if EARLY:
        gdc_launch_dependents()
    row = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS).to(tl.int64)
    column, feature = tl.program_id(1) * BLOCK_UNITS + tl.arange(0, BLOCK_UNITS), tl.arange(0, INPUTS)
    real = row < rows
    w, part = weight + feature[:, None] + column[None, :] * INPUTS, units * INPUTS
    e0, e1, e2, e3 = tl.load(w), tl.load(w + part), tl.load(w + 2 * part), tl.load(w + 3 * part)
    b = tl.load(intercept + layer * WIDTH + column)
    if EARLY:
        gdc_wait()
    if FIRST:
        q, unit, nothing = first_numbers(x, shift, scale, used, row, feature, rows, FEATURES, SHIFTED, SPARSE)
    else:
        written = real[:, None] & (feature < tl.multiple_of(inputs, 16))[None, :]
        q = tl.load(source + row[:, None] * INPUTS + feature[None, :], mask=written, other=0)
        unit = tl.load(source_unit + row, mask=real, other=1.0)
        nothing = tl.load(source_unit + rows + row, mask=real, other=0.0)
    factor, unit, inverse = next_units(squares(q), unit, limits + 3 * layer)
    d0, d1, d2, d3 = split(q)
    v = multiply_apart(d0, d1, d2, d3, e0, e1, e2, e3)
    made = activated(v, factor[:, None], b[None, :], inverse[:, None], ACTIVATION)
    tl.store(result + row[:, None] * WIDTH + column[None, :], made, mask=real[:, None])
    if tl.program_id(1) == 0:
        tl.store(result_unit + row, unit, mask=real)
        tl.store(result_unit + rows + row, nothing.to(tl.float64), mask=real)


@triton.jit(do_not_specialize=["rows"])
def last_digit_layer_kernel(
    source,  # int32 [rows, WIDTH]
    source_unit,  # float64 [2, rows]
    last_weight,  # int32 [TARGETS, WIDTH]
    last_unit,  # float64 [TARGETS]
    last_intercept,  # float64 [TARGETS]
    out,  # float32 or float64 [rows, TARGETS]
    rows,
    inputs,
    WIDTH: tl.constexpr,
    TARGETS: tl.constexpr,
    FUNCTION: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_TARGETS: tl.constexpr,
    EARLY: tl.constexpr,  # see `early_launch`
):
    """A program answers a block of rows from the outputs of the last hidden layer."""
    if EARLY:
        gdc_wait()
    row = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS).to(tl.int64)
    column, real = tl.arange(0, WIDTH), row < rows
    written = real[:, None] & (column < tl.multiple_of(inputs, 16))[None, :]
    q = tl.load(source + row[:, None] * WIDTH + column[None, :], mask=written, other=0)
    unit = tl.load(source_unit + row, mask=real, other=1.0)
    nothing = tl.load(source_unit + rows + row, mask=real, other=0.0)
    sums = tl.zeros([BLOCK_ROWS, BLOCK_TARGETS], tl.int64)
    sums = last_sums(sums, q, last_weight + column, TARGETS, WIDTH)
    answer(sums, unit, nothing, last_unit, last_intercept, out, row, rows, TARGETS, FUNCTION)


def launch_each_layer(
    parameters: Parameters,
    x: torch.Tensor,
    output: torch.Tensor,
    rows: int,
    widths: tuple[int, ...],
    constants: dict[str, Any],
) -> None:
    """Do the work of `launch_digit_layers` with one launch for each layer."""
    device, width, hidden = parameters["weight"].device, whole_width(max(widths[1:-1])), widths[1:-1]
    block_units = UNITS // 2 if rows <= HALF_UNITS_ROWS else UNITS
    values = torch.empty(2, rows, width, dtype=torch.int32, device=device)
    row_units = torch.empty(2, 2, rows, dtype=torch.float64, device=device)
    features, inputs, begin, units = whole_width(widths[0]), 0, 0, 0
    for layer, unpadded in enumerate(hidden):
        inputs, units = units, triton.cdiv(unpadded, UNITS) * UNITS
        size = width if layer else features
        digit_layer_kernel[(triton.cdiv(rows, LAYER_ROWS), units // block_units)](
            x=x,
            shift=parameters["shift"],
            scale=parameters["scale"],
            used=parameters.get("used", parameters["shift"]),
            weight=parameters["weight"][begin:],
            limits=parameters["limits"],
            intercept=parameters["intercept"],
            source=values[(layer + 1) % 2],
            source_unit=row_units[(layer + 1) % 2],
            result=values[layer % 2],
            result_unit=row_units[layer % 2],
            rows=rows,
            inputs=inputs,
            units=units,
            layer=layer,
            FIRST=layer == 0,
            FEATURES=widths[0],
            INPUTS=size,
            WIDTH=width,
            BLOCK_ROWS=LAYER_ROWS,
            BLOCK_UNITS=block_units,
            num_warps=4,
            **early_launch(device, after_a_kernel=layer > 0),
            **{name: constants[name] for name in ("ACTIVATION", "SHIFTED", "SPARSE")},
        )
        begin += 4 * units * size
    last_digit_layer_kernel[(triton.cdiv(rows, LAST_LAYER_ROWS),)](
        source=values[(len(hidden) - 1) % 2],
        source_unit=row_units[(len(hidden) - 1) % 2],
        last_weight=parameters["last_weight"],
        last_unit=parameters["last_unit"],
        last_intercept=parameters["last_intercept"],
        out=output,
        rows=rows,
        inputs=units,
        WIDTH=width,
        TARGETS=widths[-1],
        FUNCTION=constants["FUNCTION"],
        BLOCK_ROWS=LAST_LAYER_ROWS,
        BLOCK_TARGETS=triton.next_power_of_2(widths[-1]),
        num_warps=4,
        **early_launch(device),
    )
