"""Products of float64 vectors on matrix units that multiply float16 numbers: each number is a row of three digits.

With a unit, a power of two, `z ≈ unit · (z₀ + z₁ + z₂)`, where `z₀` is a whole number, `z₁` a fraction and all three
are float16. The part `z₀ · s₀` of `z · s` is exact: units keep `‖z₀‖` and `‖s₀‖` at or below 2¹², so that the sum and
every partial sum are whole numbers below 2²⁴ in any order. The other products are 2¹¹ times smaller, and
rounding them to float32 leaves an error of some 2⁻³⁵ of `‖z‖ ‖s‖`, which is far below what float32 numbers could hold.
With two digits, and all products in one float32 sum, the error is some 2⁻²³.
(Ozaki et al., Error-free transformations of matrix multiplication by using fast routines of matrix multiplication and
its applications, 2012.)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import triton
import triton.language as tl

from .dot import INTERPRETED, dot, in_batches, rounded_product

DIGITS = 3
BASE = tl.constexpr(2048.0)
LARGEST_NORM = 4096.0
SMALLEST = 2.0**-500  # stands for the power of two above zero

ROUNDER = tl.constexpr(6755399441055744.0)  # 1.5 · 2⁵²: float64 numbers this large are whole
NORM_ROUNDER = tl.constexpr(1.5 * 2.0**29)  # its last place is 2⁻²³: squares of numbers below 2¹¹ sum up exactly
EXPONENT = tl.constexpr(0x7FF0000000000000)
NEXT_EXPONENT = tl.constexpr(0x0010000000000000)


class Digits(NamedTuple):
    """Digits `[DIGITS, vectors, features]`, whole or float16 numbers in float64, and each vector's unit."""

    digits: np.ndarray
    units: np.ndarray


@triton.jit
def power_of_two(value):
    """Return the next power of two above positive float64 numbers."""
    bits = (value.to(tl.int64, bitcast=True) & EXPONENT) + NEXT_EXPONENT
    return bits.to(tl.float64, bitcast=True)


@triton.jit
def row_digits(z, norm, least_unit):
    """Return the digits of each row of a float64 block `[rows, features]` as float16, and the rows' units.

    `norm` is that of each row, squared. No unit is less than `least_unit`, that of the vectors to multiply with.
    """
    largest = power_of_two(tl.max(tl.abs(z), axis=1)) / BASE
    length = power_of_two(tl.sqrt(norm)) / (2.0 * BASE)
    unit = tl.maximum(tl.maximum(largest, length), least_unit)
    rest = z * (1.0 / unit)[:, None]
    first = (rest + ROUNDER) - ROUNDER
    rest -= first
    second = rest.to(tl.float32).to(tl.float16)
    third = (rest - second.to(tl.float64)).to(tl.float32).to(tl.float16)
    return first.to(tl.float32).to(tl.float16), second, third, unit


@triton.jit
def squared_norm(z, least_unit):
    """Return the squared norm of each row of a float64 block `[rows, features]`, of at most 128 features.

    Squares are rounded to 2⁻⁴³ of the largest number's at most, or of `least_unit` times 2¹⁰, so that their sum is
    exact and does not depend on the order.
    """
    unit = tl.maximum(power_of_two(tl.max(tl.abs(z), axis=1)) / BASE, least_unit)
    z = z * (1.0 / unit)[:, None]
    squares = (rounded_product(z, z) + NORM_ROUNDER) - NORM_ROUNDER
    return tl.sum(squares, axis=1) * unit * unit


@triton.jit
def digit_product(z0, z1, z2, s0, s1, s2):
    """Return `z · s` in units as two float32 blocks: whole numbers, and what to add to them."""
    small = first_dot(z1, s1)
    small = dot(z0, s2, small)
    small = dot(z2, s0, small)
    small = dot(z0, s1, small)
    small = dot(z1, s0, small)
    return first_dot(z0, s0), small


@triton.jit
def short_product(z0, z1, s0, s1):
    """Return `z · s` in units from two digits, float32."""
    return dot(z0, s0, dot(z0, s1, first_dot(z1, s0)))


@triton.jit
def first_dot(a, b):
    """Return `a @ b` for float16 blocks, in float32; a block of zeros to add it to would be written first."""
    zeros_first: tl.constexpr = INTERPRETED or in_batches()
    return dot(a, b, tl.zeros([a.shape[0], b.shape[1]], tl.float32)) if zeros_first else tl.dot(a, b)


def digits_of(vectors: np.ndarray, least_unit: float = 0.0) -> Digits:
    """Return the digits of float64 vectors `[vectors, features]`, as `row_digits` makes them."""
    with np.errstate(over="ignore", invalid="ignore"):
        largest = _power_of_two(np.abs(vectors).max(axis=1)) / BASE.value
        length = _power_of_two(np.sqrt((vectors * vectors).sum(axis=1))) / LARGEST_NORM
        units = np.maximum(np.maximum(largest, length), least_unit)
        return Digits(split(vectors, units[:, None]), units)


def common_unit(vectors: np.ndarray) -> float:
    """Return a unit for all of these float64 vectors."""
    largest, length = np.abs(vectors).max(), np.sqrt((vectors * vectors).sum(axis=1).max())
    return float(max(_power_of_two(largest) / BASE.value, _power_of_two(length) / LARGEST_NORM))


def split(vectors: np.ndarray, unit: np.ndarray | float) -> np.ndarray:
    """Return digits `[DIGITS, vectors, features]` as float16 numbers in float64."""
    rest = vectors / unit
    digits = np.empty((DIGITS, *vectors.shape))
    for place in range(DIGITS):
        digits[place] = np.rint(rest) if not place else rest.astype(np.float32).astype(np.float16)
        rest = rest - digits[place]
    return digits


def product_of_digits(z: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the result of `digit_product` for digits `[DIGITS, rows, features]` and `[DIGITS, vectors, features]`."""
    (z0, z1, z2), (s0, s1, s2) = z, s.transpose(0, 2, 1)
    small = (z1 @ s1 + z0 @ s2 + z2 @ s0).astype(np.float32)
    small = (small + z0 @ s1).astype(np.float32)
    small = (small + z1 @ s0).astype(np.float32)
    return z0 @ s0, small.astype(np.float64)


def product_of_two_digits(z: np.ndarray, s: np.ndarray) -> np.ndarray:
    """Return the result of `short_product` for digits `[2, rows, features]` and `[2, vectors, features]`."""
    (z0, z1), (s0, s1) = z, s.transpose(0, 2, 1)
    small = ((z1 @ s0).astype(np.float32) + z0 @ s1).astype(np.float32)
    found: np.ndarray = (small + z0 @ s0).astype(np.float32)
    return found


def _power_of_two(value: np.ndarray | np.floating) -> np.ndarray:
    """Return the next power of two above positive float64 numbers."""
    _, exponent = np.frexp(value)
    return np.where(value > 0, np.ldexp(1.0, exponent), SMALLEST)
