"""All layers of a neural network in one launch, with three products of float16 numbers for each product.

Each number is the sum of two float16 numbers, which hold 22 bits of it. The rows' numbers are first multiplied by a
power of two for each row and block of columns, the weights by one for each column, so that none is too large or too
small. The product of the two lower parts is left out. Matrix units round sums towards zero, so each of their sums has
few products, and these sums are added up in float32. The input is shifted first; the shift removes most of features
that lie far from zero. The last layer is summed in float32, and its intercept is added in float64. The loss is about
that of float32 sums.

A program takes a block of rows through all layers. The outputs of a layer lie in a workspace of the program, which a
GPU keeps in its second-level cache; the last hidden layer is multiplied by the output's weights before it is written.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from ...numerics.fp16_split import ROW_TOP, add_products, column_parts, float16_parts, multiply_parts, row_parts
from ...numerics.functions import FUNCTIONS, apply_function
from ...plan.devices import has_matrix_units, program_limit
from ...plan.plan import Parameters
from .launch import FLOAT16_FIRST_STAGES, FLOAT16_STAGES, float16_blocks

Layers = Sequence[tuple[np.ndarray, np.ndarray]]
"""The weight `[inputs, units]` and intercept `[units]` of each layer, float64."""


@triton.jit
def take_float16_layers(
    x, shift, used, shapes, weight, weight_low, scale, intercept, last_weight, last_intercept, values, scales,
    out, row, rows,
    FEATURES: tl.constexpr, HIDDEN: tl.constexpr, WIDTH: tl.constexpr, TARGETS: tl.constexpr,
    ACTIVATION: tl.constexpr, FUNCTION: tl.constexpr, MATRIX_UNITS: tl.constexpr, SHIFTED: tl.constexpr,
    SPARSE: tl.constexpr, ROW_TOP: tl.constexpr, BLOCK_ROWS: tl.constexpr, BLOCK_UNITS: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr, BLOCK_INNER: tl.constexpr, BLOCK_TARGETS: tl.constexpr,
    FIRST_STAGES: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Take a block of rows, int64 `[BLOCK_ROWS]`, through all layers; arguments as in the next kernel.

    `values`, float16 `[2, 2, BLOCK_ROWS, WIDTH]`, and `scales`, float32 `[2, BLOCK_ROWS, WIDTH / BLOCK_UNITS]`, are the
    program's own. Rows from `rows` on are neither read nor written.
    """
    PART: tl.constexpr = BLOCK_ROWS * WIDTH
    BLOCKS: tl.constexpr = WIDTH // BLOCK_UNITS
    mine = tl.arange(0, BLOCK_ROWS)
    unit = tl.arange(0, BLOCK_UNITS)
    inner = tl.arange(0, BLOCK_INNER)
    target = tl.arange(0, BLOCK_TARGETS)
    y = tl.zeros([BLOCK_ROWS, BLOCK_TARGETS], tl.float32)
    for layer in tl.range(0, HIDDEN, num_stages=1):
        features = tl.multiple_of(tl.load(shapes + 3 * layer), 16)
        units = tl.load(shapes + 3 * layer + 1)
        first = tl.multiple_of(tl.load(shapes + 3 * layer + 2), 16)
        source, own = (layer + 1) % 2, layer % 2
        for start in tl.range(0, units, BLOCK_UNITS, num_stages=1):
            column = start + unit
            total = tl.zeros([BLOCK_ROWS, BLOCK_UNITS], tl.float32)
            w = weight + first + start * features
            w_low = weight_low + first + start * features
            if layer == 0:
                for begin in tl.range(0, features, BLOCK_FEATURES, num_stages=FIRST_STAGES):
                    feature = begin + tl.arange(0, BLOCK_FEATURES)
                    real = feature < FEATURES
                    at = feature[:, None] * BLOCK_UNITS + unit[None, :]
                    inside = (row < rows)[:, None] & real[None, :]
                    if SPARSE:
                        inside &= (tl.load(used + feature, mask=real, other=0.0) != 0.0)[None, :]
                    u = tl.load(x + row[:, None] * FEATURES + feature[None, :], mask=inside, other=0.0)
                    if SHIFTED:
                        u = tl.where(inside, u - tl.load(shift + feature, mask=real, other=0.0)[None, :], 0.0)
                    high, low, factor = float16_parts(u.to(tl.float32), ROW_TOP)
                    w_tile, w_low_tile = tl.load(w + at), tl.load(w_low + at)
                    total = multiply_parts(high, low, factor, w_tile, w_low_tile, total, MATRIX_UNITS)
            else:
                for begin in tl.range(0, features, BLOCK_INNER, num_stages=STAGES):
                    at = (begin + inner)[:, None] * BLOCK_UNITS + unit[None, :]
                    place = values + source * (2 * PART) + mine[:, None] * WIDTH + (begin + inner)[None, :]
                    high, low = tl.load(place), tl.load(place + PART)
                    factor = tl.load(scales + (source * BLOCK_ROWS + mine) * BLOCKS + begin // BLOCK_UNITS)
                    w_tile, w_low_tile = tl.load(w + at), tl.load(w_low + at)
                    total = multiply_parts(high, low, factor, w_tile, w_low_tile, total, MATRIX_UNITS)
            z = total * tl.load(scale + layer * WIDTH + column)[None, :]
            h = apply_function(z + tl.load(intercept + layer * WIDTH + column)[None, :], ACTIVATION)
            if layer < HIDDEN - 1:
                place = values + own * (2 * PART) + mine[:, None] * WIDTH + column[None, :]
                high, low, factor = float16_parts(h, ROW_TOP)
                tl.store(place, high)
                tl.store(place + PART, low)
                tl.store(scales + (own * BLOCK_ROWS + mine) * BLOCKS + start // BLOCK_UNITS, factor)
            else:
                for t in tl.range(0, TARGETS, num_stages=1):
                    part = tl.sum(h * tl.load(last_weight + t * WIDTH + column)[None, :], axis=1)
                    y += tl.where((target == t)[None, :], part[:, None], 0.0)
        tl.debug_barrier()  # the next layer reads what other threads wrote
    b = tl.load(last_intercept + target, mask=target < TARGETS, other=0.0)
    answer = apply_function(y.to(tl.float64) + b[None, :], FUNCTION)
    inside = (row < rows)[:, None] & (target < TARGETS)[None, :]
    tl.store(out + row[:, None] * TARGETS + target[None, :], answer.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows"])
def float16_layers_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    shift,  # float32 [FEATURES]
    used,  # float32 [FEATURES], read where SPARSE: 0 for an ignored feature
    shapes,  # int32 [HIDDEN, 3]: features, units and start of the weights of each hidden layer
    weight,  # float16 like the next: [features, BLOCK_UNITS] for each layer and block of units
    weight_low,
    scale,  # float32 like the next two [HIDDEN, WIDTH]
    intercept,  # [HIDDEN, WIDTH]
    last_weight,  # [TARGETS, WIDTH]
    last_intercept,  # float64 [TARGETS]
    values,  # float16 [programs, 2, 2, BLOCK_ROWS, WIDTH]
    scales,  # float32 [programs, 2, BLOCK_ROWS, WIDTH / BLOCK_UNITS]
    out,  # float32 or float64 [rows, TARGETS]
    rows,
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
    """A program takes every `num_programs(0)`-th block of rows through all layers, in blocks of units."""
    program = tl.program_id(0).to(tl.int64)
    values += program * (4 * BLOCK_ROWS * WIDTH)
    scales += program * (2 * BLOCK_ROWS * (WIDTH // BLOCK_UNITS))
    for block in tl.range(tl.program_id(0), tl.cdiv(rows, BLOCK_ROWS), tl.num_programs(0), num_stages=1):
        row = block * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS).to(tl.int64)
        take_float16_layers(
            x, shift, used, shapes, weight, weight_low, scale, intercept, last_weight, last_intercept, values, scales,
            out, row, rows, FEATURES, HIDDEN, WIDTH, TARGETS, ACTIVATION, FUNCTION, MATRIX_UNITS, SHIFTED, SPARSE,
            ROW_TOP, BLOCK_ROWS, BLOCK_UNITS, BLOCK_FEATURES, BLOCK_INNER, BLOCK_TARGETS, FIRST_STAGES, STAGES,
        )  # fmt: skip


def float16_tables(layers: Layers, shift: np.ndarray) -> dict[str, np.ndarray]:
    """Return the hidden layers in two parts, tile after tile, and the last layer."""
    (first_weight, _), *_, (last, last_intercept) = layers
    hidden, blocks = list(_padded(layers)), float16_blocks(_widths(layers))
    block = blocks["BLOCK_UNITS"]
    width = max(weight.shape[1] for weight in hidden)
    shapes, packed, first = [], [], 0
    scale, intercepts = np.ones((len(hidden), width)), np.zeros((len(hidden), width))
    intercepts[0, : first_weight.shape[1]] = np.einsum("i,ij->j", shift, first_weight)
    for index, (weight, (_, intercept)) in enumerate(zip(hidden, layers, strict=False)):
        features, units = weight.shape
        high, low, scale[index, :units] = column_parts(weight)
        packed.append(np.stack([high, low]).reshape(2, features, -1, block).transpose(0, 2, 1, 3).reshape(2, -1))
        intercepts[index, : len(intercept)] += intercept
        shapes.append((features, units, first))
        first += weight.size
    high, low = np.concatenate(packed, axis=1)
    output = np.zeros((last.shape[1], width))
    output[:, : len(last)] = last.T
    return {
        "shift": shift.astype(np.float32),
        "shapes": np.array(shapes, dtype=np.int32),
        "weight": high,
        "weight_low": low,
        "scale": scale.astype(np.float32),
        "intercept": intercepts.astype(np.float32),
        "last_weight": output.astype(np.float32),
        "last_intercept": last_intercept,
    }


def launch_float16_layers(
    parameters: Parameters,
    x: torch.Tensor,
    output: torch.Tensor,
    rows: int,
    widths: tuple[int, ...],
    constants: dict[str, Any],
) -> None:
    """Do the work of `launch_digit_layers`, with the tables of `float16_tables`."""
    blocks, device = float16_blocks(widths), parameters["weight"].device  # `x` is on the CPU if read across the bus
    programs = min(triton.cdiv(rows, blocks["BLOCK_ROWS"]), program_limit(device))
    arguments = float16_arguments(parameters, output, programs, widths, constants)
    float16_layers_kernel[(programs,)](x=x, rows=rows, **arguments)


def float16_arguments(
    parameters: Parameters, output: torch.Tensor, programs: int, widths: tuple[int, ...], constants: dict[str, Any]
) -> dict[str, Any]:
    """Return the arguments of so many programs besides the rows; the others as in `launch_float16_layers`."""
    device, blocks, hidden = parameters["weight"].device, float16_blocks(widths), len(widths) - 2
    width = _whole(max(widths[1:-1]), blocks["BLOCK_UNITS"])
    # A single hidden layer is never read again.
    size = 2 * programs * blocks["BLOCK_ROWS"] * width if hidden > 1 else width
    names = ("shift", "shapes", "weight", "weight_low", "scale", "intercept", "last_weight", "last_intercept")
    return {
        "used": parameters.get("used", parameters["shift"]),
        **{name: parameters[name] for name in names},
        "values": torch.empty(2 * size, dtype=torch.float16, device=device),
        "scales": torch.empty(size // blocks["BLOCK_UNITS"], dtype=torch.float32, device=device),
        "out": output,
        "FEATURES": widths[0],
        "HIDDEN": hidden,
        "WIDTH": width,
        "TARGETS": widths[-1],
        "MATRIX_UNITS": has_matrix_units(device),
        **constants,
        "ROW_TOP": ROW_TOP,
        **blocks,
        "FIRST_STAGES": FLOAT16_FIRST_STAGES,
        "STAGES": FLOAT16_STAGES,
        "num_warps": 4,
    }


def emulated_float16_layers(x: np.ndarray, layers: Layers, shift: np.ndarray, activation: str) -> np.ndarray:
    """Split, multiply and round as the kernel does; the sums of 16 products in matrix units are truncated.

    Args:
        x: float64 rows; ignored features are 0 after the shift.
        layers: the network.
        shift: the numbers subtracted from the features.
        activation: the function of hidden layers.

    Returns:
        float64 `[rows, targets]`, before the last function.
    """
    tables, blocks = float16_tables(layers, shift), float16_blocks(_widths(layers))
    h = np.zeros((len(x), tables["shapes"][0, 0]), dtype=np.float32)
    h[:, : x.shape[1]] = x
    for layer, weight in enumerate(_padded(layers)):
        (features, units), (w_high, w_low, _) = weight.shape, column_parts(weight)
        total = np.zeros((len(x), units), dtype=np.float32)
        scaled, step = (blocks["BLOCK_UNITS"], blocks["BLOCK_INNER"]) if layer else (blocks["BLOCK_FEATURES"],) * 2
        for begin in range(0, features, scaled):
            high, low, factor = row_parts(h[:, begin : begin + scaled])
            for at in range(0, scaled, step):
                own, found = slice(at, at + step), np.zeros(total.shape)
                weights = slice(begin + at, begin + at + step)
                for left, right in ((low, w_high), (high, w_low), (high, w_high)):
                    found = add_products(found, left[:, own], right[weights])
                total = (total + found * factor[:, None]).astype(np.float32)
        z = total * tables["scale"][layer, :units] + tables["intercept"][layer, :units]
        h = FUNCTIONS[activation](torch.from_numpy(z)).numpy()
    sums = (h[:, None, :] * tables["last_weight"][None, :, : h.shape[1]]).sum(axis=2)
    answer: np.ndarray = sums.astype(np.float64) + tables["last_intercept"]
    return answer


def _widths(layers: Layers) -> tuple[int, ...]:
    """Return the features, the units of each hidden layer, and the targets."""
    return (len(layers[0][0]), *(weight.shape[1] for weight, _ in layers))


def _padded(layers: Layers) -> Iterator[np.ndarray]:
    """Yield the weight of each hidden layer, padded to whole blocks."""
    blocks = float16_blocks(_widths(layers))
    features = _whole(len(layers[0][0]), blocks["BLOCK_FEATURES"])
    for weight, _ in itertools.islice(layers, len(layers) - 1):
        padded = np.zeros((features, _whole(weight.shape[1], blocks["BLOCK_UNITS"])))
        padded[: weight.shape[0], : weight.shape[1]] = weight
        yield padded
        features = padded.shape[1]


def _whole(size: int, block: int) -> int:
    """Return the size rounded up to whole blocks."""
    return -(-size // block) * block
