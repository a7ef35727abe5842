"""RadiusNeighbors: the mean of the targets of the points within a radius, `out[r, t] = Σᵢ wᵣᵢ targets[i, t] / Σᵢ wᵣᵢ`.

`x`: `[rows, features]`; `points`: `[points, features]`; `targets`: `[points, outputs]`; `factor`: `[features]`, the
weights of a metric that has them; `empty`: `[outputs]`; `out`: `[rows, outputs]`. The sums run over the points whose
distance by the metric (see `distances.py`) is at most `radius`. `w` is 1 for uniform weights. For distance weights it
is 1 / distance, unless some distance is zero: then 1 for those points and 0 for the others. A row without points
within the radius answers `empty`.

With uniform weights and Euclidean distances matrix products find the points and sum their targets (`radius_sums.py`).
Otherwise a kernel sums the targets of the points chosen by float64 distances. It visits all groups of points, or, if
few groups hold a neighbour, only those that bounds leave (`bounds.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl

from ...cpu.tiles import product
from ...format.errors import PlanError
from ...numerics.pairwise_reduce import sum_in_pairs
from ...plan.plan import Operation, Parameters
from .bounds import BOUND_LAUNCHES, bounds_of, grouping, in_groups
from .distances import INFINITY, SQUARED, distances_between, finish_distance, reduced_radius
from .launch import MANY_ROWS, groups_in_part, radius_block
from .radius_sums import LAUNCHES, decided_by_products, launch_means, within_parameters
from .search import Search, check_targets

SAMPLE = 16
LARGEST_SHARE = 0.1
"""If a row has neighbours in at most this share of the groups of points, bounds select the groups to visit."""

SUMS_AT_ONCE = 2**22
"""Sums in memory at a time; more rows are computed part by part."""


@triton.jit
def weights_within(distance, furthest, METRIC: tl.constexpr, BY_DISTANCE: tl.constexpr):
    """Return the weights of points with these reduced distances, and 1 for the points at distance zero, else 0."""
    within = distance <= furthest
    weight = within.to(tl.float64)
    hit = weight
    if BY_DISTANCE:
        distance = finish_distance(tl.where(within, distance, 1.0), METRIC)
        hit = (within & (distance == 0.0)).to(tl.float64)
        weight = tl.where(distance == 0.0, 0.0, weight / tl.where(distance == 0.0, 1.0, distance))
    return weight, hit


@triton.jit(do_not_specialize=["rows"])
def radius_sums_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    columns,  # float64 [GROUPS, FEATURES, GROUP]
    factor,  # float64 [FEATURES]
    targets,  # float64 [POINTS, OUTPUTS]
    radius,  # float64 [1], reduced
    bounds,  # float32 [rows, GROUPS], see `bounds.py`; not read unless BOUNDED
    reach,  # float64 [rows, 2], see `bounds.py`; not read unless BOUNDED
    sums,  # float64 [rows, PARTS, KINDS, 1 + OUTPUTS]
    rows,
    FEATURES: tl.constexpr,
    POINTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    METRIC: tl.constexpr,
    BY_DISTANCE: tl.constexpr,
    BOUNDED: tl.constexpr,
    PARTS: tl.constexpr,
    IN_PART: tl.constexpr,
    GROUPS: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK_GROUPS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_OUTPUTS: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """A program makes `BLOCK_OUTPUTS` sums of `BLOCK_ROWS` rows over those of `IN_PART` groups that may be within.

    Each place in a group has its own sum, over the groups in their order; a group outside the radius adds zeros.
    """
    KINDS: tl.constexpr = 2 if BY_DISTANCE else 1
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    part = tl.program_id(1)
    output = tl.program_id(2) * BLOCK_OUTPUTS + tl.arange(0, BLOCK_OUTPUTS)
    lane = tl.arange(0, GROUP)
    furthest = tl.load(radius)
    group = part * IN_PART + tl.arange(0, BLOCK_GROUPS)
    near = ((tl.arange(0, BLOCK_GROUPS) < IN_PART) & (group < GROUPS))[None, :] & (row < rows)[:, None]
    if BOUNDED:
        bound = tl.load(bounds + row[:, None] * GROUPS + group[None, :], mask=near, other=INFINITY)
        scale = tl.load(reach + 2 * row, mask=row < rows, other=0.0)[:, None]
        offset = tl.load(reach + 2 * row + 1, mask=row < rows, other=0.0)[:, None]
        near = (bound < INFINITY) & (bound.to(tl.float64) <= furthest * scale - offset)
    waiting = tl.min(tl.where(near, group[None, :], GROUPS), axis=0)
    weights = tl.zeros([BLOCK_ROWS, GROUP], tl.float64)
    y = tl.zeros([BLOCK_ROWS, BLOCK_OUTPUTS, GROUP], tl.float64)
    hits = tl.zeros([BLOCK_ROWS, GROUP], tl.float64)
    y_hits = tl.zeros([BLOCK_ROWS, BLOCK_OUTPUTS, GROUP], tl.float64)
    first = tl.min(waiting, axis=0)
    while first < GROUPS:
        waiting = tl.where(waiting == first, GROUPS, waiting)
        point = first * GROUP + lane
        ys = columns + first.to(tl.int64) * (FEATURES * GROUP) + lane
        distance = distances_between(
            (x + row * FEATURES)[:, None], ys[None, :], factor, (row < rows)[:, None], (point < POINTS)[None, :],
            FEATURES=FEATURES, STRIDE=GROUP, METRIC=METRIC, UNROLL=UNROLL,
        )  # [BLOCK_ROWS, GROUP]  # fmt: skip
        weight, hit = weights_within(distance, furthest, METRIC, BY_DISTANCE)
        inside = (output < OUTPUTS)[:, None] & (point < POINTS)[None, :]
        value = tl.load(targets + point.to(tl.int64)[None, :] * OUTPUTS + output[:, None], mask=inside, other=0.0)
        weights += weight
        y += weight[:, None, :] * value[None, :, :]
        if BY_DISTANCE:
            hits += hit
            y_hits += hit[:, None, :] * value[None, :, :]
        first = tl.min(waiting, axis=0)
    at = sums + (row * PARTS + part) * KINDS * (1 + OUTPUTS)
    inside = (row < rows)[:, None] & (output < OUTPUTS)[None, :]
    tl.store(at, sum_in_pairs(weights), mask=row < rows)
    tl.store(at[:, None] + 1 + output[None, :], sums_of_outputs(y), mask=inside)
    if BY_DISTANCE:
        tl.store(at + 1 + OUTPUTS, sum_in_pairs(hits), mask=row < rows)
        tl.store(at[:, None] + 2 + OUTPUTS + output[None, :], sums_of_outputs(y_hits), mask=inside)


@triton.jit
def sums_of_outputs(y):
    """Return the sums of `[rows, outputs, places]` over places."""
    lines = tl.reshape(y, [y.shape[0] * y.shape[1], y.shape[2]])
    return tl.reshape(sum_in_pairs(lines), [y.shape[0], y.shape[1]])


@triton.jit
def radius_mean_kernel(
    sums,  # float64 [rows, PARTS, KINDS, 1 + OUTPUTS]
    empty,  # float64 [OUTPUTS]
    out,  # float32 or float64 [rows, OUTPUTS]
    OUTPUTS: tl.constexpr,
    BY_DISTANCE: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK_PARTS: tl.constexpr,
    BLOCK_OUTPUTS: tl.constexpr,
):
    """A program makes `BLOCK_OUTPUTS` outputs of a row."""
    KINDS: tl.constexpr = 2 if BY_DISTANCE else 1
    row = tl.program_id(0).to(tl.int64)
    part = tl.arange(0, BLOCK_PARTS)
    output = tl.program_id(1) * BLOCK_OUTPUTS + tl.arange(0, BLOCK_OUTPUTS)
    at = sums + (row * PARTS + part) * KINDS * (1 + OUTPUTS)
    inside = (part < PARTS)[:, None] & (output < OUTPUTS)[None, :]
    total = tl.sum(tl.load(at, mask=part < PARTS, other=0.0), axis=0)
    y = tl.sum(tl.load(at[:, None] + 1 + output[None, :], mask=inside, other=0.0), axis=0)
    if BY_DISTANCE:
        hits = tl.sum(tl.load(at + 1 + OUTPUTS, mask=part < PARTS, other=0.0), axis=0)
        y_hits = tl.sum(tl.load(at[:, None] + 2 + OUTPUTS + output[None, :], mask=inside, other=0.0), axis=0)
        y = tl.where(hits > 0.0, y_hits, y)
        total = tl.where(hits > 0.0, hits, total)
    nothing = tl.load(empty + output, mask=output < OUTPUTS, other=0.0)
    y = tl.where(total > 0.0, y / tl.where(total > 0.0, total, 1.0), nothing)
    tl.store(out + row * OUTPUTS + output, y.to(out.dtype.element_ty), mask=output < OUTPUTS)


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

    @functools.cached_property
    def search(self) -> Search:
        """The points, of which bounds tell those that may be the nearest or within the radius."""
        return Search(self.points, self.factor, 1, self.metric, self.p)

    def check(self, *widths: int) -> None:
        (features,) = widths
        self.search.check("radius_neighbors", features)
        check_targets("radius_neighbors", self.targets, self.weights, len(self.points))
        if self.empty.shape != self.targets.shape[1:]:
            shapes = f"{list(self.targets.shape[1:])}, not {list(self.empty.shape)}"
            raise PlanError(f"radius_neighbors: empty must be {shapes}.")
        if not self.radius >= 0:
            raise PlanError(f"radius_neighbors: radius must be 0 or more, not {self.radius}.")

    def output_width(self, *widths: int) -> int:
        return self.targets.shape[1]

    def parameters(self) -> dict[str, np.ndarray]:
        """Return the reduced radius, the points in contiguous tiles, and the tables for bounds."""
        own = {"targets": self.targets, "empty": self.empty, "radius": self._reduced_radius}
        if self._by_products:
            del own["targets"]  # whose digits are read
            return own | within_parameters(self.points, self.targets, self.factor) | {"factor": self.factor}
        if not self._few:
            return own | {"columns": in_groups(self.points), "factor": self.factor}
        return own | self.search.tables()

    def plain_parameters(self) -> dict[str, np.ndarray]:
        own = {"targets": self.targets, "empty": self.empty, "radius": self._reduced_radius}
        return own | self.search.plain_tables()

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,) = inputs
        return self._means(x, parameters, self._weights)

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,), candidates = inputs, self.search.candidates
        if self.weights != "uniform" or candidates is None:
            return self.reference(parameters, x)
        return self._means(x, parameters, lambda part, given: candidates.within(part, given["radius"]))

    def _means(
        self, x: torch.Tensor, parameters: Parameters, weigh: Callable[[torch.Tensor, Parameters], torch.Tensor]
    ) -> torch.Tensor:
        """Return the means for the points' weights, `[rows, points]`, that `weigh` returns."""
        targets = parameters["targets"]

        def compute(part: torch.Tensor) -> torch.Tensor:
            weight = weigh(part, parameters)
            total = weight.cumsum(1)[:, -1:] if weight.is_floating_point() else weight.sum(1, keepdim=True)
            return torch.where(total > 0, product(weight, targets) / total, parameters["empty"])

        return self.search.in_parts(x, compute, targets.shape[1], len(targets))

    def _weights(self, x: torch.Tensor, parameters: Parameters) -> torch.Tensor:
        """Return the weight of each point for each row, from its distance: float64, or bool for uniform weights."""
        reduced = self.search.distances(x, parameters)
        within = reduced <= parameters["radius"]
        if self.weights == "uniform":
            return within
        distance = self.search.finish(reduced)
        hit = within & (distance == 0)
        return torch.where(hit.any(1, keepdim=True), hit.double(), torch.where(within, 1 / distance, 0.0))

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        (x,), (points, features), outputs = inputs, self.points.shape, output.shape[1]
        metric = self.search.kernel_metric
        if self._by_products:
            launch_means(x[:rows], parameters, metric, points, output[:rows])
            return
        groups, group = grouping(points)
        in_part = groups_in_part(groups)
        means = {"OUTPUTS": outputs, "BY_DISTANCE": self.weights == "distance", "PARTS": triton.cdiv(groups, in_part)}
        width = means["PARTS"] * (1 + outputs) * (2 if self.weights == "distance" else 1)
        block = radius_block(1 if self._few else rows, group, outputs, metric)
        block_rows, block_outputs = block["BLOCK_ROWS"], block["BLOCK_OUTPUTS"]
        if block_rows > 1:  # otherwise each program would convert the rows for each of its points
            x = x[:rows].double()
        for part, bounds, reach in self._parts(x, parameters, rows, width):
            count = part.stop - part.start
            sums = torch.empty(count, width, dtype=torch.float64, device=x.device)
            radius_sums_kernel[(triton.cdiv(count, block_rows), means["PARTS"], triton.cdiv(outputs, block_outputs))](
                x=x[part],
                **{name: parameters[name] for name in ("columns", "factor", "targets", "radius")},
                bounds=sums if bounds is None else bounds,
                reach=sums if reach is None else reach,
                sums=sums,
                rows=count,
                FEATURES=features,
                POINTS=points,
                METRIC=metric,
                **means,
                BOUNDED=bounds is not None,
                IN_PART=in_part,
                GROUPS=groups,
                GROUP=group,
                BLOCK_GROUPS=triton.next_power_of_2(in_part),
                **block,
            )
            radius_mean_kernel[(count, triton.cdiv(outputs, block_outputs))](
                sums=sums,
                empty=parameters["empty"],
                out=output[part],
                **means,
                BLOCK_PARTS=triton.next_power_of_2(means["PARTS"]),
                BLOCK_OUTPUTS=block_outputs,
                num_warps=1 if block_outputs <= 8 else 4,
            )

    def _parts(
        self, x: torch.Tensor, parameters: Parameters, rows: int, width: int
    ) -> Iterator[tuple[slice, torch.Tensor | None, torch.Tensor | None]]:
        """Yield slices of rows, with their bounds and reach if few groups of points hold neighbours."""
        step = max(SUMS_AT_ONCE // width, MANY_ROWS)
        for start in range(0, rows, step):
            part = slice(start, min(start + step, rows))
            if not self._few:
                yield part, None, None
                continue
            found = bounds_of(x[part], parameters, part.stop - start, len(self.points), self.search.kernel_metric)
            for within, bounds, reach in found:
                yield slice(start + within.start, start + within.stop), bounds, reach

    def launches(self, inputs: int) -> int:
        return LAUNCHES if self._by_products else 2 + BOUND_LAUNCHES * self._few

    @functools.cached_property
    def _few(self) -> bool:
        """Return whether few groups of points hold a neighbour of a row, estimated from a sample of the points."""
        if not self.search.bounded:
            return False
        within = (self._sample()[1] <= float(self._reduced_radius[0])).mean()
        return bool(within * grouping(len(self.points))[1] <= LARGEST_SHARE)

    @functools.cached_property
    def _by_products(self) -> bool:
        """Return whether matrix products find the neighbours and sum their targets, see `radius_sums.py`."""
        if self.weights != "uniform" or self.metric not in SQUARED or not self.search.bounded:
            return False
        radius = float(self._reduced_radius[0])
        return decided_by_products(self.points, self.targets, self.factor, radius, *self._sample())

    @property
    def _reduced_radius(self) -> np.ndarray:
        return reduced_radius(self.radius, self.metric, self.p)

    def _sample(self) -> tuple[np.ndarray, np.ndarray]:
        """Return a sample of the points, and their reduced distances to all points."""
        some = self.points[:: -(-len(self.points) // SAMPLE)]
        tables = {name: torch.from_numpy(array) for name, array in self.search.plain_tables().items()}
        return some, self.search.distances(torch.from_numpy(some), tables).numpy()

    def describe(self) -> str:
        return f"{len(self.points)} points within {self.radius:g} by {self.metric}, weights {self.weights}"
