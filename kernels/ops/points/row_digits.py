"""Rows as digits, made once by a separate kernel: blocks of points multiply with them from shared memory."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
import triton
import triton.language as tl
from triton.runtime.jit import JITFunction

from ...numerics.dot import rounded_product
from ...numerics.fp16_digits import row_digits, squared_norm
from ...plan.plan import Parameters
from .launch import MEMBER_DIGITS_ROWS, ROW_DIGITS_ROWS

TINY_NORM = tl.constexpr(10 * 2.0**-52)  # scikit-learn's normalize leaves shorter rows as they are
LARGEST_PLACE = tl.constexpr(1e15)  # the limit for float32 distances, so that no sum is a difference of infinities


@triton.jit
def make_row_digits(
    x,  # float32 or float64 [rows, FEATURES]
    shift,  # float64 [FEATURES]
    factor,  # float64 [FEATURES]
    numbers,  # float64 [6]
    row,  # int64 [BLOCK_ROWS]
    rows,
    FEATURES: tl.constexpr,
    METRIC: tl.constexpr,
    COUNT: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
):
    """Return the digits of some rows, float16 `[BLOCK_ROWS, BLOCK_FEATURES]`, and their terms, float64.

    The terms are the value of a unit of the product of digits, the summand of the norm, and zero or NaN. No bit of
    digits or terms depends on the layout of the block.
    """
    feature = tl.arange(0, BLOCK_FEATURES)
    real = feature < FEATURES
    inside = (row < rows)[:, None] & real[None, :]
    z = tl.load(x + row[:, None] * FEATURES + feature[None, :], mask=inside, other=0.0).to(tl.float64)
    z -= tl.load(shift + feature, mask=real, other=0.0)[None, :]
    z *= tl.load(factor + feature, mask=real, other=0.0)[None, :]
    least_unit = tl.load(numbers + 3)
    norm = squared_norm(z, least_unit)
    z0, z1, z2, unit = row_digits(z, norm, least_unit)
    place = unit * tl.load(numbers + 4)
    if METRIC == "cosine":
        length = tl.sqrt(norm)
        place = place / tl.where(length < TINY_NORM, 1.0, length)
    elif COUNT == 2 and METRIC != "dot":
        place = tl.minimum(tl.maximum(place, -LARGEST_PLACE), LARGEST_PLACE)
    offset = rounded_product(norm, tl.load(numbers + 5) + tl.zeros_like(norm))  # prevents fusion with a later sum
    return z0, z1, z2, place, offset, norm * 0.0


@triton.jit(do_not_specialize=["rows"])
def rows_as_digits_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    shift,  # float64 [FEATURES]
    factor,  # float64 [FEATURES]
    numbers,  # float64 [6]
    digits,  # float16 [COUNT, rows, BLOCK_FEATURES]
    terms,  # float64 [3, rows]: the value of a unit of the product of digits, the summand of the norm, zero or NaN
    rows,
    FEATURES: tl.constexpr,
    METRIC: tl.constexpr,
    COUNT: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
):
    """A program makes `BLOCK_ROWS` rows."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    store_row_digits(
        x, shift, factor, numbers, digits, terms, row, row < rows, rows,
        FEATURES=FEATURES, METRIC=METRIC, COUNT=COUNT, BLOCK_FEATURES=BLOCK_FEATURES,
    )  # fmt: skip


@triton.jit
def store_row_digits(
    x,  # like the next five as in the kernel
    shift,
    factor,
    numbers,
    digits,
    terms,
    row,  # int64 [BLOCK_ROWS]
    mine,  # bool [BLOCK_ROWS]: the rows to write
    rows,
    FEATURES: tl.constexpr,
    METRIC: tl.constexpr,
    COUNT: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
):
    """Write the digits and the terms of the rows that are `mine`."""
    z0, z1, z2, place, offset, nothing = make_row_digits(
        x, shift, factor, numbers, row, rows,
        FEATURES=FEATURES, METRIC=METRIC, COUNT=COUNT, BLOCK_FEATURES=BLOCK_FEATURES,
    )  # fmt: skip
    feature = tl.arange(0, BLOCK_FEATURES)
    inside = mine[:, None]
    at = digits + row[:, None] * BLOCK_FEATURES + feature[None, :]
    size = rows.to(tl.int64) * BLOCK_FEATURES
    tl.store(at, z0, mask=inside)
    tl.store(at + size, z1, mask=inside)
    if COUNT == 3:
        tl.store(at + 2 * size, z2, mask=inside)
    tl.store(terms + row, place, mask=mine)
    tl.store(terms + rows + row, offset, mask=mine)
    tl.store(terms + 2 * rows + row, nothing, mask=mine)


