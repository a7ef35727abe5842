"""RadiusNeighbors: the mean of the targets of the points within a radius, `out[r, t] = Σᵢ wᵣᵢ targets[i, t] / Σᵢ wᵣᵢ`.

`x`: `[rows, features]`; `points`: `[points, features]`; `targets`: `[points, outputs]`; `factor`: `[features]`, the
weights of a metric that has them; `empty`: `[outputs]`; `out`: `[rows, outputs]`. The sums run over the points whose
distance by the metric (see `distances.py`) is at most `radius`; `w` is 1 for uniform weights, and for distance weights
1 / distance, unless some distance is zero: then 1 for those points and 0 for the others. A row with no point within
the radius answers `empty`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl

from ..bounds import bound_launches, bound_parameters, bounded, bounds_of, grouping
from ..candidates import Candidates, candidates, in_parts
from ..distances import (
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
from ..dots import dot
from ..errors import PlanError
from ..nearest import check_targets
from ..plan import Operation, Parameters
from ..tiles import product

BLOCK_ROWS = 32
BLOCK_POINTS = 64
SAMPLE = 16
LARGEST_SHARE = 0.1
"""Where a row has neighbours in at most so many of the groups of points, the groups are looked for one by one."""


@triton.jit(do_not_specialize=["rows"])
def radius_neighbors_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    columns,  # float64 [FEATURES, POINTS]
    factor,  # float64 [FEATURES]
    targets,  # float64 [POINTS, OUTPUTS]
    empty,  # float64 [OUTPUTS]
    radius,  # float64 [1], reduced
    out,  # float32 or float64 [rows, OUTPUTS]
    rows,
    FEATURES: tl.constexpr,
    POINTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    METRIC: tl.constexpr,
    P: tl.constexpr,
    WHOLE: tl.constexpr,
    WEIGHTED: tl.constexpr,
    BY_DISTANCE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_POINTS: tl.constexpr,
    BLOCK_OUTPUTS: tl.constexpr,
):
    """A program makes `[BLOCK_ROWS, BLOCK_OUTPUTS]` of the output."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    output = tl.program_id(1) * BLOCK_OUTPUTS + tl.arange(0, BLOCK_OUTPUTS)
    furthest = tl.load(radius)
    total = tl.zeros([BLOCK_ROWS], tl.float64)
    hits = tl.zeros([BLOCK_ROWS], tl.float64)
    y = tl.zeros([BLOCK_ROWS, BLOCK_OUTPUTS], tl.float64)
    y_hits = tl.zeros([BLOCK_ROWS, BLOCK_OUTPUTS], tl.float64)
    for start in tl.range(0, POINTS, BLOCK_POINTS):
        point = start + tl.arange(0, BLOCK_POINTS)
        distance = reduced_distances(
            x, columns, factor, row, point, rows,
            FEATURES=FEATURES, POINTS=POINTS, METRIC=METRIC, P=P, WHOLE=WHOLE, WEIGHTED=WEIGHTED,
        )  # fmt: skip
        within = distance <= furthest
        inside = (point < POINTS)[:, None] & (output < OUTPUTS)[None, :]
        value = tl.load(targets + point.to(tl.int64)[:, None] * OUTPUTS + output[None, :], mask=inside, other=0.0)
        weight = within.to(tl.float64)
        if BY_DISTANCE:
            distance = finish_distance(tl.where(within, distance, 1.0), METRIC, P)
            hit = (within & (distance == 0.0)).to(tl.float64)
            weight = tl.where(distance == 0.0, 0.0, weight / tl.where(distance == 0.0, 1.0, distance))
            hits += tl.sum(hit, axis=1)
            y_hits = dot(hit, value, y_hits)
        total += tl.sum(weight, axis=1)
        y = dot(weight, value, y)
    if BY_DISTANCE:
        y = tl.where(hits[:, None] > 0.0, y_hits, y)
        total = tl.where(hits > 0.0, hits, total)
    nothing = tl.load(empty + output, mask=output < OUTPUTS, other=0.0)[None, :]
    y = tl.where(total[:, None] > 0.0, y / tl.where(total > 0.0, total, 1.0)[:, None], nothing)
    inside = (row < rows)[:, None] & (output < OUTPUTS)[None, :]
    tl.store(out + row[:, None] * OUTPUTS + output[None, :], y.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows"])
def radius_groups_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    columns,  # float64 [FEATURES, POINTS]
    factor,  # float64 [FEATURES]
    targets,  # float64 [POINTS, OUTPUTS]
    empty,  # float64 [OUTPUTS]
    radius,  # float64 [1], reduced
    bounds,  # float32 [rows, GROUPS], see `bounds.py`
    unit,  # float64 [1], the reduced distance 1 as bounds have it
    out,  # float32 or float64 [rows, OUTPUTS]
    rows,
    FEATURES: tl.constexpr,
    POINTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    METRIC: tl.constexpr,
    P: tl.constexpr,
    WHOLE: tl.constexpr,
    WEIGHTED: tl.constexpr,
    BY_DISTANCE: tl.constexpr,
    GROUPS: tl.constexpr,
    BLOCK_GROUPS: tl.constexpr,
    BLOCK_POINTS: tl.constexpr,
    BLOCK_OUTPUTS: tl.constexpr,
):
    """A program makes `BLOCK_OUTPUTS` outputs of a row from the groups of points that may be within, in their order."""
    row = tl.program_id(0).to(tl.int64) + tl.arange(0, 1)
    output = tl.program_id(1) * BLOCK_OUTPUTS + tl.arange(0, BLOCK_OUTPUTS)
    furthest = tl.load(radius)
    group = tl.arange(0, BLOCK_GROUPS)[None, :]
    bound = tl.load(bounds + row[:, None] * GROUPS + group, mask=group < GROUPS, other=INFINITY)
    near = (bound < INFINITY) & (bound.to(tl.float64) <= furthest * tl.load(unit))
    waiting = tl.where(near, group, GROUPS)
    weights = tl.zeros([1, BLOCK_POINTS], tl.float64)
    y = tl.zeros([BLOCK_POINTS, BLOCK_OUTPUTS], tl.float64)
    hits = tl.zeros([1, BLOCK_POINTS], tl.float64)
    y_hits = tl.zeros([BLOCK_POINTS, BLOCK_OUTPUTS], tl.float64)
    first = tl.max(tl.min(waiting, axis=1), axis=0)
    while first < GROUPS:
        waiting = tl.where(waiting == first, GROUPS, waiting)
        point = first * BLOCK_POINTS + tl.arange(0, BLOCK_POINTS)
        distance = reduced_distances(
            x, columns, factor, row, point, rows,
            FEATURES=FEATURES, POINTS=POINTS, METRIC=METRIC, P=P, WHOLE=WHOLE, WEIGHTED=WEIGHTED, UNROLL=16,
        )  # [1, BLOCK_POINTS]  # fmt: skip
        within = distance <= furthest
        inside = tl.trans(within) & (output < OUTPUTS)[None, :]
        value = tl.load(targets + point.to(tl.int64)[:, None] * OUTPUTS + output[None, :], mask=inside, other=0.0)
        weight = within.to(tl.float64)
        if BY_DISTANCE:
            distance = finish_distance(tl.where(within, distance, 1.0), METRIC, P)
            hit = (within & (distance == 0.0)).to(tl.float64)
            weight = tl.where(distance == 0.0, 0.0, weight / tl.where(distance == 0.0, 1.0, distance))
            hits += hit
            y_hits += tl.trans(hit) * value
        weights += weight
        y += tl.trans(weight) * value
        first = tl.max(tl.min(waiting, axis=1), axis=0)
    total = tl.sum(tl.sum(weights, axis=1), axis=0)
    answer = tl.sum(y, axis=0)
    if BY_DISTANCE:
        found = tl.sum(tl.sum(hits, axis=1), axis=0)
        answer = tl.where(found > 0.0, tl.sum(y_hits, axis=0), answer)
        total = tl.where(found > 0.0, found, total)
    nothing = tl.load(empty + output, mask=output < OUTPUTS, other=0.0)
    answer = tl.where(total > 0.0, answer / tl.where(total > 0.0, total, 1.0), nothing)
    at = tl.program_id(0).to(tl.int64) * OUTPUTS + output
    tl.store(out + at, answer.to(out.dtype.element_ty), mask=output < OUTPUTS)


