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
from ...numerics.pairwise_reduce import sum_in_pairs
from ...numerics.powers import whole
from ...plan.plan import Parameters
from .bounds import BOUND_LAUNCHES, bound_parameters, bounded
from .cpu_search import nearest_points
from .distances import INFINITY, metric_constants, transposed
from .neighbors import Neighbors
from .search import nearest, neighbor_weights, searches
from .top_k import NONE, by_index
from .tree_search import MOST_NEIGHBORS, SLACK, SearchTree, search
from .tree_search_kernel import search_tree

BLOCK_LEAF = 32
MOST_RANKED = 8192
"""The most pairs of neighbours that a program compares to sort its rows' neighbours."""


@triton.jit
def store_means(
    best,  # float64 [BLOCK_ROWS, SLOTS]
    chosen,  # int32 [BLOCK_ROWS, SLOTS]
    targets,  # float64 [POINTS, OUTPUTS]
    out,
    row,  # int64 [BLOCK_ROWS]
    rows,
    OUTPUTS: tl.constexpr,
    NEIGHBORS: tl.constexpr,
    METRIC: tl.constexpr,
    P: tl.constexpr,
    BY_DISTANCE: tl.constexpr,
):
    """Store the weighted means of the targets of neighbours, which are sorted by index."""
    real = tl.arange(0, best.shape[1])[None, :] < NEIGHBORS
    undefined = tl.max(tl.where(real, best, 0.0), axis=1) == INFINITY
    weight = neighbor_weights(best, real, METRIC, P, BY_DISTANCE)
    total = sum_in_pairs(weight)
    for t in tl.range(0, OUTPUTS):
        value = tl.load(targets + chosen.to(tl.int64) * OUTPUTS + t, mask=real, other=0.0)
        y = sum_in_pairs(weight * value) / total
        y = tl.where(undefined, float("nan"), y)
        tl.store(out + row * OUTPUTS + t, y.to(out.dtype.element_ty), mask=row < rows)