def rows_as_digits(
    parameters: Parameters,
    x: torch.Tensor,
    rows: int,
    metric: str,
    digits: tuple[int, int],
    kernel: JITFunction[Any] = rows_as_digits_kernel,
    more: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[torch.Tensor, torch.Tensor]:
    """Launch a kernel on the first rows of `x`; return their digits and their terms.

    Args:
        parameters: the tables of the points, with `shift`, `factor` and `numbers`.
        x: `[rows or more, features]`, float32 or float64.
        rows: the number of rows to make.
        metric: as in `function.py`.
        digits: how many digits a number has, and how many features the points' digits have.
        kernel: the kernel, which for a fleet is another.
        more: further arguments of such a kernel, and none of one for a single model.
    """
    count, features = digits
    block_rows = MEMBER_DIGITS_ROWS if more else ROW_DIGITS_ROWS
    made = torch.empty(count, rows, features, dtype=torch.float16, device=x.device)
    terms = torch.empty(3, rows, dtype=torch.float64, device=x.device)
    kernel[(triton.cdiv(rows, block_rows),)](
        x=x,
        shift=parameters["shift"],
        factor=parameters["factor"],
        numbers=parameters["numbers"],
        digits=made,
        terms=terms,
        rows=rows,
        **more,
        FEATURES=x.shape[1],
        METRIC=metric,
        COUNT=count,
        BLOCK_FEATURES=features,
        BLOCK_ROWS=block_rows,
        num_warps=4,
    )
    return made, terms


@triton.jit
def load_row_digits(digits, terms, row, rows, COUNT: tl.constexpr, BLOCK_FEATURES: tl.constexpr):
    """Return the digits of some rows, float16 `[BLOCK_ROWS, BLOCK_FEATURES]`, and their terms, float64.

    With two digits, the second is returned in place of the third as well.
    """
    feature = tl.arange(0, BLOCK_FEATURES)
    inside = (row < rows)[:, None]
    at = digits + row[:, None] * BLOCK_FEATURES + feature[None, :]
    size = rows.to(tl.int64) * BLOCK_FEATURES
    z0 = tl.load(at, mask=inside, other=0.0)
    z1 = tl.load(at + size, mask=inside, other=0.0)
    z2 = z1
    if COUNT == 3:
        z2 = tl.load(at + 2 * size, mask=inside, other=0.0)
    place = tl.load(terms + row, mask=row < rows, other=0.0)
    offset = tl.load(terms + rows + row, mask=row < rows, other=0.0)
    nothing = tl.load(terms + 2 * rows + row, mask=row < rows, other=0.0)
    return z0, z1, z2, place, offset, nothing


@triton.jit
def digits_of_rows(
    x,
    shift,
    factor,
    numbers,
    digits,
    terms,
    row,
    rows,
    FEATURES: tl.constexpr,
    METRIC: tl.constexpr,
    COUNT: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
    OWN_ROWS: tl.constexpr,
):
    """Return the result of `load_row_digits`; with `OWN_ROWS`, make it for the first rows of a block and repeat these.

    The repetition fills a block of matrix units, which has more rows than that.
    """
    if OWN_ROWS == 0:
        z0, z1, z2, place, offset, nothing = load_row_digits(
            digits, terms, row, rows, COUNT=COUNT, BLOCK_FEATURES=BLOCK_FEATURES
        )
    else:
        TIMES: tl.constexpr = row.shape[0] // OWN_ROWS
        z0, z1, z2, place, offset, nothing = make_row_digits(
            x, shift, factor, numbers, tl.min(row) + tl.arange(0, OWN_ROWS), rows,
            FEATURES=FEATURES, METRIC=METRIC, COUNT=COUNT, BLOCK_FEATURES=BLOCK_FEATURES,
        )  # fmt: skip
        z0, z1, z2 = repeated_rows(z0, TIMES), repeated_rows(z1, TIMES), repeated_rows(z2, TIMES)
        place, offset, nothing = repeated(place, TIMES), repeated(offset, TIMES), repeated(nothing, TIMES)
    return z0, z1, z2, place, offset, nothing


@triton.jit
def repeated_rows(block, TIMES: tl.constexpr):
    """Return the rows of a block `[rows, features]`, repeated `TIMES` times."""
    again = tl.broadcast_to(block[None, :, :], [TIMES, block.shape[0], block.shape[1]])
    return tl.reshape(again, [TIMES * block.shape[0], block.shape[1]])


@triton.jit
def repeated(vector, TIMES: tl.constexpr):
    """Return the numbers of a vector, repeated `TIMES` times."""
    return tl.reshape(tl.broadcast_to(vector[None, :], [TIMES, vector.shape[0]]), [TIMES * vector.shape[0]])
