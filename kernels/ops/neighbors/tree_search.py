"""The search of a kd-tree or ball tree, step by step as in scikit-learn, so that ties between points fall alike.

The nearest k points are one set unless points share the k-th smallest distance. scikit-learn's trees then keep the
points that their search happens to hold, a choice that depends on the row and the tree alone. This module repeats that
search; its algorithm is that of `sklearn/neighbors/_binary_tree.pxi.tp` (a depth-first query for one row) and
`sklearn/utils/_heap.pyx` (a heap of fixed size whose root is the furthest point so far):

- Node `i` has the children `2i + 1` and `2i + 2`. The search enters the child with the smaller bound first, the left
  one if the bounds are equal, and skips a node whose bound exceeds the root of the heap.
- A leaf's points are offered in the tree's order. A point enters only if it is nearer than the root. It then takes the
  root's place and sinks below every child that is further; of equally far children the left one rises.
- A kd-tree's bound is the reduced distance to the nearest place in the node's box; a ball tree's is the reduced
  distance of `max(0, distance to the centre − radius)`.

Reduced distances are those of `distances.py`, summed in float64 in the order of the features without fused
multiply-adds, as scikit-learn's compiled code sums them. `tree_search_kernel.py` is the same search in the Triton
language.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from ...format.errors import PlanError
from .bounds import MAX_NEIGHBORS
from .distances import SQUARED, reference_reduced_distances, reference_to_each

BOX_METRICS = ("euclidean", "manhattan", "chebyshev", "minkowski")
"""The metrics for which a kd-tree's search is repeated; minkowski's power must be a whole number."""

BALL_METRICS = (
    "euclidean",
    "manhattan",
    "chebyshev",
    "canberra",
    "braycurtis",
    "hamming",
    "jaccard",
    "rogerstanimoto",
    "russellrao",
)
"""The metrics for which a ball tree's search is repeated: their distances need only sums, quotients and roots."""

MOST_NEIGHBORS = MAX_NEIGHBORS - 1
"""The largest number of neighbours. The fast search looks for one more to detect ties."""

SLACK = 2.0**-32
"""Two distances that differ by a smaller share may swap ranks in a sum that is rounded differently."""

NUMBERS_AT_ONCE = 2**20
"""Distances to nodes or points in memory at a time."""

FEW_NUMBERS = 2**17
"""Up to this many numbers of the points, a row is compared with all points; with more only where bounds allow it."""


@dataclass(frozen=True, eq=False)
class SearchTree:
    """A binary tree over points, in the layout of scikit-learn's `BinaryTree.get_arrays`.

    `order`: int32 `[points]`, the points leaf by leaf; `nodes`: int32 `[nodes, 3]`, the begin and end of a node's
    points in that order, and 1 for a leaf; `bounds`: float64 `[2, nodes, features]`, the corners of a kd-tree's boxes,
    or `[1, nodes, features]`, a ball tree's centres; `radii`: float64 `[nodes]`, or `[0]` for a kd-tree.
    """

    order: np.ndarray
    nodes: np.ndarray
    bounds: np.ndarray
    radii: np.ndarray

    def check(self, op: str, points: int, features: int, metric: str) -> None:
        """Raise `PlanError` unless the arrays are a tree over `points` points, of a kind that supports the metric."""
        order, nodes, count = self.order, self.nodes, len(self.nodes)
        if order.shape != (points,) or not np.array_equal(np.sort(order), np.arange(points)):
            raise PlanError(f"{op}: order must hold each of the {points} points once.")
        if nodes.shape != (count, 3) or not count:
            raise PlanError(f"{op}: nodes must be [nodes, 3], not {list(nodes.shape)}.")
        start, end, leaf = nodes.T
        inner = np.flatnonzero(leaf == 0)
        if not ((start >= 0) & (start <= end) & (end <= points)).all() or (2 * inner + 2 >= count).any():
            raise PlanError(f"{op}: nodes must lie within the {points} points and have both children or none.")
        balls = self.bounds.shape[:1] == (1,)
        if self.bounds.shape != (2 - balls, count, features) or self.radii.shape != (count * balls,):
            shapes = f"{list(self.bounds.shape)} and {list(self.radii.shape)}"
            raise PlanError(f"{op}: bounds and radii must be of {count} nodes and {features} features, not {shapes}.")
        if metric not in (BALL_METRICS if balls else BOX_METRICS):
            kind = "ball tree" if balls else "kd-tree"
            raise PlanError(f"{op}: the search of a {kind} by '{metric}' is not repeated.")


