"""All layers of a neural network in one launch, by digits of eight bits: see `int8_device.py`.

A program takes a block of rows through all layers. With one or two narrow hidden layers it keeps their weights in
shared memory, and the outputs of a layer in registers (`resident_layers_kernel`). Otherwise it reads the weights anew
for each block of rows, and the outputs of a layer lie in a workspace of the program, which a GPU keeps in its
second-level cache (`digit_layers_kernel`). If layers are wide and rows few, `int8_layerwise.py` shares each layer among
programs. If layers are wide and rows many, a Hopper GPU runs `int8_hopper.py`. The order of integer sums does not
matter, so all kernels give the same bits, and the number of rows may choose among them.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from ...numerics.int8_digits import split
from ...plan.devices import has_warp_groups, program_limit, shared_memory
from ...plan.plan import Parameters
from .int8_device import activated, answer, first_numbers, last_sums, multiply, multiply_all, next_units, squares
from .int8_layerwise import launch_each_layer
from .int8_tables import RESIDENT_LAYERS, RESIDENT_WIDTH, UNITS, whole_width
from .launch import FEW_ROWS, MANY_ROWS, RESIDENT_ROWS, digit_shape, resident_shape

RESIDENT_BYTES = 96 * 1024
"""The most shared memory of resident weights, so that two programs run on a multiprocessor."""


@triton.jit
def layer_outputs(
    q,  # int32 [BLOCK_ROWS, INPUTS]: the layer's inputs in units
    factor,  # float64 [BLOCK_ROWS]: 2³² units of the inputs and weights
    inverse,  # float64 [BLOCK_ROWS]: the reciprocal of the outputs' unit
    w,  # int8 [4, units, INPUTS]
    intercept,  # float64 [units]
    last_weight,
    place,  # int32 [BLOCK_ROWS, WIDTH]: receives the outputs, unless the last layer follows
    units,
    is_last,
    INPUTS: tl.constexpr, WIDTH: tl.constexpr, TARGETS: tl.constexpr, ACTIVATION: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_UNITS: tl.constexpr, BLOCK_TARGETS: tl.constexpr,
):  # fmt: skip
    """Make a hidden layer in blocks of units; return the sums of the last layer and the sums of the rows' `squares`."""
    mine, unit = tl.arange(0, BLOCK_ROWS), tl.arange(0, BLOCK_UNITS)
    sums = tl.zeros([BLOCK_ROWS, BLOCK_TARGETS], tl.int64)
    total = tl.zeros([BLOCK_ROWS], tl.int32)
    d0, d1, d2, d3 = split(q)
    w += tl.arange(0, INPUTS)[:, None] + unit[None, :] * INPUTS
    for start in tl.range(0, units, BLOCK_UNITS, num_stages=1):
        v = multiply(d0, d1, d2, d3, w + start * INPUTS, units * INPUTS)
        made = activated(v, factor[:, None], tl.load(intercept + start + unit)[None, :], inverse[:, None], ACTIVATION)
        if is_last:
            sums = last_sums(sums, made, last_weight + start + unit, TARGETS, WIDTH)
        else:
            total += squares(made)
            tl.store(place + mine[:, None] * WIDTH + (start + unit)[None, :], made)
    return sums, total


@triton.jit
def take_digit_layers(
    x, shift, scale, used, shapes, weight, limits, intercept, last_weight, last_unit, last_intercept, values,
    out, row, rows,
    FEATURES: tl.constexpr, INPUTS: tl.constexpr, HIDDEN: tl.constexpr, WIDTH: tl.constexpr, TARGETS: tl.constexpr,
    ACTIVATION: tl.constexpr, FUNCTION: tl.constexpr, SHIFTED: tl.constexpr, SPARSE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_UNITS: tl.constexpr, BLOCK_TARGETS: tl.constexpr,
):  # fmt: skip
    """Take a block of rows, int64 `[BLOCK_ROWS]`, through all layers; arguments as in the next kernel.

    `values`, int32 `[2, BLOCK_ROWS, WIDTH]`, is the program's own. Rows from `rows` on are neither read nor written.
    """
    PART: tl.constexpr = BLOCK_ROWS * WIDTH
    mine, column, feature = tl.arange(0, BLOCK_ROWS), tl.arange(0, WIDTH), tl.arange(0, INPUTS)
    q, unit, nothing = first_numbers(x, shift, scale, used, row, feature, rows, FEATURES, SHIFTED, SPARSE)
    factor, unit, inverse = next_units(squares(q), unit, limits)
    sums, total = layer_outputs(
        q, factor, inverse, weight, intercept, last_weight, values, tl.load(shapes), HIDDEN == 1,
        INPUTS, WIDTH, TARGETS, ACTIVATION, BLOCK_ROWS, BLOCK_UNITS, BLOCK_TARGETS,
    )  # fmt: skip
    for layer in tl.range(1, HIDDEN, num_stages=1):
        tl.debug_barrier()  # this layer reads what other threads wrote
        source = values + ((layer + 1) % 2) * PART + mine[:, None] * WIDTH + column[None, :]
        written = column < tl.multiple_of(tl.load(shapes + 2 * layer - 2), 16)
        h = tl.load(source, mask=written[None, :], other=0)
        factor, unit, inverse = next_units(total, unit, limits + 3 * layer)
        units, first = tl.load(shapes + 2 * layer), tl.multiple_of(tl.load(shapes + 2 * layer + 1), 16)
        sums, total = layer_outputs(
            h, factor, inverse, weight + first, intercept + layer * WIDTH, last_weight,
            values + (layer % 2) * PART, units, layer == HIDDEN - 1,
            WIDTH, WIDTH, TARGETS, ACTIVATION, BLOCK_ROWS, BLOCK_UNITS, BLOCK_TARGETS,
        )  # fmt: skip
    tl.debug_barrier()  # the next rows overwrite the numbers read here
    answer(sums, unit, nothing, last_unit, last_intercept, out, row, rows, TARGETS, FUNCTION)


