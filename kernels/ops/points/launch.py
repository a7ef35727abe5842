"""Launch shapes of a sum over points: the block of each program, and the number of parts that it makes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import torch

from ...numerics.fp16_digits import DIGITS

WARPS_PER_MULTIPROCESSOR = 8
MOST_BLOCK_POINTS = 128


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

On GPUs of compute capability 9.0 a row has the same bits in both, as its points lie among the same lanes.
"""


def for_few_rows(shape: Shape, way: str, rows: int, capability: str) -> Shape:
    """Return a smaller block if it suffices for the rows and no bit depends on it, else the same block."""
    fewer = FEWER_ROWS.get((way, shape.rows, shape.points, shape.warps)) if capability == "9.0" else None
    if fewer is None or rows > fewer[0]:
        return shape
    return shape._replace(rows=fewer[0], warps=fewer[1])


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
