"""Tree neighbors: `Neighbors`, but with scikit-learn's own choice among equally near points.

`x`: `[rows, features]`; `points`: `[points, features]`; `targets`: `[points, outputs]`; `out`: `[rows, outputs]`.

If the k-th and the next nearest point are at different distances, the k nearest are one set, and the fast search of
`Neighbors` finds it. If they are equally near, the answer is the mean over the points that the search of scikit-learn's
kd-tree or ball tree keeps (`tree_search.py`). A second kernel repeats that search for those rows alone. Sums run over
the points by ascending index either way, and a row's choice does not depend on other rows.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl

from ...format.errors import PlanError
from ...numerics.powers import whole
from ...plan.plan import Parameters
from .cpu_search import Found
from .distances import INFINITY, transposed
from .launch import LEAF_BLOCK, ranked_tile
from .neighbors import Neighbors, store_means
from .search import Search
from .search_kernel import nearest
from .top_k import NONE, by_index
from .tree_search import MOST_NEIGHBORS, SLACK, SearchTree
from .tree_search import search as search_by_tree
from .tree_search_kernel import search_tree


@triton.jit(do_not_specialize=["rows"])
def untied_neighbors_kernel(
    x,  # like the next five and `rows` an argument of `nearest`
    columns,
    factor,
    bounds,
    finer,
    reach,
    targets,  # float64 [POINTS, OUTPUTS]
    out,  # float32 or float64 [rows, OUTPUTS]
    tied,  # int32 [rows]
    rows,
    OUTPUTS: tl.constexpr,
    SLACK: tl.constexpr,
    BY_DISTANCE: tl.constexpr,
    SEARCH: tl.constexpr,
):
    """A program answers a block of rows as if none were tied, and writes 1 to `tied` for rows that may be tied.

    It searches one point more than it takes.
    """
    METRIC: tl.constexpr = SEARCH.metric
    FOUND: tl.constexpr = SEARCH.neighbors
    row, best, chosen = nearest(x, columns, factor, bounds, finer, reach, rows, SEARCH)
    store_untied(best, chosen, targets, tied, out, row, rows, OUTPUTS, SLACK, METRIC, FOUND, BY_DISTANCE)


@triton.jit
def store_untied(
    best,  # float64 [BLOCK_ROWS, SLOTS], like the next of one point more than is taken
    chosen,  # int32 [BLOCK_ROWS, SLOTS]
    targets,  # float64 [POINTS, OUTPUTS]
    tied,  # int32 [rows]
    out,  # float32 or float64 [rows, OUTPUTS]
    row,  # int64 [BLOCK_ROWS]
    rows,
    OUTPUTS: tl.constexpr,
    SLACK: tl.constexpr,
    METRIC: tl.constexpr,
    FOUND: tl.constexpr,
    BY_DISTANCE: tl.constexpr,
):
    """Store the means of rows' FOUND − 1 nearest points as if none were tied, and whether the rows may be tied."""
    slot = tl.arange(0, chosen.shape[1])[None, :] + tl.zeros_like(chosen)
    worst = tl.max(best, axis=1)
    last = tl.max(tl.where((best == worst[:, None]) & (slot < FOUND), chosen, -1), axis=1)
    beyond = (chosen == last[:, None]) & (slot < FOUND)
    kth = tl.max(tl.where(beyond, -INFINITY, best), axis=1)
    level = (worst - kth <= worst * SLACK) | (kth == INFINITY)
    tl.store(tied + row, level.to(tl.int32), mask=row < rows)
    best, chosen = by_index(best, tl.where(beyond, NONE, chosen), slot, FOUND)
    real = tl.arange(0, chosen.shape[1])[None, :] < FOUND - 1
    best = tl.where(real, best, -INFINITY)
    store_means(best, chosen, real, targets, out, row, rows, OUTPUTS, METRIC, BY_DISTANCE)


@triton.jit(do_not_specialize=["rows"])
def tied_neighbors_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    columns,  # float64 [FEATURES, POINTS], in the tree's order
    order,  # int32 [POINTS]
    nodes,  # int32 [NODES, 3]
    bounds,  # float64 [2, NODES, FEATURES] or [1, NODES, FEATURES]
    radii,  # float64 [NODES], of a ball tree
    factor,  # float64 [FEATURES], ones
    targets,  # float64 [POINTS, OUTPUTS]
    tied,  # int32 [rows]
    out,  # float32 or float64 [rows, OUTPUTS]
    rows,
    FEATURES: tl.constexpr,
    POINTS: tl.constexpr,
    NODES: tl.constexpr,
    OUTPUTS: tl.constexpr,
    NEIGHBORS: tl.constexpr,
    BALLS: tl.constexpr,
    METRIC: tl.constexpr,
    BY_DISTANCE: tl.constexpr,
    SLOTS: tl.constexpr,
    BLOCK_LEAF: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """A program answers one row if it is tied."""
    row = tl.program_id(0).to(tl.int64)
    if tl.load(tied + row) != 0:
        heap, held = search_tree(
            x, columns, order, nodes, bounds, radii, factor, row, FEATURES=FEATURES, POINTS=POINTS, NODES=NODES,
            NEIGHBORS=NEIGHBORS, BALLS=BALLS, METRIC=METRIC, SLOTS=SLOTS, BLOCK_LEAF=BLOCK_LEAF, UNROLL=UNROLL,
        )  # fmt: skip
        best, chosen = by_index(heap[None, :], held[None, :], tl.arange(0, SLOTS)[None, :], NEIGHBORS)
        real = tl.arange(0, SLOTS)[None, :] < NEIGHBORS
        here = row + tl.arange(0, 1)
        store_means(best, chosen, real, targets, out, here, rows, OUTPUTS, METRIC, BY_DISTANCE)