@triton.jit(do_not_specialize=["rows"])
def digit_layers_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    shift,  # float64 [FEATURES]
    scale,  # float64 [FEATURES]
    used,  # float32 [FEATURES], read where SPARSE: 0 for an ignored feature
    shapes,  # int32 [HIDDEN, 2]: units and start of the weights of each hidden layer
    weight,  # int8: [4, units, inputs of the layer] for each hidden layer
    limits,  # float64 [HIDDEN, 3]: see `digit_tables`
    intercept,  # float64 [HIDDEN, WIDTH]
    last_weight,  # int32 [TARGETS, WIDTH]
    last_unit,  # float64 [TARGETS]
    last_intercept,  # float64 [TARGETS]
    values,  # int32 [programs, 2, BLOCK_ROWS, WIDTH]
    out,  # float32 or float64 [rows, TARGETS]
    rows,
    FEATURES: tl.constexpr,
    INPUTS: tl.constexpr,  # FEATURES with padding
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
    """A program takes every `num_programs(0)`-th block of rows through all layers."""
    values += tl.program_id(0).to(tl.int64) * (2 * BLOCK_ROWS * WIDTH)
    for block in tl.range(tl.program_id(0), tl.cdiv(rows, BLOCK_ROWS), tl.num_programs(0), num_stages=1):
        row = block * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS).to(tl.int64)
        take_digit_layers(
            x, shift, scale, used, shapes, weight, limits, intercept, last_weight, last_unit, last_intercept, values,
            out, row, rows, FEATURES, INPUTS, HIDDEN, WIDTH, TARGETS, ACTIVATION, FUNCTION, SHIFTED, SPARSE,
            BLOCK_ROWS, BLOCK_UNITS, BLOCK_TARGETS,
        )  # fmt: skip


@triton.jit
def resident_digits(w, UNITS: tl.constexpr, INPUTS: tl.constexpr):
    """Return a layer's weights, int8 `[INPUTS, UNITS]`, the highest digits first."""
    e = w + tl.arange(0, INPUTS)[:, None] + tl.arange(0, UNITS)[None, :] * INPUTS
    PART: tl.constexpr = UNITS * INPUTS
    return tl.load(e), tl.load(e + PART), tl.load(e + 2 * PART), tl.load(e + 3 * PART)


@triton.jit
def resident_outputs(q, unit, e0, e1, e2, e3, limits, intercept, ACTIVATION: tl.constexpr):
    """Return a hidden layer's outputs for rows, int32 in units, and the units."""
    factor, following, inverse = next_units(squares(q), unit, limits)
    d0, d1, d2, d3 = split(q)
    v = multiply_all(d0, d1, d2, d3, e0, e1, e2, e3)
    return activated(v, factor[:, None], intercept[None, :], inverse[:, None], ACTIVATION), following


