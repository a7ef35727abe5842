"""NeighborGraph: each row's distances to the points that are its neighbours, one column a point.

`x`: `[rows, features]`; `points`: `[points, features]`; `factor`: `[features]`, the weights of a metric that has them;
`out`: `[rows, points]`. If point `i` is one of the row's neighbours, `out[r, i]` is the distance by the metric (see
`distances.py`), or 1 if `mode` is "connectivity". Otherwise it is 0, or infinity if `absent` is "infinity". The
neighbours are the `n_neighbors` nearest points, the smaller index first among equal distances, or, if `n_neighbors` is
0, the points at most `radius` away. A row whose distances are NaN has no neighbour within a radius, and its nearest
points get NaN.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl

from ...format.errors import PlanError
from ...plan.plan import Operation, Parameters
from .bounds import BOUND_LAUNCHES, bound_parameters, bounded
from .cpu_search import Candidates, candidates, in_parts, nearest_points
from .distances import (
    INFINITY,
    check_points,
    finish_distance,
    metric_constants,
    reduced_distances,
    reduced_radius,
    reference_finish,
    reference_reduced_distances,
    transposed,
)
from .search import check_neighbors, nearest, searches

MODES = ("distance", "connectivity")
ABSENT = {"zero": 0.0, "infinity": math.inf}
BLOCK_ROWS = 32
BLOCK_POINTS = 64


@triton.jit(do_not_specialize=["rows"])
def nearest_graph_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    columns,  # float64 [FEATURES, POINTS]
    factor,  # float64 [FEATURES]
    bounds,  # float32 [rows, GROUPS], or like `finer` an array of `search_few_rows.py`
    finer,
    reach,  # float64 [rows, 2], see `bounds.py`
    out,  # float32 or float64 [rows, POINTS], filled with the value for no neighbour
    rows,
    FEATURES: tl.constexpr,
    POINTS: tl.constexpr,
    NEIGHBORS: tl.constexpr,
    METRIC: tl.constexpr,
    P: tl.constexpr,
    WHOLE: tl.constexpr,
    WEIGHTED: tl.constexpr,
    CONNECTIVITY: tl.constexpr,
    GROUPS: tl.constexpr,
    BLOCK_GROUPS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_NEIGHBORS: tl.constexpr,
    BLOCK_POINTS: tl.constexpr,
    FINE: tl.constexpr,
    TILE: tl.constexpr,
    AT_ONCE: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """A program writes the neighbours of `BLOCK_ROWS` rows."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    best, chosen = nearest(
        x, columns, factor, bounds, finer, reach, row, rows,
        FEATURES=FEATURES, POINTS=POINTS, NEIGHBORS=NEIGHBORS,
        METRIC=METRIC, P=P, WHOLE=WHOLE, WEIGHTED=WEIGHTED, GROUPS=GROUPS, BLOCK_GROUPS=BLOCK_GROUPS,
        BLOCK_NEIGHBORS=BLOCK_NEIGHBORS, BLOCK_POINTS=BLOCK_POINTS, FINE=FINE, TILE=TILE,
        AT_ONCE=AT_ONCE, UNROLL=UNROLL,
    )  # [BLOCK_ROWS, BLOCK_NEIGHBORS] each  # fmt: skip
    real = tl.arange(0, BLOCK_NEIGHBORS)[None, :] < NEIGHBORS
    value = finish_distance(tl.where(real, best, 1.0), METRIC, P)
    if CONNECTIVITY:
        value = tl.zeros_like(best) + 1.0
    value = tl.where(best == INFINITY, float("nan"), value)
    inside = (row < rows)[:, None] & real
    tl.store(out + row[:, None] * POINTS + chosen, value.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows"])
def radius_graph_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    columns,  # float64 [FEATURES, POINTS]
    factor,  # float64 [FEATURES]
    radius,  # float64 [1], reduced
    out,  # float32 or float64 [rows, POINTS]
    rows,
    FEATURES: tl.constexpr,
    POINTS: tl.constexpr,
    METRIC: tl.constexpr,
    P: tl.constexpr,
    WHOLE: tl.constexpr,
    WEIGHTED: tl.constexpr,
    CONNECTIVITY: tl.constexpr,
    ABSENT: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_POINTS: tl.constexpr,
):
    """A program makes `[BLOCK_ROWS, BLOCK_POINTS]` of the output."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    point = tl.program_id(1) * BLOCK_POINTS + tl.arange(0, BLOCK_POINTS)
    distance = reduced_distances(
        x, columns, factor, row, point, rows,
        FEATURES=FEATURES, POINTS=POINTS, METRIC=METRIC, P=P, WHOLE=WHOLE, WEIGHTED=WEIGHTED,
    )  # fmt: skip
    within = distance <= tl.load(radius)
    value = finish_distance(tl.where(within, distance, 1.0), METRIC, P)
    if CONNECTIVITY:
        value = tl.zeros_like(distance) + 1.0
    value = tl.where(within, value, ABSENT)
    inside = (row < rows)[:, None] & (point < POINTS)[None, :]
    tl.store(out + row[:, None] * POINTS + point[None, :], value.to(out.dtype.element_ty), mask=inside)


@dataclass(frozen=True, eq=False)
class NeighborGraph(Operation):
    """The distances to each row's neighbours among the points."""

    points: np.ndarray
    factor: np.ndarray
    n_neighbors: int = 0
    radius: float = 0.0
    metric: str = "euclidean"
    p: float = 2.0
    mode: str = "distance"
    absent: str = "zero"

    def check(self, *widths: int) -> None:
        (features,) = widths
        check_points("neighbor_graph", self.points, self.factor, self.metric, self.p, features)
        if self.n_neighbors:
            check_neighbors("neighbor_graph", self.n_neighbors, len(self.points))
        if not self.radius >= 0:
            raise PlanError(f"neighbor_graph: radius must be 0 or more, not {self.radius}.")
        if self.mode not in MODES or self.absent not in ABSENT:
            names = f"'{self.mode}' and '{self.absent}'"
            raise PlanError(f"neighbor_graph: mode and absent must be of {MODES} and {tuple(ABSENT)}, not {names}.")

    def output_width(self, *widths: int) -> int:
        return len(self.points)

    def parameters(self) -> dict[str, np.ndarray]:
        """Return the reduced radius, the tables for bounds, and the points in contiguous tiles."""
        return self.plain_parameters() | bound_parameters(
            self.points, self.n_neighbors, self.factor, self.metric, self.p
        )

    def plain_parameters(self) -> dict[str, np.ndarray]:
        radius = reduced_radius(self.radius, self.metric, self.p)
        return {"columns": transposed(self.points), "factor": self.factor, "radius": radius}

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,), points, absent = inputs, len(self.points), ABSENT[self.absent]

        def compute(part: torch.Tensor) -> torch.Tensor:
            if not self.n_neighbors:
                return self._within(parameters, part)
            distance, index = nearest_points(part, parameters, self.metric, self.p, self.n_neighbors, self._candidates)
            value = torch.where(distance.isinf(), torch.nan, self._value(distance))
            return torch.full((len(part), points), absent, dtype=torch.float64, device=x.device).scatter_(
                1, index, value
            )

        return in_parts(x, compute, points, points, self.metric, self.p)

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        (x,), (points, features) = inputs, self.points.shape
        columns, factor, absent = parameters["columns"], parameters["factor"], ABSENT[self.absent]
        shape = {"FEATURES": features, "POINTS": points, "CONNECTIVITY": self.mode == "connectivity"}
        metric = metric_constants(self.metric, self.p, self.factor)
        if self.n_neighbors:
            output[:rows].fill_(absent)
            for search in searches(x, parameters, rows, points, self.n_neighbors, metric):
                nearest_graph_kernel[search.grid](
                    x=x[search.part], columns=columns, factor=factor, out=output[search.part],
                    NEIGHBORS=self.n_neighbors, **shape, **metric, **search.arguments, num_warps=search.warps,
                )  # fmt: skip
        else:
            grid = (triton.cdiv(rows, BLOCK_ROWS), triton.cdiv(points, BLOCK_POINTS))
            radius_graph_kernel[grid](
                x=x, columns=columns, factor=factor, radius=parameters["radius"], out=output, rows=rows,
                ABSENT=absent, **shape, **metric, BLOCK_ROWS=BLOCK_ROWS, BLOCK_POINTS=BLOCK_POINTS, num_warps=8,
            )  # fmt: skip

    def launches(self, inputs: int) -> int:
        if not self.n_neighbors:
            return 1
        return 2 + BOUND_LAUNCHES * bounded(self.points, self.n_neighbors, self.factor, self.metric, self.p)

    def describe(self) -> str:
        which = f"{self.n_neighbors} of" if self.n_neighbors else f"within {self.radius:g} of"
        return f"{self.mode} to {which} {len(self.points)} points by {self.metric}"

    @functools.cached_property
    def _candidates(self) -> Candidates | None:
        return candidates(self.points, self.factor, self.metric)

    def _value(self, distance: torch.Tensor) -> torch.Tensor:
        """Return the graph's values for neighbours at these reduced distances."""
        if self.mode == "connectivity":
            return torch.ones_like(distance)
        return reference_finish(distance, self.metric, self.p)

    def _within(self, parameters: Parameters, x: torch.Tensor) -> torch.Tensor:
        """Return the graph of the points within the radius."""
        absent = ABSENT[self.absent]
        if self._candidates is None or x.device.type != "cpu":
            columns, factor, radius = (parameters[name] for name in ("columns", "factor", "radius"))
            distance = reference_reduced_distances(x, columns, factor, self.metric, self.p)
            return torch.where(distance <= radius, self._value(distance), absent)
        row, point = self._candidates.within(x, parameters["radius"]).nonzero().unbind(1)
        graph = torch.full((len(x), len(self.points)), absent, dtype=torch.float64)
        graph[row, point] = self._value(self._candidates.distances(x[row], point))
        return graph
