"""NeighborImputer: fills what is missing (NaN) in a row with the mean of its nearest donors.

`x`: `[rows, features]`; `points`: `[points, features]`, NaN where missing; `means`: `[features]`; `columns`: int32, the
features to write; `out`: `[rows, columns]`. A missing feature becomes the mean of that feature over its `n_neighbors`
nearest donors by nan_euclidean distance (see `distances.py`), the smaller index first among equals: the points that
have the feature, and some other one in common with the row. Weights are uniform, or 1 / distance unless some distance
is zero: then 1 for those donors and 0 for the others. Without any donor it becomes `means` (Troyanskaya et al.,
Bioinformatics 17:520, 2001).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl

from ..distances import INFINITY, check_points, reference_reduced_distances, transposed
from ..errors import PlanError
from ..nearest import WEIGHTS, check_neighbors, nearest, neighbor_tile, neighbor_weights, reference_nearest
from ..plan import Operation, Parameters
from ..tiles import in_tiles


@triton.jit(do_not_specialize=["rows"])
def neighbor_imputer_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    values,  # float64 [FEATURES, POINTS]
    means,  # float64 [FEATURES]
    columns,  # int32 [WIDTH]
    out,  # float32 or float64 [rows, WIDTH]
    rows,
    FEATURES: tl.constexpr,
    POINTS: tl.constexpr,
    WIDTH: tl.constexpr,
    NEIGHBORS: tl.constexpr,
    BY_DISTANCE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_NEIGHBORS: tl.constexpr,
    BLOCK_POINTS: tl.constexpr,
):
    """A program makes one column of `BLOCK_ROWS` rows; it looks for neighbours if one of them misses the feature."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    feature = tl.load(columns + tl.program_id(1))
    given = tl.load(x + row * FEATURES + feature, mask=row < rows, other=0.0).to(tl.float64)
    missing = given != given
    limit = tl.max(missing.to(tl.int32), axis=0) * POINTS
    best, chosen = nearest(
        x, values, means, values, values, row, rows, limit=limit, donor=feature,
        FEATURES=FEATURES, POINTS=POINTS, NEIGHBORS=NEIGHBORS,
        METRIC="nan_euclidean", P=2.0, WHOLE=2, WEIGHTED=False, DONORS=True, GROUPS=0, BLOCK_GROUPS=0,
        BLOCK_NEIGHBORS=BLOCK_NEIGHBORS, BLOCK_POINTS=BLOCK_POINTS,
    )  # [BLOCK_ROWS, BLOCK_NEIGHBORS] each  # fmt: skip
    real = (tl.arange(0, BLOCK_NEIGHBORS)[None, :] < NEIGHBORS) & (best < INFINITY)
    weight = neighbor_weights(best, real, "nan_euclidean", 2.0, BY_DISTANCE)
    donated = tl.load(values + feature.to(tl.int64) * POINTS + chosen, mask=real, other=0.0)
    total = tl.sum(weight, axis=1)
    y = tl.sum(weight * donated, axis=1) / tl.where(total == 0.0, 1.0, total)
    y = tl.where(total == 0.0, tl.load(means + feature), y)
    y = tl.where(missing, y, given)
    tl.store(out + row * WIDTH + tl.program_id(1), y.to(out.dtype.element_ty), mask=row < rows)


@dataclass(frozen=True, eq=False)
class NeighborImputer(Operation):
    """Missing features from the nearest points that have them."""

    points: np.ndarray
    means: np.ndarray
    columns: np.ndarray
    n_neighbors: int
    weights: str = "uniform"

    def check(self, *widths: int) -> None:
        (features,) = widths
        check_points("neighbor_imputer", self.points, np.ones(features), "nan_euclidean", 2.0, features)
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
        """Return the points transposed, so that a tile of them is contiguous."""
        return {"values": transposed(self.points), "means": self.means, "columns": self.columns}

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,) = inputs
        values, means = parameters["values"], parameters["means"]
        factor = torch.ones(len(values))

        def compute(tile: torch.Tensor) -> torch.Tensor:
            missing = tile.isnan()
            filled = tile.clone()
            if missing.any():
                distance = reference_reduced_distances(tile, values, factor, "nan_euclidean", 2.0)
                for feature in set(self.columns.tolist()):
                    if missing[:, feature].any():
                        found = self._donated(distance, values[feature], means[feature])
                        filled[:, feature] = torch.where(missing[:, feature], found, tile[:, feature])
            return filled.index_select(1, parameters["columns"])

        return in_tiles(x, compute, len(self.columns), len(self.points))

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        (x,), (points, features), width = inputs, self.points.shape, output.shape[1]
        tile = neighbor_tile(self.n_neighbors)
        neighbor_imputer_kernel[(triton.cdiv(rows, tile["BLOCK_ROWS"]), width)](
            x,
            **parameters,
            out=output,
            rows=rows,
            FEATURES=features,
            POINTS=points,
            WIDTH=width,
            NEIGHBORS=self.n_neighbors,
            BY_DISTANCE=self.weights == "distance",
            **tile,
            num_warps=8,
        )

    def hides_nan(self) -> bool:
        return True

    def describe(self) -> str:
        return f"from {self.n_neighbors} of {len(self.points)} points, weights {self.weights}"

    def _donated(self, distance: torch.Tensor, values: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
        """Return what the nearest donors give each row, `[rows]`, for the values of one feature, `[points]`."""
        donors = (~values.isnan()).nonzero()[:, 0]
        if not len(donors):
            return mean.expand(len(distance))
        distance = distance[:, donors]
        index = reference_nearest(distance, min(self.n_neighbors, len(donors)))
        distance = distance.gather(1, index).sqrt()
        weight = (~distance.isinf()).double()
        if self.weights == "distance":
            hit = distance == 0
            weight = torch.where(hit.any(1, keepdim=True), hit.double(), 1 / distance)
        total = weight.sum(1)
        return torch.where(total == 0, mean, (weight * values[donors][index]).sum(1) / total)
