"""Products of rows with a triangular weight in integers, and the sums of their squares.

With a unit a number is `Σᵢ dᵢ · 256⁴⁻ⁱ`, where the five digits `dᵢ` are from −128 to 127. A row has one unit, as has
each column of the weight. For a product of two numbers, matrix units sum the fifteen products of digits with
`i + j ≤ 4` in integers; the omitted rest is some 2⁻⁴⁰ of the largest product. To keep units small, the middle between
a row's smallest and largest number is subtracted from the row. The product of that middle and the columns' sums is
added in float64, and so is the product with the weight's diagonal: if the weight is the inverse of a Cholesky factor,
the largest numbers stand on its diagonal.

Sums of digits are exact, and squares are added in pairs in a fixed order. A row's bits therefore follow from the row
and the model alone, whatever the tiles, which follow the number of rows.
(Ootomo, Ozaki, Yokota, DGEMM on integer matrix multiplication unit, 2024.)
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
import triton
import triton.language as tl

from ...numerics.dot import dot, rounded_product
from ...numerics.fp16_digits import ROUNDER
from ...numerics.int8_digits import split
from ...plan.devices import shared_memory
from ...plan.plan import Parameters
from .launch import norm_shape

DIGITS = 5
PART_TARGETS = 32
BLOCK_FEATURES, BLOCK_TARGETS = 128, 128
"""Features and targets are padded to a multiple of these."""

MOST_FEATURES = 2**14
"""The most features for which sums of five products of digits fit 32 bits."""

MOST_FEATURES_AT_ONCE = 4096

MIDDLES = 0x80808080

LEAST_UNIT = tl.constexpr(2.0**-500)
UNIT_OF_LARGEST = tl.constexpr(1.0101 / 2.0**39)  # with a margin, since the largest digit is 127 and not 128
INFINITE = tl.constexpr(float("inf"))
LARGEST = tl.constexpr(1e300)


@triton.jit
def five_digits(z, inverse):
    """Return the digits of float64 `z / unit` as int8, the highest first; `inverse` is the reciprocal of the unit."""
    q = (z * inverse + ROUNDER).to(tl.int64, bitcast=True)
    d1, d2, d3, d4 = split(q.to(tl.int32))
    return ((q + 0x80808080) >> 32).to(tl.int8), d1, d2, d3, d4


@triton.jit(do_not_specialize=["places", "rows"])
def row_digits_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    digits,  # int8 [5, places, PADDED]
    terms,  # float64 [2, rows]: the unit of a row's digits, NaN if a number is NaN or infinite, and the row's middle
    places,
    rows,
    FEATURES: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A program makes the digits of a row minus the middle between its smallest and its largest number."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)[None, :]
    x += row * FEATURES
    least = tl.full([1, BLOCK], LARGEST, tl.float64)
    most = tl.full([1, BLOCK], -LARGEST, tl.float64)
    for start in tl.range(0, FEATURES, BLOCK):
        inside = start + column < FEATURES
        z = tl.load(x + start + column, mask=inside, other=0.0).to(tl.float64)
        z = tl.where(tl.abs(z) < LARGEST, z, INFINITE)
        least = tl.where(inside, tl.minimum(least, z), least)
        most = tl.where(inside, tl.maximum(most, z), most)
    smallest, largest = tl.min(least, axis=1), tl.max(most, axis=1)
    middle = 0.5 * smallest + 0.5 * tl.minimum(largest, LARGEST)
    unit = tl.maximum((middle - smallest) * UNIT_OF_LARGEST, LEAST_UNIT)
    inverse = 1.0 / unit
    digits += row * PADDED
    part = places.to(tl.int64) * PADDED
    for start in tl.range(0, PADDED, BLOCK):
        z = tl.load(x + start + column, mask=start + column < FEATURES, other=0.0).to(tl.float64)
        d0, d1, d2, d3, d4 = five_digits(z - middle[:, None], inverse[:, None])
        inside = start + column < PADDED
        tl.store(digits + start + column, d0, mask=inside)
        tl.store(digits + part + start + column, d1, mask=inside)
        tl.store(digits + 2 * part + start + column, d2, mask=inside)
        tl.store(digits + 3 * part + start + column, d3, mask=inside)
        tl.store(digits + 4 * part + start + column, d4, mask=inside)
    tl.store(terms + row + tl.arange(0, 1), unit + largest * 0.0)
    tl.store(terms + rows + row + tl.arange(0, 1), middle)


@triton.jit
def whole_dot(a, b, acc, MATRIX_UNITS: tl.constexpr):
    """Return `a @ b + acc` for int8 blocks and int32 sums; without matrix units by float32 sums, which are exact."""
    if MATRIX_UNITS:
        return tl.dot(a, b, acc=acc, out_dtype=tl.int32)
    none = tl.zeros([a.shape[0], b.shape[1]], tl.float32)
    return acc + dot(a.to(tl.float32), b.to(tl.float32), none).to(tl.int32)


@triton.jit(do_not_specialize=["rows", "places"])
def digit_norm_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    row_digits,  # int8 [5, places, PADDED]
    row_terms,  # float64 [2, rows]
    digits,  # int8 [5, TARGETS, PADDED]
    terms,  # float64 [4, TARGETS]: the unit of a column's digits, its sum, its element on the diagonal, its offset
    out,  # float32 or float64 [rows, PARTS]
    rows,
    places,
    FEATURES: tl.constexpr,
    PADDED: tl.constexpr,
    TARGETS: tl.constexpr,
    PARTS: tl.constexpr,
    PART_TARGETS: tl.constexpr,
    MATRIX_UNITS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_TARGETS: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
):
    """A program makes the parts of `BLOCK_TARGETS` targets for some rows; the slowest parts come first."""
    BLOCK_PARTS: tl.constexpr = BLOCK_TARGETS // PART_TARGETS
    tile = tl.num_programs(1) - 1 - tl.program_id(1)
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    target = tile * BLOCK_TARGETS + tl.arange(0, BLOCK_TARGETS)
    feature = tl.arange(0, BLOCK_FEATURES)
    d = row_digits + row[:, None] * PADDED + feature[None, :]
    e = digits + target.to(tl.int64)[None, :] * PADDED + feature[:, None]
    size = places.to(tl.int64) * PADDED
    none = tl.zeros([BLOCK_ROWS, BLOCK_TARGETS], tl.int32)
    s0, s1, s2, s3, s4 = none, none, none, none, none
    for start in tl.range(0, tl.minimum(PADDED, (tile + 1) * BLOCK_TARGETS), BLOCK_FEATURES):
        d0 = tl.load(d + start)
        d1 = tl.load(d + start + size)
        d2 = tl.load(d + start + 2 * size)
        d3 = tl.load(d + start + 3 * size)
        d4 = tl.load(d + start + 4 * size)
        e0 = tl.load(e + start)
        e1 = tl.load(e + start + TARGETS * PADDED)
        e2 = tl.load(e + start + 2 * TARGETS * PADDED)
        e3 = tl.load(e + start + 3 * TARGETS * PADDED)
        e4 = tl.load(e + start + 4 * TARGETS * PADDED)
        s0 = whole_dot(d0, e0, s0, MATRIX_UNITS)
        s1 = whole_dot(d0, e1, s1, MATRIX_UNITS)
        s2 = whole_dot(d0, e2, s2, MATRIX_UNITS)
        s3 = whole_dot(d0, e3, s3, MATRIX_UNITS)
        s4 = whole_dot(d0, e4, s4, MATRIX_UNITS)
        s1 = whole_dot(d1, e0, s1, MATRIX_UNITS)
        s2 = whole_dot(d1, e1, s2, MATRIX_UNITS)
        s3 = whole_dot(d1, e2, s3, MATRIX_UNITS)
        s4 = whole_dot(d1, e3, s4, MATRIX_UNITS)
        s2 = whole_dot(d2, e0, s2, MATRIX_UNITS)
        s3 = whole_dot(d2, e1, s3, MATRIX_UNITS)
        s4 = whole_dot(d2, e2, s4, MATRIX_UNITS)
        s3 = whole_dot(d3, e0, s3, MATRIX_UNITS)
        s4 = whole_dot(d3, e1, s4, MATRIX_UNITS)
        s4 = whole_dot(d4, e0, s4, MATRIX_UNITS)
    total = (s0.to(tl.int64) * 256 + s1) * 65536 + (s2.to(tl.int64) * 256 + (s3 + ((s4 + 128) >> 8)))
    unit = tl.load(row_terms + row, mask=row < rows, other=0.0)
    middle = tl.load(row_terms + rows + row, mask=row < rows, other=0.0)
    v = rounded_product(total.to(tl.float64), unit[:, None] * tl.load(terms + target)[None, :])
    none = tl.zeros_like(v)
    v += rounded_product(middle[:, None] + none, tl.load(terms + TARGETS + target)[None, :] + none)
    inside = (row < rows)[:, None] & (target < FEATURES)[None, :]
    own = tl.load(x + row[:, None] * FEATURES + target[None, :], mask=inside, other=0.0).to(tl.float64)
    v += rounded_product(own, tl.load(terms + 2 * TARGETS + target)[None, :] + none)
    v += tl.load(terms + 3 * TARGETS + target)[None, :]
    y = tl.reshape(rounded_product(v, v), [BLOCK_ROWS, BLOCK_PARTS, PART_TARGETS // 2, 2])
    y = tl.reshape(tl.sum(y, axis=3), [BLOCK_ROWS, BLOCK_PARTS, PART_TARGETS // 4, 2])
    y = tl.reshape(tl.sum(y, axis=3), [BLOCK_ROWS, BLOCK_PARTS, PART_TARGETS // 8, 2])
    y = tl.reshape(tl.sum(y, axis=3), [BLOCK_ROWS, BLOCK_PARTS, PART_TARGETS // 16, 2])
    y = tl.sum(tl.sum(y, axis=3), axis=2)
    part = tile * BLOCK_PARTS + tl.arange(0, BLOCK_PARTS)
    inside = (row < rows)[:, None] & (part < PARTS)[None, :]
    tl.store(out + row[:, None] * PARTS + part[None, :], y.to(out.dtype.element_ty), mask=inside)


def weight_digits(weight: np.ndarray, offset: np.ndarray) -> dict[str, np.ndarray]:
    """Return the tables of an upper triangular weight `[features, targets]` for the kernels."""
    features, targets = weight.shape
    padded, columns = _whole(features, BLOCK_FEATURES), _whole(targets, BLOCK_TARGETS)
    own = np.zeros(targets)
    own[: min(features, targets)] = weight.diagonal()
    above = np.triu(weight, 1).T
    units = _units(np.abs(above).max(axis=1))
    digits = np.zeros((DIGITS, columns, padded), dtype=np.int8)
    digits[:, :targets, :features] = _digits(above, units)
    terms = np.zeros((4, columns))
    terms[:, :targets] = units * 2.0**40, above.sum(axis=1), own, offset
    return {"digits": digits, "terms": terms}


def _units(largest: np.ndarray) -> np.ndarray:
    """Return the units of digits for numbers up to these magnitudes."""
    found: np.ndarray = np.maximum(largest * UNIT_OF_LARGEST.value, LEAST_UNIT.value)
    return found


def _digits(vectors: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Return the digits of float64 vectors as int8 `[5, vectors, features]`, the highest first."""
    signed = (np.rint(vectors / units[:, None]).astype(np.int64) + MIDDLES) ^ MIDDLES
    return np.stack([(signed >> 8 * place).astype(np.int8) for place in reversed(range(DIGITS))])


