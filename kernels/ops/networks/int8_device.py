"""Layers of neural networks in integers: digits of eight bits on a GPU's matrix units.

With a unit `u`, a power of two, a number is `u · q`, where `q` is an integer of 32 bits, made of four digits `dᵢ` from
−128 to 127: `q = Σᵢ dᵢ · 256³⁻ⁱ`. A row has one unit, as have each layer's weights `p = Σⱼ eⱼ · 256³⁻ʲ`. For a product
the ten `dᵢ · eⱼ` with `i + j ≤ 3` are summed in integers; the omitted rest is about 2⁻³² of the largest product. Only
the steps after that use float64, three operations for each unit: from integers, the intercept, and back.

The sums are exact, so a row's bits follow from the row and the model alone, whatever the tiles, which may follow the
number of rows. The unit of a layer's outputs is known before the outputs are: no element exceeds the row's norm times
the largest norm of a unit's weights, plus the largest intercept.
(Ootomo, Ozaki, Yokota, DGEMM on integer matrix multiplication unit, 2024.)
"""

from __future__ import annotations

import triton
import triton.language as tl

from ...numerics.dot import INTERPRETED
from ...numerics.fp16_digits import ROUNDER, SMALLEST, power_of_two
from ...numerics.functions import apply_function
from .int8_tables import SLACK

LEAST_UNIT = tl.constexpr(SMALLEST)
ROW_SLACK = tl.constexpr(SLACK)
INVERSE = tl.constexpr(0x7FE0000000000000)  # minus the bits of a power of two gives the bits of its reciprocal
ROUNDER_BITS = tl.constexpr(0x4338000000000000)
MIDDLE = tl.constexpr(1 << 26)  # exceeds the magnitude of the numbers added to it


@triton.jit
def unit_of(largest):
    """Return the unit of rows whose magnitudes, float64, are at most `largest`, and its reciprocal."""
    unit = tl.maximum(power_of_two(largest * ROW_SLACK) * (1.0 / 2147483648.0), LEAST_UNIT)
    return unit, (0 - unit.to(tl.int64, bitcast=True) + INVERSE).to(tl.float64, bitcast=True)


@triton.jit
def whole(z, inverse):
    """Return float64 `z / unit`, rounded, as int32; `inverse` is the reciprocal of the unit."""
    return (z * inverse + ROUNDER).to(tl.int64, bitcast=True).to(tl.int32)


@triton.jit
def squares(q):
    """Return for each row the sum of the squares of its numbers' highest 12 bits."""
    high = q >> 20
    return tl.sum(high * high, axis=1)


@triton.jit
def norm_of(total):
    """Return a bound on the norms, in units, of rows of up to 256 numbers from their `squares`, float64."""
    return (tl.sqrt_rn(total.to(tl.float32)) + 16.0).to(tl.float64) * 1048576.0


@triton.jit
def multiply(d0, d1, d2, d3, w, PART):
    """Return `Σ q · p / 2³²`, float64. `w` points to the highest digits of weights; the next digits lie PART further.

    The next digits of the weights are loaded while the previous ones are multiplied, and no more are held at a time.
    """
    none = tl.zeros([d0.shape[0], w.shape[1]], tl.int32)
    e3 = tl.load(w + 3 * PART)
    e2 = tl.load(w + 2 * PART)
    s3 = tl.dot(d0, e3, acc=none, out_dtype=tl.int32)
    e1 = tl.load(w + PART)
    s3 = tl.dot(d1, e2, acc=s3, out_dtype=tl.int32)
    s2 = tl.dot(d0, e2, acc=none, out_dtype=tl.int32)
    e0 = tl.load(w)
    s3 = tl.dot(d2, e1, acc=s3, out_dtype=tl.int32)
    s2 = tl.dot(d1, e1, acc=s2, out_dtype=tl.int32)
    s1 = tl.dot(d0, e1, acc=none, out_dtype=tl.int32)
    s3 = tl.dot(d3, e0, acc=s3, out_dtype=tl.int32)
    s2 = tl.dot(d2, e0, acc=s2, out_dtype=tl.int32)
    s1 = tl.dot(d1, e0, acc=s1, out_dtype=tl.int32)
    s0 = tl.dot(d0, e0, acc=none, out_dtype=tl.int32)
    return combined(s0 * 256 + s1, s2 + ((s3 + 128) >> 8) + MIDDLE)


@triton.jit
def multiply_all(d0, d1, d2, d3, e0, e1, e2, e3):
    """Return the result of `multiply` for weights already loaded, with two accumulators instead of four."""
    none = tl.zeros([d0.shape[0], e0.shape[1]], tl.int32)
    low = tl.dot(d0, e3, acc=none, out_dtype=tl.int32)
    low = tl.dot(d1, e2, acc=low, out_dtype=tl.int32)
    low = tl.dot(d2, e1, acc=low, out_dtype=tl.int32)
    low = tl.dot(d3, e0, acc=low, out_dtype=tl.int32)
    low = ((low + 128) >> 8) + MIDDLE
    low = tl.dot(d0, e2, acc=low, out_dtype=tl.int32)
    low = tl.dot(d1, e1, acc=low, out_dtype=tl.int32)
    low = tl.dot(d2, e0, acc=low, out_dtype=tl.int32)
    high = tl.dot(d0, e0, acc=none, out_dtype=tl.int32) * 256
    high = tl.dot(d0, e1, acc=high, out_dtype=tl.int32)
    high = tl.dot(d1, e0, acc=high, out_dtype=tl.int32)
    return combined(high, low)


