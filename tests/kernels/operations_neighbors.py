"""Operations that look for neighbours, for the kernels' tests."""

from typing import Any

import numpy as np
from sklearn.neighbors import BallTree, KDTree

from triton_regressors.exporter.estimators.search_tree import as_search_tree
from triton_regressors.kernels.ops.neighbors.barycenter import Barycenter
from triton_regressors.kernels.ops.neighbors.distances import BOOLEAN_METRICS, METRICS
from triton_regressors.kernels.ops.neighbors.min_plus import MinPlus
from triton_regressors.kernels.ops.neighbors.neighbor_graph import NeighborGraph
from triton_regressors.kernels.ops.neighbors.neighbor_imputer import NeighborImputer
from triton_regressors.kernels.ops.neighbors.neighbors import Neighbors
from triton_regressors.kernels.ops.neighbors.radius_neighbors import RadiusNeighbors
from triton_regressors.kernels.ops.neighbors.tree_neighbors import TreeNeighbors
from triton_regressors.kernels.plan.plan import Operation

COUNTING = ("hamming", *BOOLEAN_METRICS)
"""The metrics that compare numbers for equality."""


def drawn_points(points: int, features: int, seed: int = 0, missing: float = 0.0) -> np.ndarray:
    """Return float32 numbers as float64, the first point several times, so that there are ties and exact hits."""
    rng = np.random.default_rng(seed)
    found = rng.standard_normal((points, features)).astype(np.float32).astype(np.float64)
    found[rng.random(found.shape) < missing] = np.nan
    found[rng.integers(0, points, points // 4)] = found[0]
    return found


def drawn_factor(features: int, weighted: bool, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.5, 2, features) if weighted else np.ones(features)


def neighbors(
    features: int,
    points: int,
    n_neighbors: int,
    outputs: int = 1,
    weighted: bool = False,
    seed: int = 0,
    metric: str = "euclidean",
    **options: Any,
) -> Neighbors:
    targets = np.random.default_rng(seed + 1).standard_normal((points, outputs))
    places = drawn_points(points, features, seed)
    places = places.round() if metric in COUNTING else places
    return Neighbors(places, targets, drawn_factor(features, weighted), n_neighbors, metric, **options)


def tree_neighbors(
    features: int,
    points: int,
    n_neighbors: int,
    outputs: int = 1,
    leaf_size: int = 3,
    balls: bool = False,
    seed: int = 0,
    metric: str = "euclidean",
    p: float = 2.0,
    places: np.ndarray | None = None,
    **options: Any,
) -> TreeNeighbors:
    """Return an operation with scikit-learn's tree over whole numbers, many of them equally near."""
    rng = np.random.default_rng(seed)
    places = rng.integers(0, 4, (points, features)).astype(np.float64) if places is None else places
    power = {"p": p} if metric == "minkowski" else {}
    tree = as_search_tree((BallTree if balls else KDTree)(places, leaf_size=leaf_size, metric=metric, **power))
    fields = (places, rng.standard_normal((points, outputs)), np.ones(features), n_neighbors, metric, p)
    return TreeNeighbors(*fields, **vars(tree), **options)


def radius_neighbors(
    features: int, points: int, radius: float, outputs: int = 1, weighted: bool = False, seed: int = 0, **options: Any
) -> RadiusNeighbors:
    targets = np.random.default_rng(seed + 1).standard_normal((points, outputs))
    empty = np.where(np.arange(outputs) % 2 == 0, 5.0, -7.0)
    factor = drawn_factor(features, weighted)
    return RadiusNeighbors(drawn_points(points, features, seed), targets, factor, empty, radius, **options)


def radius_in_groups(radius: float) -> RadiusNeighbors:
    """Return an operation on a grid: few of its groups of points lie within a small radius."""
    points = np.stack(np.divmod(np.arange(3300.0), 33), axis=1) / 33
    targets = np.random.default_rng(1).standard_normal((3300, 2))
    return RadiusNeighbors(points, targets, np.ones(2), np.array([5.0, -7.0]), radius, weights="distance")


def radius_by_products(features: int, points: int, radius: float, outputs: int = 1, seed: int = 0) -> RadiusNeighbors:
    """Return an operation that chooses points by matrix products."""
    rng = np.random.default_rng(seed)
    places, targets = rng.standard_normal((points, features)), rng.standard_normal((points, outputs))
    empty = np.where(np.arange(outputs) % 2 == 0, 5.0, -7.0)
    return RadiusNeighbors(places, targets, drawn_factor(features, seed % 2 > 0, seed), empty, radius)


def neighbor_graph(features: int, points: int, weighted: bool = False, seed: int = 0, **options: Any) -> NeighborGraph:
    return NeighborGraph(drawn_points(points, features, seed), drawn_factor(features, weighted), **options)


def min_plus(inner: int, width: int, seed: int = 0) -> MinPlus:
    return MinPlus(np.random.default_rng(seed).uniform(0, 3, (inner, width)))


def barycenter(features: int, points: int, n_neighbors: int, outputs: int = 2, seed: int = 0) -> Barycenter:
    rng = np.random.default_rng(seed)
    return Barycenter(
        rng.standard_normal((points, features)), rng.standard_normal((points, outputs)), n_neighbors, 1e-3
    )


def neighbor_imputer(
    features: int, points: int, n_neighbors: int, weights: str = "uniform", seed: int = 0
) -> NeighborImputer:
    values = drawn_points(points, features, seed, missing=0.3)
    values[:, -1] = np.nan
    means = np.arange(features, dtype=np.float64)
    return NeighborImputer(values, means, np.arange(features - 1, -1, -1, dtype=np.int32), n_neighbors, weights)


def by_metric(metric: str) -> Neighbors:
    """Return an operation that weighs by this metric's distance."""
    weighted = metric in ("euclidean", "minkowski", "hamming")
    features = 2 if metric == "haversine" else 1
    return neighbors(features, 5, 2, weighted=weighted, metric=metric, p=2.5, weights="distance")


OPERATIONS: dict[str, tuple[Operation, tuple[int, ...]]] = {
    **{f"neighbors {metric}": (by_metric(metric), (2 if metric == "haversine" else 1,)) for metric in METRICS},
    "neighbors of several tiles to 3": (neighbors(1, 70, 1, 3), (1,)),
    "neighbors 33": (neighbors(1, 34, 33), (1,)),
    "neighbors cubed": (neighbors(2, 6, 2, metric="minkowski", p=3.0), (2,)),
    "neighbors lenient": (neighbors(2, 6, 2, metric="nan_euclidean"), (2,)),
    "tree_neighbors": (tree_neighbors(2, 40, 3, 2), (2,)),
    "tree_neighbors cubed": (tree_neighbors(1, 30, 2, metric="minkowski", p=3.0), (1,)),
    "tree_neighbors of one leaf": (tree_neighbors(1, 9, 1, leaf_size=40, metric="chebyshev"), (1,)),
    "tree_neighbors in balls": (tree_neighbors(2, 20, 5, balls=True, weights="distance"), (2,)),
    "tree_neighbors in balls by hamming": (tree_neighbors(3, 20, 3, balls=True, metric="hamming"), (3,)),
    "radius_neighbors": (radius_neighbors(2, 70, 1.0), (2,)),
    "radius_neighbors to 17": (
        radius_neighbors(2, 9, 1.5, 17, True, weights="distance", metric="minkowski", p=2.5),
        (2,),
    ),
    "neighbor_graph": (neighbor_graph(2, 9, n_neighbors=3, mode="connectivity", absent="infinity"), (2,)),
    "neighbor_graph radius": (neighbor_graph(2, 9, True, radius=1.0), (2,)),
    "min_plus": (min_plus(5, 70), (5,)),
    "barycenter": (barycenter(2, 9, 3), (2,)),
    "neighbor_imputer": (neighbor_imputer(3, 9, 2, "distance"), (3,)),
}

IN_GROUPS: dict[str, tuple[Operation, tuple[int, ...]]] = {
    "neighbors in groups": (neighbors(2, 1100, 3, weights="distance"), (2,)),
    "neighbors in groups cubed": (neighbors(2, 1100, 3, 1, True, metric="minkowski", p=3.0), (2,)),
    "neighbors in wide groups": (neighbors(130, 1100, 3), (130,)),
    "tree_neighbors in groups": (tree_neighbors(2, 1100, 3, leaf_size=30), (2,)),
    "radius_neighbors in groups": (radius_in_groups(0.031), (2,)),
    "radius_neighbors by products": (radius_by_products(3, 1100, 0.9, 2), (3,)),
    "radius_neighbors by wide products": (radius_by_products(64, 1100, 10.0), (64,)),
    "neighbor_graph in groups": (neighbor_graph(2, 1100, n_neighbors=3), (2,)),
    "barycenter in groups": (barycenter(2, 1100, 3), (2,)),
}
"""Operations with enough points for a search in groups, which is slow for each row in the interpreter."""
