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
from collections.abc import Sequence

import numpy as np
import torch
import triton
import triton.language as tl

from .devices import has_many_float64_units, multiplies_float16
from .digits import ROUNDER, SMALLEST, power_of_two
from .dots import INTERPRETED
from .functions import FUNCTIONS, apply_function

LARGEST_WIDTH = 256
"""Sums of the products of so many digits stay whole numbers of 32 bits."""

UNITS = 64
"""The units of hidden layers are filled up to a multiple of so many, or of fewer where all layers are narrow."""

ROUNDS = 3
"""How often features and units are balanced."""

LEAST_UNIT = tl.constexpr(SMALLEST)
SLACK = tl.constexpr(1.0101)  # the largest digit is 127 and not 128
INVERSE = tl.constexpr(0x7FE0000000000000)  # less the bits of a power of two: those of one through it
ROUNDER_BITS = tl.constexpr(0x4338000000000000)
MIDDLE = tl.constexpr(1 << 26)  # more than the magnitude of what is added to it
LAST_BITS = tl.constexpr(2)  # so many bits of the last hidden layer are rounded away, that 64 hold the last sums
LAST_HALF = tl.constexpr(2)

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
    unit = tl.maximum(power_of_two(largest * SLACK) * (1.0 / 2147483648.0), LEAST_UNIT)
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
            q = (q + LAST_HALF) >> LAST_BITS
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


Layers = Sequence[tuple[np.ndarray, np.ndarray]]
"""The weight `[inputs, units]` and intercept `[units]` of each layer, float64."""


