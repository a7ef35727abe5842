"""Threshold questions for four rows at a time: a byte holds the number of a column's borders that a number exceeds.

A column is up to 127 borders `b₀ ≤ b₁ ≤ …` of one feature, and NaN exceeds all of them or none. A number exceeds `bⱼ`
exactly if it exceeds more than `j` of them. The count of exceeded borders, at most 127, therefore answers every
question about the column, and the highest bit of the byte `count + 127 − j` is the answer. The sum never carries into
the next byte: a word of 32 bits answers for four rows with one addition (Lamport, Multiple byte processing with
full-word instructions, CACM 1975).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl

from .launch import COUNTS_BLOCK, COUNTS_COLUMNS

MOST_BORDERS = 127
"""The most borders of a column."""

ROWS_IN_WORD = 4

FOUR_BYTES = 0x01010101
"""The factor that copies a byte to every byte of a word."""


@triton.jit(do_not_specialize=["rows"])
def count_borders_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    asked,  # int32 [COLUMNS], twice a feature, plus 1 if NaN exceeds every border
    borders,  # float32 or float64 [PLACES, COLUMNS], each column ascending, followed by at least one infinity
    counts,  # uint8 [⌈rows / TOGETHER⌉, COLUMNS, TOGETHER]
    rows,
    FEATURES: tl.constexpr,
    COLUMNS: tl.constexpr,
    LEVELS: tl.constexpr,  # the logarithm of PLACES to base 2
    TOGETHER: tl.constexpr,  # the rows whose counts of a column are contiguous, a power of two
    BLOCK_COLUMNS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
):
    """Count the borders that rows exceed. A program makes `[BLOCK_ROWS, BLOCK_COLUMNS]` counts by binary search.

    Neighbouring lanes have neighbouring columns, whose borders are adjacent in memory. Rows past the last, up to a
    multiple of TOGETHER, have the counts of the number 0.
    """
    PLACES: tl.constexpr = 1 << LEVELS
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    column = tl.program_id(1) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    known = (column < COLUMNS)[None, :]
    number = tl.load(asked + column, mask=column < COLUMNS, other=0)
    at = row[:, None] * FEATURES + (number >> 1)[None, :]
    value = tl.load(x + at, mask=(row < rows)[:, None] & known, other=0.0).to(borders.dtype.element_ty)
    first = borders + column[None, :]
    count = tl.zeros([BLOCK_ROWS, BLOCK_COLUMNS], tl.int32)
    for level in tl.static_range(LEVELS):
        border = tl.load(first + (count + ((PLACES >> (level + 1)) - 1)) * COLUMNS, mask=known, other=0.0)
        count += tl.where(value > border, PLACES >> (level + 1), 0)
    count = tl.where((value != value) & (number & 1 != 0)[None, :], 127, count)
    block, place = (row // TOGETHER)[:, None], (row % TOGETHER)[:, None]
    there = block * TOGETHER < rows
    at = (block * COLUMNS + column[None, :]) * TOGETHER + place
    tl.store(counts + at, count.to(tl.uint8), mask=there & known)


class Columns(NamedTuple):
    """Questions about columns of borders; the first two arrays are for the kernel."""

    asked: np.ndarray  # int32 [columns]
    borders: np.ndarray  # [a power of two, columns], the borders of each column ascending, followed by infinity
    words: np.ndarray  # int64 [questions], the column, and 127 − j in each of the four lower bytes


def count_columns(feature: np.ndarray, threshold: np.ndarray, missing: np.ndarray) -> Columns:
    """Return questions `x[feature] > threshold` as questions about columns.

    Args:
        feature: `[questions]`.
        threshold: float32 or float64 `[questions]`.
        missing: `[questions]`, 1 if NaN exceeds the threshold, else 0.
    """
    kind = 2 * feature.astype(np.int32) + missing
    order = np.lexsort((threshold, kind))
    kinds, first, sizes = np.unique(kind[order], return_index=True, return_counts=True)
    place = np.arange(len(order)) - np.repeat(first, sizes)
    of_kind = -(-sizes // MOST_BORDERS)
    column = np.repeat(np.cumsum(of_kind) - of_kind, sizes) + place // MOST_BORDERS
    place %= MOST_BORDERS
    places = 1 << int(place.max(initial=0) + 1).bit_length()
    borders = np.full((places, of_kind.sum()), np.inf, dtype=threshold.dtype)
    borders[place, column] = threshold[order]
    words = np.empty(len(order), dtype=np.int64)
    words[order] = column << 32 | (MOST_BORDERS - place) * FOUR_BYTES
    return Columns(np.repeat(kinds, of_kind), borders, words)


def launch_counts(x: torch.Tensor, asked: torch.Tensor, borders: torch.Tensor, rows: int, words: int) -> torch.Tensor:
    """Launch the kernel, and return the counts, four in a word, int32 `[blocks of rows, columns, words]`."""
    columns, together = len(asked), ROWS_IN_WORD * words
    counts = torch.empty(triton.cdiv(rows, together), columns, words, dtype=torch.int32, device=x.device)
    if columns:
        filled, block_columns = len(counts) * together, min(triton.next_power_of_2(columns), COUNTS_COLUMNS)
        block_rows = COUNTS_BLOCK // block_columns
        count_borders_kernel[(triton.cdiv(filled, block_rows), triton.cdiv(columns, block_columns))](
            x=x,
            asked=asked,
            borders=borders,
            counts=counts.view(torch.uint8),
            rows=rows,
            FEATURES=x.shape[1],
            COLUMNS=columns,
            LEVELS=len(borders).bit_length() - 1,
            TOGETHER=together,
            BLOCK_COLUMNS=block_columns,
            BLOCK_ROWS=block_rows,
            num_warps=4,
        )
    return counts