@dataclass(frozen=True, eq=False, kw_only=True)
class TreeNeighbors(Neighbors):
    """The mean of the nearest points' targets; a tree's search chooses among equally near points."""

    order: np.ndarray
    nodes: np.ndarray
    bounds: np.ndarray
    radii: np.ndarray

    def check(self, *widths: int) -> None:
        super().check(*widths)
        points, features = self.points.shape
        if not self.n_neighbors <= min(MOST_NEIGHBORS, points - 1):
            most = min(MOST_NEIGHBORS, points - 1)
            raise PlanError(f"tree_neighbors: n_neighbors must be at most {most}, not {self.n_neighbors}.")
        if (self.factor != 1).any() or (self.metric == "minkowski" and whole(self.p) is None):
            raise PlanError("tree_neighbors: the search of a tree is repeated for equal weights and whole powers.")
        self.tree.check("tree_neighbors", points, features, self.metric)

    @functools.cached_property
    def tree(self) -> SearchTree:
        """The tree whose search is repeated."""
        return SearchTree(self.order, self.nodes, self.bounds, self.radii)

    @functools.cached_property
    def search(self) -> Search:
        """The search for one point more than the neighbours, to see which rows are tied."""
        return Search(self.points, self.factor, self.n_neighbors + 1, self.metric, self.p)

    def parameters(self) -> dict[str, np.ndarray]:
        tree = {f"tree_{name}": getattr(self, name) for name in ("order", "nodes", "bounds")}
        radii = self.radii if len(self.radii) else np.zeros(1)
        return super().parameters() | self._tree_columns() | tree | {"tree_radii": radii}

    def plain_parameters(self) -> dict[str, np.ndarray]:
        return super().plain_parameters() | self._tree_columns()

    def _tree_columns(self) -> dict[str, np.ndarray]:
        return {"tree_columns": transposed(self.points[self.order])}

    def reference(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,) = inputs
        return self._means(x, parameters, self._by_tree, len(self.points))

    def compute_on_cpu(self, parameters: Parameters, *inputs: torch.Tensor) -> torch.Tensor:
        (x,) = inputs
        return self._means(x, parameters, self._by_both, self.search.numbers_on_cpu)

    def _by_tree(self, x: torch.Tensor, parameters: Parameters) -> Found:
        """Return the reduced distances and indices that the tree's search finds, in the order of the indices."""
        return search_by_tree(x, self.tree, parameters["tree_columns"], self.metric, self.p, self.n_neighbors)

    def _by_both(self, x: torch.Tensor, parameters: Parameters) -> Found:
        """Return the result of `_by_tree`, which searches only the rows that are tied."""
        k = self.n_neighbors
        distance, index = self.search.on_cpu(x, parameters)
        worst, place = distance.max(1, keepdim=True)
        kth = distance.scatter(1, place, -torch.inf).max(1, keepdim=True).values
        tied = (~(worst - kth > worst * SLACK))[:, 0]
        kept = torch.arange(k, device=x.device).repeat(len(x), 1)
        kept += kept >= place
        distance, index = distance.gather(1, kept), index.gather(1, kept)
        if bool(tied.any()):
            distance[tied], index[tied] = self._by_tree(x[tied], parameters)
        return distance, index

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        (x,), (points, features) = inputs, self.points.shape
        answer = {
            "targets": parameters["targets"], "OUTPUTS": output.shape[1], "BY_DISTANCE": self.weights == "distance",
        }  # fmt: skip
        tied = torch.empty(rows, dtype=torch.int32, device=x.device)
        for launch in self.search.launches(parameters, x, rows, ranked_tile(self.search.neighbors)):
            part = launch.part
            launch.run(untied_neighbors_kernel, out=output[part], tied=tied[part], SLACK=SLACK, **answer)
        tied_neighbors_kernel[(rows,)](
            x=x,
            **{name: parameters[f"tree_{name}"] for name in ("columns", "order", "nodes", "bounds", "radii")},
            factor=parameters["factor"],
            tied=tied,
            out=output,
            rows=rows,
            FEATURES=features,
            POINTS=points,
            NODES=len(self.nodes),
            NEIGHBORS=self.n_neighbors,
            BALLS=len(self.bounds) == 1,
            METRIC=self.search.kernel_metric,
            SLOTS=triton.next_power_of_2(self.n_neighbors),
            **answer,
            **LEAF_BLOCK,
            enable_fp_fusion=False,  # so that a distance has scikit-learn's bits
        )

    def launches(self, inputs: int) -> int:
        return super().launches(inputs) + 1

    def describe(self) -> str:
        kind = "ball tree" if len(self.bounds) == 1 else "kd-tree"
        return f"{super().describe()}, equally near ones as a {kind} takes them"
