"""Each puzzle's answers, Numba's and the Triton language's, as one exhibit that can be run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from gallery.catalogue import find
from gallery.errors import GalleryError
from gallery.exhibit import Exhibit, Size
from gallery.puzzles import broadcast, dot, map, map_2d, pooling, zip


@dataclass(frozen=True)
class Puzzle:
    """Numba's answers to one exhibit."""

    ways: Mapping[str, Callable[..., torch.Tensor]]
    """The answers by name; they take the exhibit's arguments."""

    small: Size
    """A size for Numba's simulator."""

    large: Size
    """A size to time on a GPU."""

    bounds: Mapping[str, Callable[[Size], float]] = field(default_factory=dict)
    """Bounds of answers' errors, as `Exhibit` has them."""

    remark: Callable[[], str] | None = None
    """A function that compares the ways by more than their time, on a GPU or not, in a sentence."""


def pool(way: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return the puzzle's sums for the exhibit's arguments: one row, a step of 1 and nothing beyond the edge."""

    def pooled(x: torch.Tensor, window: Sequence[int], *_: Any) -> torch.Tensor:
        return way(x.view(-1), window[0]).view(1, -1)

    return pooled


PUZZLES: Mapping[str, Puzzle] = {
    "map": Puzzle({"Numba CUDA": map.solve}, (300,), (2**26,)),
    "zip": Puzzle({"Numba CUDA": zip.solve}, (300,), (2**26,)),
    "map_2d": Puzzle({"Numba CUDA": map_2d.solve}, (20, 33), (2**13, 2**13)),
    "broadcast": Puzzle(broadcast.WAYS, (20, 33), (2**13, 2**13), remark=broadcast.remark),
    "pooling": Puzzle(
        {"Numba CUDA, shared memory": pool(pooling.solve), "Numba CUDA, naive": pool(pooling.solve_naively)},
        (1, 300, 9, 1, 0, 0),
        (1, 2**26, 9, 1, 0, 0),
        remark=pooling.remark,
    ),
    "dot": Puzzle(
        {"Numba CUDA, tree": dot.solve, "Numba CUDA, atomics": dot.solve_atomically},
        (300,),
        (2**26,),
        {"Numba CUDA, atomics": dot.error_of_atomics},
        dot.remark,
    ),
}
"""The puzzles by the exhibit's name."""


def beside(name: str) -> Exhibit:
    """Return an exhibit of the puzzle's size, whose ways are the exhibit's first and Numba's.

    Raises:
        GalleryError: it is not one of the six puzzles.
    """
    if name not in PUZZLES:
        raise GalleryError(f"There is no puzzle {name}; there are {', '.join(PUZZLES)}.")
    exhibit, puzzle = find(name), PUZZLES[name]
    first = next(iter(exhibit.ways.values()))
    return dataclasses.replace(
        exhibit,
        ways={"Triton language": first, **puzzle.ways},
        sizes=[puzzle.small],
        curve=[puzzle.large],
        tolerances={torch.float32: exhibit.tolerances[torch.float32]},
        bounds=puzzle.bounds,
        differentiable=False,
        remark=None,
    )
