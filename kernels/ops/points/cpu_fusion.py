"""Functions of rows and points whose whole matrix plain torch never makes: each tile is consumed at once.

If only a squared norm reads a matrix of functions, the tiles go into the norm, and into a sum over the same functions,
like the variance and the mean of a Gaussian process. On a CPU a launch costs nothing, but memory costs much.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch

from ...cpu.blocked_weight import Source
from ...plan.plan import Parameters, Step
from .cpu_function import PointMatrix
from .function import PointFunction

FUNCTION_FIELDS = tuple(field.name for field in dataclasses.fields(PointFunction) if field.name != "precision")


@runtime_checkable
class Norm(Protocol):
    """An operation that reads its input tile by tile."""

    def norms(self, parameters: Parameters, rows: int, source: Source) -> torch.Tensor:
        """Return the norms of `rows` rows, made from the tiles of `source`."""


@runtime_checkable
class Sum(Protocol):
    """An operation that sums functions of points tile by tile, in `parts`."""

    parts: int

    def no_sums(self, rows: int) -> torch.Tensor:
        """Return zeros that the sums of `rows` rows will replace."""

    def sum_tile(self, k: torch.Tensor, out: torch.Tensor) -> None:
        """Write the sums of the functions of some rows and all points."""

    def finish_sums(self, parameters: Parameters, sums: torch.Tensor) -> torch.Tensor:
        """Apply the steps after the sums, in place, and return the result."""


@dataclass(frozen=True)
class SharedPoints:
    """The steps of functions of rows and points, of their norm, and perhaps of a sum of them, which share the tiles."""

    steps: tuple[Step, ...]
    matrix: PointMatrix
    points: int

    def run(self, parameters: Mapping[str, Parameters], values: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the values of these steps, except the functions themselves."""
        functions, norm, *sums = self.steps
        x = values[functions.inputs[0]]
        tile_norms, tile_sums = norm.operation, sums[0].operation if sums else None
        assert isinstance(tile_norms, Norm)
        assert tile_sums is None or isinstance(tile_sums, Sum)
        answer = tile_sums.no_sums(len(x)) if tile_sums else torch.empty(0)

        def source(start: int, count: int) -> Iterator[tuple[int, torch.Tensor]]:
            for first, k in self.matrix.tiles(x[start : start + count]):
                yield first, k[:, : self.points]
                if tile_sums:
                    tile_sums.sum_tile(k, answer[start + first : start + first + len(k)])

        found = {norm.output: tile_norms.norms(parameters[norm.output], len(x), source)}
        if tile_sums:
            found[sums[0].output] = tile_sums.finish_sums(parameters[sums[0].output], answer)
        return found


def share_points(
    functions: Step, matrix: PointMatrix, steps: Sequence[Step], readers: Mapping[str, int]
) -> SharedPoints | None:
    """Return the functions with their norm and perhaps a sum; None if anything but one norm reads the functions.

    The plan alone decides whether a norm is made of tiles, and a sum has the same bits either way.
    """
    norm = next((step for step in steps if functions.output in step.inputs), None)
    if norm is None or readers[functions.output] > 1 or not isinstance(norm.operation, Norm):
        return None
    made = functions.operation
    assert isinstance(made, PointFunction)
    alike = [step for step in steps if step.inputs == functions.inputs and _sums(step, made)]
    return SharedPoints((functions, norm, *alike[:1]), matrix, len(made.points))


def _sums(step: Step, functions: PointFunction) -> bool:
    """Return whether a step sums these functions in one part, so that plain torch makes the same tiles for it."""
    operation = step.operation
    if not isinstance(operation, Sum) or not isinstance(operation, PointFunction) or operation.parts > 1:
        return False
    return all(np.array_equal(getattr(operation, name), getattr(functions, name)) for name in FUNCTION_FIELDS)
