"""All layers of a neural network in one launch by whole numbers: digits of eight bits on a GPU's matrix units.

With a unit `u`, a power of two, a number is `u · q`, where `q` is a whole number of 32 bits, that is four digits `dᵢ`
from −128 to 127: `q = Σᵢ dᵢ · 256³⁻ⁱ`. A row has one unit, as have each layer's weights `p = Σⱼ eⱼ · 256³⁻ʲ`. Of a
product the ten `dᵢ · eⱼ` with `i + j ≤ 3` are added up, in whole numbers; what is left out is some 2⁻³² of the largest
product. Only what follows takes float64, three operations for each unit: from whole numbers, the intercept, and back.

The sums are exact, so that a row's bits follow from the row and the model alone, whatever the tiles, which may follow
the number of rows. The unit of what a layer makes is known before it is made: no element exceeds the row's norm times
the largest norm of a unit's weights, and the largest intercept.
(Ootomo, Ozaki, Yokota, DGEMM on integer matrix multiplication unit, 2024.)
"""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl

from .devices import has_many_float64_units, multiplies_float16, program_limit
from .digit_network import LAST_BITS, SLACK, UNITS, whole_width
from .digits import ROUNDER, SMALLEST, power_of_two
from .dots import INTERPRETED
from .functions import apply_function
from .plan import Parameters

LARGEST_WIDTH = 256
"""Sums of the products of so many digits stay whole numbers of 32 bits."""

LEAST_UNIT = tl.constexpr(SMALLEST)
ROW_SLACK = tl.constexpr(SLACK)
INVERSE = tl.constexpr(0x7FE0000000000000)  # less the bits of a power of two: those of one through it
ROUNDER_BITS = tl.constexpr(0x4338000000000000)
MIDDLE = tl.constexpr(1 << 26)  # more than the magnitude of what is added to it
LOST_BITS = tl.constexpr(LAST_BITS)
LOST_HALF = tl.constexpr(1 << LAST_BITS >> 1)

TRANSPOSED = tl.constexpr("""{
    .reg .b32 a, b, c, d;
    prmt.b32 a, $4, $5, 0x5140;
    prmt.b32 b, $4, $5, 0x7362;
    prmt.b32 c, $6, $7, 0x5140;
    prmt.b32 d, $6, $7, 0x7362;
    prmt.b32 $3, a, c, 0x5410;
    prmt.b32 $2, a, c, 0x7632;
    prmt.b32 $1, b, d, 0x5410;
    prmt.b32 $0, b, d, 0x7632;
}""")
"""The bytes of four numbers, those of one place together, the highest first."""


NARROW = 128
"""Up to this width digits are faster on such GPUs too, however few rows there are."""


@functools.cache
def computes_by_digits(device: torch.device, width: int) -> bool:
    """Whether a GPU computes layers of up to that width by digits, as it would take longer in float64.

    Before compute capability 8.0 the Triton language multiplies no int8 on matrix units. A CPU stands for a GPU that
    computes by digits.
    """
    return multiplies_float16(device) and (width <= NARROW or not has_many_float64_units(device))


@triton.jit
def unit_of(largest):
    """Return the unit of rows whose magnitudes, float64, are at most `largest`, and one through it."""
    unit = tl.maximum(power_of_two(largest * ROW_SLACK) * (1.0 / 2147483648.0), LEAST_UNIT)
    return unit, (0 - unit.to(tl.int64, bitcast=True) + INVERSE).to(tl.float64, bitcast=True)


@triton.jit
def whole(z, inverse):
    """Return float64 `z / unit`, rounded, as int32."""
    return (z * inverse[:, None] + ROUNDER).to(tl.int64, bitcast=True).to(tl.int32)


@triton.jit
def split(q):
    """Return the digits of int32 numbers as int8, the highest first."""
    signed = (q + 0x808080) ^ 0x808080
    if INTERPRETED:
        d0, d1 = (signed >> 24).to(tl.int8), (signed >> 16).to(tl.int8)
        d2, d3 = (signed >> 8).to(tl.int8), signed.to(tl.int8)
    else:
        d0, d1, d2, d3 = tl.inline_asm_elementwise(
            TRANSPOSED, "=r,=r,=r,=r,r,r,r,r", [signed], (tl.int8, tl.int8, tl.int8, tl.int8), True, 4
        )
    return d0, d1, d2, d3


