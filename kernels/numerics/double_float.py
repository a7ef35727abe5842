"""Double-float functions to eight digits, on sums of two float32 numbers: they need no float64 unit of a GPU.

The second number of such a pair is small against the first, mostly 2⁻²⁴ of it, and rounding affects only the second. A
sum of two numbers and its rounding error together are exact (Dekker, A floating-point technique for extending the
available precision, 1971). A product and its rounding error, from a fused multiply-add, are exact too.
"""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl

from .dot import INTERPRETED, rounded_product
from .fast_math import instruction

FRACTION = 14  # bits of an exponent of 2 that become the mantissa of the power's leading part
LN2, LOG2_E = 0.6931471805599453, 1.4426950408889634

BIAS = tl.constexpr(512.0 + 127.0 - 583 / 16384)  # added to an exponent; the last term makes the rest small
LEAST = tl.constexpr(512.0)
NEGATIVE = 256.0  # added to a fixed-point number, it flips the sign of the power

Q0 = tl.constexpr(-0.050471704453229904)  # 2^(x + 1/2 + 583/16384) − x − 3/2 on [−1/2, 1/2], to 3e-9 of the power
Q1 = tl.constexpr(0.004736488685011864)
Q2 = tl.constexpr(0.3482150733470917)
Q3 = tl.constexpr(0.08045358210802078)
Q4 = tl.constexpr(0.013942192308604717)
Q5 = tl.constexpr(0.0019423593766987324)
Q6 = tl.constexpr(0.00022261754202190787)

LN2_FIRST = tl.constexpr(float(np.float32(LN2)))
LN2_SECOND = tl.constexpr(LN2 - float(np.float32(LN2)))
SQUARE = LN2 * LN2 / 3
SQUARE_FIRST = tl.constexpr(float(np.float16(SQUARE)))
SQUARE_SECOND = tl.constexpr(SQUARE - float(np.float16(SQUARE)))
SLOPE_FIRST = tl.constexpr(float(np.float16(LN2)))
SLOPE_SECOND = tl.constexpr(LN2 - float(np.float16(LN2)))
SMALLEST = tl.constexpr(4e-9)
LOG2_E_FLOAT = tl.constexpr(LOG2_E)

MANTISSA, ONE = tl.constexpr(0x007FFFFF), tl.constexpr(0x3F800000)
EXPONENT, SIGN = tl.constexpr(-0x00800000), tl.constexpr(-0x80000000)


@triton.jit
def fma(a, b, c):
    """Return `a · b + c` for float32 numbers, rounded once."""
    return (a.to(tl.float64) * b + c).to(tl.float32) if INTERPRETED else tl.fma(a, b, c)


@triton.jit
def ordered_sum(a, b):
    """Return `a + b` as a pair, where `|a| ≥ |b|`."""
    first = a + b
    return first, b - (first - a)


@triton.jit
def pair_sum(a, b):
    """Return `a + b` as a pair."""
    first = a + b
    of_b = first - a
    return first, (a - (first - of_b)) + (b - of_b)


@triton.jit
def pair_product(a, a_rest, b, b_rest):
    """Return the product of two pairs."""
    first = rounded_product(a, b)
    rest = fma(a, b, -first)
    rest = fma(a, b_rest, rest)
    return first, fma(a_rest, b, rest)


@triton.jit
def pair_reciprocal(a, rest):
    """Return one divided by a pair."""
    y = 1.0 / a if INTERPRETED else instruction(a, "rcp.approx.ftz.f32 $0, $1;")
    wrong = fma(-rest, y, fma(-a, y, 1.0))
    return y, rounded_product(y, wrong)


@triton.jit
def pair_sqrt(a, rest, LEAST: tl.constexpr):
    """Return the square root of a number plus a small one, as a pair; below `LEAST` a step from the root of `LEAST`."""
    a_rounded = tl.maximum(a + rest, LEAST)
    y = 1.0 / tl.sqrt(a_rounded) if INTERPRETED else instruction(a_rounded, "rsqrt.approx.ftz.f32 $0, $1;")
    root = rounded_product(a_rounded, y)
    return root, rounded_product(0.5 * y, fma(-root, root, a) + rest)


@triton.jit
def power_of_fixed(fixed, rest):
    """Return `2^(fixed − BIAS + rest)` as `leading + power · correction`.

    `fixed` is a fixed-point number of 14 bits after the point, between 512 and 1024. Shifted by nine bits, its whole
    part becomes a float32 number's exponent and sign, and its fraction `v` the mantissa: this is `leading`,
    `2ⁿ (1 + v)`. A polynomial corrects it, to 3e-9 of the power. Below 513 the power is zero if `rest` is at most a
    million.
    """
    bits = fixed.to(tl.int32, bitcast=True) << 9
    v = ((bits & MANTISSA) | ONE).to(tl.float32, bitcast=True)
    x = (v - 1.5) + rest
    q = fma(x, Q6, Q5)
    q = fma(q, x, Q4)
    q = fma(q, x, Q3)
    q = fma(q, x, Q2)
    q = fma(q, x, Q1)
    q = fma(q, x, Q0)
    return bits.to(tl.float32, bitcast=True), (bits & EXPONENT).to(tl.float32, bitcast=True), q + rest