def search(
    x: torch.Tensor, tree: SearchTree, columns: torch.Tensor, metric: str, p: float, neighbors: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the results of the tree's search: reduced distances and indices, ascending, `[rows, neighbors]` each.

    A row whose distances are NaN gets infinite ones.

    Args:
        x: float64 `[rows, features]`, on any device.
        tree: the tree.
        columns: the points in the tree's order, float64 `[features, points]`.
        metric: one of the tree's metrics.
        p: minkowski's power.
        neighbors: fewer than the number of points.
    """
    rows, columns = x.cpu().double(), columns.cpu()
    distances = np.full((len(x), neighbors), math.inf)
    indices = np.zeros((len(x), neighbors), dtype=np.int64)
    few = max(NUMBERS_AT_ONCE // max(columns.numel(), tree.bounds[0].size), 1)
    nodes, leaves = tree.nodes.tolist(), _Leaves(tree)
    for start in range(0, len(x), few):
        part = rows[start : start + few]
        bounds = node_bounds(part, tree, metric, p).numpy()
        known = None
        if columns.numel() <= FEW_NUMBERS:
            known = _distances(part, columns, metric, p)
        for at, row in enumerate(part):
            points = _Points(row, columns, leaves, metric, p, None if known is None else known[at])
            distances[start + at], places = _depth_first(nodes, bounds[at], points, neighbors)
            indices[start + at] = tree.order[places]
    index, order = torch.from_numpy(indices).sort(1)
    return torch.from_numpy(distances).gather(1, order).to(x.device), index.to(x.device)


def node_bounds(x: torch.Tensor, tree: SearchTree, metric: str, p: float) -> torch.Tensor:
    """Return the bound of each row's reduced distance to the points of each node, float64 `[rows, nodes]`."""
    bounds = torch.from_numpy(np.ascontiguousarray(tree.bounds.transpose(0, 2, 1)))
    features, factor = x.shape[1], torch.ones(x.shape[1], dtype=torch.float64)
    if len(bounds) == 2:
        nearest = [x[:, f, None].clamp(bounds[0, f], bounds[1, f]) for f in range(features)]
        return reference_to_each(x, torch.stack(nearest), factor, metric, p)
    distance = reference_reduced_distances(x, bounds[0], factor, metric, p)
    if metric in SQUARED:  # scikit-learn's square root and NumPy's are correctly rounded; torch's is not on each CPU
        distance = torch.from_numpy(np.sqrt(distance.numpy()))
    low = (distance - torch.from_numpy(np.require(tree.radii, requirements=["C", "W"]))).clamp(min=0.0)
    return low * low if metric in SQUARED else low


class _Leaves:
    """The leaves of a tree that hold points, in the tree's order."""

    def __init__(self, tree: SearchTree) -> None:
        start, end, leaf = tree.nodes.T
        some = np.flatnonzero((leaf > 0) & (end > start))
        self.nodes = some[np.argsort(start[some])]
        self.starts = start[self.nodes]
        self.sizes = end[self.nodes] - self.starts
        self._count = len(tree.nodes)

    def least(self, distance: np.ndarray) -> list[float]:
        """Return the minimum of one row's distances to a leaf's points, for each node; infinity for an inner node."""
        found = np.full(self._count, math.inf)
        found[self.nodes] = np.minimum.reduceat(distance, self.starts)
        least: list[float] = found.tolist()
        return least


class _Points:
    """One row's reduced distances to the points in the tree's order, all at once or as the search needs them.

    `least` holds the minimum distance to each leaf's points, once these are known, and None before.
    """

    def __init__(
        self, row: torch.Tensor, columns: torch.Tensor, leaves: _Leaves, metric: str, p: float, known: np.ndarray | None
    ) -> None:
        self._row, self._columns, self._leaves, self._metric, self._p = row[None], columns, leaves, metric, p
        self._known = known
        self.least = None if known is None else leaves.least(known)

    def of_leaf(self, start: int, end: int, bounds: np.ndarray, largest: float) -> np.ndarray:
        """Return the distances to the points of a leaf, while the heap's root has the distance `largest`."""
        if self._known is None:
            if largest == math.inf:  # the heap is not full, and no node is skipped yet
                return _distances(self._row, self._columns[:, start:end], self._metric, self._p).reshape(-1)
            # The root only comes nearer, so a leaf beyond it is never visited again.
            inside = np.repeat(~(bounds[self._leaves.nodes] > largest), self._leaves.sizes)
            some = self._columns[:, torch.from_numpy(inside)]
            self._known = np.full(len(inside), math.inf)
            self._known[inside] = _distances(self._row, some, self._metric, self._p)[0]
            self.least = self._leaves.least(self._known)
        found: np.ndarray = self._known[start:end]
        return found


def _depth_first(
    nodes: list[list[int]], bounds: np.ndarray, points: _Points, neighbors: int
) -> tuple[list[float], list[int]]:
    """Return the distances and places in the tree's order that the heap holds after the search for one row."""
    values, places = [math.inf] * neighbors, [0] * neighbors
    low = bounds.data
    waiting = [0]
    while waiting:
        node = waiting.pop()
        if low[node] > values[0]:
            continue
        start, end, leaf = nodes[node]
        if not leaf:
            left = 2 * node + 1
            waiting += [left + 1, left] if low[left] <= low[left + 1] else [left, left + 1]
        elif points.least is None or points.least[node] < values[0]:
            near = points.of_leaf(start, end, bounds, values[0])
            for place in (near < values[0]).nonzero()[0].tolist():
                _offer(values, places, float(near[place]), start + place)
    return values, places


def _offer(values: list[float], places: list[int], value: float, place: int) -> None:
    """Replace the heap's root by a point, if that is nearer, and let the point sink."""
    if value >= values[0]:
        return
    at, size = 0, len(values)
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and values[child] < values[child + 1]:
            child += 1
        if value >= values[child]:
            break
        values[at], places[at] = values[child], places[child]
        at = child
    values[at], places[at] = value, place


def _distances(x: torch.Tensor, columns: torch.Tensor, metric: str, p: float) -> np.ndarray:
    """Return the reduced distances of rows to points, `[rows, points]`."""
    factor = torch.ones(x.shape[1], dtype=torch.float64)
    found: np.ndarray = reference_reduced_distances(x, columns, factor, metric, p).numpy()
    return found
