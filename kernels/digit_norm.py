"""Products of rows with a triangular weight by float16 digits, and the squares of them added up: see `digits.py`.

What a product of digits leaves out is a share of the lengths of a row and of a column of the weight. Both are made
short first: a row is taken about its mean, whose product with the columns' sums is added in float64, and so is the
product with the weight's diagonal, which holds most of a column's length where the weight is the inverse of a Cholesky
factor. All products but that of the third digits are added up, `BLOCK_FEATURES` features at a time: matrix units cut
off what a float32 sum cannot hold, and the fewer numbers meet in a sum, the less is lost.

GPUs with few float64 units gain most: others have matrix units for float64.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
import triton
import triton.language as tl

from .devices import shared_memory
from .digits import DIGITS, digits_of, first_dot, row_digits
from .dots import dot, rounded_product
from .launch_shapes import Shape
from .plan import Parameters

PART_TARGETS = 32
BLOCK_FEATURES = 64
BLOCK_TARGETS = 128
MOST_FEATURES_AT_ONCE = 4096

LEAST_UNIT = tl.constexpr(2.0**-500)


@triton.jit(do_not_specialize=["rows"])
def centred_digits_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    digits,  # float16 [3, rows, PADDED]
    terms,  # float64 [2, rows]: the unit of a row's digits, and its mean
    rows,
    FEATURES: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A program makes the digits of a row about its mean."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)[None, :]
    x += row * FEATURES
    mean = tl.zeros([1], tl.float64)
    for start in tl.range(0, FEATURES, BLOCK):
        mean += tl.sum(tl.load(x + start + column, mask=start + column < FEATURES, other=0.0).to(tl.float64), axis=1)
    mean = mean / FEATURES
    unit = tl.full([1], LEAST_UNIT, tl.float64)
    norm = tl.zeros([1], tl.float64)
    for start in tl.range(0, FEATURES, BLOCK):
        z = tl.load(x + start + column, mask=start + column < FEATURES, other=0.0).to(tl.float64)
        z = tl.where(start + column < FEATURES, z - mean[:, None], 0.0)
        norm += tl.sum(rounded_product(z, z), axis=1)
        _, _, _, unit = row_digits(z, norm, unit)
    digits += row * PADDED
    size = rows.to(tl.int64) * PADDED
    for start in tl.range(0, PADDED, BLOCK):
        z = tl.load(x + start + column, mask=start + column < FEATURES, other=0.0).to(tl.float64)
        z = tl.where(start + column < FEATURES, z - mean[:, None], 0.0)
        z0, z1, z2, _ = row_digits(z, norm, unit)
        inside = start + column < PADDED
        tl.store(digits + start + column, z0, mask=inside)
        tl.store(digits + size + start + column, z1, mask=inside)
        tl.store(digits + 2 * size + start + column, z2, mask=inside)
    one = tl.arange(0, 1)
    tl.store(terms + row + one, unit)
    tl.store(terms + rows + row + one, mean + norm * 0.0)  # NaN where the row has no norm


@triton.jit(do_not_specialize=["rows"])
def digit_norm_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    row_digits,  # float16 [3, rows, PADDED]
    row_terms,  # float64 [2, rows]
    digits,  # float16 [3, TARGETS, PADDED]
    terms,  # float64 [4, TARGETS]: the unit of a column's digits, its sum, its element on the diagonal, the offset
    out,  # float32 or float64 [rows, PARTS]
    rows,
    FEATURES: tl.constexpr,
    PADDED: tl.constexpr,
    TARGETS: tl.constexpr,
    PARTS: tl.constexpr,
    PART_TARGETS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_TARGETS: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
):
    """A program makes the parts of `BLOCK_TARGETS` targets for some rows; those that take longest come first."""
    tile = tl.num_programs(1) - 1 - tl.program_id(1)
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    target = tile * BLOCK_TARGETS + tl.arange(0, BLOCK_TARGETS)
    feature = tl.arange(0, BLOCK_FEATURES)
    inside = (row < rows)[:, None]
    z = row_digits + row[:, None] * PADDED + feature[None, :]
    s = digits + target.to(tl.int64)[None, :] * PADDED + feature[:, None]
    size = rows.to(tl.int64) * PADDED
    whole = tl.zeros([BLOCK_ROWS, BLOCK_TARGETS], tl.float32)
    small = tl.zeros([BLOCK_ROWS, BLOCK_TARGETS], tl.float32)
    for start in tl.range(0, tl.minimum(PADDED, (tile + 1) * BLOCK_TARGETS), BLOCK_FEATURES):
        z0 = tl.load(z + start, mask=inside, other=0.0)
        z1 = tl.load(z + start + size, mask=inside, other=0.0)
        z2 = tl.load(z + start + 2 * size, mask=inside, other=0.0)
        s0 = tl.load(s + start)
        s1 = tl.load(s + start + TARGETS * PADDED)
        s2 = tl.load(s + start + 2 * TARGETS * PADDED)
        part = first_dot(z1, s2)
        part = dot(z2, s1, part)
        part = dot(z1, s1, part)
        part = dot(z0, s2, part)
        part = dot(z2, s0, part)
        part = dot(z0, s1, part)
        part = dot(z1, s0, part)
        small += part
        whole = dot(z0, s0, whole)
    unit = tl.load(row_terms + row, mask=row < rows, other=0.0)
    mean = tl.load(row_terms + rows + row, mask=row < rows, other=0.0)
    v = whole.to(tl.float64) + small.to(tl.float64)
    v = v * (unit[:, None] * tl.load(terms + target)[None, :])
    v += rounded_product(
        mean[:, None] + tl.zeros_like(v), tl.load(terms + TARGETS + target)[None, :] + tl.zeros_like(v)
    )
    inside = (row < rows)[:, None] & (target < FEATURES)[None, :]
    own = tl.load(x + row[:, None] * FEATURES + target[None, :], mask=inside, other=0.0).to(tl.float64)
    v += rounded_product(own, tl.load(terms + 2 * TARGETS + target)[None, :] + tl.zeros_like(v))
    v += tl.load(terms + 3 * TARGETS + target)[None, :]
    squares = tl.reshape(rounded_product(v, v), [BLOCK_ROWS, BLOCK_TARGETS // PART_TARGETS, PART_TARGETS])
    y = tl.sum(squares, axis=2)
    part = tile * (BLOCK_TARGETS // PART_TARGETS) + tl.arange(0, BLOCK_TARGETS // PART_TARGETS)
    inside = (row < rows)[:, None] & (part < PARTS)[None, :]
    tl.store(out + row[:, None] * PARTS + part[None, :], y.to(out.dtype.element_ty), mask=inside)


def weight_digits(weight: np.ndarray, offset: np.ndarray) -> dict[str, np.ndarray]:
    """Return the tables of an upper triangular weight `[features, targets]` for the kernels."""
    features, targets = weight.shape
    padded, columns = _whole(features, BLOCK_FEATURES), _whole(targets, BLOCK_TARGETS)
    own = np.zeros(targets)
    own[: min(features, targets)] = weight.diagonal()
    above = np.triu(weight, 1).T
    found, units = digits_of(np.ascontiguousarray(above))
    digits = np.zeros((DIGITS, columns, padded), dtype=np.float16)
    digits[:, :targets, :features] = found
    terms = np.zeros((4, columns))
    terms[:, :targets] = units, above.sum(axis=1), own, offset
    return {"digits": digits, "terms": terms}


def launch_digit_norm(parameters: Parameters, x: torch.Tensor, output: torch.Tensor, rows: int) -> None:
    """Launch the kernels on the first rows of `x`, with the tables of `weight_digits`."""
    _, columns, padded = parameters["digits"].shape
    features, device = x.shape[1], parameters["digits"].device
    row_digits = torch.empty(DIGITS, rows, padded, dtype=torch.float16, device=device)
    row_terms = torch.empty(2, rows, dtype=torch.float64, device=device)
    centred_digits_kernel[(rows,)](
        x=x,
        digits=row_digits,
        terms=row_terms,
        rows=rows,
        FEATURES=features,
        PADDED=padded,
        BLOCK=min(MOST_FEATURES_AT_ONCE, triton.next_power_of_2(padded)),
        num_warps=4,
    )
    shape = norm_shape(shared_memory(device))
    grid = (triton.cdiv(rows, shape["BLOCK_ROWS"]), columns // shape["BLOCK_TARGETS"])
    digit_norm_kernel[grid](
        x=x,
        row_digits=row_digits,
        row_terms=row_terms,
        digits=parameters["digits"],
        terms=parameters["terms"],
        out=output,
        rows=rows,
        FEATURES=features,
        PADDED=padded,
        TARGETS=columns,
        PARTS=output.shape[1],
        PART_TARGETS=PART_TARGETS,
        **shape,
    )


def norm_shape(shared: int) -> Shape:
    """Return the block of a program on a GPU with that much shared memory for it, 0 where there are no matrix units."""
    block = {"BLOCK_ROWS": 64, "BLOCK_TARGETS": 64, "num_warps": 8}
    if not shared:
        return {**block, "BLOCK_FEATURES": 16, "num_stages": 1}
    return {**block, "BLOCK_FEATURES": BLOCK_FEATURES, "num_stages": 3}


def emulated_norms(x: np.ndarray, tables: Mapping[str, np.ndarray], parts: int) -> np.ndarray:
    """Return what the kernels answer for rows `[rows, features]`, float64 `[rows, parts]`."""
    (rows, features), (unit, total, own, offset) = x.shape, tables["terms"]
    digits = tables["digits"].astype(np.float64)[:, :, :features].transpose(0, 2, 1)
    mean = x.mean(axis=1, keepdims=True)
    (z0, z1, z2), row_unit = digits_of(x - mean)
    whole, small = np.zeros((rows, len(unit))), np.zeros((rows, len(unit)), dtype=np.float32)
    for start in range(0, features, BLOCK_FEATURES):
        block, above = slice(start, start + BLOCK_FEATURES), slice(start, None)
        s0, s1, s2 = digits[:, block, above]
        pairs = ((z1, s2), (z2, s1), (z1, s1), (z0, s2), (z2, s0), (z0, s1), (z1, s0))
        rest = np.concatenate([z[:, block] for z, _ in pairs], axis=1) @ np.concatenate([s for _, s in pairs])
        small[:, above] += rest.astype(np.float32)
        whole[:, above] += z0[:, block] @ s0
    v = (whole + small) * (row_unit[:, None] * unit) + mean * total + offset
    count = min(features, len(unit))
    v[:, :count] += x[:, :count] * own[:count]
    return np.add.reduceat(v * v, np.arange(0, len(unit), PART_TARGETS), axis=1)[:, :parts]


def _whole(size: int, block: int) -> int:
    return -(-size // block) * block