@triton.jit
def pair_exp2(t, rest):
    """Return `2^(t + rest)` for `t < 128` as a pair, whose second number may be a twentieth of the first."""
    fixed = tl.maximum(t + BIAS, LEAST)
    leading, power, correction = power_of_fixed(fixed, ((BIAS - fixed) + t) + rest)
    return leading, rounded_product(power, correction)


@triton.jit
def pair_log2(a, rest):
    """Return log₂ of a number plus a small one, as a pair: float32's logarithm, corrected by its power of two."""
    a_rounded = a + rest
    y = tl.log2(a_rounded) if INTERPRETED else instruction(a_rounded, "lg2.approx.ftz.f32 $0, $1;")
    fixed = y + BIAS
    leading, power, correction = power_of_fixed(fixed, (BIAS - fixed) + y)
    wrong = fma(-power, correction, a - leading) + rest
    over = 1.0 / a_rounded if INTERPRETED else instruction(a_rounded, "rcp.approx.ftz.f32 $0, $1;")
    return y, rounded_product(rounded_product(wrong, over), LOG2_E_FLOAT)


@triton.jit
def pair_power(a, rest, exponent, exponent_rest, WHOLE: tl.constexpr):
    """Return a number plus a small one, raised to an exponent, as a pair; see `powers.power`."""
    if WHOLE is None:
        y, y_rest = pair_log2(a, rest)
        t = rounded_product(y, tl.broadcast_to(exponent, y.shape))
        t_rest = fma(y, exponent, -t)
        t_rest = fma(y, exponent_rest, t_rest)
        p, p_rest = pair_exp2(t, fma(y_rest, exponent, t_rest))
    else:
        COUNT: tl.constexpr = WHOLE if WHOLE >= 0 else -WHOLE
        a, rest = ordered_sum(a, rest)
        p, p_rest = a, rest
        for bit in tl.static_range(1, 10):
            if (COUNT >> (9 - bit)) > 1:
                p, p_rest = pair_product(p, p_rest, p, p_rest)
                if (COUNT >> (9 - bit)) & 1:
                    p, p_rest = pair_product(p, p_rest, a, rest)
        if WHOLE < 0:
            p, p_rest = ordered_sum(p, p_rest)
            p, p_rest = pair_reciprocal(p, p_rest)
    return p, p_rest


@triton.jit
def pair_matern(t, rest, HALVES: tl.constexpr):
    """Return the Matérn function with ν = `HALVES` / 2 (3/2 or 5/2) of `u ≥ 0`, given as the pair `u · log2 e`."""
    k, k_rest = pair_exp2(-t, -rest)
    if HALVES == 3:
        p = fma(t, LN2_FIRST, 1.0)
        p_rest = fma(t, LN2_FIRST, 1.0 - p)
        p_rest = fma(t, LN2_SECOND, p_rest)
        p_rest = fma(rest, LN2_FIRST, p_rest)
        p_rounded = p
    else:
        slope = fma(t, SQUARE_FIRST, SLOPE_FIRST)
        slope_rest = fma(t, SQUARE_FIRST, SLOPE_FIRST - slope)
        slope_rest = slope_rest + fma(t, SQUARE_SECOND, SLOPE_SECOND)
        p = fma(t, slope, 1.0)
        p_rest = fma(t, slope, 1.0 - p)
        p_rest = fma(t, slope_rest, p_rest)
        p_rest = fma(rest, fma(t, SQUARE_FIRST, slope), p_rest)
        p_rounded = p + p_rest
    first = rounded_product(k, p)
    return first, fma(k_rest, p_rounded, fma(k, p_rest, fma(k, p, -first)))


@triton.jit
def pair_tanh(u, rest):
    """Return `tanh(x)` as a pair, where `x · 2 log2 e` is the sum of `u` and `rest`, which is below a million."""
    turned = (u.to(tl.int32, bitcast=True) & SIGN) ^ SIGN  # so that t is at most 0, and the power at most 1
    t = tl.maximum(-tl.abs(u), -126.0)
    k, k_rest = pair_exp2(t, (rest.to(tl.int32, bitcast=True) ^ turned).to(tl.float32, bitcast=True))
    rounded = (k + 1.0) + k_rest
    y = 1.0 / rounded if INTERPRETED else instruction(rounded, "rcp.approx.ftz.f32 $0, $1;")
    wrong = fma(-y, k_rest, fma(-y, k, 1.0 - y))
    twice = -2.0 * y  # an exact product, so that fusing does not matter
    first, second = 1.0 + twice, rounded_product(twice, wrong)
    first = (first.to(tl.int32, bitcast=True) ^ turned).to(tl.float32, bitcast=True)
    return first, (second.to(tl.int32, bitcast=True) ^ turned).to(tl.float32, bitcast=True)
