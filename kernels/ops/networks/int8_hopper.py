"""Wide layers of many rows by digits of eight bits, on GPUs of compute capability 9.0 (H100, H200).

Hopper's warp groups can start a matrix product and go on with other work. The plain Triton language, 3.6 and 3.7, waits
for each integer product before it starts the next one, so this kernel is written in Gluon, the lower and experimental
level of the language. A program has three parts, which wait for each other at barriers in shared memory. One warp loads
the weights, a digit of 64 units at a time, into a ring of pipeline stages in shared memory. Two warp groups take 64
rows each through all layers. A group holds its rows' digits in registers and writes a layer's outputs into shared
memory, where it reads them for the next layer. While one group computes activations, the products of the other keep
the matrix units busy.

The bits are those of `int8_fused.py`, whatever the order in which matrix units add: all sums of products are exact
integers, int32 for hidden layers and int64 for the last one. The functions of `int8_device.py` compute the steps after
the sums, element by element. These multiply by powers of two, which rounds nothing, so the bits do not depend on which
products and sums a compiler fuses.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from ...numerics.functions import apply_function
from ...numerics.int8_digits import split
from ...plan.devices import program_limit
from ...plan.plan import Parameters
from .int8_device import MIDDLE, activated, combined, first_numbers, next_units, squares
from .int8_tables import UNITS, filled_units, whole_width
from .launch import HOPPER_REGISTERS, HOPPER_STAGES, LOADER_REGISTERS

GROUP_ROWS = gl.constexpr(64)
BLOCK_UNITS = gl.constexpr(UNITS)
DIGITS = gl.constexpr(4)


@gluon.jit
def load_layer(desc, first, units, weights, full, empty, tick, STAGES: gl.constexpr):
    """Load a layer's weights in the order of their use, the lowest digits first.

    Returns:
        `tick`, the number of blocks loaded in all: block `tick` has stage `tick % STAGES`.
    """
    INPUTS: gl.constexpr = desc.block_type.shape[1]
    for start in range(0, units, BLOCK_UNITS):
        for place in gl.static_range(DIGITS):
            stage = tick % STAGES
            mbarrier.wait(empty.index(stage), ((tick // STAGES) & 1) ^ 1)
            mbarrier.expect(full.index(stage), desc.block_type.nbytes)
            block = weights.index(stage)._reinterpret(gl.int8, [BLOCK_UNITS, INPUTS], desc.layout)
            at = first + (DIGITS - 1 - place) * units + start
            tma.async_copy_global_to_shared(desc, [at, 0], full.index(stage), block)
            tick += 1
    return tick


@gluon.jit
def load_weights(first_desc, desc, shapes, rows, weights, full, empty, HIDDEN: gl.constexpr, STAGES: gl.constexpr):
    """Load the weights of all layers, again for every block of rows."""
    tick = 0
    for _ in range(gl.program_id(0), gl.cdiv(rows, 2 * GROUP_ROWS), gl.num_programs(0)):
        tick = load_layer(first_desc, 0, gl.load(shapes), weights, full, empty, tick, STAGES)
        first = 0
        for layer in range(1, HIDDEN):
            units = gl.load(shapes + 2 * layer)
            tick = load_layer(desc, first, units, weights, full, empty, tick, STAGES)
            first += DIGITS * units


@gluon.jit
def loaded(weights, full, tick, LAYOUT: gl.constexpr, INPUTS: gl.constexpr, STAGES: gl.constexpr):
    """Return a block of weights `[INPUTS, BLOCK_UNITS]` once it is loaded."""
    stage = tick % STAGES
    mbarrier.wait(full.index(stage), (tick // STAGES) & 1)
    return weights.index(stage)._reinterpret(gl.int8, [BLOCK_UNITS, INPUTS], LAYOUT).permute((1, 0))


@gluon.jit
def products(
    d0, d1, d2, d3, weights, full, empty, tick, LAYOUT: gl.constexpr, SUMS: gl.constexpr, STAGES: gl.constexpr
):
    """Return the result of `multiply_all`; up to six products run at the same time."""
    INPUTS: gl.constexpr = d0.shape[1]
    none = gl.zeros([GROUP_ROWS, BLOCK_UNITS], gl.int32, SUMS)
    e3 = loaded(weights, full, tick, LAYOUT, INPUTS, STAGES)
    low = warpgroup_mma(d0, e3, none, is_async=True)
    e2 = loaded(weights, full, tick + 1, LAYOUT, INPUTS, STAGES)
    low = warpgroup_mma(d1, e2, low, is_async=True)
    e1 = loaded(weights, full, tick + 2, LAYOUT, INPUTS, STAGES)
    low = warpgroup_mma(d2, e1, low, is_async=True)
    e0 = loaded(weights, full, tick + 3, LAYOUT, INPUTS, STAGES)
    low = warpgroup_mma(d3, e0, low, is_async=True)
    high = warpgroup_mma(d0, e0, none, is_async=True)
    low = warpgroup_mma_wait(num_outstanding=1, deps=[low])
    mbarrier.arrive(empty.index(tick % STAGES), count=1)
    low = ((low + 128) >> 8) + MIDDLE
    low = warpgroup_mma(d0, e2, low, is_async=True)
    low = warpgroup_mma(d1, e1, low, is_async=True)
    low = warpgroup_mma(d2, e0, low, is_async=True)
    high = warpgroup_mma_wait(num_outstanding=3, deps=[high]) * 256
    high = warpgroup_mma(d0, e1, high, is_async=True)
    high = warpgroup_mma(d1, e0, high, is_async=True)
    high, low = warpgroup_mma_wait(num_outstanding=0, deps=[high, low])
    for used in gl.static_range(1, DIGITS):
        mbarrier.arrive(empty.index((tick + used) % STAGES), count=1)
    return combined(high, low)


@gluon.jit
def hidden_layer(
    q, factor, inverse, intercept, units, made, weights, full, empty, tick,
    LAYOUT: gl.constexpr, SUMS: gl.constexpr, WIDTH: gl.constexpr, ACTIVATION: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Compute a layer of numbers `q` and write it to `made`; return its rows' `squares` and the next tick."""
    d0, d1, d2, d3 = split(q)
    total = gl.zeros([GROUP_ROWS], gl.int32, gl.SliceLayout(1, SUMS))
    unit = gl.arange(0, BLOCK_UNITS, gl.SliceLayout(0, SUMS))
    for start in range(0, units, BLOCK_UNITS):
        v = products(d0, d1, d2, d3, weights, full, empty, tick, LAYOUT, SUMS, STAGES)
        tick += DIGITS
        b = gl.load(intercept + start + unit)
        h = activated(v, factor[:, None], b[None, :], inverse[:, None], ACTIVATION)
        total += squares(h)
        for block in gl.static_range(WIDTH // BLOCK_UNITS):
            if start == block * BLOCK_UNITS:
                made.slice(block * BLOCK_UNITS, BLOCK_UNITS, dim=1).store(h)
    return total, tick


@gluon.jit
def take_rows(
    group, x, shift, scale, used, shapes, limits, intercept, last_weight, last_unit, last_intercept, out, rows,
    made, weights, full, empty,
    FIRST_LAYOUT: gl.constexpr, LAYOUT: gl.constexpr, FEATURES: gl.constexpr, INPUTS: gl.constexpr,
    HIDDEN: gl.constexpr, WIDTH: gl.constexpr, TARGETS: gl.constexpr, ACTIVATION: gl.constexpr,
    FUNCTION: gl.constexpr, SHIFTED: gl.constexpr, SPARSE: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Take one warp group's rows of every block through all layers."""
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_UNITS, 32])
    NUMBERS: gl.constexpr = gl.DotOperandLayout(0, SUMS, 4)
    OF_ROWS: gl.constexpr = gl.SliceLayout(1, SUMS)
    feature = gl.arange(0, INPUTS, gl.SliceLayout(0, NUMBERS))
    unit_of_block = gl.arange(0, BLOCK_UNITS, gl.SliceLayout(0, NUMBERS))
    tick = 0
    for block in range(gl.program_id(0), gl.cdiv(rows, 2 * GROUP_ROWS), gl.num_programs(0)):
        row = (2 * block + group).to(gl.int64) * GROUP_ROWS + gl.arange(0, GROUP_ROWS, gl.SliceLayout(1, NUMBERS))
        z, unit, nothing = first_numbers(x, shift, scale, used, row, feature, rows, FEATURES, SHIFTED, SPARSE)
        total, unit = gl.convert_layout(squares(z), OF_ROWS), gl.convert_layout(unit, OF_ROWS)
        factor, unit, inverse = next_units(total, unit, limits)
        total, tick = hidden_layer(
            z, factor, inverse, intercept, gl.load(shapes), made, weights, full, empty, tick,
            FIRST_LAYOUT, SUMS, WIDTH, ACTIVATION, STAGES,
        )  # fmt: skip
        for layer in range(1, HIDDEN):
            factor, unit, inverse = next_units(total, unit, limits + 3 * layer)
            total, tick = hidden_layer(
                made.load(NUMBERS), factor, inverse, intercept + layer * WIDTH, gl.load(shapes + 2 * layer),
                made, weights, full, empty, tick, LAYOUT, SUMS, WIDTH, ACTIVATION, STAGES,
            )  # fmt: skip
        unit = gl.convert_layout(unit, gl.SliceLayout(1, NUMBERS))
        for target in range(TARGETS):
            sums = gl.zeros([GROUP_ROWS], gl.int64, gl.SliceLayout(1, NUMBERS))
            for part in gl.static_range(WIDTH // BLOCK_UNITS):
                h = made.slice(part * BLOCK_UNITS, BLOCK_UNITS, dim=1).load(NUMBERS)
                w = gl.load(last_weight + target * WIDTH + part * BLOCK_UNITS + unit_of_block)
                sums += tl.sum(h.to(gl.int64) * w.to(gl.int64)[None, :], axis=1)
            y = sums.to(gl.float64) * unit * gl.load(last_unit + target) + (gl.load(last_intercept + target) + nothing)
            found = apply_function(y, FUNCTION).to(out.dtype.element_ty)
            gl.store(out + row * TARGETS + target, found, mask=row < rows)


@gluon.jit(do_not_specialize=["rows"])
def hopper_layers_kernel(
    first_weight,  # descriptor of int8 [4 · units, INPUTS], in blocks of 64
    weight,  # descriptor of int8 [4 · units of all further hidden layers, WIDTH], in blocks of 64
    x,  # float32 or float64 [rows, FEATURES]
    shift,  # float64 [FEATURES]
    scale,  # float64 [FEATURES]
    used,  # float32 [FEATURES], read where SPARSE: 0 for an ignored feature
    shapes,  # int32 [HIDDEN, 2]: units and start of the weights of each hidden layer
    limits,  # float64 [HIDDEN, 3]: see `digit_tables`
    intercept,  # float64 [HIDDEN, WIDTH]
    last_weight,  # int32 [TARGETS, WIDTH]
    last_unit,  # float64 [TARGETS]
    last_intercept,  # float64 [TARGETS]
    out,  # float32 or float64 [rows, TARGETS]
    rows,
    FEATURES: gl.constexpr,
    INPUTS: gl.constexpr,  # FEATURES with padding, at most WIDTH
    HIDDEN: gl.constexpr,
    WIDTH: gl.constexpr,
    TARGETS: gl.constexpr,
    ACTIVATION: gl.constexpr,
    FUNCTION: gl.constexpr,
    SHIFTED: gl.constexpr,
    SPARSE: gl.constexpr,
    STAGES: gl.constexpr,
    REGISTERS: gl.constexpr,
    LOADER_REGISTERS: gl.constexpr,
):
    """A program takes every `num_programs(0)`-th block of rows through all layers."""
    FIRST_LAYOUT: gl.constexpr = first_weight.layout
    LAYOUT: gl.constexpr = weight.layout
    weights = gl.allocate_shared_memory(gl.int8, [STAGES, BLOCK_UNITS, WIDTH], LAYOUT)
    made = gl.allocate_shared_memory(gl.int32, [2, GROUP_ROWS, WIDTH], gl.SwizzledSharedLayout(4, 1, 8, [1, 0]))
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=2)
    made0 = made.index(0)
    made1 = made.index(1)
    gl.warp_specialize(
        [
            (take_rows, (
                0, x, shift, scale, used, shapes, limits, intercept, last_weight, last_unit, last_intercept, out, rows,
                made0, weights, full, empty, FIRST_LAYOUT, LAYOUT, FEATURES, INPUTS, HIDDEN, WIDTH, TARGETS,
                ACTIVATION, FUNCTION, SHIFTED, SPARSE, STAGES,
            )),
            (take_rows, (
                1, x, shift, scale, used, shapes, limits, intercept, last_weight, last_unit, last_intercept, out, rows,
                made1, weights, full, empty, FIRST_LAYOUT, LAYOUT, FEATURES, INPUTS, HIDDEN, WIDTH, TARGETS,
                ACTIVATION, FUNCTION, SHIFTED, SPARSE, STAGES,
            )),
            (load_weights, (first_weight, weight, shapes, rows, weights, full, empty, HIDDEN, STAGES)),
        ],
        [4, 1],
        [REGISTERS, LOADER_REGISTERS],
    )  # fmt: skip