@triton.jit(do_not_specialize=["rows"])
def untied_neighbors_kernel(
    x,  # float32 or float64 [rows, FEATURES]
    columns,  # float64 [FEATURES, POINTS]
    factor,  # float64 [FEATURES]
    targets,  # float64 [POINTS, OUTPUTS]
    bounds,  # float32 [rows, GROUPS], or like `finer` an array of `search_few_rows.py`
    finer,
    reach,  # float64 [rows, 2], see `bounds.py`
    out,  # float32 or float64 [rows, OUTPUTS]
    tied,  # int32 [rows]
    rows,
    FEATURES: tl.constexpr,
    POINTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    NEIGHBORS: tl.constexpr,
    SLACK: tl.constexpr,
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
    """A program answers `BLOCK_ROWS` rows as if none were tied, and writes 1 to `tied` for rows that may be tied."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    best, chosen = nearest(
        x, columns, factor, bounds, finer, reach, row, rows,
        FEATURES=FEATURES, POINTS=POINTS, NEIGHBORS=NEIGHBORS + 1,
        METRIC=METRIC, P=P, WHOLE=WHOLE, WEIGHTED=WEIGHTED, GROUPS=GROUPS, BLOCK_GROUPS=BLOCK_GROUPS,
        BLOCK_NEIGHBORS=BLOCK_NEIGHBORS, BLOCK_POINTS=BLOCK_POINTS, FINE=FINE, TILE=TILE,
        AT_ONCE=AT_ONCE, UNROLL=UNROLL,
    )  # [BLOCK_ROWS, BLOCK_NEIGHBORS] each  # fmt: skip
    slot = tl.arange(0, BLOCK_NEIGHBORS)[None, :] + tl.zeros([BLOCK_ROWS, BLOCK_NEIGHBORS], tl.int32)
    worst = tl.max(best, axis=1)
    last = tl.max(tl.where((best == worst[:, None]) & (slot <= NEIGHBORS), chosen, -1), axis=1)
    beyond = (chosen == last[:, None]) & (slot <= NEIGHBORS)
    kth = tl.max(tl.where(beyond, -INFINITY, best), axis=1)
    level = (worst - kth <= worst * SLACK) | (kth == INFINITY)
    tl.store(tied + row, level.to(tl.int32), mask=row < rows)
    best, chosen = by_index(best, tl.where(beyond, NONE, chosen), slot, NEIGHBORS + 1)
    store_means(best, chosen, targets, out, row, rows, OUTPUTS, NEIGHBORS, METRIC, P, BY_DISTANCE)


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
    P: tl.constexpr,
    WHOLE: tl.constexpr,
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
            NEIGHBORS=NEIGHBORS, BALLS=BALLS, METRIC=METRIC, P=P, WHOLE=WHOLE, SLOTS=SLOTS, BLOCK_LEAF=BLOCK_LEAF,
            UNROLL=UNROLL,
        )  # fmt: skip
        best, chosen = by_index(heap[None, :], held[None, :], tl.arange(0, SLOTS)[None, :], NEIGHBORS)
        here = row + tl.arange(0, 1)
        store_means(best, chosen, targets, out, here, rows, OUTPUTS, NEIGHBORS, METRIC, P, BY_DISTANCE)


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

    def parameters(self) -> dict[str, np.ndarray]:
        """Return the tables of the searches by bounds and by the tree."""
        return (
            self.plain_parameters()
            | bound_parameters(self.points, self.n_neighbors + 1, self.factor, self.metric, self.p)
            | {f"tree_{name}": getattr(self, name) for name in ("order", "nodes", "bounds")}
            | {"tree_radii": self.radii if len(self.radii) else np.zeros(1)}
        )

    def plain_parameters(self) -> dict[str, np.ndarray]:
        return super().plain_parameters() | {"tree_columns": transposed(self.points[self.order])}

    def nearest(self, x: torch.Tensor, parameters: Parameters) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the reduced distances and indices of each row's neighbours, in the order of their indices."""
        k = self.n_neighbors
        distance, index = nearest_points(x, parameters, self.metric, self.p, k + 1, self._candidates)
        worst, place = distance.max(1, keepdim=True)
        kth = distance.scatter(1, place, -torch.inf).max(1, keepdim=True).values
        tied = (~(worst - kth > worst * SLACK))[:, 0]
        kept = torch.arange(k, device=x.device).repeat(len(x), 1)
        kept += kept >= place
        distance, index = distance.gather(1, kept), index.gather(1, kept)
        if bool(tied.any()):
            found = search(x[tied], self.tree, parameters["tree_columns"], self.metric, self.p, k)
            distance[tied], index[tied] = found
        return distance, index

    def launch(self, parameters: Parameters, inputs: Sequence[torch.Tensor], output: torch.Tensor, rows: int) -> None:
        (x,), (points, features) = inputs, self.points.shape
        constants = metric_constants(self.metric, self.p, self.factor)
        shape = {
            "FEATURES": features, "POINTS": points, "OUTPUTS": output.shape[1], "NEIGHBORS": self.n_neighbors,
            "BY_DISTANCE": self.weights == "distance",
        }  # fmt: skip
        tied = torch.empty(rows, dtype=torch.int32, device=x.device)
        tile = untied_tile(self.n_neighbors + 1)
        for found in searches(x, parameters, rows, points, self.n_neighbors + 1, constants, tile):
            untied_neighbors_kernel[found.grid](
                x=x[found.part],
                **{name: parameters[name] for name in ("columns", "targets", "factor")},
                out=output[found.part],
                tied=tied[found.part],
                SLACK=SLACK,
                **shape,
                **constants,
                **found.arguments,
                num_warps=found.warps,
            )
        constants.pop("WEIGHTED")
        tied_neighbors_kernel[(rows,)](
            x=x,
            **{name: parameters[f"tree_{name}"] for name in ("columns", "order", "nodes", "bounds", "radii")},
            **{name: parameters[name] for name in ("targets", "factor")},
            tied=tied,
            out=output,
            rows=rows,
            NODES=len(self.nodes),
            BALLS=len(self.bounds) == 1,
            **shape,
            **constants,
            SLOTS=triton.next_power_of_2(self.n_neighbors),
            BLOCK_LEAF=BLOCK_LEAF,
            UNROLL=4,
            num_warps=1,
            enable_fp_fusion=False,  # so that a distance has scikit-learn's bits
        )

    def launches(self, inputs: int) -> int:
        found = bounded(self.points, self.n_neighbors + 1, self.factor, self.metric, self.p)
        return 2 + BOUND_LAUNCHES * found

    def describe(self) -> str:
        kind = "ball tree" if len(self.bounds) == 1 else "kd-tree"
        return f"{super().describe()}, equally near ones as a {kind} takes them"


def untied_tile(neighbors: int) -> dict[str, int]:
    """Return a program's rows, the slots for a row's neighbours and the points of a tile, for 8 warps.

    The tile has fewer rows than that of `neighbor_tile`, since every two neighbours of a row are compared at the end.
    """
    slots = triton.next_power_of_2(neighbors)
    rows = max(1, min(32, MOST_RANKED // slots**2))
    return {"BLOCK_ROWS": rows, "BLOCK_NEIGHBORS": slots, "BLOCK_POINTS": 2048 // rows}