@triton.jit(do_not_specialize=["rows"])
def resident_layers_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    shift,  # float64 [FEATURES]
    scale,  # float64 [FEATURES]
    used,  # float32 [FEATURES], read where SPARSE: 0 for an ignored feature
    weight,  # int8: [4, WIDTH, inputs of the layer] for each hidden layer
    limits,  # float64 [HIDDEN, 3]: see `digit_tables`
    intercept,  # float64 [HIDDEN, WIDTH]
    last_weight,  # int32 [TARGETS, WIDTH]
    last_unit,  # float64 [TARGETS]
    last_intercept,  # float64 [TARGETS]
    out,  # float32 or float64 [rows, TARGETS]
    rows,
    FEATURES: tl.constexpr,
    INPUTS: tl.constexpr,  # FEATURES with padding
    HIDDEN: tl.constexpr,  # 1 or 2
    WIDTH: tl.constexpr,
    TARGETS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    FUNCTION: tl.constexpr,
    SHIFTED: tl.constexpr,
    SPARSE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_TARGETS: tl.constexpr,
):
    """A program takes every `num_programs(0)`-th block of rows through one or two hidden layers."""
    mine, column, feature = tl.arange(0, BLOCK_ROWS), tl.arange(0, WIDTH), tl.arange(0, INPUTS)
    a0, a1, a2, a3 = resident_digits(weight, WIDTH, INPUTS)
    first_intercept = tl.load(intercept + column)
    if HIDDEN == 2:
        e0, e1, e2, e3 = resident_digits(weight + 4 * INPUTS * WIDTH, WIDTH, WIDTH)
        second_intercept = tl.load(intercept + WIDTH + column)
    for block in tl.range(tl.program_id(0), tl.cdiv(rows, BLOCK_ROWS), tl.num_programs(0), num_stages=1):
        row = block * BLOCK_ROWS + mine.to(tl.int64)
        q, unit, nothing = first_numbers(x, shift, scale, used, row, feature, rows, FEATURES, SHIFTED, SPARSE)
        q, unit = resident_outputs(q, unit, a0, a1, a2, a3, limits, first_intercept, ACTIVATION)
        if HIDDEN == 2:
            q, unit = resident_outputs(q, unit, e0, e1, e2, e3, limits + 3, second_intercept, ACTIVATION)
        sums = tl.zeros([BLOCK_ROWS, BLOCK_TARGETS], tl.int64)
        sums = last_sums(sums, q, last_weight + column, TARGETS, WIDTH)
        answer(sums, unit, nothing, last_unit, last_intercept, out, row, rows, TARGETS, FUNCTION)


def resident(widths: tuple[int, ...], device: torch.device) -> bool:
    """Return whether programs keep the weights of hidden layers of these widths in a GPU's shared memory."""
    hidden, inputs, width = len(widths) - 2, whole_width(widths[0]), whole_width(max(widths[1:-1]))
    if hidden > RESIDENT_LAYERS or width > RESIDENT_WIDTH:
        return False
    weights = 4 * width * (inputs + (hidden - 1) * width)
    rows = 4 * RESIDENT_ROWS * max(inputs, width)
    return weights <= RESIDENT_BYTES and weights + rows <= shared_memory(device)


def takes_warp_groups(rows: int, widths: tuple[int, ...], activation: str, device: torch.device) -> bool:
    """Return whether `int8_hopper.py` computes the layers: it must support them and be faster by measurement."""
    wide = widths[0] <= UNITS and len(widths) > 3 and max(widths[1:-1]) > RESIDENT_WIDTH
    return wide and activation == "relu" and rows >= MANY_ROWS and has_warp_groups(device)


def digit_arguments(
    parameters: Parameters, output: torch.Tensor, widths: tuple[int, ...], constants: dict[str, Any]
) -> dict[str, Any]:
    """Return the arguments that kernels of all layers have in common; their own as in `launch_digit_layers`."""
    names = ("shift", "scale", "limits", "intercept", "last_weight", "last_unit", "last_intercept")
    return {
        **{name: parameters[name] for name in names},
        **constants,
        "used": parameters.get("used", parameters["shift"]),
        "out": output,
        "FEATURES": widths[0],
        "INPUTS": whole_width(widths[0]),
        "HIDDEN": len(widths) - 2,
        "WIDTH": whole_width(max(widths[1:-1])),
        "TARGETS": widths[-1],
    }


def launch_digit_layers(
    parameters: Parameters,
    x: torch.Tensor,
    output: torch.Tensor,
    rows: int,
    widths: tuple[int, ...],
    constants: dict[str, Any],
) -> None:
    """Launch all layers on the first `rows` rows of `x`, with the tables of `digit_tables`.

    Args:
        parameters: the tables, and the mask of used features.
        x: `[…, widths[0]]`.
        output: `[…, widths[-1]]`.
        rows: the number of rows to compute.
        widths: the features, the units of each hidden layer, and the targets.
        constants: `ACTIVATION`, `FUNCTION`, `SHIFTED` and `SPARSE` of the kernels.
    """
    device, width = parameters["weight"].device, whole_width(max(widths[1:-1]))
    if width > RESIDENT_WIDTH and rows <= FEW_ROWS:
        launch_each_layer(parameters, x, output, rows, widths, constants)
        return
    arguments = digit_arguments(parameters, output, widths, constants)
    if takes_warp_groups(rows, widths, constants["ACTIVATION"], device):
        from .int8_hopper import launch_hopper_layers  # imports Gluon, which not every installation has

        launch_hopper_layers(parameters, x, rows, widths, arguments)
        return
    most, stays = program_limit(device), resident(widths, device)
    arguments |= (resident_shape if stays else digit_shape)(rows, width, most // 2)
    arguments |= {"weight": parameters["weight"], "BLOCK_TARGETS": triton.next_power_of_2(widths[-1])}
    programs = min(triton.cdiv(rows, arguments["BLOCK_ROWS"]), most)
    if stays:
        resident_layers_kernel[(programs,)](x=x, rows=rows, **arguments)
        return
    size = 2 * programs * arguments["BLOCK_ROWS"] * width
    digit_layers_kernel[(programs,)](
        x=x,
        shapes=parameters["shapes"],
        values=torch.empty(size, dtype=torch.int32, device=device),
        rows=rows,
        **arguments,
    )
