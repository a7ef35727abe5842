"""Launch shapes of a sum over points: the block of each program, and the number of parts that it makes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import torch

from ...numerics.fp16_digits import DIGITS

WARPS_PER_MULTIPROCESSOR = 8
MOST_BLOCK_POINTS = 128
FEW_FEATURES = 6  # up to this many, float64 products take less time than preparing digits


class Shape(NamedTuple):
    """A program's block: rows, points, features at a time (or at most), and the matching launch options and order."""

    rows: int
    points: int
    features: int
    warps: int
    stages: int
    by_points: bool = False


DIGIT_SHAPES = (
    Shape(64, 128, 64, warps=4, stages=3),
    Shape(64, 128, 64, warps=4, stages=2),
    Shape(128, 128, 128, warps=8, stages=2),
    Shape(128, 64, 128, warps=8, stages=2),
    Shape(64, 64, 128, warps=4, stages=1),
    Shape(64, 32, 128, warps=4, stages=1),
)
"""The shapes from the fastest for few features on; the third fits only if there are two digits."""

DISTANCES = Shape(64, 64, 64, warps=4, stages=3)
"""A shape for distances, faster than those above: computing near distances in another way takes registers."""

COLUMN_SHAPES = {
    ("manhattan", "ten digits"): Shape(8, 128, 8, warps=1, stages=3),
    ("manhattan", "float32"): Shape(8, 128, 4, warps=1, stages=3),
    ("chi2", "ten digits"): Shape(4, 128, 4, warps=1, stages=3),
    ("manhattan", "float32 pairs"): Shape(8, 128, 8, warps=1, stages=3),
    ("chi2", "float32 pairs"): Shape(8, 128, 4, warps=1, stages=3),
}
"""The shapes by metric and precision."""

AT_ONCE = {"features": 2.0, "columns": 1.5}
"""The factor by which more programs run at once in a way that leaves registers free."""

EXPONENTIAL_PAIRS = Shape(128, 64, 32, warps=4, stages=3)
"""A shape for sums of exponential functions in float32 pairs, faster than those above."""


FEWER_ROWS = {
    ("products", 128, 16, 1): (32, 1),
    ("products", 64, 32, 1): (32, 1),
    ("digits", 128, 64, 4): (64, 4),
    ("digits", 128, 64, 8): (64, 4),
}
"""Rows and warps of blocks with fewer rows; the key is the way and the rows, points and warps of the larger block.

On GPUs of `FEW_ROWS_CAPABILITY` a row has the same bits in both, as its points lie among the same lanes.
"""

MEMBER_ROWS, FEW_MEMBER_ROWS = 16, 64
"""Rows of a small block of digits, of one warp, and the most rows of each model of a fleet for which blocks are small.

A block takes a program as long as it has models. Only if the rows of all models are few, larger blocks of more warps
take less time. On GPUs of `FEW_ROWS_CAPABILITY` a row has the same bits in all of them.
"""

FEW_ROWS_CAPABILITY = "9.0"
"""The compute capability of the GPUs whose launches for few rows were measured."""

OWN_ROWS = 16
"""Up to this many rows a program makes their digits itself, which takes less time than a launch."""

ROW_DIGITS_ROWS, MEMBER_DIGITS_ROWS = 16, 4
"""Rows of a program that makes the digits of rows, of one model and of a fleet."""

BLOCK_OF_DIGITS = {"BLOCK_ROWS": 64, "BLOCK_POINTS": 64, "num_warps": 4, "num_stages": 1}
"""The block of a matrix of functions to ten digits."""

NORM_BLOCK = {"BLOCK_ROWS": 64, "BLOCK_FEATURES": 32, "num_warps": 4, "num_stages": 4}
"""The block of a squared norm in float64."""

NORM_FEW_ROWS, NORM_SOME_ROWS = 128, 2048
"""Up to this many rows, programs of a norm by digits take small or medium blocks, so that there are enough programs."""

NORM_LARGE_BYTES = 3 * 5 * (128 + 64) * 64
"""The shared memory of such a program with large blocks: three stages of five digits."""


def for_few_rows(shape: Shape, way: str, rows: int, capability: str) -> Shape:
    """Return a smaller block if it suffices for the rows and no bit depends on it, else the same block."""
    fewer = FEWER_ROWS.get((way, shape.rows, shape.points, shape.warps)) if capability == FEW_ROWS_CAPABILITY else None
    if fewer is None or rows > fewer[0]:
        return shape
    return shape._replace(rows=fewer[0], warps=fewer[1])


