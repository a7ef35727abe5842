"""Long sums over points in parts, so that a few rows keep a GPU busy: see `pairwise_affine.py`.

The number of parts follows from the numbers of points and targets and the precision, never from the device or the
batch.
"""

from __future__ import annotations

import numpy as np

from ..linear.affine import Affine

MOST_PARTS = 64
MOST_SUMS = 512
"""The most sums of all parts and targets, which are written to memory and read again."""


def least_points(precision: str) -> int:
    """Return the fewest points of a part, before rounding up to whole blocks."""
    return 1024 if precision == "float64" else 128


def part_count(points: int, targets: int, precision: str) -> int:
    """Return the number of parts of a sum; whole blocks of points may need fewer."""
    parts = -(-points // least_points(precision))
    return parts if precision == "float64" else min(parts, MOST_PARTS, max(MOST_SUMS // targets, 2))


def sum_of_parts(parts: int, targets: int, function: str) -> Affine:
    """Return the operation that adds up the parts, stored part by part, and applies the function."""
    return Affine(np.tile(np.eye(targets), (parts, 1)), np.zeros(targets), function)
