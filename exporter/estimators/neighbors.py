"""Nearest neighbours: regressors, their graphs, imputation by them, and the metric learned for them.

scikit-learn finds neighbours with a tree or by brute force; the answer is the same up to ties, and to the rounding of
its brute force, whose Euclidean distances lose digits where the data lie far from zero. Here the distances are summed
without that loss. Among equal distances a regressor with a tree keeps the points that the tree's own search keeps;
everywhere else the point with the smallest index in the training data is nearer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.impute import KNNImputer
from sklearn.neighbors import (
    KNeighborsRegressor,
    KNeighborsTransformer,
    NeighborhoodComponentsAnalysis,
    RadiusNeighborsRegressor,
    RadiusNeighborsTransformer,
)

from triton_regressors.exporter.estimators.search_tree import search_tree
from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.products import product
from triton_regressors.exporter.lowering.registry import lowers
from triton_regressors.kernels.ops.columns.impute import Impute
from triton_regressors.kernels.ops.columns.row_norm import RowNorm
from triton_regressors.kernels.ops.neighbors.distances import METRICS
from triton_regressors.kernels.ops.neighbors.neighbor_graph import NeighborGraph
from triton_regressors.kernels.ops.neighbors.neighbor_imputer import NeighborImputer
from triton_regressors.kernels.ops.neighbors.neighbors import Neighbors
from triton_regressors.kernels.ops.neighbors.radius_neighbors import RadiusNeighbors
from triton_regressors.kernels.ops.neighbors.search import MAX_NEIGHBORS
from triton_regressors.kernels.ops.neighbors.tree_neighbors import TreeNeighbors

ALIASES = {
    "cityblock": "manhattan",
    "infinity": "chebyshev",
    "l1": "manhattan",
    "l2": "euclidean",
    "p": "minkowski",
    "sokalmichener": "rogerstanimoto",
}
"""scikit-learn's other names for a metric."""

PARAMETERS = {"minkowski": {"p", "w"}, "seuclidean": {"V"}, "mahalanobis": {"V", "VI"}, "hamming": {"w"}}
"""The metric_params that are read; other metrics have none."""

SUPPORTED = sorted({*METRICS, *ALIASES, "correlation", "mahalanobis", "seuclidean"})

SMALLEST_NORM = float(10 * np.finfo(np.float64).eps)
"""Below it scikit-learn takes a row for zero when it normalises."""


@dataclass(frozen=True)
class Search:
    """The space of a neighbour search: a value, the points in its space, and a metric of the kernels."""

    value: Value
    points: np.ndarray  # float64 [points, value.width]
    factor: np.ndarray  # float64 [value.width]
    metric: str
    p: float


@lowers(KNeighborsRegressor)
def lower_k_neighbors(regressor: KNeighborsRegressor, x: Value, builder: Builder) -> Value:
    """The mean of the targets of the `n_neighbors` nearest points, weighted by 1 / distance where asked for.

    If points may be equally near, the plan holds the regressor's tree.
    """
    weights = _weights(regressor, builder)
    search = find_search(regressor, regressor, x, builder)
    k = check_count(regressor, regressor.n_neighbors, search, builder)
    fields = (search.points, _targets(regressor), search.factor, k, search.metric, search.p, weights)
    tree = search_tree(regressor, search.points, search.factor, search.metric, search.p)
    if tree is None:
        return builder.add(Neighbors(*fields), search.value)
    operation = TreeNeighbors(*fields, order=tree.order, nodes=tree.nodes, bounds=tree.bounds, radii=tree.radii)
    return builder.add(operation, search.value)


@lowers(RadiusNeighborsRegressor)
def lower_radius_neighbors(regressor: RadiusNeighborsRegressor, x: Value, builder: Builder) -> Value:
    """The mean of the targets of the points within the radius, weighted by 1 / distance where asked for.

    Without any such point it is what scikit-learn makes of NaN in the targets' dtype: NaN for floats, and for integers
    their least.
    """
    weights = _weights(regressor, builder)
    search = find_search(regressor, regressor, x, builder)
    with np.errstate(invalid="ignore"):
        empty = np.full_like(regressor._y.reshape(len(regressor._y), -1)[0], np.nan).astype(np.float64)
    operation = RadiusNeighbors(
        search.points,
        _targets(regressor),
        search.factor,
        empty,
        finite(regressor.radius),
        search.metric,
        search.p,
        weights,
    )
    return builder.add(operation, search.value)


