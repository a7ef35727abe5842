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
from .distances import INFINITY, finish_distance, reduced_distances, reduced_radius
from .launch import GRAPH_BLOCK
from .search import Search, check_neighbors
from .search_kernel import nearest

MODES = ("distance", "connectivity")
ABSENT = {"zero": 0.0, "infinity": math.inf}


@triton.jit(do_not_specialize=["rows"])
def nearest_graph_kernel(
    x,  # like the next five and `rows` an argument of `nearest`
    columns,
    factor,
    bounds,
    finer,
    reach,
    out,  # float32 or float64 [rows, POINTS], filled with the value for no neighbour
    rows,
    CONNECTIVITY: tl.constexpr,
    SEARCH: tl.constexpr,
):
    """A program writes the neighbours of a block of rows."""
    METRIC: tl.constexpr = SEARCH.metric
    row, best, chosen = nearest(x, columns, factor, bounds, finer, reach, rows, SEARCH)
    real = tl.arange(0, SEARCH.slots)[None, :] < SEARCH.neighbors
    value = finish_distance(tl.where(real, best, 1.0), METRIC)
    if CONNECTIVITY:
        value = tl.zeros_like(best) + 1.0
    value = tl.where(best == INFINITY, float("nan"), value)
    inside = (row < rows)[:, None] & real
    tl.store(out + row[:, None] * SEARCH.points + chosen, value.to(out.dtype.element_ty), mask=inside)


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
        FEATURES=FEATURES, POINTS=POINTS, METRIC=METRIC,
    )  # fmt: skip
    within = distance <= tl.load(radius)
    value = finish_distance(tl.where(within, distance, 1.0), METRIC)
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

    @functools.cached_property
    def search(self) -> Search:
        """The search for the nearest points."""
        return Search(self.points, self.factor, self.n_neighbors, self.metric, self.p)

    def check(self, *widths: int) -> None:
        (features,) = widths
        self.search.check("neighbor_graph", features)
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
        return self.search.tables() | {"radius": self._reduced_radius}

    def plain_parameters(self) -> dict[str, np.ndarray]:
        return self.search.plain_tables() | {"radius": self._reduced_radius}

    @property
    def _reduced_radius(self) -> np.ndarray:
        return reduced_radius(self.radius, self.metric, self.p)

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,), points = inputs, len(self.points)

        def compute(part: torch.Tensor) -> torch.Tensor:
            distance = self.search.distances(part, parameters)
            if self.n_neighbors:
                _, index = self.search.reference(part, parameters)
                chosen = torch.zeros_like(distance, dtype=torch.bool).scatter_(1, index, True)
            else:
                chosen = distance <= parameters["radius"]
            return torch.where(chosen, self._values(distance), ABSENT[self.absent])

        return self.search.in_parts(x, compute, points, points)

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,), points, candidates = inputs, len(self.points), self.search.candidates
        if not self.n_neighbors and candidates is None:
            return self.reference(parameters, x)

        def compute(part: torch.Tensor) -> torch.Tensor:
            if candidates is None or self.n_neighbors:
                distance, point = self.search.on_cpu(part, parameters)
                row = torch.arange(len(part))[:, None]
            else:
                row, point = candidates.within(part, parameters["radius"]).nonzero().unbind(1)
                distance = candidates.distances(part[row], point)
            graph = torch.full((len(part), points), ABSENT[self.absent], dtype=torch.float64)
            graph[row, point] = self._values(distance)
            return graph

        return self.search.in_parts(x, compute, points, points)

    def _values(self, reduced: torch.Tensor) -> torch.Tensor:
        """Return the graph's values for neighbours at these reduced distances."""
        value = torch.ones_like(reduced) if self.mode == "connectivity" else self.search.finish(reduced)
        return torch.where(reduced.isinf(), torch.nan, value)

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        (x,), (points, features) = inputs, self.points.shape
        connectivity, absent = self.mode == "connectivity", ABSENT[self.absent]
        if self.n_neighbors:
            output[:rows].fill_(absent)
            for launch in self.search.launches(parameters, x, rows):
                launch.run(nearest_graph_kernel, out=output[launch.part], CONNECTIVITY=connectivity)
            return
        blocks = (triton.cdiv(rows, GRAPH_BLOCK["BLOCK_ROWS"]), triton.cdiv(points, GRAPH_BLOCK["BLOCK_POINTS"]))
        radius_graph_kernel[blocks](
            x=x,
            **{name: parameters[name] for name in ("columns", "factor", "radius")},
            out=output,
            rows=rows,
            FEATURES=features,
            POINTS=points,
            METRIC=self.search.kernel_metric,
            CONNECTIVITY=connectivity,
            ABSENT=absent,
            **GRAPH_BLOCK,
        )

    def launches(self, inputs: int) -> int:
        return 1 + self.search.launch_count() if self.n_neighbors else 1

    def describe(self) -> str:
        which = f"{self.n_neighbors} of" if self.n_neighbors else f"within {self.radius:g} of"
        return f"{self.mode} to {which} {len(self.points)} points by {self.metric}"
