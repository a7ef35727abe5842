"""Neighbors: the mean of the targets of each row's nearest points, `out[r, t] = Σᵢ wᵣᵢ · targets[i, t] / Σᵢ wᵣᵢ`.

`x`: `[rows, features]`; `points`: `[points, features]`; `targets`: `[points, outputs]`; `factor`: `[features]`, the
weights of a metric that has them; `out`: `[rows, outputs]`. The sums run over the `n_neighbors` nearest points by the
metric (see `distances.py`), the smaller index first among equal distances. `w` is 1 for uniform weights. For distance
weights it is 1 / distance, unless some distance is zero: then 1 for those points and 0 for the others.

A row whose distances are NaN answers NaN, except for nan_euclidean with uniform weights: there a point that shares no
feature with the row is further than all others and otherwise a neighbour like them.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl

from ...numerics.pairwise_reduce import sum_in_pairs
from ...plan.plan import Operation, Parameters
from .bounds import BOUND_LAUNCHES, bound_parameters, bounded
from .cpu_search import Candidates, candidates, in_parts, nearest_points
from .distances import INFINITY, check_points, metric_constants, reference_finish, transposed
from .search import check_neighbors, check_targets, nearest, neighbor_weights, searches


@triton.jit(do_not_specialize=["rows"])
def neighbors_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    columns,  # float64 [FEATURES, POINTS]
    factor,  # float64 [FEATURES]
    targets,  # float64 [POINTS, OUTPUTS]
    bounds,  # float32 [rows, GROUPS], or like `finer` an array of `search_few_rows.py`
    finer,
    reach,  # float64 [rows, 2], see `bounds.py`
    out,  # float32 or float64 [rows, OUTPUTS]
    rows,
    FEATURES: tl.constexpr,
    POINTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    NEIGHBORS: tl.constexpr,
    METRIC: tl.constexpr,
    P: tl.constexpr,
    WHOLE: tl.constexpr,
    WEIGHTED: tl.constexpr,
    BY_DISTANCE: tl.constexpr,
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
    """A program answers `BLOCK_ROWS` rows."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    best, chosen = nearest(
        x, columns, factor, bounds, finer, reach, row, rows,
        FEATURES=FEATURES, POINTS=POINTS, NEIGHBORS=NEIGHBORS,
        METRIC=METRIC, P=P, WHOLE=WHOLE, WEIGHTED=WEIGHTED, GROUPS=GROUPS, BLOCK_GROUPS=BLOCK_GROUPS,
        BLOCK_NEIGHBORS=BLOCK_NEIGHBORS, BLOCK_POINTS=BLOCK_POINTS, FINE=FINE, TILE=TILE,
        AT_ONCE=AT_ONCE, UNROLL=UNROLL,
    )  # [BLOCK_ROWS, BLOCK_NEIGHBORS] each  # fmt: skip
    real = tl.arange(0, BLOCK_NEIGHBORS)[None, :] < NEIGHBORS
    undefined = tl.max(best, axis=1) == INFINITY
    weight = neighbor_weights(best, real, METRIC, P, BY_DISTANCE)
    total = sum_in_pairs(weight)
    for t in tl.range(0, OUTPUTS):
        value = tl.load(targets + chosen.to(tl.int64) * OUTPUTS + t, mask=real, other=0.0)
        y = sum_in_pairs(weight * value) / total
        if BY_DISTANCE or METRIC != "nan_euclidean":
            y = tl.where(undefined, float("nan"), y)
        tl.store(out + row * OUTPUTS + t, y.to(out.dtype.element_ty), mask=row < rows)


@dataclass(frozen=True, eq=False)
class Neighbors(Operation):
    """The mean of the nearest points' targets."""

    points: np.ndarray
    targets: np.ndarray
    factor: np.ndarray
    n_neighbors: int
    metric: str = "euclidean"
    p: float = 2.0
    weights: str = "uniform"

    def check(self, *widths: int) -> None:
        (features,) = widths
        check_points("neighbors", self.points, self.factor, self.metric, self.p, features)
        check_neighbors("neighbors", self.n_neighbors, len(self.points))
        check_targets("neighbors", self.targets, self.weights, len(self.points))

    def output_width(self, *widths: int) -> int:
        return self.targets.shape[1]

    def parameters(self) -> dict[str, np.ndarray]:
        """Return the points in contiguous tiles, and the tables for bounds."""
        return self.plain_parameters() | bound_parameters(
            self.points, self.n_neighbors, self.factor, self.metric, self.p
        )

    def plain_parameters(self) -> dict[str, np.ndarray]:
        return {"columns": transposed(self.points), "targets": self.targets, "factor": self.factor}

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,), targets = inputs, parameters["targets"]
        lenient = self.metric == "nan_euclidean" and self.weights == "uniform"

        def compute(part: torch.Tensor) -> torch.Tensor:
            distance, index = self.nearest(part, parameters)
            distance = reference_finish(distance, self.metric, self.p)
            weight = torch.ones_like(distance)
            if self.weights == "distance":
                inverse = 1 / distance
                hit = inverse.isinf()
                weight = torch.where(hit.any(1, keepdim=True), hit.double(), inverse)
            total = (weight[:, :, None] * targets[index]).cumsum(1)[:, -1]  # a cumulative sum adds in order
            y = total / weight.cumsum(1)[:, -1:]
            return y if lenient else torch.where(distance.isinf().any(1, keepdim=True), torch.nan, y)

        outputs = targets.shape[1]
        elements = max(len(targets) if self._candidates is None else 1, self.n_neighbors * outputs)
        return in_parts(x, compute, outputs, elements, self.metric, self.p)

    def nearest(self, x: torch.Tensor, parameters: Parameters) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the reduced distances and indices of each row's neighbours, in the order of their indices."""
        return nearest_points(x, parameters, self.metric, self.p, self.n_neighbors, self._candidates)

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        (x,), (points, features) = inputs, self.points.shape
        constants = metric_constants(self.metric, self.p, self.factor)
        for search in searches(x, parameters, rows, points, self.n_neighbors, constants):
            neighbors_kernel[search.grid](
                x=x[search.part],
                **{name: parameters[name] for name in ("columns", "targets", "factor")},
                out=output[search.part],
                FEATURES=features,
                POINTS=points,
                OUTPUTS=output.shape[1],
                NEIGHBORS=self.n_neighbors,
                **constants,
                BY_DISTANCE=self.weights == "distance",
                **search.arguments,
                num_warps=search.warps,
            )

    def launches(self, inputs: int) -> int:
        return 1 + BOUND_LAUNCHES * bounded(self.points, self.n_neighbors, self.factor, self.metric, self.p)

    def describe(self) -> str:
        return f"{self.n_neighbors} of {len(self.points)} points by {self.metric}, weights {self.weights}"

    @functools.cached_property
    def _candidates(self) -> Candidates | None:
        return candidates(self.points, self.factor, self.metric)
