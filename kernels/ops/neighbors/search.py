"""The search for the nearest of an operation's points: its checks, its tables, its launches and its plain torch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import triton

from ...format.errors import PlanError
from ...plan.devices import has_many_float64_units
from ...plan.plan import Parameters
from .bounds import BOUND_LAUNCHES, bound_parameters, bounded, bounds_of, grouping, padded_points, tile_points
from .cpu_search import Candidates, Found, candidates, in_parts, nearest_points
from .distances import Metric, check_points, reference_finish, reference_reduced_distances, transposed
from .launch import SEARCH_WARPS, groups_at_once, list_block, neighbor_tile, parts_at_once, way_of_search
from .search_kernel import SearchShape, list_distances_kernel

MAX_NEIGHBORS = 4096
"""Neighbours of a row that fit the registers of one program."""

WEIGHTS = ("uniform", "distance")
"""The ways to weight a row's neighbours."""


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel that calls `nearest`: its rows, its grid, the arguments of `nearest`, and its warps."""

    part: slice
    grid: tuple[int]
    arguments: dict[str, Any]
    warps: int

    def run(self, kernel: Any, **arguments: Any) -> None:
        """Launch the kernel with further arguments; `num_warps` may be among these."""
        kernel[self.grid](**({"num_warps": self.warps} | self.arguments | arguments))


@dataclass(frozen=True, eq=False)
class Search:
    """The nearest of an operation's points to each row, the smaller index first among equal distances.

    Operations hold one for their points. It knows what each of them needs before it answers from neighbours.
    """

    points: np.ndarray  # [points, features]
    factor: np.ndarray  # [features], the weights of a metric that has them
    neighbors: int  # how many are searched; 1 for the bounds of a radius, 0 for no search
    metric: str = "euclidean"
    p: float = 2.0  # the power of minkowski

    def check(self, op: str, features: int) -> None:
        """Raise `PlanError` unless the points and the metric fit rows of `features` columns."""
        check_points(op, self.points, self.factor, self.metric, self.p, features)

    def plain_tables(self) -> dict[str, np.ndarray]:
        """Return the tables that plain torch reads."""
        return {"columns": transposed(self.points), "factor": self.factor}

    def tables(self) -> dict[str, np.ndarray]:
        """Return the tables that kernels read: the points in contiguous tiles, and the tables for bounds."""
        return {
            "factor": self.factor,
            **bound_parameters(self.points, self.neighbors, self.factor, self.metric, self.p),
        }

    @functools.cached_property
    def bounded(self) -> bool:
        """True if the search uses bounds, so that few points are visited."""
        return bounded(self.points, self.neighbors, self.factor, self.metric, self.p)

    @functools.cached_property
    def kernel_metric(self) -> Metric:
        """The metric as kernels know it."""
        return Metric.of(self.metric, self.p, self.factor)

    @functools.cached_property
    def candidates(self) -> Candidates | None:
        """The points for a search on a CPU, if it supports them."""
        return candidates(self.points, self.factor, self.metric)

    def in_parts(
        self, x: torch.Tensor, compute: Callable[[torch.Tensor], torch.Tensor], width: int, elements: int
    ) -> torch.Tensor:
        """Return `compute(x)`, float64 `[rows, width]`, computed for some rows at a time, see `cpu_search.py`."""
        return in_parts(x, compute, width, elements, self.metric, self.p)

    def distances(self, x: torch.Tensor, parameters: Parameters) -> torch.Tensor:
        """Return the reduced distances of rows to all points, float64 `[rows, points]`."""
        return reference_reduced_distances(x, parameters["columns"], parameters["factor"], self.metric, self.p)

    def finish(self, reduced: torch.Tensor) -> torch.Tensor:
        """Return the distances for reduced distances."""
        return reference_finish(reduced, self.metric, self.p)

    def reference(self, x: torch.Tensor, parameters: Parameters) -> Found:
        """Return the reduced distances and indices of each row's nearest points, in the order of their indices."""
        distance = self.distances(x, parameters)
        index = reference_nearest(distance, self.neighbors)
        return distance.gather(1, index), index

    def on_cpu(self, x: torch.Tensor, parameters: Parameters) -> Found:
        """Return the result of `reference` in the way that is fast on a CPU."""
        return nearest_points(x, parameters, self.metric, self.p, self.neighbors, self.candidates)

    @property
    def numbers_on_cpu(self) -> int:
        """The numbers that `on_cpu` leaves to its caller to limit, for a row."""
        return len(self.points) if self.candidates is None else 1

    def launch_count(self) -> int:
        """Return the maximum number of kernels that are launched, with one that answers."""
        return 1 + BOUND_LAUNCHES * self.bounded

    def launches(
        self,
        parameters: Parameters,
        x: torch.Tensor,
        rows: int,
        tile: dict[str, Any] | None = None,
        alike: bool = False,
    ) -> Iterator[Launch]:
        """Yield the launches of a kernel that calls `nearest`, after the launches that each of them needs.

        With bounds a program visits one row's most promising groups of points. Otherwise it visits all points for
        several rows, see `tile`.

        Args:
            parameters: the operation's parameters.
            x: the rows.
            rows: the number of rows.
            tile: a program's rows, slots and points; None for those of `neighbor_tile`.
            alike: whether programs must have one shape for any number of rows, because sums follow that shape.
        """
        (points, features), metric = self.points.shape, self.kernel_metric
        what = (features, points, self.neighbors, metric)
        if not self.bounded:
            shape = SearchShape(*what, **(tile or neighbor_tile(self.neighbors)))
            none = parameters["columns"]
            yield _launch(x, parameters, slice(0, rows), shape, none, none, none, warps=8)
            return
        groups, group = grouping(points)
        slots = triton.next_power_of_2(self.neighbors)
        shape = SearchShape(*what, block_rows=1, slots=slots, block_points=group, groups=groups)
        tiles = triton.cdiv(points, tile_points(points))
        many_units = has_many_float64_units(x.device)
        way = way_of_search(rows, points, features, self.neighbors, metric, tiles, many_units)
        if way == "all" and not alike:
            yield _among_all(parameters, x, rows, shape)
        elif way == "parts" and not alike:
            yield _among_parts(parameters, x, rows, shape)
        else:
            program, warps = groups_at_once(rows, features, metric, alike)
            shape = replace(shape, **program)
            for part, bounds, reach in bounds_of(x, parameters, rows, points, metric):
                yield _launch(x, parameters, part, shape, bounds, bounds, reach, warps)