@dataclass(frozen=True, eq=False)
class RadiusNeighbors(Operation):
    """The mean of the targets of the points within a radius."""

    points: np.ndarray
    targets: np.ndarray
    factor: np.ndarray
    empty: np.ndarray
    radius: float
    metric: str = "euclidean"
    p: float = 2.0
    weights: str = "uniform"

    def check(self, *widths: int) -> None:
        (features,) = widths
        check_points("radius_neighbors", self.points, self.factor, self.metric, self.p, features)
        check_targets("radius_neighbors", self.targets, self.weights, len(self.points))
        if self.empty.shape != self.targets.shape[1:]:
            shapes = f"{list(self.targets.shape[1:])}, not {list(self.empty.shape)}"
            raise PlanError(f"radius_neighbors: empty must be {shapes}.")
        if not self.radius >= 0:
            raise PlanError(f"radius_neighbors: radius must not be negative, as {self.radius} is.")

    def output_width(self, *widths: int) -> int:
        return self.targets.shape[1]

    def parameters(self) -> dict[str, np.ndarray]:
        """Return the reduced radius, the points so that a tile of them is contiguous, and what bounds are made of."""
        bounds = bound_parameters(self.points, 1, self.factor, self.metric, self.p) if self._few else {}
        return self.plain_parameters() | bounds

    def plain_parameters(self) -> dict[str, np.ndarray]:
        radius = reduced_radius(self.radius, self.metric, self.p)
        tables = {"targets": self.targets, "factor": self.factor, "empty": self.empty, "radius": radius}
        return {"columns": transposed(self.points), **tables}

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,), targets = inputs, parameters["targets"]

        def compute(part: torch.Tensor) -> torch.Tensor:
            weight = self._weights(parameters, part)
            total = weight.cumsum(1)[:, -1:] if weight.is_floating_point() else weight.sum(1, keepdim=True)
            return torch.where(total > 0, product(weight, targets) / total, parameters["empty"])

        return in_parts(x, compute, targets.shape[1], len(targets), self.metric, self.p)

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        (x,), (points, features), outputs = inputs, self.points.shape, output.shape[1]
        block_outputs = min(max(triton.next_power_of_2(outputs), 16), 32)
        tables = {name: parameters[name] for name in ("columns", "factor", "targets", "empty", "radius")}
        shape = {
            "FEATURES": features,
            "POINTS": points,
            "OUTPUTS": outputs,
            **metric_constants(self.metric, self.p, self.factor),
            "BY_DISTANCE": self.weights == "distance",
        }
        if not self._few:
            grid = (triton.cdiv(rows, BLOCK_ROWS), triton.cdiv(outputs, block_outputs))
            radius_neighbors_kernel[grid](
                x=x, **tables, out=output, rows=rows, **shape, BLOCK_ROWS=BLOCK_ROWS, BLOCK_POINTS=BLOCK_POINTS,
                BLOCK_OUTPUTS=block_outputs, num_warps=8,
            )  # fmt: skip
            return
        groups, group = grouping(points)
        block_outputs = min(triton.next_power_of_2(outputs), 32)
        for part, bounds in bounds_of(x, parameters, rows, points, self.metric, self.p):
            count = part.stop - part.start
            radius_groups_kernel[(count, triton.cdiv(outputs, block_outputs))](
                x=x[part], **tables, bounds=bounds, unit=parameters["unit"], out=output[part], rows=count, **shape,
                GROUPS=groups, BLOCK_GROUPS=triton.next_power_of_2(groups), BLOCK_POINTS=group,
                BLOCK_OUTPUTS=block_outputs, num_warps=1 if block_outputs <= 8 else 4,
            )  # fmt: skip

    def launches(self, inputs: int) -> int:
        return 1 + bound_launches(self.points, 1, self.factor, self.metric, self.p) if self._few else 1

    @functools.cached_property
    def _few(self) -> bool:
        """Whether few groups of points hold a neighbour of a row, judged by some of the points themselves."""
        if not bounded(self.points, 1, self.factor, self.metric, self.p):
            return False
        some = torch.from_numpy(self.points[:: -(-len(self.points) // SAMPLE)])
        columns, factor = torch.from_numpy(transposed(self.points)), torch.from_numpy(self.factor)
        distance = reference_reduced_distances(some, columns, factor, self.metric, self.p)
        within = (distance <= float(reduced_radius(self.radius, self.metric, self.p)[0])).double().mean()
        return bool(within * grouping(len(self.points))[1] <= LARGEST_SHARE)

    def describe(self) -> str:
        return f"{len(self.points)} points within {self.radius:g} by {self.metric}, weights {self.weights}"

    @functools.cached_property
    def _candidates(self) -> Candidates | None:
        return candidates(self.points, self.factor, self.metric)

    def _weights(self, parameters: Parameters, x: torch.Tensor) -> torch.Tensor:
        """Return the weight of each point for each row, `[rows, points]`: float64, or bool for uniform weights."""
        columns, factor, radius = (parameters[name] for name in ("columns", "factor", "radius"))
        if self.weights == "uniform" and self._candidates is not None and x.device.type == "cpu":
            return self._candidates.within(x, radius)
        distance = reference_reduced_distances(x, columns, factor, self.metric, self.p)
        within = distance <= radius
        if self.weights == "uniform":
            return within
        distance = reference_finish(distance, self.metric, self.p)
        hit = within & (distance == 0)
        return torch.where(hit.any(1, keepdim=True), hit.double(), torch.where(within, 1 / distance, 0.0))