@lowers(KNeighborsTransformer, RadiusNeighborsTransformer)
def lower_neighbors_transformer(transformer: Any, x: Value, builder: Builder) -> Value:
    """A column for each training point: its distance, or 1, where it is a neighbour, and else 0.

    Distances come with one neighbour more than `n_neighbors`, as a training point is its own.
    """
    search = find_search(transformer, transformer, x, builder)
    k, radius = 0, 0.0
    if isinstance(transformer, KNeighborsTransformer):
        k = check_count(transformer, transformer.n_neighbors + (transformer.mode == "distance"), search, builder)
    else:
        radius = finite(transformer.radius)
    graph = NeighborGraph(search.points, search.factor, k, radius, search.metric, search.p, transformer.mode)
    return builder.add(graph, search.value)


@lowers(NeighborhoodComponentsAnalysis)
def lower_neighborhood_components(nca: NeighborhoodComponentsAnalysis, x: Value, builder: Builder) -> Value:
    """`z = x componentsᵀ`."""
    return builder.affine(x, nca.components_.T, 0.0)


@lowers(KNNImputer)
def lower_knn_imputer(imputer: KNNImputer, x: Value, builder: Builder) -> Value:
    """What is missing from the nearest donors, then a column of indicators for each feature with missing values."""
    weights = _weights(imputer, builder)
    if imputer.metric != "nan_euclidean":
        raise builder.refuse(imputer, "metric is a callable; supported: 'nan_euclidean'")
    missing = _missing_number(imputer, builder)
    points = np.asarray(imputer._fit_X, dtype=np.float64)
    points = np.where(imputer._mask_fit_X, np.nan, points)
    full = np.flatnonzero(imputer._valid_mask)
    means = np.zeros(x.width)
    means[full] = np.nanmean(points[:, full], axis=0)
    _note_points(builder, x, points)
    columns = np.arange(x.width) if imputer.keep_empty_features else full
    indicators = _int32(imputer.indicator_.features_ if imputer.add_indicator else [])
    if not len(columns) + len(indicators):
        raise builder.refuse(imputer, "it keeps no feature: it was fitted on columns without a number")
    values = []
    if len(columns):
        z = x
        if missing is not None:
            z = builder.add(Impute(_int32(range(x.width)), np.full(x.width, np.nan), _int32([]), missing), x)
        k = int(min(imputer.n_neighbors, len(points)))
        if k > MAX_NEIGHBORS:
            raise builder.refuse(imputer, f"n_neighbors is {k}; at most {MAX_NEIGHBORS} are supported")
        z = builder.add(NeighborImputer(points, means, _int32(columns), k, weights), z)
        if len(columns) > len(full):  # scikit-learn writes zeros into columns that were empty in training
            z = builder.scale(z, 0.0, np.asarray(imputer._valid_mask, dtype=np.float64))
        values.append(z)
    if len(indicators):
        values.append(builder.add(Impute(_int32([]), np.zeros(0), indicators, missing), x))
    return builder.concatenate(values)


def find_search(estimator: Any, fitted: Any, x: Value, builder: Builder) -> Search:
    """Return the search of a fitted `NearestNeighbors` or its like; `estimator` is what a refusal names."""
    metric = fitted.effective_metric_
    if not isinstance(metric, str):
        what = "a callable" if callable(metric) else f"a {type(metric).__name__} object"
        raise builder.refuse(estimator, f"metric is {what}; supported: {', '.join(SUPPORTED)}")
    if ALIASES.get(metric, metric) not in SUPPORTED:
        raise builder.refuse(estimator, f"metric is {metric!r}; supported: {', '.join(SUPPORTED)}")
    if not hasattr(fitted, "n_features_in_"):
        raise builder.refuse(estimator, "it was fitted on a tree, whose metric it does not say; fit it on an array")
    given = {name: value for name, value in fitted.effective_metric_params_.items() if value is not None}
    metric = ALIASES.get(metric, metric)
    unknown = sorted(given.keys() - PARAMETERS.get(metric, set()))
    if unknown:
        raise builder.refuse(estimator, f"metric_params holds {unknown[0]!r}, which is not supported for {metric!r}")
    if metric == "dice" and fitted._fit_method == "ball_tree" and fitted.n_samples_fit_ > fitted.leaf_size:
        why = "which breaks the triangle inequality, so that a ball tree misses neighbours"
        raise builder.refuse(estimator, f"metric is 'dice', {why}; supported: algorithm='brute'")
    points = fitted._fit_X
    points = np.asarray(points.toarray() if hasattr(points, "toarray") else points, dtype=np.float64)
    _note_points(builder, x, points)
    factor, p = np.ones(x.width), 2.0
    if metric == "minkowski":
        factor, p = _vector(given.get("w", factor)), float(given["p"])
    elif metric == "hamming" and "w" in given:
        factor = _vector(given["w"]) * x.width / np.sum(given["w"])
    elif metric == "seuclidean":
        if "V" not in given:
            raise builder.refuse(estimator, "metric_params holds no 'V', which 'seuclidean' needs")
        metric, factor = "euclidean", 1.0 / _vector(given["V"])
    elif metric == "mahalanobis":
        weight = _root(estimator, given, builder)
        centre = points.mean(axis=0)
        value = builder.affine(x, weight, product(-centre, weight))
        distinct, place = np.unique(points, axis=0, return_inverse=True)  # so that equal points stay equal
        points = product(distinct - centre, weight)[place.reshape(-1)]
        return Search(value, points, np.ones(value.width), "euclidean", p)
    elif metric == "cosine":
        norm = np.linalg.norm(points, axis=1, keepdims=True)
        points = points / np.where(norm < SMALLEST_NORM, 1.0, norm)
        x = builder.add(RowNorm("l2", SMALLEST_NORM), x)
    elif metric == "correlation":
        points = points - points.mean(axis=1, keepdims=True)
        with np.errstate(invalid="ignore"):  # what does not vary correlates with nothing: NaN, and no neighbour
            points = points / np.linalg.norm(points, axis=1, keepdims=True)
        x = builder.affine(x, np.eye(x.width) - 1.0 / x.width, np.zeros(x.width))
        x, metric = builder.add(RowNorm("l2", float(np.nextafter(0.0, 1.0))), x), "cosine"
    return Search(x, points, factor, metric, p)


