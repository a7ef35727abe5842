"""Piecewise polynomials of columns, of each row's own member of a fleet; see `piecewise_device.py`.

Members have `F` functions of the same columns. The functions of member m have `starts[m + 1] − starts[m]` knots each
and one piece more. The knots of all members' functions follow each other, and so do the coefficients of their pieces:
`source`: int32 `[F]`; `starts`: int64 `[members + 1]`; `knots`: float64 `[F · starts[members]]`; coefficients:
float64 `[F · (starts[members] + members), degree + 1]`, for each target if there are several.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ...format.errors import PlanError
from ...plan.plan import Parameters
from ...plan.stacked import Member, Stacked

Find = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True, eq=False)
class StackedPieces(Stacked[Member]):
    """The fields of an operation that makes piecewise polynomials of each row's own member."""

    source: np.ndarray
    starts: np.ndarray
    knots: np.ndarray

    @property
    def members(self) -> int:
        return len(self.starts) - 1

    @functools.cached_property
    def most(self) -> int:
        """The largest number of knots of a function."""
        return int(np.diff(self.starts).max())

    def check_pieces(self, width: int, pieces: int) -> None:
        """Raise `PlanError` unless the tables fit together, that many pieces, and a matrix of `width` columns."""
        kind, functions = self.kind(), len(self.source)
        if self.source.ndim != 1 or not functions or self.source.min() < 0 or self.source.max() >= width:
            raise PlanError(f"{kind}: source must be at least one column and lie in [0, {width}).")
        counts = np.diff(self.starts)
        if self.starts.ndim != 1 or self.starts[0] != 0 or (counts < 1).any():
            raise PlanError(f"{kind}: starts must ascend from 0.")
        if self.knots.shape != (functions * self.starts[-1],):
            raise PlanError(f"{kind}: knots must be [{functions * self.starts[-1]}], not {list(self.knots.shape)}.")
        if pieces != functions * (self.starts[-1] + self.members):
            expected = functions * (self.starts[-1] + self.members)
            raise PlanError(f"{kind}: there must be the coefficients of {expected} pieces, not of {pieces}.")
        first = np.append(0, np.repeat(counts, functions).cumsum())[:-1]
        falls = self.knots[1:] < self.knots[:-1]
        falls[first[1:] - 1] = False
        if np.isnan(self.knots).any() or falls.any():
            raise PlanError(f"{kind}: the knots of each function must ascend.")
        if not np.isfinite(self.knots[first]).all():
            raise PlanError(f"{kind}: the first knot of each function must be finite.")

    def values(
        self, parameters: Parameters, table: torch.Tensor, x: torch.Tensor, place: torch.Tensor, find: Find
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the functions of float64 rows, `[F, rows, targets]`, and what they are functions of, `[F, rows]`.

        Args:
            parameters: the tensors `source`, `starts` and `knots`.
            table: the coefficients, `[targets, pieces, degree + 1]`.
            x: `[rows, width]`.
            place: the place of each row's member.
            find: returns the number of knots at or below each value, from the values, the first knot of each one's
                function, the number of this function's knots, and all knots.
        """
        starts, knots, functions = parameters["starts"], parameters["knots"], len(self.source)
        function = torch.arange(functions)[:, None]
        values = x.T.index_select(0, parameters["source"])
        start = starts.index_select(0, place)
        count = starts.index_select(0, place + 1) - start
        first = start * functions + function * count
        piece = find(values, first, count, knots)
        u = values - knots.take(first + (piece - 1).clip(0))
        own = table[:, first + place * functions + function + piece]  # [targets, F, rows, degree + 1]
        y = own[..., -1]
        for term in range(own.shape[-1] - 2, -1, -1):
            y = y * u + own[..., term]
        return torch.stack(list(y), dim=2), values

    def find(self, values: torch.Tensor, first: torch.Tensor, count: torch.Tensor, knots: torch.Tensor) -> torch.Tensor:
        """Count knots at or below values by halving, as the kernel does; the count for NaN is arbitrary."""
        piece = torch.zeros_like(first)
        for halving in reversed(range(self.most.bit_length())):
            further = piece + (1 << halving)
            below = (further <= count) & (values >= knots.take((first + further - 1).clip(max=len(knots) - 1)))
            piece = torch.where(below, further, piece)
        return piece

    def find_by_definition(
        self, values: torch.Tensor, first: torch.Tensor, count: torch.Tensor, knots: torch.Tensor
    ) -> torch.Tensor:
        """Count knots at or below values by comparing all."""
        number = torch.arange(self.most)
        own = knots[(first[:, :, None] + number).clip(max=len(knots) - 1)]  # [F, rows, knots]
        return ((values[:, :, None] >= own) & (number < count[:, None])).sum(2)


def starts_of(knots: Sequence[np.ndarray]) -> np.ndarray:
    """Return `starts` of members whose knots are `[F, knots]`."""
    return np.cumsum([0, *(each.shape[1] for each in knots)])