def launch_digit_norm(parameters: Parameters, x: torch.Tensor, output: torch.Tensor, rows: int) -> None:
    """Launch the kernels on the first rows of `x`, with the tables of `weight_digits`."""
    _, columns, padded = parameters["digits"].shape
    features, device = x.shape[1], parameters["digits"].device
    shape = norm_shape(rows, shared_memory(device))
    places = _whole(rows, shape["BLOCK_ROWS"])
    row_digits = torch.empty(DIGITS, places, padded, dtype=torch.int8, device=device)
    row_terms = torch.empty(2, rows, dtype=torch.float64, device=device)
    row_digits_kernel[(rows,)](
        x=x,
        digits=row_digits,
        terms=row_terms,
        places=places,
        rows=rows,
        FEATURES=features,
        PADDED=padded,
        BLOCK=min(triton.next_power_of_2(padded), MOST_FEATURES_AT_ONCE),
        num_warps=8,
    )
    digit_norm_kernel[(places // shape["BLOCK_ROWS"], columns // shape["BLOCK_TARGETS"])](
        x=x,
        row_digits=row_digits,
        row_terms=row_terms,
        digits=parameters["digits"],
        terms=parameters["terms"],
        out=output,
        rows=rows,
        places=places,
        FEATURES=features,
        PADDED=padded,
        TARGETS=columns,
        PARTS=output.shape[1],
        PART_TARGETS=PART_TARGETS,
        **shape,
    )


def emulated_norms(x: np.ndarray, tables: Mapping[str, np.ndarray], parts: int) -> np.ndarray:
    """Return the kernels' answers for rows `[rows, features]`, float64 `[rows, parts]`."""
    (rows, features), (unit, total, own, offset), digits = x.shape, tables["terms"], tables["digits"]
    middle = 0.5 * x.min(axis=1, keepdims=True) + 0.5 * x.max(axis=1, keepdims=True)
    row_unit = _units((middle - x.min(axis=1, keepdims=True))[:, 0])
    z = _digits(x - middle, row_unit).astype(np.float64)
    v = np.zeros((rows, len(unit)))
    for start in range(0, features, BLOCK_FEATURES):
        block, above = slice(start, start + BLOCK_FEATURES), slice(start, None)
        s = digits[:, above, block].astype(np.float64).transpose(0, 2, 1)[:, : features - start]
        sums = np.zeros_like(s[0])
        for place, each in enumerate(reversed(z)):
            sums += s[place] * 2.0 ** (-8 * place)
            v[:, above] += each[:, block] @ sums * 2.0 ** (8 * place)
    v *= 2.0**-8
    v = v * (row_unit[:, None] * unit) + middle * total + offset
    count = min(features, len(unit))
    v[:, :count] += x[:, :count] * own[:count]
    return np.add.reduceat(v * v, np.arange(0, len(unit), PART_TARGETS), axis=1)[:, :parts]


def _whole(size: int, block: int) -> int:
    return -(-size // block) * block
