"""Launch constants and shapes of neural networks; those of float16 fix the order of sums, the others change no bit."""

from __future__ import annotations

import triton

from .int8_tables import UNITS

FEW_ROWS = 1024
"""Up to this many rows, programs share each wide layer of digits that is not resident."""

MANY_ROWS = 8192
"""The fewest rows for which `int8_hopper.py` was measured to be faster on an H200: see benchmarks/METHOD.md."""

RESIDENT_ROWS = 64
"""Rows that a program with resident weights processes at once if rows are many."""

LAYER_ROWS, LAST_LAYER_ROWS = 16, 4
"""Rows of a program that makes a part of one layer of digits, and of one that makes the last layer."""

HALF_UNITS_ROWS = 256
"""Up to this many rows such a program makes half as many units."""

FLOAT16_ROWS, FLOAT16_UNITS, FLOAT16_FEATURES, FLOAT16_INNER = 64, 128, 32, 32
"""The rows of a float16 program, and the most units, features and inputs of a layer at a time."""

FLOAT16_FIRST_STAGES, FLOAT16_STAGES = 1, 3
"""Pipeline stages of the first layer in float16 and of the others."""

HOPPER_STAGES = 6
"""Pipeline stages in shared memory, each for a digit of 64 units: four being multiplied, two being loaded."""

HOPPER_REGISTERS, LOADER_REGISTERS = 240, 24
"""Registers of a thread that multiplies, and of a thread that loads."""


def resident_shape(rows: int, width: int, multiprocessors: int) -> dict[str, int]:
    """Return how many rows a program with resident weights processes at once, and its warps; neither changes a bit.

    Args:
        rows: the rows of the batch.
        width: the width of the widest hidden layer.
        multiprocessors: the GPU's multiprocessors; each gets a program before programs get more rows.
    """
    for block_rows in (16, 32):
        if rows <= block_rows * multiprocessors:
            return {"BLOCK_ROWS": block_rows, "num_warps": width // 16}
    return {"BLOCK_ROWS": RESIDENT_ROWS, "num_warps": 4}


def digit_shape(rows: int, width: int, multiprocessors: int) -> dict[str, int]:
    """Return how many rows and units a program without resident weights processes at once, and its warps.

    None of them changes a bit.
    """
    block_rows = 16 if rows <= 32 * multiprocessors else 64  # two programs run on a multiprocessor
    return {"BLOCK_ROWS": block_rows, "BLOCK_UNITS": min(width, UNITS), "num_warps": 4}


def spread_rows(rows: int, block_rows: int, programs: int) -> tuple[int, int]:
    """Return how many rows of a fleet a program takes at once, and the number of programs; neither changes a bit.

    Args:
        rows: the rows of the batch.
        block_rows: the most rows that a program can take at once.
        programs: the most programs; each gets a row before programs get more rows.
    """
    taken = min(max(triton.cdiv(rows, programs), 1), block_rows)
    return taken, min(triton.cdiv(rows, taken), programs)


def float16_blocks(widths: tuple[int, ...]) -> dict[str, int]:
    """Return the kernel's tiles, which follow from the widths alone, since the order of sums depends on them."""
    block_units = min(max(triton.next_power_of_2(max(widths[1:-1])), 16), FLOAT16_UNITS)
    return {
        "BLOCK_ROWS": FLOAT16_ROWS,
        "BLOCK_UNITS": block_units,
        "BLOCK_FEATURES": min(max(triton.next_power_of_2(widths[0]), 16), FLOAT16_FEATURES),
        "BLOCK_INNER": min(block_units, FLOAT16_INNER),
        "BLOCK_TARGETS": triton.next_power_of_2(widths[-1]),
    }
