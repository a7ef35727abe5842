"""The tree that a neighbours' regressor searches, for entries whose points may be equally near.

A tree is exported where points of the training data are equally near to some of them, as whole, boolean and rounded
numbers are, and where the search of `kernels/ops/neighbors/tree_search.py` finds the very points that the fitted tree
finds. A table of continuous numbers needs neither.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.neighbors import BallTree, KDTree

from triton_regressors.kernels.numerics.powers import whole
from triton_regressors.kernels.ops.neighbors.distances import transposed
from triton_regressors.kernels.ops.neighbors.tree_search import (
    BALL_METRICS,
    BOX_METRICS,
    MOST_NEIGHBORS,
    SearchTree,
    search,
)

ASKED = 2000
"""The most training points that are asked for equally near ones."""

FURTHER = 32
"""The number of points past the k-th that are looked at, so that rare equal distances are seen too."""

CHECKED = 200
"""Training points, and places halfway between two, that are searched to check that the search is repeated rightly."""

EQUAL = 2.0**-44
"""Distances that differ by a smaller share are equal but for rounding."""


def search_tree(regressor: Any, points: np.ndarray, factor: np.ndarray, metric: str, p: float) -> SearchTree | None:
    """Return the tree of a fitted regressor, or None where its answers do not need it or its search is not repeated.

    Args:
        regressor: a fitted `KNeighborsRegressor`.
        points: the points that its plan searches, float64 `[points, features]`.
        factor: the metric's weights, `[features]`.
        metric: the metric's name in `kernels/ops/neighbors/distances.py`.
        p: minkowski's power.
    """
    fitted, neighbors = regressor._tree, int(regressor.n_neighbors)
    if not isinstance(fitted, KDTree | BallTree) or not neighbors <= min(MOST_NEIGHBORS, len(points) - 1):
        return None
    known = BALL_METRICS if isinstance(fitted, BallTree) else BOX_METRICS
    if metric not in known or (factor != 1).any() or (metric == "minkowski" and whole(p) is None):
        return None
    if not np.array_equal(np.asarray(fitted.data), points) or not equally_near(fitted, points, neighbors):
        return None
    tree = as_search_tree(fitted)
    return tree if finds_the_same(fitted, tree, points, metric, p, neighbors) else None


def as_search_tree(fitted: Any) -> SearchTree:
    """Return the arrays of scikit-learn's `KDTree` or `BallTree`."""
    _, order, nodes, bounds = (np.asarray(array) for array in fitted.get_arrays())
    return SearchTree(
        order=order.astype(np.int32),
        nodes=np.stack([nodes[name] for name in ("idx_start", "idx_end", "is_leaf")], axis=1).astype(np.int32),
        bounds=np.array(bounds, dtype=np.float64),
        radii=np.array(nodes["radius"] if len(bounds) == 1 else [], dtype=np.float64),
    )


def equally_near(fitted: Any, points: np.ndarray, neighbors: int) -> bool:
    """Return whether the search for some row may have to choose among equally near points.

    It has to for a training point whose k-th and next neighbour are equally near. It may have to for another row where
    two places a little further are: distances from a row to places of whole numbers are equal at any rank. Equal points
    at one place say so of the k-th rank alone, since each place may hold as many of them.
    """
    rows = points[:: -(-len(points) // ASKED)]
    distance, index = fitted.query(rows, min(len(points), neighbors + FURTHER))
    near, beyond = distance[:, neighbors - 1 : -1], distance[:, neighbors:]
    row, rank = np.nonzero(beyond - near <= EQUAL * beyond)
    first, second = index[row, rank + neighbors - 1], index[row, rank + neighbors]
    return bool((rank == 0).any() or (points[first] != points[second]).any())


def finds_the_same(fitted: Any, tree: SearchTree, points: np.ndarray, metric: str, p: float, neighbors: int) -> bool:
    """Return whether the repeated search finds the fitted tree's own points, among training points and between them."""
    some = points[:: -(-len(points) // CHECKED)]
    rows = np.concatenate([some, (some + np.roll(some, 1, axis=0)) / 2])
    wanted = np.sort(fitted.query(rows, neighbors, return_distance=False), axis=1)
    columns = torch.from_numpy(transposed(points[tree.order]))
    _, found = search(torch.from_numpy(rows), tree, columns, metric, p, neighbors)
    return np.array_equal(found.numpy(), wanted)