@triton.jit
def multiply_apart(d0, d1, d2, d3, e0, e1, e2, e3):
    """Return the result of `multiply_all`, with four accumulators: products of few rows wait less for each other."""
    none = tl.zeros([d0.shape[0], e0.shape[1]], tl.int32)
    s3 = tl.dot(d0, e3, acc=none, out_dtype=tl.int32)
    s2 = tl.dot(d0, e2, acc=none, out_dtype=tl.int32)
    s1 = tl.dot(d0, e1, acc=none, out_dtype=tl.int32)
    s0 = tl.dot(d0, e0, acc=none, out_dtype=tl.int32)
    s3 = tl.dot(d1, e2, acc=s3, out_dtype=tl.int32)
    s2 = tl.dot(d1, e1, acc=s2, out_dtype=tl.int32)
    s1 = tl.dot(d1, e0, acc=s1, out_dtype=tl.int32)
    s3 = tl.dot(d2, e1, acc=s3, out_dtype=tl.int32)
    s2 = tl.dot(d2, e0, acc=s2, out_dtype=tl.int32)
    s3 = tl.dot(d3, e0, acc=s3, out_dtype=tl.int32)
    return combined(s0 * 256 + s1, s2 + ((s3 + 128) >> 8) + MIDDLE)


@triton.jit
def combined(high, low):
    """Return `256 · high + low − MIDDLE` as float64; `low` is not negative."""
    bits = low.to(tl.uint32, bitcast=True).to(tl.int64) | ROUNDER_BITS
    if INTERPRETED:
        bits = high.to(tl.int64) * 256 + bits
    else:
        bits = tl.inline_asm_elementwise("mad.wide.s32 $0, $1, 256, $2;", "=l,r,l", [high, bits], tl.int64, True, 1)
    return bits.to(tl.float64, bitcast=True) - (ROUNDER + MIDDLE)


@triton.jit
def next_units(total, unit, limits):
    """Return the factor of a layer's products, the unit of its outputs, and the reciprocal of that unit.

    Args:
        total: int32 `[rows]`, the `squares` of the layer's inputs.
        unit: float64 `[rows]`, the unit of the inputs.
        limits: pointer to 2³² units of the layer's weights, and to the bound on its outputs: a factor of its inputs'
            norm, and a summand.
    """
    bound = tl.fma(norm_of(total) * unit, tl.load(limits + 1), tl.load(limits + 2))  # rounded alike in every kernel
    following, inverse = unit_of(bound)
    return unit * tl.load(limits), following, inverse


@triton.jit
def activated(v, factor, intercept, inverse, ACTIVATION: tl.constexpr):
    """Return `ACTIVATION(v · factor + intercept)` in units as int32; the other arguments are broadcast to `v`."""
    z = v * factor + intercept
    q = whole(z if ACTIVATION == "relu" else apply_function(z, ACTIVATION), inverse)
    return tl.maximum(q, 0) if ACTIVATION == "relu" else q


@triton.jit
def first_numbers(
    x, shift, scale, used, row, feature, rows,
    FEATURES: tl.constexpr, SHIFTED: tl.constexpr, SPARSE: tl.constexpr,
):  # fmt: skip
    """Return rows of features in units as int32, their units, and zero, or NaN for a row that is not finite."""
    real = feature < FEATURES
    inside = (row < rows)[:, None] & real[None, :]
    if SPARSE:
        inside &= (tl.load(used + feature, mask=real, other=0.0) != 0.0)[None, :]
    z = tl.load(x + row[:, None] * FEATURES + feature[None, :], mask=inside, other=0.0).to(tl.float64)
    if SHIFTED:
        z = tl.where(inside, z - tl.load(shift + feature, mask=real, other=0.0)[None, :], 0.0)
    z *= tl.load(scale + feature, mask=real, other=1.0)[None, :]
    single = z.to(tl.float32)
    nothing = tl.sum(single * 0.0, axis=1)
    unit, inverse = unit_of(tl.max(tl.abs(single), axis=1).to(tl.float64))
    return whole(z, inverse[:, None]), unit, nothing.to(tl.float64)


@triton.jit
def last_sums(sums, q, w, TARGETS: tl.constexpr, WIDTH: tl.constexpr):
    """Return `sums` plus those of a block of the last hidden layer; `w` points to the first target's weights."""
    target = tl.arange(0, sums.shape[1])
    for t in tl.range(0, TARGETS, num_stages=1):
        part = tl.sum(q.to(tl.int64) * tl.load(w + t * WIDTH).to(tl.int64)[None, :], axis=1)
        sums += tl.where((target == t)[None, :], part[:, None], 0)
    return sums


@triton.jit
def answer(
    sums, unit, nothing, last_unit, last_intercept, out, row, rows, TARGETS: tl.constexpr, FUNCTION: tl.constexpr
):  # fmt: skip
    """Write the answers of rows from the last sums."""
    target = tl.arange(0, sums.shape[1])
    real = target < TARGETS
    unit_of_target = tl.load(last_unit + target, mask=real, other=0.0)
    b = tl.load(last_intercept + target, mask=real, other=0.0)
    y = sums.to(tl.float64) * unit[:, None] * unit_of_target[None, :] + (b[None, :] + nothing[:, None])
    inside = (row < rows)[:, None] & real[None, :]
    found = apply_function(y, FUNCTION).to(out.dtype.element_ty)
    tl.store(out + row[:, None] * TARGETS + target[None, :], found, mask=inside)