def for_members(shape: Shape, way: str, rows: int, members: int, capability: str) -> Shape:
    """Return a block for rows of the models of a fleet, on which no bit depends."""
    of_each = -(-rows // members)
    if way == "digits" and of_each <= FEW_MEMBER_ROWS < rows and capability == FEW_ROWS_CAPABILITY:
        return shape._replace(rows=MEMBER_ROWS, warps=1)
    return for_few_rows(shape, way, of_each, capability)


def rows_of_a_program(rows: int, block_rows: int, at_once: int) -> int:
    """Return how many rows of its block a program of a fleet makes, a power of two: few if few programs run at once.

    Rows can all be of other models, each of which takes the program as long as the whole block.
    """
    return min(1 << (-(-rows // at_once) - 1).bit_length(), block_rows)


def own_rows(rows: int, capability: str) -> int:
    """Return how many rows' digits a program makes itself: 0 if rows are many, or if it was not measured."""
    return OWN_ROWS if rows <= OWN_ROWS and capability == FEW_ROWS_CAPABILITY else 0


def matrix_shape(expanded: bool, features: int) -> Shape:
    """Return the block of a matrix of float64 functions: square for products, few rows for single features."""
    block_features = 16 if features <= 16 else 32
    return Shape(64, 64, block_features, 8, 3) if expanded else Shape(16, 128, block_features, 4, 3)


def sum_shape(way: str, features: int, metric: str, precision: str) -> Shape:
    """Return the block of a sum in a way without digits."""
    if way == "expanded":
        return matrix_shape(True, features)
    if way == "columns":
        return COLUMN_SHAPES[metric, precision]
    if way == "products" and precision == "float32":
        return Shape(128, 16, 16, warps=1, stages=3, by_points=True)
    if way == "products":
        return Shape(64, 32, 16, warps=1, stages=3, by_points=True)
    if features <= FEW_FEATURES and precision != "float64":
        return Shape(256, 16, 16, warps=4, stages=3, by_points=True)
    if precision != "float64" and metric != "chi2":
        return Shape(8, 128, 16, warps=1, stages=3)
    return Shape(16, 128, 16, warps=4, stages=3)


def digit_shape(features: int, shared: int, digits: int = DIGITS, first: Sequence[Shape] = ()) -> Shape | None:
    """Return the largest block for digits of `features` features that fits the shared memory, or None.

    Shared memory holds the digits of the rows, and those of as many blocks of points as there are stages. The `first`
    shapes are tried before all others.
    """
    for shape in (*first, *DIGIT_SHAPES):
        if features <= shape.features and 2 * digits * features * (shape.rows + shape.stages * shape.points) <= shared:
            return shape._replace(features=features)
    return None


@functools.cache
def slots(device: torch.device) -> int:
    """Return how many warps with the maximum number of registers can run on a device at once."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).multi_processor_count * WARPS_PER_MULTIPROCESSOR
    return 64


@functools.lru_cache(maxsize=1024)
def parts_of_a_program(blocks: int, parts: int, at_once: int) -> int:
    """Return how many parts a program should make if each block of rows has `parts`.

    Programs run in waves of `at_once`, and starting a program takes about as long as a part.
    """

    def time(number: int) -> int:
        programs = blocks * -(-parts // number)
        return -(-programs // at_once) * (number + 1)

    return min(range(1, parts + 1), key=time)


def norm_shape(rows: int, shared: int) -> dict[str, int]:
    """Return the block of a program for `rows` rows; it changes no bit.

    Args:
        rows: the rows of the batch.
        shared: the bytes of shared memory available to a program, 0 on a GPU without matrix units for int8.
    """
    if not shared:
        return _norm_block(32, 32, 16, warps=4, stages=1, matrix_units=False)
    if rows <= NORM_FEW_ROWS:
        return _norm_block(16, 32, 128, warps=4, stages=4)
    large = shared >= NORM_LARGE_BYTES
    if rows <= NORM_SOME_ROWS or not large:
        return _norm_block(64, 64, 64, warps=4, stages=2 if large else 3)
    return _norm_block(128, 64, 64, warps=8, stages=3)


def _norm_block(
    rows: int, targets: int, features: int, warps: int, stages: int, matrix_units: bool = True
) -> dict[str, int]:
    block = {"BLOCK_ROWS": rows, "BLOCK_TARGETS": targets, "BLOCK_FEATURES": features}
    return {**block, "MATRIX_UNITS": matrix_units, "num_warps": warps, "num_stages": stages}
