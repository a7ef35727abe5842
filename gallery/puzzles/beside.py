"""Each puzzle's two answers, Numba's and the Triton language's, as one exhibit that can be run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from gallery.catalogue import find
from gallery.errors import GalleryError
from gallery.exhibit import Exhibit, Size
from gallery.puzzles import broadcast, dot, map, map_2d, pooling, zip


def pool(x: torch.Tensor, window: Sequence[int], *_: Any) -> torch.Tensor:
    """Return the puzzle's sums for the exhibit's arguments: one row, a step of 1 and nothing beyond the edge."""
    return pooling.solve(x.view(-1), window[0]).view(1, -1)


PUZZLES: Mapping[str, tuple[Callable[..., torch.Tensor], Size, Size]] = {
    "map": (map.solve, (300,), (2**26,)),
    "zip": (zip.solve, (300,), (2**26,)),
    "map_2d": (map_2d.solve, (20, 33), (2**13, 2**13)),
    "broadcast": (broadcast.solve, (20, 33), (2**13, 2**13)),
    "pooling": (pool, (1, 300, 9, 1, 0, 0), (1, 2**26, 9, 1, 0, 0)),
    "dot": (dot.solve, (300,), (2**26,)),
}
"""The puzzles by the exhibit's name: Numba's answer, a size for its simulator and one to time on a GPU."""


def beside(name: str) -> Exhibit:
    """Return an exhibit of the puzzle's size, whose ways are the exhibit's first and Numba's.

    Raises:
        GalleryError: it is not one of the six puzzles.
    """
    if name not in PUZZLES:
        raise GalleryError(f"There is no puzzle {name}; there are {', '.join(PUZZLES)}.")
    exhibit, (solve, small, large) = find(name), PUZZLES[name]
    first = next(iter(exhibit.ways.values()))
    return dataclasses.replace(
        exhibit,
        ways={"Triton language": first, "Numba CUDA": solve},
        sizes=[small],
        curve=[large],
        tolerances={torch.float32: exhibit.tolerances[torch.float32]},
        differentiable=False,
        remark=None,
    )
