"""Long sums over points in parts, so that a few rows keep a GPU busy: see `pairwise_affine.py`.

The number of parts follows from the numbers of points and targets and the precision, never from the device or the
batch.
"""

from __future__ import annotations

import numpy as np

from ..linear.affine import Affine

PART_POINTS = {"float64": 1024, "ten digits": 128, "float32 pairs": 128, "float32": 128}
"""How many points a part covers at least, by precision, but for what rounding up to whole blocks makes of it."""

MOST_PARTS = 64
MOST_SUMS = 512
"""How many sums there are at most, of all parts and targets: they are written to memory and read again."""


def part_count(points: int, targets: int, precision: str) -> int:
    """Return in how many parts a sum should be made, before whole blocks of points need fewer."""
    parts = -(-points // PART_POINTS[precision])
    return parts if precision == "float64" else min(parts, MOST_PARTS, max(MOST_SUMS // targets, 2))


def sum_of_parts(parts: int, targets: int, function: str) -> Affine:
    """Return the operation that adds the parts up, which lie part by part, and applies the function."""
    return Affine(np.tile(np.eye(targets), (parts, 1)), np.zeros(targets), function)
