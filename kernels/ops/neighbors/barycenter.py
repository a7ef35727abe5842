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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import triton
import triton.language as tl

from ...cpu.tiles import in_tiles
from ...format.errors import PlanError
from ...plan.plan import Operation, Parameters
from .cpu_search import Found
from .launch import gram_tile, gram_warps
from .search import Search, check_neighbors
from .search_kernel import nearest


@triton.jit(do_not_specialize=["rows"])
def barycenter_kernel(
    x,  # like the next five and `rows` an argument of `nearest`
    columns,
    factor,
    bounds,
    finer,
    reach,
    embedding,  # float64 [POINTS, OUTPUTS]
    out,  # float32 or float64 [rows, OUTPUTS]
    rows,
    OUTPUTS: tl.constexpr,
    REG: tl.constexpr,
    SEARCH: tl.constexpr,
):
    """A program places a block of rows."""
    FEATURES: tl.constexpr = SEARCH.features
    NEIGHBORS: tl.constexpr = SEARCH.neighbors
    BLOCK_ROWS: tl.constexpr = SEARCH.block_rows
    BLOCK_NEIGHBORS: tl.constexpr = SEARCH.slots
    row, _, chosen = nearest(x, columns, factor, bounds, finer, reach, rows, SEARCH)
    slot = tl.arange(0, BLOCK_NEIGHBORS)
    real = slot < NEIGHBORS
    diagonal = (slot[:, None] == slot[None, :])[None, :, :]
    gram = tl.zeros([BLOCK_ROWS, BLOCK_NEIGHBORS, BLOCK_NEIGHBORS], tl.float64)
    STRIDE: tl.constexpr = SEARCH.block_points if SEARCH.groups else SEARCH.points
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

    @functools.cached_property
    def search(self) -> Search:
        """The search for the nearest points."""
        return Search(self.points, np.ones(self.points.shape[-1]), self.n_neighbors)

    def check(self, *widths: int) -> None:
        (features,) = widths
        self.search.check("barycenter", features)
        check_neighbors("barycenter", self.n_neighbors, len(self.points), self.MAX_NEIGHBORS)
        if self.embedding.ndim != 2 or len(self.embedding) != len(self.points) or not self.embedding.shape[1]:
            shapes = f"[{len(self.points)}, outputs], not {list(self.embedding.shape)}"
            raise PlanError(f"barycenter: embedding must be {shapes}.")
        if not self.reg >= 0:
            raise PlanError(f"barycenter: reg must be 0 or more, not {self.reg}.")

    def output_width(self, *widths: int) -> int:
        return self.embedding.shape[1]

    def parameters(self) -> dict[str, np.ndarray]:
        return self.search.tables() | {"embedding": self.embedding}

    def plain_parameters(self) -> dict[str, np.ndarray]:
        return self.search.plain_tables() | {"embedding": self.embedding}

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,) = inputs
        return self._places(x, parameters, self.search.reference)

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,) = inputs
        return self._places(x, parameters, self.search.on_cpu)

    def _places(
        self, x: torch.Tensor, parameters: Parameters, find: Callable[[torch.Tensor, Parameters], Found]
    ) -> torch.Tensor:
        """Return the places of rows among the neighbours that `find` returns."""
        k, columns, embedding = self.n_neighbors, parameters["columns"], parameters["embedding"]

        def compute(tile: torch.Tensor) -> torch.Tensor:
            _, index = find(tile, parameters)
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
        (x,), tile = inputs, gram_tile(self.n_neighbors)
        for launch in self.search.launches(parameters, x, rows, tile, alike=True):
            shape = launch.arguments["SEARCH"]
            launch.run(
                barycenter_kernel,
                embedding=parameters["embedding"],
                out=output[launch.part],
                OUTPUTS=output.shape[1],
                REG=self.reg,
                num_warps=gram_warps(shape.block_rows, shape.slots),
            )

    def launches(self, inputs: int) -> int:
        return self.search.launch_count()

    def describe(self) -> str:
        return f"{self.n_neighbors} of {len(self.points)} points → {self.embedding.shape[1]}"