@triton.jit
def squares(q):
    """Return for each row the sum of the squares of its numbers' highest 12 bits."""
    high = q >> 20
    return tl.sum(high * high, axis=1)


@triton.jit
def norm_of(total):
    """Return a bound of the norms, in units, of rows of up to 256 numbers from their `squares`, float64."""
    return (tl.sqrt_rn(total.to(tl.float32)) + 16.0).to(tl.float64) * 1048576.0


@triton.jit
def multiply(d0, d1, d2, d3, w, PART):
    """Return `Σ q · p / 2³²`, float64, where `w` points to the highest digits of weights and the next lie PART behind.

    No more than one digit of the weights is held at a time.
    """
    none = tl.zeros([d0.shape[0], w.shape[1]], tl.int32)
    e = tl.load(w + 3 * PART)
    s3 = tl.dot(d0, e, acc=none, out_dtype=tl.int32)
    e = tl.load(w + 2 * PART)
    s3 = tl.dot(d1, e, acc=s3, out_dtype=tl.int32)
    s2 = tl.dot(d0, e, acc=none, out_dtype=tl.int32)
    e = tl.load(w + PART)
    s3 = tl.dot(d2, e, acc=s3, out_dtype=tl.int32)
    s2 = tl.dot(d1, e, acc=s2, out_dtype=tl.int32)
    s1 = tl.dot(d0, e, acc=none, out_dtype=tl.int32)
    e = tl.load(w)
    s3 = tl.dot(d3, e, acc=s3, out_dtype=tl.int32)
    s2 = tl.dot(d2, e, acc=s2, out_dtype=tl.int32)
    s1 = tl.dot(d1, e, acc=s1, out_dtype=tl.int32)
    s0 = tl.dot(d0, e, acc=none, out_dtype=tl.int32)
    return combined(s0 * 256 + s1, s2 + ((s3 + 128) >> 8) + MIDDLE)


@triton.jit
def combined(high, low):
    """Return `256 · high + low − MIDDLE` as float64, where `low` is not negative."""
    bits = low.to(tl.uint32, bitcast=True).to(tl.int64) | ROUNDER_BITS
    if INTERPRETED:
        bits = high.to(tl.int64) * 256 + bits
    else:
        bits = tl.inline_asm_elementwise("mad.wide.s32 $0, $1, 256, $2;", "=l,r,l", [high, bits], tl.int64, True, 1)
    return bits.to(tl.float64, bitcast=True) - (ROUNDER + MIDDLE)


@triton.jit
def next_unit(norm, growth, largest_intercept, ACTIVATION: tl.constexpr):
    """Return the unit of what a layer makes of rows of that norm, and one through it."""
    bound = norm * growth + largest_intercept
    if ACTIVATION == "tanh" or ACTIVATION == "expit":
        bound = bound * 0.0 + 1.0
    return unit_of(bound)


@triton.jit
def activated(v, factor, intercept, inverse, ACTIVATION: tl.constexpr):
    """Return `ACTIVATION(v · factor + intercept)` in units as int32."""
    z = v * factor[:, None] + intercept[None, :]
    q = whole(z if ACTIVATION == "relu" else apply_function(z, ACTIVATION), inverse)
    return tl.maximum(q, 0) if ACTIVATION == "relu" else q