def digit_tables(layers: Layers, shift: np.ndarray, activation: str) -> dict[str, np.ndarray]:
    """Return what the kernel reads of a network whose features have `shift` subtracted."""
    scale, layers = _balanced(layers, shift, activation)
    *hidden, (last, last_intercept) = layers
    width = whole_width(max(weight.shape[1] for weight, _ in hidden))
    block = min(width, UNITS)
    shapes, packed, limits, first = [], [], [], 0
    intercepts = np.zeros((len(hidden), width))
    for index, (weight, intercept) in enumerate(hidden):
        inputs, units = weight.shape
        padded = np.zeros((width if index else whole_width(inputs), -(-units // block) * block))
        padded[:inputs, :units] = weight
        digits, unit = _weight_digits(padded)
        intercepts[index, :units] = intercept
        limits.append((unit * 2.0**32, np.sqrt((weight * weight).sum(axis=0)).max(), np.abs(intercept).max()))
        shapes.append((padded.shape[1], first))
        packed.append(digits.transpose(0, 2, 1).ravel())
        first += digits.size
    last_numbers, last_unit = _last_numbers(last)
    last_weight = np.zeros((last.shape[1], width), dtype=np.int32)
    last_weight[:, : len(last)] = last_numbers.T
    return {
        "shift": shift,
        "scale": scale,
        "shapes": np.array(shapes, dtype=np.int32),
        "weight": np.concatenate(packed),
        "limits": np.array(limits),
        "intercept": intercepts,
        "last_weight": last_weight,
        "last_unit": last_unit * 2.0**LAST_BITS.value,
        "last_intercept": last_intercept,
    }


def whole_width(width: int) -> int:
    """Return to how many numbers a layer's inputs are filled up, which a program takes at once."""
    return max(32, 1 << (width - 1).bit_length())


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


def emulated_digit_layers(z: np.ndarray, layers: Layers, shift: np.ndarray, activation: str) -> np.ndarray:
    """Return what the kernel answers before its last function, to the bit but for the activation's last places.

    Args:
        z: float64 rows, `shift` subtracted.
        layers: the network.
        shift: what `digit_tables` knows of it.
        activation: what hidden layers apply.

    Returns:
        float64 `[rows, targets]`.
    """
    tables = digit_tables(layers, shift, activation)
    scale, layers = _balanced(layers, shift, activation)
    *hidden, (last, last_intercept) = layers
    z = z * scale
    unit = _units(np.abs(z.astype(np.float32)).max(axis=1))
    q = np.rint(z / unit[:, None]).astype(np.int64)
    for (weight, intercept), (factor, growth, largest) in zip(hidden, tables["limits"], strict=True):
        d, e = (digits.astype(np.float64) for digits in (_digits(q), _weight_digits(weight)[0]))
        s0, s1, s2, s3 = (sum(d[i] @ e[level - i] for i in range(level + 1)) for level in range(4))
        v = 256 * (256 * s0 + s1) + s2 + np.floor((s3 + 128) / 256)
        h = FUNCTIONS[activation](torch.from_numpy(v * (unit * factor)[:, None] + intercept)).numpy()
        highest = np.sqrt(((q >> 20) ** 2).sum(axis=1).astype(np.float32)) + np.float32(16)
        bound = highest * 2.0**20 * unit * growth + largest
        unit = _units(np.ones(len(z)) if activation in ("tanh", "expit") else bound)
        q = np.rint(h / unit[:, None]).astype(np.int64)
    sums = ((q + LAST_HALF.value) >> LAST_BITS.value) @ _last_numbers(last)[0].astype(np.int64)
    answer: np.ndarray = sums * unit[:, None] * tables["last_unit"] + last_intercept
    return answer


def _balanced(layers: Layers, shift: np.ndarray, activation: str) -> tuple[np.ndarray, Layers]:
    """Return what to multiply features with, less `shift`, and layers that compute the same of them.

    All is multiplied by powers of two: the features by that of their largest weight, and what a unit makes, where the
    activation allows, by one that brings its weights and intercept to a norm of about one; and again, as one changes
    the other.
    """
    weights, intercepts = [weight for weight, _ in layers], [intercept for _, intercept in layers]
    intercepts[0] = intercepts[0] + np.einsum("i,ij->j", shift, weights[0])
    scale = np.ones(len(weights[0]))
    for _ in range(ROUNDS):
        factor = _towards_one(np.abs(weights[0]).max(axis=1))
        weights[0], scale = weights[0] * factor[:, None], scale / factor
        for index in range(len(weights) - 1 if activation in ("identity", "relu") else 0):
            factor = _towards_one(np.sqrt((weights[index] ** 2).sum(axis=0) + intercepts[index] ** 2))
            weights[index], intercepts[index] = weights[index] * factor, intercepts[index] * factor
            weights[index + 1] = weights[index + 1] / factor[:, None]
    return scale, list(zip(weights, intercepts, strict=True))


def _units(largest: np.ndarray) -> np.ndarray:
    """Return the units of `unit_of`."""
    exponent = np.frexp(np.asarray(largest, dtype=np.float64) * SLACK.value)[1]
    found: np.ndarray = np.maximum(np.ldexp(1.0, exponent - 31), SMALLEST)
    return found


def _towards_one(magnitude: np.ndarray) -> np.ndarray:
    """Return the power of two that brings each magnitude closest to one; one for zero."""
    known = np.where(magnitude > 0, magnitude, 1.0)
    found: np.ndarray = np.ldexp(1.0, -np.rint(np.log2(known)).clip(-500, 500).astype(int))
    return found


def _digits(q: np.ndarray) -> np.ndarray:
    """Return the digits of whole numbers of 32 bits as int8 `[4, …]`, the highest first."""
    signed = (q.astype(np.int64) + 0x808080) ^ 0x808080
    return np.stack([(signed >> places).astype(np.int8) for places in (24, 16, 8, 0)])


def _weight_digits(weight: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the digits of a layer's weights `[4, inputs, units]` and their unit."""
    unit = float(_units(np.abs(weight).max()))
    return _digits(np.rint(weight / unit)), unit


def _last_numbers(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the last weights as int32, whose magnitudes add up to 2³³ at most, and each target's unit."""
    magnitude = np.abs(weight)
    exponent = np.maximum(np.frexp(magnitude.sum(axis=0))[1] - 33, np.frexp(magnitude.max(axis=0))[1] - 30)
    unit: np.ndarray = np.maximum(np.ldexp(1.0, exponent), SMALLEST)
    return np.rint(weight / unit).astype(np.int32), unit
