"""Barycenter: a row's place in an embedding, from the points around it: `out[r] = Σᵢ wᵣᵢ · embedding[i]`.

`x`: `[rows, features]`; `points`: `[points, features]`; `embedding`: `[points, outputs]`; `out`: `[rows, outputs]`. The
sum runs over the `n_neighbors` nearest points by Euclidean distance, the smaller index first among equals. The weights
reconstruct the row from its neighbours as well as weights with the sum 1 can (Roweis and Saul, Science 290:2323, 2000):
with the Gram matrix `G` of the differences from the row, they solve `(G + reg · trace(G) · I) w = 1`, then are divided
by their sum. If the trace is zero, `reg` alone is added to the diagonal. The system is positive definite and is solved
by Gauss–Jordan elimination without pivoting.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import triton
import triton.language as tl

from ...cpu.tiles import in_tiles
from ...format.errors import PlanError
from ...plan.plan import Operation, Parameters
from .bounds import BOUND_LAUNCHES, bound_parameters, bounded
from .cpu_search import Candidates, candidates, nearest_points
from .distances import check_points, metric_constants, transposed
from .search import SEARCH_WARPS, check_neighbors, nearest, searches


@triton.jit(do_not_specialize=["rows"])
def barycenter_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    columns,  # float64 [FEATURES, POINTS]
    embedding,  # float64 [POINTS, OUTPUTS]
    bounds,  # float32 [rows, GROUPS], or like `finer` an array of `search_few_rows.py`
    finer,
    reach,  # float64 [rows, 2], see `bounds.py`
    out,  # float32 or float64 [rows, OUTPUTS]
    rows,
    FEATURES: tl.constexpr,
    POINTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    NEIGHBORS: tl.constexpr,
    REG: tl.constexpr,
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
    """A program places `BLOCK_ROWS` rows."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    _, chosen = nearest(
        x, columns, columns, bounds, finer, reach, row, rows,
        FEATURES=FEATURES, POINTS=POINTS, NEIGHBORS=NEIGHBORS,
        METRIC="euclidean", P=2.0, WHOLE=2, WEIGHTED=False, GROUPS=GROUPS, BLOCK_GROUPS=BLOCK_GROUPS,
        BLOCK_NEIGHBORS=BLOCK_NEIGHBORS, BLOCK_POINTS=BLOCK_POINTS, FINE=FINE, TILE=TILE,
        AT_ONCE=AT_ONCE, UNROLL=UNROLL,
    )  # [BLOCK_ROWS, BLOCK_NEIGHBORS] each  # fmt: skip
    slot = tl.arange(0, BLOCK_NEIGHBORS)
    real = slot < NEIGHBORS
    diagonal = (slot[:, None] == slot[None, :])[None, :, :]
    gram = tl.zeros([BLOCK_ROWS, BLOCK_NEIGHBORS, BLOCK_NEIGHBORS], tl.float64)
    STRIDE: tl.constexpr = BLOCK_POINTS if GROUPS else POINTS
    at = columns + (chosen // STRIDE).to(tl.int64) * (FEATURES * STRIDE) + chosen % STRIDE
    for f in tl.range(0, FEATURES):
        u = tl.load(x + row * FEATURES + f, mask=row < rows, other=0.0).to(tl.float64)
        v = tl.load(at, mask=real[None, :], other=0.0)
        away = tl.where(real[None, :], v - u[:, None], 0.0)
        gram += away[:, :, None] * away[:, None, :]
        at += STRIDE
    trace = tl.sum(tl.sum(tl.where(diagonal, gram, 0.0), axis=2), axis=1)
    ridge = (REG * tl.where(trace > 0.0, trace, 1.0))[:, None, None]
    gram += tl.where(diagonal, tl.where(real[None, :, None], ridge, 1.0), 0.0)
    right = tl.zeros([BLOCK_ROWS, BLOCK_NEIGHBORS], tl.float64) + real[None, :].to(tl.float64)
    for step in tl.range(0, NEIGHBORS):
        here = slot == step
        line = tl.sum(tl.where(here[None, :, None], gram, 0.0), axis=1)  # [BLOCK_ROWS, BLOCK_NEIGHBORS]
        column = tl.sum(tl.where(here[None, None, :], gram, 0.0), axis=2)
        pivot = tl.sum(tl.where(here[None, :], line, 0.0), axis=1)
        share = tl.where(here[None, :], 0.0, column) / pivot[:, None]
        gram -= share[:, :, None] * line[:, None, :]
        right -= share * tl.sum(tl.where(here[None, :], right, 0.0), axis=1)[:, None]
    weight = tl.where(real[None, :], right / tl.sum(tl.where(diagonal, gram, 0.0), axis=2), 0.0)
    weight /= tl.sum(weight, axis=1)[:, None]
    for t in tl.range(0, OUTPUTS):
        value = tl.load(embedding + chosen.to(tl.int64) * OUTPUTS + t, mask=real[None, :], other=0.0)
        y = tl.sum(weight * value, axis=1)
        tl.store(out + row * OUTPUTS + t, y.to(out.dtype.element_ty), mask=row < rows)


@dataclass(frozen=True, eq=False)
class Barycenter(Operation):
    """A row's place in an embedding, from weights of its nearest points."""

    points: np.ndarray
    embedding: np.ndarray
    n_neighbors: int
    reg: float

    MAX_NEIGHBORS: ClassVar[int] = 128  # the registers of one program hold their Gram matrix

    def check(self, *widths: int) -> None:
        (features,) = widths
        check_points("barycenter", self.points, np.ones(features), "euclidean", 2.0, features)
        check_neighbors("barycenter", self.n_neighbors, len(self.points), self.MAX_NEIGHBORS)
        if self.embedding.ndim != 2 or len(self.embedding) != len(self.points) or not self.embedding.shape[1]:
            shapes = f"[{len(self.points)}, outputs], not {list(self.embedding.shape)}"
            raise PlanError(f"barycenter: embedding must be {shapes}.")
        if not self.reg >= 0:
            raise PlanError(f"barycenter: reg must be 0 or more, not {self.reg}.")

    def output_width(self, *widths: int) -> int:
        return self.embedding.shape[1]

    def parameters(self) -> dict[str, np.ndarray]:
        """Return the points in contiguous tiles, and the tables for bounds."""
        return self.plain_parameters() | bound_parameters(self.points, self.n_neighbors)

    def plain_parameters(self) -> dict[str, np.ndarray]:
        return {"columns": transposed(self.points), "embedding": self.embedding}

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,), k = inputs, self.n_neighbors
        columns, embedding = parameters["columns"], parameters["embedding"]

        given = {"columns": columns, "factor": columns.new_ones(len(columns))}

        def compute(tile: torch.Tensor) -> torch.Tensor:
            _, index = nearest_points(tile, given, "euclidean", 2.0, k, self._candidates)
            gram = torch.zeros(len(tile), k, k, dtype=torch.float64, device=tile.device)
            for u, values in zip(tile.T, columns, strict=True):
                away = values[index] - u[:, None]
                gram += away[:, :, None] * away[:, None, :]
            diagonal = gram.diagonal(dim1=1, dim2=2)
            trace = diagonal.sum(1, keepdim=True)
            diagonal += torch.where(trace > 0, self.reg * trace, self.reg)
            right = torch.ones_like(diagonal)
            for step in range(k):
                share = gram[:, :, step] / gram[:, step, step, None]
                share[:, step] = 0.0
                right -= share * right[:, step, None]
                gram -= share[:, :, None] * gram[:, step, None, :]
            weight = right / diagonal
            weight /= weight.sum(1, keepdim=True)
            return (weight[:, :, None] * embedding[index]).sum(1)

        return in_tiles(x, compute, embedding.shape[1], max(len(embedding), k * max(k, embedding.shape[1])))

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        (x,), (points, features) = inputs, self.points.shape
        slots = triton.next_power_of_2(self.n_neighbors)
        block_rows = max(1, min(32, 4096 // slots**2))
        tile = {"BLOCK_ROWS": block_rows, "BLOCK_NEIGHBORS": slots, "BLOCK_POINTS": 2048 // block_rows}
        constants = metric_constants("euclidean", 2.0, np.ones(features))
        for search in searches(x, parameters, rows, points, self.n_neighbors, constants, tile, alike=True):
            small = search.arguments["BLOCK_ROWS"] == 1 and slots <= 16
            barycenter_kernel[search.grid](
                x=x[search.part],
                columns=parameters["columns"],
                embedding=parameters["embedding"],
                out=output[search.part],
                FEATURES=features,
                POINTS=points,
                OUTPUTS=output.shape[1],
                NEIGHBORS=self.n_neighbors,
                REG=self.reg,
                **search.arguments,
                num_warps=SEARCH_WARPS if small else 8 if slots <= 64 else 16,
            )

    def launches(self, inputs: int) -> int:
        return 1 + BOUND_LAUNCHES * bounded(self.points, self.n_neighbors)

    def describe(self) -> str:
        return f"{self.n_neighbors} of {len(self.points)} points → {self.embedding.shape[1]}"

    @functools.cached_property
    def _candidates(self) -> Candidates | None:
        return candidates(self.points, np.ones(self.points.shape[1]), "euclidean")
