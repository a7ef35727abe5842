"""Launch constants and shapes of linear maps, polynomials and piecewise polynomials."""

from __future__ import annotations

import functools

import torch
import triton

from ...plan.launch_shapes import Shape, launch_shapes

MAX_AFFINE_FEATURES = 1024
"""The most features of a tile for one target."""

MAX_FEATURES = 32
"""The most features of a tile of a polynomial or a quadratic form."""

QUADRATIC_PROGRAMS = 16
"""Programs of a multiprocessor along the rows of a quadratic form."""

ORDERED_ROWS, ORDERED_TARGETS, ORDERED_AHEAD = 32, 8, 8
"""Rows and the most targets of a program that adds up in order, and the features that it loads together."""

PIECEWISE_BLOCK = 512
"""Numbers that a program finds the pieces of."""

PIECEWISE_COLUMNS = 64
"""The most columns that a program sums at a time."""

POLYNOMIAL_ROWS, POLYNOMIAL_MONOMIALS = 32, 64
"""Rows and monomials of a program."""

NESTED_ROWS = 128
"""Rows of a program that nests monomials."""


def target_block(targets: int, most: int = 64) -> int:
    """Return how many targets one program makes."""
    return min(max(triton.next_power_of_2(targets), 8), most)


def affine_targets_block(targets: int, *, across: bool) -> dict[str, int]:
    """Return the tile of a program that makes several targets; `across` says whether rows or answers cross the bus.

    If they do, many programs keep the bus busy, and up to 128 targets are one block: rows are read once, and a whole
    row of answers crosses together.
    """
    block_rows, block_targets = (16, target_block(targets, 128)) if across else (64, target_block(targets))
    return {"BLOCK_ROWS": block_rows, "BLOCK_FEATURES": 32, "BLOCK_TARGETS": block_targets, "num_warps": 4}


@launch_shapes
def affine_narrow_shape(slots: int, slot_features: int) -> Shape:
    """Return the rows of one program of the narrow kernel for the given slots of a row and features of a slot."""
    block_rows = 1024 if slots == 1 else 512 // slots
    return {"BLOCK_ROWS": block_rows, "SLOTS": slots, "SLOT_FEATURES": slot_features, "num_warps": 4}


@launch_shapes
def affine_shape(block_features: int, features: str) -> Shape:
    """Return the rows and features of one tile: 1,024 elements, twice as many if features are masked or at most four.

    A tile has at least 16 rows, or 4 with more than 256 features. Wider rows come in pieces of 1,024 features.
    """
    elements = 1024 if features == "whole" and block_features > 4 else 2048
    block_rows = max(elements // block_features, 4 if block_features > 256 else 16)
    return {"BLOCK_ROWS": block_rows, "BLOCK_FEATURES": block_features, "num_warps": 4}


@launch_shapes
def polynomial_affine_shape(features: int, degree: int) -> Shape:
    """Return the tile; `features` is a power of two. One warp's registers hold the float64 sums of the tile's rows."""
    block = max(16, min(features, MAX_FEATURES))
    return {"BLOCK_ROWS": 512 // block, "BLOCK_PREFIXES": 32, "BLOCK_FEATURES": block, "num_warps": 1, "num_stages": 3}


@launch_shapes
def quadratic_shape(features: int, precision: str) -> Shape:
    """Return the tile of a program that makes blocks of rows of one target; `features` is a power of two."""
    block_features = max(16, min(features, MAX_FEATURES))
    tile = {"BLOCK_ROWS": 64, "BLOCK_FEATURES": block_features, "STAGES": 3}
    return {**tile, "num_warps": 2 if precision == "float64" else 4, "num_stages": 3}


@functools.cache
def quadratic_programs(device: torch.device) -> int:
    """Return the maximum number of programs along the rows; more would only read the weights again."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).multi_processor_count * QUADRATIC_PROGRAMS
    return 64
