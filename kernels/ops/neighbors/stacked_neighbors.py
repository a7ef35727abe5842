"""Nearest neighbours of the members of a fleet: the mean of the targets of those points of a row's own member.

`points`: `[points of all, features]`; `targets`: `[points of all, outputs]`; member `m` has the points from
`first_point[m]` to below `first_point[m + 1]`; `factor`: `[members, features]`. The rest is as in `neighbors.py`, and
the same for all members.

A kernel visits all points of each row's member, in one launch. Only searches by bounds are stacked, with metrics whose
sums all kernels round alike: their neighbours are one set, which is summed by index. A CPU computes the rows of each
member of a batch as its own operation does.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from ...format.errors import PlanError
from ...plan.plan import Parameters
from ..linear.by_members import ByMembers
from .distances import transposed
from .launch import MOST_VISITED
from .neighbors import Neighbors, store_means
from .stacked_search import nearest_of_member, row_of_program, shape_of_search

IN_COMMON = ("n_neighbors", "metric", "p", "weights")
"""The fields that members have in common."""


@triton.jit(do_not_specialize=["rows", "first", "members"])
def stacked_neighbors_kernel(
    x,  # like columns, factor, first_point and rows as in `nearest_of_member`
    numbers,  # float32 or float64 [rows], the numbers of the rows' members
    columns,
    factor,
    first_point,
    targets,  # float64 [POINTS, OUTPUTS]
    out,  # float32 or float64 [rows, OUTPUTS]
    rows,
    first,  # the number of the first member
    members,
    OUTPUTS: tl.constexpr,
    BY_DISTANCE: tl.constexpr,
    SEARCH: tl.constexpr,
):
    """A program answers a row."""
    METRIC: tl.constexpr = SEARCH.metric
    row, member = row_of_program(numbers, rows, first, members)
    best, chosen = nearest_of_member(x, columns, factor, first_point, row, member, rows, SEARCH)
    real = tl.arange(0, SEARCH.slots)[None, :] < SEARCH.neighbors
    own = targets + tl.load(first_point + member) * OUTPUTS
    store_means(best, chosen, real, own, out, row, rows, OUTPUTS, METRIC, BY_DISTANCE)


@dataclass(frozen=True, eq=False)
class StackedNeighbors(ByMembers[Neighbors]):
    """The mean of the nearest points' targets for each member; members differ in their numbers of points."""

    points: np.ndarray
    first_point: np.ndarray
    targets: np.ndarray
    factor: np.ndarray
    n_neighbors: int
    metric: str = "euclidean"
    p: float = 2.0
    weights: str = "uniform"
    start: int = 0

    @classmethod
    def alike(cls, operation: Neighbors) -> Hashable | None:
        search = operation.search
        if not search.bounded or search.kernel_metric.rough or len(operation.points) > MOST_VISITED:
            return None
        shape = operation.points.shape[1], operation.targets.shape[1]
        return search.kernel_metric, operation.n_neighbors, operation.weights, *shape

    @classmethod
    def of(cls, operations: Sequence[Neighbors], start: int = 0) -> StackedNeighbors:
        return cls(**cls.fields_of(operations), start=start)

    @classmethod
    def fields_of(cls, operations: Sequence[Neighbors]) -> dict[str, Any]:
        """Return the fields of the stack of operations, without its start."""
        counts = [len(each.points) for each in operations]
        return {
            "points": np.concatenate([each.points for each in operations]),
            "first_point": np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            "targets": np.concatenate([each.targets for each in operations]),
            "factor": np.stack([each.factor for each in operations]),
            **{name: getattr(operations[0], name) for name in IN_COMMON},
        }

    @property
    def members(self) -> int:
        return len(self.factor)

    def check(self, *widths: int) -> None:
        self.check_stacked(widths)
        first, points = self.first_point, len(self.points)
        whole = len(first) == self.members + 1 and first[0] == 0 and (np.diff(first) > 0).all() and first[-1] == points
        if not whole or len(self.targets) != points:
            raise PlanError(f"{self.kind()}: first_point must count the points and the targets of each member.")
        if np.diff(first).min() < self.n_neighbors:
            raise PlanError(f"{self.kind()}: each member must have n_neighbors points, {self.n_neighbors}, or more.")
        self._one.check(widths[0])

    def output_width(self, *widths: int) -> int:
        return self.targets.shape[1]

    def member(self, place: int) -> Neighbors:
        return Neighbors(**self.member_fields(place))

    def member_fields(self, place: int) -> dict[str, Any]:
        """Return the fields that the operation of the member at a place has in common with `Neighbors`."""
        mine = slice(self.first_point[place], self.first_point[place + 1])
        own = {"points": self.points[mine], "targets": self.targets[mine], "factor": self.factor[place]}
        return {**own, **{name: getattr(self, name) for name in IN_COMMON}}

    @functools.cached_property
    def _one(self) -> Neighbors:
        """The first member's operation: whatever the members have in common is its own."""
        return self.member(0)

    def parameters(self) -> dict[str, np.ndarray]:
        arrays = {name: getattr(self, name) for name in ("first_point", "targets", "factor")}
        return {"columns": transposed(self.points), **arrays}

    def gains_by_order(self) -> bool:
        """A program reads all points of its row's member."""
        return True

    def search_arguments(
        self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int
    ) -> dict[str, Any]:
        """Return the arguments of a kernel that searches the neighbours of rows."""
        (x, numbers), search = inputs, self._one.search
        points, features = self.points.shape
        return {
            **{"x": x, "numbers": numbers, "out": output, "rows": rows, "first": self.start, "members": self.members},
            **{name: parameters[name] for name in ("columns", "factor", "first_point", "targets")},
            **{"OUTPUTS": output.shape[1], "BY_DISTANCE": self.weights == "distance"},
            **shape_of_search(rows, features, points, search.neighbors, search.kernel_metric),
        }

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        stacked_neighbors_kernel[(rows,)](**self.search_arguments(parameters, inputs, output, rows))

    def describe(self) -> str:
        points = f"{len(self.points):,} points by {self.metric}"
        return f"{super().describe()}, {self.n_neighbors} of {points}, weights {self.weights}"
