"""NeighborImputer: fills missing numbers (NaN) of a row with the mean of its nearest donors.

`x`: `[rows, features]`; `points`: `[points, features]`, NaN where missing; `means`: `[features]`; `columns`: int32, the
features to write; `out`: `[rows, columns]`. The donors of a missing feature are the points that have the feature and
share some other feature with the row. The feature becomes the mean over the `n_neighbors` nearest donors by
nan_euclidean distance (see `distances.py`), the smaller index first among equals. Weights are uniform, or 1 / distance
unless some distance is zero: then 1 for those donors and 0 for the others. Without any donor the feature becomes its
entry of `means` (Troyanskaya et al., Bioinformatics 17:520, 2001).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl

from ...cpu.tiles import in_tiles
from ...format.errors import PlanError
from ...plan.plan import Operation, Parameters
from .bounds import grouping
from .cpu_search import nearest_of
from .distances import INFINITY, reduced_distances
from .launch import distances_block, donors_block
from .search import WEIGHTS, Search, check_neighbors, reference_nearest
from .search_kernel import neighbor_weights
from .top_k import INFINITE_HALF, NONE, comes_before, from_upper_half, keep_nearer, next_groups, upper_half, worth_more

DISTANCES_AT_ONCE = 2**22
"""Distances in memory at a time; more rows are computed part by part."""


@triton.jit(do_not_specialize=["rows"])
def missing_distances_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    values,  # float64 [FEATURES, POINTS]
    distances,  # float64 [rows, GROUPS * GROUP]
    least,  # float64 [rows, GROUPS], the smallest of each group
    rows,
    FEATURES: tl.constexpr,
    POINTS: tl.constexpr,
    GROUPS: tl.constexpr,
    GROUP: tl.constexpr,
    METRIC: tl.constexpr,
    BLOCK_FEATURES: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_POINTS: tl.constexpr,
):
    """A program makes the reduced distances of `BLOCK_ROWS` rows to `BLOCK_POINTS` points if a row misses a feature."""
    row = tl.program_id(1).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    missing = tl.zeros([BLOCK_ROWS, BLOCK_FEATURES], tl.int32)
    for start in tl.range(0, FEATURES, BLOCK_FEATURES):
        feature = start + tl.arange(0, BLOCK_FEATURES)
        real = (row < rows)[:, None] & (feature < FEATURES)[None, :]
        u = tl.load(x + row[:, None] * FEATURES + feature[None, :], mask=real, other=0.0)
        missing |= (u != u).to(tl.int32)
    if tl.max(tl.max(missing, axis=1), axis=0) > 0:
        point = tl.program_id(0) * BLOCK_POINTS + tl.arange(0, BLOCK_POINTS)
        group = tl.program_id(0) * (BLOCK_POINTS // GROUP) + tl.arange(0, BLOCK_POINTS // GROUP)
        distance = reduced_distances(
            x, values, values, row, point, rows, FEATURES=FEATURES, POINTS=POINTS, METRIC=METRIC,
        )  # fmt: skip
        inside = (row < rows)[:, None] & (point < GROUPS * GROUP)[None, :]
        tl.store(distances + row[:, None] * (GROUPS * GROUP) + point[None, :], distance, mask=inside)
        low = tl.min(tl.reshape(distance, [BLOCK_ROWS, BLOCK_POINTS // GROUP, GROUP]), axis=2)
        inside = (row < rows)[:, None] & (group < GROUPS)[None, :]
        tl.store(least + row[:, None] * GROUPS + group[None, :], low, mask=inside)


@triton.jit
def neighbor_imputer_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    values,  # float64 [FEATURES, POINTS]
    means,  # float64 [FEATURES]
    columns,  # int32 [WIDTH]
    distances,  # float64 [rows, GROUPS * GROUP], infinite past the last point
    least,  # float64 [rows, GROUPS]
    out,  # float32 or float64 [rows, WIDTH]
    FEATURES: tl.constexpr,
    POINTS: tl.constexpr,
    WIDTH: tl.constexpr,
    NEIGHBORS: tl.constexpr,
    BY_DISTANCE: tl.constexpr,
    GROUPS: tl.constexpr,
    GROUP: tl.constexpr,
    METRIC: tl.constexpr,
    AT_ONCE: tl.constexpr,
    BLOCK_GROUPS: tl.constexpr,
    BLOCK_NEIGHBORS: tl.constexpr,
):
    """A program makes one column of a row; it searches for neighbours only if the row misses the feature."""
    row = tl.program_id(0).to(tl.int64)
    feature = tl.load(columns + tl.program_id(1)).to(tl.int64)
    y = tl.load(x + row * FEATURES + feature).to(tl.float64)
    if y != y:
        group = tl.arange(0, BLOCK_GROUPS)[None, :]
        low = tl.load(least + row * GROUPS + group, mask=group < GROUPS, other=INFINITY)
        base = tl.min(low, axis=1)
        above = tl.where(low == INFINITY, INFINITY, low - base[:, None])  # 0 everywhere if all groups are as near
        bound = upper_half(above)
        slot = tl.arange(0, BLOCK_NEIGHBORS)[None, :]
        best = tl.where(slot < NEIGHBORS, INFINITY, -INFINITY).to(tl.float64)
        chosen = tl.where(slot < NEIGHBORS, NONE - slot, -1)
        more = tl.max((tl.min(bound, axis=1) < INFINITE_HALF).to(tl.int32), axis=0)
        while more > 0:
            at, bound = next_groups(bound, GROUPS, AT_ONCE, INFINITE_HALF)
            point = tl.reshape(at * GROUP + tl.arange(0, GROUP)[None, :], [AT_ONCE * GROUP])
            value = tl.load(values + feature * POINTS + point, mask=point < POINTS, other=float("nan"))
            donor = value == value
            distance = tl.load(distances + row * (GROUPS * GROUP) + point, mask=donor, other=INFINITY)[None, :]
            best, chosen = keep_nearer(distance, tl.where(donor, point, NONE), best, chosen)
            more = worth_more(from_upper_half(tl.min(bound, axis=1)), best, 1.0, base)
            if more == 2:
                _, first = tl.min(bound, axis=1, return_indices=True)
                more = comes_before(first * GROUP, best, chosen)
        real = (slot < NEIGHBORS) & (best < INFINITY)
        weight = neighbor_weights(best, real, METRIC, BY_DISTANCE)
        donated = tl.load(values + feature * POINTS + chosen, mask=real, other=0.0)
        total = tl.sum(tl.sum(weight, axis=1), axis=0)
        y = tl.sum(tl.sum(weight * donated, axis=1), axis=0) / tl.where(total == 0.0, 1.0, total)
        y = tl.where(total == 0.0, tl.load(means + feature), y)
    tl.store(out + row * WIDTH + tl.program_id(1), y.to(out.dtype.element_ty))


@dataclass(frozen=True, eq=False)
class NeighborImputer(Operation):
    """Fill missing features from the nearest points that have them."""

    points: np.ndarray
    means: np.ndarray
    columns: np.ndarray
    n_neighbors: int
    weights: str = "uniform"

    @functools.cached_property
    def search(self) -> Search:
        """The points and their metric; the donors of each feature are others of them."""
        return Search(self.points, np.ones(self.points.shape[-1]), 0, "nan_euclidean")

    def check(self, *widths: int) -> None:
        (features,) = widths
        self.search.check("neighbor_imputer", features)
        check_neighbors("neighbor_imputer", self.n_neighbors, len(self.points))
        if self.means.shape != (features,):
            raise PlanError(f"neighbor_imputer: means must be [{features}], not {list(self.means.shape)}.")
        if not self.columns.size or self.columns.min() < 0 or self.columns.max() >= features:
            raise PlanError(f"neighbor_imputer: columns must be at least one and lie in [0, {features}).")
        if self.weights not in WEIGHTS:
            raise PlanError(f"neighbor_imputer: weights must be one of {WEIGHTS}, not '{self.weights}'.")

    def output_width(self, *widths: int) -> int:
        return len(self.columns)

    def parameters(self) -> dict[str, np.ndarray]:
        tables = self.search.plain_tables()
        return {"values": tables["columns"], "means": self.means, "columns": self.columns}

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,) = inputs
        return self._filled(x, parameters, reference_nearest)

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,) = inputs
        return self._filled(x, parameters, nearest_of)

    def _filled(
        self, x: torch.Tensor, parameters: Parameters, choose: Callable[[torch.Tensor, int], torch.Tensor]
    ) -> torch.Tensor:
        """Return the filled rows; `choose` returns the indices of the nearest, ascending, for reduced distances."""
        values, means = parameters["values"], parameters["means"]
        places = {"columns": values, "factor": torch.ones(len(values))}

        def compute(tile: torch.Tensor) -> torch.Tensor:
            missing = tile.isnan()
            filled = tile.clone()
            if missing.any():
                distance = self.search.distances(tile, places)
                for feature in set(self.columns.tolist()):
                    if missing[:, feature].any():
                        found = self._donated(distance, values[feature], means[feature], choose)
                        filled[:, feature] = torch.where(missing[:, feature], found, tile[:, feature])
            return filled.index_select(1, parameters["columns"])

        return in_tiles(x, compute, len(self.columns), len(self.points))

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        (x,), (points, features), width = inputs, self.points.shape, output.shape[1]
        groups, group = grouping(points)
        step = max(DISTANCES_AT_ONCE // (groups * group) // 16, 1) * 16
        distances = torch.empty(min(rows, step), groups * group, dtype=torch.float64, device=x.device)
        least = torch.empty(min(rows, step), groups, dtype=torch.float64, device=x.device)
        shape = {
            "values": parameters["values"], "distances": distances, "least": least,
            "FEATURES": features, "POINTS": points, "GROUPS": groups, "GROUP": group,
            "METRIC": self.search.kernel_metric,
        }  # fmt: skip
        for start in range(0, rows, step):
            part = slice(start, min(start + step, rows))
            count = part.stop - start
            block = distances_block(count, features, group)
            grid = (triton.cdiv(groups * group, block["BLOCK_POINTS"]), triton.cdiv(count, block["BLOCK_ROWS"]))
            missing_distances_kernel[grid](x=x[part], rows=count, **shape, **block)
            neighbor_imputer_kernel[(count, width)](
                x=x[part],
                means=parameters["means"],
                columns=parameters["columns"],
                out=output[part],
                **shape,
                WIDTH=width,
                NEIGHBORS=self.n_neighbors,
                BY_DISTANCE=self.weights == "distance",
                **donors_block(self.n_neighbors, groups),
            )

    def launches(self, inputs: int) -> int:
        return 2

    def hides_nan(self) -> bool:
        return True

    def describe(self) -> str:
        return f"from {self.n_neighbors} of {len(self.points)} points, weights {self.weights}"

    def _donated(
        self,
        distance: torch.Tensor,
        values: torch.Tensor,
        mean: torch.Tensor,
        choose: Callable[[torch.Tensor, int], torch.Tensor],
    ) -> torch.Tensor:
        """Return the nearest donors' mean for each row, `[rows]`, for the values of one feature, `[points]`."""
        donors = (~values.isnan()).nonzero()[:, 0]
        if not len(donors):
            return mean.expand(len(distance))
        distance = distance[:, donors]
        index = choose(distance, min(self.n_neighbors, len(donors)))
        distance = distance.gather(1, index).sqrt()
        weight = (~distance.isinf()).double()
        if self.weights == "distance":
            hit = distance == 0
            weight = torch.where(hit.any(1, keepdim=True), hit.double(), 1 / distance)
        total = weight.sum(1)
        return torch.where(total == 0, mean, (weight * values[donors][index]).sum(1) / total)
