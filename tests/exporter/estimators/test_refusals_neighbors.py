"""Nearest neighbours that cannot be exported are refused in one sentence."""

from typing import Any

import numpy as np
import pytest
from sklearn.impute import KNNImputer
from sklearn.linear_model import Ridge
from sklearn.manifold import Isomap, LocallyLinearEmbedding
from sklearn.metrics import DistanceMetric
from sklearn.neighbors import (
    KDTree,
    KNeighborsRegressor,
    KNeighborsTransformer,
    NearestNeighbors,
    RadiusNeighborsRegressor,
)
from sklearn.pipeline import make_pipeline

from tests.exporter.data import unit_scale
from triton_regressors import ExportError
from triton_regressors.exporter.compile import compile_estimator

X, y = unit_scale()
SUPPORTED = (
    "supported: braycurtis, canberra, chebyshev, cityblock, correlation, cosine, dice, euclidean, hamming, haversine, "
    "infinity, jaccard, l1, l2, mahalanobis, manhattan, minkowski, nan_euclidean, p, rogerstanimoto, russellrao, "
    "seuclidean, sokalmichener, sokalsneath, sqeuclidean."
)


def distance(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.abs(a - b).sum())


def squares() -> np.ndarray:
    """Return the distances of the rows to one another."""
    return np.linalg.norm(X[:, None] - X, axis=2)


def knn(**options: Any) -> KNeighborsRegressor:
    return KNeighborsRegressor(**options).fit(X, y)


REFUSED: dict[str, tuple[Any, str]] = {
    "weights": (
        lambda: knn(weights=np.sqrt),
        "Cannot export KNeighborsRegressor: weights is a callable; supported: 'uniform', 'distance'.",
    ),
    "radius weights": (
        lambda: RadiusNeighborsRegressor(weights=np.sqrt).fit(X, y),
        "Cannot export RadiusNeighborsRegressor: weights is a callable; supported: 'uniform', 'distance'.",
    ),
    "callable metric": (
        lambda: knn(metric=distance),
        f"Cannot export KNeighborsRegressor: metric is a callable; {SUPPORTED}",
    ),
    "metric object": (
        lambda: knn(metric=DistanceMetric.get_metric("euclidean")),
        f"Cannot export KNeighborsRegressor: metric is a EuclideanDistance64 object; {SUPPORTED}",
    ),
    "precomputed": (
        lambda: KNeighborsRegressor(metric="precomputed").fit(squares(), y),
        f"Cannot export KNeighborsRegressor: metric is 'precomputed'; {SUPPORTED}",
    ),
    "yule": (lambda: knn(metric="yule"), f"Cannot export KNeighborsRegressor: metric is 'yule'; {SUPPORTED}"),
    "dice in a ball tree": (
        lambda: KNeighborsRegressor(metric="dice").fit((X > 0).astype(float), y),
        "Cannot export KNeighborsRegressor: metric is 'dice', which breaks the triangle inequality, so that a ball "
        "tree misses neighbours; supported: algorithm='brute'.",
    ),
    "metric parameter": (
        lambda: knn(metric="correlation", metric_params={"w": np.ones(5)}),
        "Cannot export KNeighborsRegressor: metric_params holds 'w', which is not supported for 'correlation'.",
    ),
    "no V": (
        lambda: knn(metric="seuclidean", algorithm="brute"),
        "Cannot export KNeighborsRegressor: metric_params holds no 'V', which 'seuclidean' needs.",
    ),
    "no VI": (
        lambda: knn(metric="mahalanobis", algorithm="brute"),
        "Cannot export KNeighborsRegressor: metric_params holds neither 'V' nor 'VI', which 'mahalanobis' needs.",
    ),
    "indefinite VI": (
        lambda: knn(metric="mahalanobis", algorithm="brute", metric_params={"VI": np.diag([1.0, 1, 1, 1, -1])}),
        "Cannot export KNeighborsRegressor: the inverse covariance in metric_params has negative eigenvalues.",
    ),
    "few rows": (
        lambda: KNeighborsRegressor(7).fit(X[:5], y[:5]),
        "Cannot export KNeighborsRegressor: it looks for 7 neighbours and was fitted on 5 rows.",
    ),
    "many neighbours": (
        lambda: KNeighborsRegressor(4097).fit(np.arange(5000.0)[:, None], np.arange(5000)),
        "Cannot export KNeighborsRegressor: n_neighbors is 4097; at most 4096 are supported.",
    ),
    "graph": (
        lambda: make_pipeline(KNeighborsTransformer(n_neighbors=159, metric=distance), Ridge()).fit(X, y),
        "Cannot export KNeighborsTransformer (step 'kneighborstransformer'): metric is a callable; " + SUPPORTED,
    ),
    "many donors": (
        lambda: make_pipeline(KNNImputer(n_neighbors=4097), Ridge()).fit(np.arange(5000.0)[:, None], np.arange(5000)),
        "Cannot export KNNImputer (step 'knnimputer'): n_neighbors is 4097; at most 4096 are supported.",
    ),
    "imputer weights": (
        lambda: make_pipeline(KNNImputer(weights=np.sqrt), Ridge()).fit(X, y),
        "Cannot export KNNImputer (step 'knnimputer'): weights is a callable; supported: 'uniform', 'distance'.",
    ),
    "imputer metric": (
        lambda: make_pipeline(KNNImputer(metric=lambda a, b, missing_values: distance(a, b)), Ridge()).fit(X, y),
        "Cannot export KNNImputer (step 'knnimputer'): metric is a callable; supported: 'nan_euclidean'.",
    ),
    "isomap": (
        lambda: make_pipeline(Isomap(metric="precomputed"), Ridge()).fit(squares(), y),
        f"Cannot export Isomap (step 'isomap'): metric is 'precomputed'; {SUPPORTED}",
    ),
    "many barycentres": (
        lambda: LocallyLinearEmbedding(eigen_solver="dense").fit(X).set_params(n_neighbors=129),
        "Cannot export LocallyLinearEmbedding: n_neighbors is 129; at most 128 are supported.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_exported_is_named(case: str) -> None:
    fit, message = REFUSED[case]
    with pytest.raises(ExportError) as raised:
        compile_estimator(fit())
    assert str(raised.value) == message


def test_a_tree_in_place_of_training_data() -> None:
    regressor = KNeighborsRegressor().fit(KDTree(X), y)
    with pytest.raises(ExportError, match="it was fitted on a tree, whose metric it does not say; fit it on an array"):
        compile_estimator(regressor, sample=X)


def test_an_imputer_of_columns_without_numbers() -> None:
    imputer = KNNImputer().fit(np.full((3, 2), np.nan))
    with pytest.raises(ExportError, match="it keeps no feature: it was fitted on columns without a number"):
        compile_estimator(imputer, sample=np.zeros((3, 2)))


def test_a_search_is_no_regressor() -> None:
    with pytest.raises(ExportError, match="NearestNeighbors: it neither predicts nor transforms new rows"):
        compile_estimator(NearestNeighbors().fit(X))