def check_count(estimator: Any, n_neighbors: int, search: Search, builder: Builder, most: int = MAX_NEIGHBORS) -> int:
    """Return how many neighbours are looked for, or refuse."""
    if n_neighbors > len(search.points):
        reason = f"it looks for {n_neighbors} neighbours and was fitted on {len(search.points)} rows"
        raise builder.refuse(estimator, reason)
    if n_neighbors > most:
        raise builder.refuse(estimator, f"n_neighbors is {n_neighbors}; at most {most} are supported")
    return int(n_neighbors)


def finite(radius: float) -> float:
    """Return a radius that JSON can hold."""
    return min(float(radius), float(np.finfo(np.float64).max))


def _root(estimator: Any, given: dict[str, Any], builder: Builder) -> np.ndarray:
    """Return `L` with `L Lᵀ` the symmetric part of the inverse covariance, `[features, rank]`."""
    if not given:
        raise builder.refuse(estimator, "metric_params holds neither 'V' nor 'VI', which 'mahalanobis' needs")
    inverse = np.asarray(given["VI"] if "VI" in given else np.linalg.inv(given["V"]), dtype=np.float64)
    values, vectors = np.linalg.eigh((inverse + inverse.T) / 2)
    rounding = len(values) * np.finfo(np.float64).eps * np.abs(values).max()
    if values.min() < -rounding:
        raise builder.refuse(estimator, "the inverse covariance in metric_params has negative eigenvalues")
    kept = values > rounding
    kept[-1] = True
    root: np.ndarray = vectors[:, kept] * np.sqrt(np.maximum(values[kept], 0.0))
    return root


def _weights(estimator: Any, builder: Builder) -> str:
    """Return the name of the weights; None is scikit-learn's other name for uniform ones."""
    if callable(estimator.weights):
        raise builder.refuse(estimator, "weights is a callable; supported: 'uniform', 'distance'")
    return estimator.weights or "uniform"


def _targets(regressor: Any) -> np.ndarray:
    """Return the targets of the training points, `[points, outputs]`."""
    targets = np.asarray(regressor._y, dtype=np.float64)
    return targets.reshape(len(targets), -1)


def _missing_number(imputer: KNNImputer, builder: Builder) -> float | None:
    """Return the number that stands for a missing one, or None for NaN, which pandas' NA becomes."""
    value = imputer.missing_values
    if type(value).__name__ == "NAType":
        return None
    if value is None or isinstance(value, str):
        raise builder.refuse(imputer, f"missing_values is {value!r}; supported: NaN and numbers")
    return None if np.isnan(value) else float(value)


def _note_points(builder: Builder, x: Value, points: np.ndarray) -> None:
    """Say where the points lie, as far as they are not missing."""
    present = np.isfinite(points)
    number = np.maximum(present.sum(axis=0), 1)
    location = np.where(present, points, 0.0).sum(axis=0) / number
    spread = np.sqrt((np.where(present, points - location, 0.0) ** 2).sum(axis=0) / number)
    builder.profile.note_scale(x.features, location, np.where(spread > 0, spread, 1.0))


def _vector(numbers: Any) -> np.ndarray:
    vector: np.ndarray = np.asarray(numbers, dtype=np.float64).reshape(-1)
    return vector


def _int32(numbers: Any) -> np.ndarray:
    return np.asarray(numbers, dtype=np.int32)
