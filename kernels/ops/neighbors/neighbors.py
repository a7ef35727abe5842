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
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl

from ...numerics.pairwise_reduce import sum_in_pairs
from ...plan.plan import Operation, Parameters
from .cpu_search import Found
from .distances import INFINITY
from .search import Search, check_neighbors, check_targets
from .search_kernel import nearest, neighbor_weights


@triton.jit(do_not_specialize=["rows"])
def neighbors_kernel(
    x,  # like the next five and `rows` an argument of `nearest`
    columns,
    factor,
    bounds,
    finer,
    reach,
    targets,  # float64 [POINTS, OUTPUTS]
    out,  # float32 or float64 [rows, OUTPUTS]
    rows,
    OUTPUTS: tl.constexpr,
    BY_DISTANCE: tl.constexpr,
    SEARCH: tl.constexpr,
):
    """A program answers a block of rows."""
    METRIC: tl.constexpr = SEARCH.metric
    row, best, chosen = nearest(x, columns, factor, bounds, finer, reach, rows, SEARCH)
    real = tl.arange(0, SEARCH.slots)[None, :] < SEARCH.neighbors
    store_means(best, chosen, real, targets, out, row, rows, OUTPUTS, METRIC, BY_DISTANCE)


@triton.jit
def store_means(
    best,  # float64 [BLOCK_ROWS, SLOTS], −infinity in slots that are not real
    chosen,  # int32 [BLOCK_ROWS, SLOTS]
    real,  # int1 [1, SLOTS]
    targets,  # float64 [POINTS, OUTPUTS]
    out,  # float32 or float64 [rows, OUTPUTS]
    row,  # int64 [BLOCK_ROWS]
    rows,
    OUTPUTS: tl.constexpr,
    METRIC: tl.constexpr,
    BY_DISTANCE: tl.constexpr,
):
    """Store the means of the targets of rows' neighbours, which have these reduced distances and indices."""
    undefined = tl.max(best, axis=1) == INFINITY
    weight = neighbor_weights(best, real, METRIC, BY_DISTANCE)
    total = sum_in_pairs(weight)
    for t in tl.range(0, OUTPUTS):
        value = tl.load(targets + chosen.to(tl.int64) * OUTPUTS + t, mask=real, other=0.0)
        y = sum_in_pairs(weight * value) / total
        if BY_DISTANCE or METRIC.name != "nan_euclidean":
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

    @functools.cached_property
    def search(self) -> Search:
        """The search for the nearest points."""
        return Search(self.points, self.factor, self.n_neighbors, self.metric, self.p)

    def check(self, *widths: int) -> None:
        (features,) = widths
        self.search.check("neighbors", features)
        check_neighbors("neighbors", self.n_neighbors, len(self.points))
        check_targets("neighbors", self.targets, self.weights, len(self.points))

    def output_width(self, *widths: int) -> int:
        return self.targets.shape[1]

    def parameters(self) -> dict[str, np.ndarray]:
        return self.search.tables() | {"targets": self.targets}

    def plain_parameters(self) -> dict[str, np.ndarray]:
        return self.search.plain_tables() | {"targets": self.targets}

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,) = inputs
        return self._means(x, parameters, self.search.reference, len(self.points))

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,) = inputs
        return self._means(x, parameters, self.search.on_cpu, self.search.numbers_on_cpu)

    def _means(
        self, x: torch.Tensor, parameters: Parameters, find: Callable[[torch.Tensor, Parameters], Found], numbers: int
    ) -> torch.Tensor:
        """Return the answers for the neighbours that `find` returns, which has so many numbers in memory for a row."""
        targets = parameters["targets"]
        lenient = self.metric == "nan_euclidean" and self.weights == "uniform"

        def compute(part: torch.Tensor) -> torch.Tensor:
            reduced, index = find(part, parameters)
            distance = self.search.finish(reduced)
            weight = torch.ones_like(distance)
            if self.weights == "distance":
                inverse = 1 / distance
                hit = inverse.isinf()
                weight = torch.where(hit.any(1, keepdim=True), hit.double(), inverse)
            total = (weight[:, :, None] * targets[index]).cumsum(1)[:, -1]  # a cumulative sum adds in order
            y = total / weight.cumsum(1)[:, -1:]
            return y if lenient else torch.where(distance.isinf().any(1, keepdim=True), torch.nan, y)

        outputs = targets.shape[1]
        return self.search.in_parts(x, compute, outputs, max(numbers, self.n_neighbors * outputs))

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        (x,) = inputs
        for launch in self.search.launches(parameters, x, rows):
            launch.run(
                neighbors_kernel,
                targets=parameters["targets"],
                out=output[launch.part],
                OUTPUTS=output.shape[1],
                BY_DISTANCE=self.weights == "distance",
            )

    def launches(self, inputs: int) -> int:
        return self.search.launch_count()

    def describe(self) -> str:
        return f"{self.n_neighbors} of {len(self.points)} points by {self.metric}, weights {self.weights}"