def reference_nearest(distance: torch.Tensor, neighbors: int) -> torch.Tensor:
    """Return the indices of the nearest of reduced distances `[rows, points]`, ascending, `[rows, neighbors]`."""
    return distance.sort(dim=1, stable=True).indices[:, :neighbors].sort(dim=1).values


def _among_all(parameters: Parameters, x: torch.Tensor, rows: int, shape: SearchShape) -> Launch:
    """Launch the kernel that writes the distances of rows to all points; return the search among these."""
    least = torch.empty(rows, shape.groups, dtype=torch.float64, device=x.device)
    listed = torch.empty(rows, shape.groups * shape.block_points, dtype=torch.float64, device=x.device)
    block = list_block(rows, shape.features)
    list_distances_kernel[(triton.cdiv(shape.groups, block["BLOCK_GROUPS"]), triton.cdiv(rows, block["BLOCK_ROWS"]))](
        x=x,
        columns=parameters["columns"],
        factor=parameters["factor"],
        least=least,
        listed=listed,
        rows=rows,
        FEATURES=shape.features,
        POINTS=shape.points,
        METRIC=shape.metric,
        GROUPS=shape.groups,
        GROUP=shape.block_points,
        **block,
    )
    return _launch(x, parameters, slice(0, rows), replace(shape, fine=1), least, listed, least)


def _among_parts(parameters: Parameters, x: torch.Tensor, rows: int, shape: SearchShape) -> Launch:
    """Launch the kernels that bound distances to tiles and their parts; return the search among these."""
    tile = tile_points(shape.points)
    block = parts_at_once(rows, shape.slots, shape.features)
    finer = torch.empty(rows, padded_points(shape.points) // block["fine"], dtype=torch.float32, device=x.device)
    ((part, bounds, reach),) = bounds_of(x, parameters, rows, shape.points, shape.metric, finer)
    shape = replace(shape, groups=triton.cdiv(shape.points, tile), tile=tile, **block)
    return _launch(x, parameters, part, shape, bounds, finer, reach)


def _launch(
    x: torch.Tensor,
    parameters: Parameters,
    part: slice,
    shape: SearchShape,
    bounds: torch.Tensor,
    finer: torch.Tensor,
    reach: torch.Tensor,
    warps: int = SEARCH_WARPS,
) -> Launch:
    """Return the launch that searches some rows."""
    rows = part.stop - part.start
    given: dict[str, Any] = {name: parameters[name] for name in ("columns", "factor")}
    given |= {"x": x[part], "bounds": bounds, "finer": finer, "reach": reach, "rows": rows, "SEARCH": shape}
    return Launch(part, (triton.cdiv(rows, shape.block_rows),), given, warps)


def check_neighbors(op: str, neighbors: int, points: int, most: int = MAX_NEIGHBORS) -> None:
    """Raise `PlanError` unless the points suffice for the neighbours."""
    if not 1 <= neighbors <= min(points, most):
        raise PlanError(f"{op}: n_neighbors must lie in [1, {min(points, most)}], not {neighbors}.")


def check_targets(op: str, targets: np.ndarray, weights: str, points: int) -> None:
    """Raise `PlanError` unless every point has targets and the weights are a known kind."""
    if targets.ndim != 2 or len(targets) != points or not targets.shape[1]:
        raise PlanError(f"{op}: targets must be [{points}, outputs], not {list(targets.shape)}.")
    if weights not in WEIGHTS:
        raise PlanError(f"{op}: weights must be one of {WEIGHTS}, not '{weights}'.")