def launch_hopper_layers(
    parameters: Parameters, x: torch.Tensor, rows: int, widths: tuple[int, ...], arguments: dict[str, Any]
) -> None:
    """Launch two or more hidden layers, the widest at least as wide as the features.

    Args:
        parameters: the tables of `digit_tables`.
        x: `[…, widths[0]]`.
        rows: the number of rows to compute.
        widths: the features, the units of each hidden layer, and the targets.
        arguments: the kernel's other arguments and constants, by name.
    """
    inputs, width, weight = whole_width(widths[0]), whole_width(max(widths[1:-1])), parameters["weight"]
    units = filled_units(widths[1], len(widths) - 2, width)
    first = DIGITS.value * units * inputs
    blocks, programs = triton.cdiv(rows, 2 * GROUP_ROWS.value), program_limit(weight.device) // 2
    hopper_layers_kernel[(min(blocks, programs),)](
        first_weight=_blocks(weight[:first], inputs),
        weight=_blocks(weight[first:], width),
        x=x,
        shapes=parameters["shapes"],
        rows=rows,
        STAGES=HOPPER_STAGES,
        REGISTERS=HOPPER_REGISTERS,
        LOADER_REGISTERS=LOADER_REGISTERS,
        num_warps=4,
        **arguments,
    )


def _blocks(weight: torch.Tensor, inputs: int) -> TensorDescriptor:
    """Return a descriptor that loads int8 `[rows, inputs]` in blocks of 64 rows."""
    layout = gl.NVMMASharedLayout(swizzle_byte_width=min(inputs, 128), element_bitwidth=8, rank=2)
    return TensorDescriptor.from_tensor(weight.view(-1, inputs), [UNITS, inputs], layout)