@triton.jit
def layer_outputs(
    d0, d1, d2, d3,  # int8 [BLOCK_ROWS, INPUTS]: the digits of the layer's inputs
    factor,  # float64 [BLOCK_ROWS]: 2³² units of the inputs and weights
    inverse,  # float64 [BLOCK_ROWS]: one through the unit of the outputs
    w,  # int8 [4, units, INPUTS]
    intercept,  # float64 [units]
    last_weight,
    place,  # int8 [4, BLOCK_ROWS, WIDTH]: where the outputs' digits go, unless the last layer follows
    units,
    is_last,
    INPUTS: tl.constexpr, WIDTH: tl.constexpr, TARGETS: tl.constexpr, ACTIVATION: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_UNITS: tl.constexpr, BLOCK_TARGETS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Make a hidden layer in blocks of units; return the last layer's sums and those of the rows' `squares`."""
    PART: tl.constexpr = BLOCK_ROWS * WIDTH
    mine, target = tl.arange(0, BLOCK_ROWS), tl.arange(0, BLOCK_TARGETS)
    at = tl.arange(0, INPUTS)[:, None] + tl.arange(0, BLOCK_UNITS)[None, :] * INPUTS
    sums = tl.zeros([BLOCK_ROWS, BLOCK_TARGETS], tl.int64)
    total = tl.zeros([BLOCK_ROWS], tl.int32)
    for start in tl.range(0, units, BLOCK_UNITS, num_stages=STAGES):
        column = start + tl.arange(0, BLOCK_UNITS)
        v = multiply(d0, d1, d2, d3, w + at + start * INPUTS, units * INPUTS)
        q = activated(v, factor, tl.load(intercept + column), inverse, ACTIVATION)
        if is_last:
            q = (q + LOST_HALF) >> LOST_BITS
            for t in tl.range(0, TARGETS, num_stages=1):
                part = tl.sum(q.to(tl.int64) * tl.load(last_weight + t * WIDTH + column).to(tl.int64)[None, :], axis=1)
                sums += tl.where((target == t)[None, :], part[:, None], 0)
        else:
            total += squares(q)
            q0, q1, q2, q3 = split(q)
            digit = place + mine[:, None] * WIDTH + column[None, :]
            tl.store(digit, q0)
            tl.store(digit + PART, q1)
            tl.store(digit + 2 * PART, q2)
            tl.store(digit + 3 * PART, q3)
    return sums, total


@triton.jit(do_not_specialize=["rows"])
def digit_layers_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    shift,  # float64 [FEATURES]
    scale,  # float64 [FEATURES]
    used,  # float32 [FEATURES], read where SPARSE: 0 for a feature that is not looked at
    shapes,  # int32 [HIDDEN, 2]: of each hidden layer the units and where its weights begin
    weight,  # int8: of each hidden layer [4, units, its inputs]
    limits,  # float64 [HIDDEN, 3]: of each 2³² units of its weights, their largest norm, the largest intercept
    intercept,  # float64 [HIDDEN, WIDTH]
    last_weight,  # int32 [TARGETS, WIDTH]
    last_unit,  # float64 [TARGETS]
    last_intercept,  # float64 [TARGETS]
    values,  # int8 [programs, 2, 4, BLOCK_ROWS, WIDTH]
    out,  # float32 or float64 [rows, TARGETS]
    rows,
    FEATURES: tl.constexpr,
    INPUTS: tl.constexpr,  # FEATURES with what fills them up
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
    STAGES: tl.constexpr,
):
    """A program takes every `num_programs(0)`-th block of rows through all layers."""
    PART: tl.constexpr = 4 * BLOCK_ROWS * WIDTH
    mine, target, feature = tl.arange(0, BLOCK_ROWS), tl.arange(0, BLOCK_TARGETS), tl.arange(0, INPUTS)
    values += tl.program_id(0).to(tl.int64) * (2 * PART)
    for block in tl.range(tl.program_id(0), tl.cdiv(rows, BLOCK_ROWS), tl.num_programs(0), num_stages=1):
        row = block * BLOCK_ROWS + mine.to(tl.int64)
        inside = (row < rows)[:, None] & (feature < FEATURES)[None, :]
        if SPARSE:
            inside &= (tl.load(used + feature, mask=feature < FEATURES, other=0.0) != 0.0)[None, :]
        z = tl.load(x + row[:, None] * FEATURES + feature[None, :], mask=inside, other=0.0).to(tl.float64)
        if SHIFTED:
            z = tl.where(inside, z - tl.load(shift + feature, mask=feature < FEATURES, other=0.0)[None, :], 0.0)
        z *= tl.load(scale + feature, mask=feature < FEATURES, other=1.0)[None, :]
        single = z.to(tl.float32)
        nothing = tl.sum(single * 0.0, axis=1)  # which is NaN where a number is NaN or infinite, as digits are not
        unit, inverse = unit_of(tl.max(tl.abs(single), axis=1).to(tl.float64))
        q = whole(z, inverse)
        d0, d1, d2, d3 = split(q)
        norm = norm_of(squares(q)) * unit
        factor = unit * tl.load(limits)
        unit, inverse = next_unit(norm, tl.load(limits + 1), tl.load(limits + 2), ACTIVATION)
        sums, total = layer_outputs(
            d0, d1, d2, d3, factor, inverse, weight, intercept, last_weight, values, tl.load(shapes), HIDDEN == 1,
            INPUTS, WIDTH, TARGETS, ACTIVATION, BLOCK_ROWS, BLOCK_UNITS, BLOCK_TARGETS, STAGES,
        )  # fmt: skip
        for layer in tl.range(1, HIDDEN, num_stages=1):
            tl.debug_barrier()  # this layer reads what other threads wrote
            source = values + ((layer + 1) % 2) * PART + mine[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
            h0, h1 = tl.load(source), tl.load(source + PART // 4)
            h2, h3 = tl.load(source + PART // 2), tl.load(source + 3 * (PART // 4))
            norm = norm_of(total) * unit
            factor = unit * tl.load(limits + 3 * layer)
            growth, largest_intercept = tl.load(limits + 3 * layer + 1), tl.load(limits + 3 * layer + 2)
            unit, inverse = next_unit(norm, growth, largest_intercept, ACTIVATION)
            units, first = tl.load(shapes + 2 * layer), tl.multiple_of(tl.load(shapes + 2 * layer + 1), 16)
            sums, total = layer_outputs(
                h0, h1, h2, h3, factor, inverse, weight + first, intercept + layer * WIDTH, last_weight,
                values + (layer % 2) * PART, units, layer == HIDDEN - 1,
                WIDTH, WIDTH, TARGETS, ACTIVATION, BLOCK_ROWS, BLOCK_UNITS, BLOCK_TARGETS, STAGES,
            )  # fmt: skip
        tl.debug_barrier()  # the next rows' digits are written where these were read
        real = target < TARGETS
        unit_of_target = tl.load(last_unit + target, mask=real, other=0.0)
        b = tl.load(last_intercept + target, mask=real, other=0.0)
        y = sums.to(tl.float64) * unit[:, None] * unit_of_target[None, :] + (
            b[None, :] + nothing.to(tl.float64)[:, None]
        )
        inside = (row < rows)[:, None] & real[None, :]
        answer = apply_function(y, FUNCTION).to(out.dtype.element_ty)
        tl.store(out + row[:, None] * TARGETS + target[None, :], answer, mask=inside)


def digit_shape(rows: int, width: int, multiprocessors: int) -> dict[str, int]:
    """Return how many rows and units a program takes at once, and its warps; none changes a bit.

    Args:
        rows: the batch's.
        width: of the widest hidden layer.
        multiprocessors: the GPU's; each shall have a program before one has more rows.
    """
    block_rows = min(max(triton.next_power_of_2(triton.cdiv(rows, multiprocessors)), 16), 64)
    return {
        "BLOCK_ROWS": block_rows,
        "BLOCK_UNITS": min(whole_width(width), UNITS),
        "STAGES": 1,
        "num_warps": 4,
    }


def launch_digit_layers(
    parameters: Parameters,
    x: torch.Tensor,
    output: torch.Tensor,
    rows: int,
    widths: tuple[int, ...],
    activation: str,
    function: str,
    shifted: bool,
) -> None:
    """Launch all layers on the first `rows` rows of `x`, with what `digit_tables` returned."""
    device, width = parameters["weight"].device, whole_width(max(widths[1:-1]))
    shape = digit_shape(rows, width, program_limit(device) // 2)
    programs = min(triton.cdiv(rows, shape["BLOCK_ROWS"]), program_limit(device))
    names = ("shift", "scale", "shapes", "weight", "limits", "intercept", "last_weight", "last_unit", "last_intercept")
    digit_layers_kernel[(programs,)](
        x=x,
        used=parameters.get("used", parameters["shift"]),
        **{name: parameters[name] for name in names},
        values=torch.empty(8 * programs * shape["BLOCK_ROWS"] * width, dtype=torch.int8, device=device),
        out=output,
        rows=rows,
        FEATURES=widths[0],
        INPUTS=whole_width(widths[0]),
        HIDDEN=len(widths) - 2,
        WIDTH=width,
        TARGETS=widths[-1],
        ACTIVATION=activation,
        FUNCTION=function,
        SHIFTED=shifted,
        SPARSE="used" in parameters,
        BLOCK_TARGETS=triton.next_power_of_2(widths[-1]),
        **shape,
    )
