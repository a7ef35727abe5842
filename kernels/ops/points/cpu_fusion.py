"""Functions of rows and points whose matrix plain torch never makes whole: its tiles go where they are read.

A matrix of functions that only a squared norm reads goes into the norm tile by tile, and into a sum over the same
functions, as a Gaussian process has of its variance and its mean. On a CPU a launch costs nothing and memory much.
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
    """An operation that takes its input by tiles."""

    def norms(self, parameters: Parameters, rows: int, source: Source) -> torch.Tensor:
        """Return the norms of so many rows, whose tiles `source` makes."""


@runtime_checkable
class Sum(Protocol):
    """An operation that sums functions of points by tiles, in `parts`."""

    parts: int

    def no_sums(self, rows: int) -> torch.Tensor:
        """Return zeros, to be replaced by the sums of so many rows."""

    def sum_tile(self, k: torch.Tensor, out: torch.Tensor) -> None:
        """Write the sums of the functions of some rows and all points."""

    def finish_sums(self, parameters: Parameters, sums: torch.Tensor) -> torch.Tensor:
        """Return what follows the sums, in their place."""


@dataclass(frozen=True)
class SharedPoints:
    """The steps that make functions of rows and points, their norm, and perhaps a sum of them: they share the tiles."""

    steps: tuple[Step, ...]
    matrix: PointMatrix
    points: int

    def run(self, parameters: Mapping[str, Parameters], values: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the values that these steps make, but for the functions themselves."""
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
    """Return the functions with their norm, and with a sum over them; None where anything but one norm reads them.

    Whether a norm is made of tiles depends on the plan alone, and a sum has the same bits either way.
    """
    norm = next((step for step in steps if functions.output in step.inputs), None)
    if norm is None or readers[functions.output] > 1 or not isinstance(norm.operation, Norm):
        return None
    made = functions.operation
    assert isinstance(made, PointFunction)
    alike = [step for step in steps if step.inputs == functions.inputs and _sums(step, made)]
    return SharedPoints((functions, norm, *alike[:1]), matrix, len(made.points))


def _sums(step: Step, functions: PointFunction) -> bool:
    """Whether a step sums these functions in one part, for which plain torch makes the very same tiles."""
    operation = step.operation
    if not isinstance(operation, Sum) or not isinstance(operation, PointFunction) or operation.parts > 1:
        return False
    return all(np.array_equal(getattr(operation, name), getattr(functions, name)) for name in FUNCTION_FIELDS)
