"""Functions of float64 blocks to ten digits, for a third of what all sixteen cost, and of float32 blocks to seven.

They serve operations whose other errors are as large: see `fp16_digits.py`. Polynomials minimise the largest relative
error on their interval. Functions that start from a float32 approximation correct it by one step of Newton's method.
For float32 a GPU has an instruction for each function, with an error of a few units in the last place.
"""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl

from .dot import INTERPRETED

LOG2_E = 1.4426950408889634

C0 = tl.constexpr(0.49996784956851026)  # 2^(x − 1) on [1, 2], to 4e-11
C1 = tl.constexpr(0.34675439917377165)
C2 = tl.constexpr(0.11967384457159505)
C3 = tl.constexpr(0.028353687349568703)
C4 = tl.constexpr(0.00430309009026468)
C5 = tl.constexpr(0.0009325986429263493)
C6 = tl.constexpr(-6.968200288710352e-06)
C7 = tl.constexpr(2.1498763446859648e-05)

FIXED = tl.constexpr(1572864.0)  # 1.5 · 2²⁰: the last place of such a float64 number is 2⁻³²
LEAST_HIGH = tl.constexpr(0x41380000 - 1000)  # the upper half of its bits, and of its sum with −1000
ONE_HIGH = tl.constexpr(0x3FF00000)
LEAST_EXPONENT = -1000.0

SMALLEST = tl.constexpr(1e-30)


@triton.jit
def exp2(u):
    """Return 2ᵘ for `u < 1000`, to 2e-10 of it; below −1000 nearly 0, and an arbitrary number for NaN."""
    if u.dtype == tl.float32:
        y = tl.exp2(u) if INTERPRETED else instruction(u, "ex2.approx.ftz.f32 $0, $1;")
    else:
        y = exp2_of_fixed(u + FIXED, LEAST_HIGH)
    return y


@triton.jit
def exp2_of_fixed(t, least_high):
    """Return `exp2(t − FIXED)`.

    Added to `FIXED`, `u` is a fixed-point number. Its fraction is the lower half of the bits, and its whole part the
    end of the upper half. A shift moves the whole part to the answer's exponent and drops the rest of the upper half.
    With 2048 added to `u` and to `least_high`, the shifted bits flip the sign.
    """
    low, high = halves(t)
    x = of_halves(low << 20, ((low.to(tl.uint32, bitcast=True) >> 12) | ONE_HIGH).to(tl.int32, bitcast=True))
    p = x * C7 + C6
    p = p * x + C5
    p = p * x + C4
    p = p * x + C3
    p = p * x + C2
    p = p * x + C1
    p = p * x + C0
    last, first = halves(p)
    return of_halves(last, first + (tl.maximum(high, least_high) << 20))


@triton.jit
def instruction(x, NAME: tl.constexpr):
    """Return the result of one instruction on float32 numbers."""
    return tl.inline_asm_elementwise(NAME, "=f,f", [x], tl.float32, is_pure=True, pack=1)


@triton.jit
def halves(x):
    """Return the lower and the upper half of a float64 number's bits, int32."""
    if INTERPRETED:
        bits = x.to(tl.int64, bitcast=True)
        low, high = bits.to(tl.int32), (bits >> 32).to(tl.int32)
    else:  # a compiler does not find this for 64-bit integers
        low, high = tl.inline_asm_elementwise(
            "mov.b64 {$0, $1}, $2;", "=r,=r,d", [x], (tl.int32, tl.int32), is_pure=True, pack=1
        )
    return low, high


@triton.jit
def of_halves(low, high):
    """Return the float64 number whose bits have these halves."""
    if INTERPRETED:
        bits = (high.to(tl.int64) << 32) | low.to(tl.uint32, bitcast=True).to(tl.int64)
        x = bits.to(tl.float64, bitcast=True)
    else:
        x = tl.inline_asm_elementwise("mov.b64 $0, {$1, $2};", "=d,r,r", [low, high], tl.float64, is_pure=True, pack=1)
    return x


@triton.jit
def twenty_bits(x):
    """Return a float64 number without the lower half of its bits, as accurate as a GPU's approximate instruction."""
    return ((x.to(tl.int64, bitcast=True) >> 32) << 32).to(tl.float64, bitcast=True)


@triton.jit
def reciprocal(x):
    """Return 1 / x for `x` between 1e-300 and 1e300, from the twenty bits that a GPU instruction gives."""
    if x.dtype == tl.float32:
        y = 1.0 / x if INTERPRETED else instruction(x, "rcp.approx.ftz.f32 $0, $1;")
    else:
        if INTERPRETED:
            y = twenty_bits(1.0 / x)
        else:
            y = tl.inline_asm_elementwise("rcp.approx.ftz.f64 $0, $1;", "=d,d", [x], tl.float64, is_pure=True, pack=1)
        y = y + y * (1.0 - x * y)
    return y


@triton.jit
def sqrt(x):
    """Return √x, from an approximate 1 / √x as in `reciprocal`; below 1e-30 return √1e-30."""
    x = tl.maximum(x, SMALLEST)
    if x.dtype == tl.float32:
        root = tl.sqrt(x) if INTERPRETED else instruction(x, "sqrt.approx.ftz.f32 $0, $1;")
    else:
        if INTERPRETED:
            y = twenty_bits(1.0 / tl.sqrt(x))
        else:
            y = tl.inline_asm_elementwise("rsqrt.approx.ftz.f64 $0, $1;", "=d,d", [x], tl.float64, is_pure=True, pack=1)
        root = x * y
        root = root + 0.5 * y * (x - root * root)
    return root


@triton.jit
def log2(x):
    """Return log₂ of positive normal numbers, by an odd polynomial in `(m − 1) / (m + 1)` for the mantissa `m`."""
    if x.dtype == tl.float32:
        y = tl.log2(x) if INTERPRETED else instruction(x, "lg2.approx.ftz.f32 $0, $1;")
    else:
        bits = x.to(tl.int64, bitcast=True)
        exponent = ((bits - 0x3FE6A09E667F3BCD) >> 52).to(tl.int32)  # of x / √½, so that √½ ≤ m < √2
        m = (bits - (exponent.to(tl.int64) << 52)).to(tl.float64, bitcast=True)
        s = (m - 1.0) * reciprocal(m + 1.0)
        z = s * s
        p = z * 0.3406132981357716 + 0.41168054957068756
        p = p * z + 0.5770834096656461
        p = p * z + 0.9617966747982516
        p = p * z + 2.8853900817868245
        y = p * s + exponent.to(tl.float64)
    return y


def emulated_exp2(u: np.ndarray) -> np.ndarray:
    """Return `exp2` except for the last digits; for float32, 22 bits as a GPU's instruction gives."""
    if u.dtype == np.float32:
        bits = np.exp2(u).view(np.int32) + 2
        return (bits - bits % 4).view(np.float32)
    u = np.rint(np.fmax(u, LEAST_EXPONENT) * 2.0**32) * 2.0**-32
    n = np.floor(u)
    x = u - n + 1.0
    p = np.full_like(x, C7.value)
    for coefficient in (C6, C5, C4, C3, C2, C1, C0):
        p = p * x + coefficient.value
    answer: np.ndarray = np.ldexp(p, n.astype(np.int64))
    return answer
