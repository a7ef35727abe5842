"""How a sum over points is shared among a GPU's programs: the block of each, and how many parts it makes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import torch

from ...numerics.fp16_digits import DIGITS

WARPS_PER_MULTIPROCESSOR = 8
MOST_BLOCK_POINTS = 128


class Shape(NamedTuple):
    """A block of a program: rows, points, features at a time (or at most), the launch that suits it, and its order."""

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
"""From the fastest for few features on; the third fits two digits alone."""

DISTANCES = Shape(64, 64, 64, warps=4, stages=3)
"""What is faster than those for distances: computing near ones in another way takes registers."""

COLUMN_SHAPES = {
    ("manhattan", "ten digits"): Shape(8, 128, 8, warps=1, stages=3),
    ("manhattan", "float32"): Shape(8, 128, 4, warps=1, stages=3),
    ("chi2", "ten digits"): Shape(4, 128, 4, warps=1, stages=3),
    ("manhattan", "float32 pairs"): Shape(8, 128, 8, warps=1, stages=3),
    ("chi2", "float32 pairs"): Shape(8, 128, 4, warps=1, stages=3),
}
"""By metric and precision."""

AT_ONCE = {"features": 2.0, "columns": 1.5}
"""How many times as many programs run at once where a way leaves registers free."""

EXPONENTIAL_PAIRS = Shape(128, 64, 32, warps=4, stages=3)
"""What is faster than those for sums of exponential functions in float32 pairs."""


FEWER_ROWS = {
    ("products", 128, 16, 1): (32, 1),
    ("products", 64, 32, 1): (32, 1),
    ("digits", 128, 64, 4): (64, 4),
    ("digits", 128, 64, 8): (64, 4),
}
"""Rows and warps of blocks of fewer rows, by the way, the rows, the points and the warps of those for many.

On GPUs of compute capability 9.0 a row has the same bits in both: there a row's points lie among the same lanes.
"""


def for_few_rows(shape: Shape, way: str, rows: int, capability: str) -> Shape:
    """Return a smaller block where so few rows need no larger one and no bit depends on it, else the same."""
    fewer = FEWER_ROWS.get((way, shape.rows, shape.points, shape.warps)) if capability == "9.0" else None
    if fewer is None or rows > fewer[0]:
        return shape
    return shape._replace(rows=fewer[0], warps=fewer[1])


def digit_shape(features: int, shared: int, digits: int = DIGITS, first: Sequence[Shape] = ()) -> Shape | None:
    """Return the largest block for digits of so many features that fits the shared memory, or None.

    The digits of the rows lie there, and those of as many blocks of points as there are stages. The `first` shapes go
    before all others.
    """
    for shape in (*first, *DIGIT_SHAPES):
        if features <= shape.features and 2 * digits * features * (shape.rows + shape.stages * shape.points) <= shared:
            return shape._replace(features=features)
    return None


@functools.cache
def slots(device: torch.device) -> int:
    """Return how many warps with all the registers that they can have run on a device at once."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).multi_processor_count * WARPS_PER_MULTIPROCESSOR
    return 64


@functools.lru_cache(maxsize=1024)
def parts_of_a_program(blocks: int, parts: int, at_once: int) -> int:
    """Return how many parts a program should make, of so many for each block of rows.

    Programs run in waves of `at_once`, and to begin a program takes about as long as a part.
    """

    def time(number: int) -> int:
        programs = blocks * -(-parts // number)
        return -(-programs // at_once) * (number + 1)

    return min(range(1, parts + 1), key=time)
