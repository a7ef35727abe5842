"""Cases of nearest neighbours: regressors, graphs, imputation and manifolds, with their options.

Neighbours must be well apart, since scikit-learn leaves open which of equally distant ones it takes; and its brute
force must not lose digits where its answer shows them, at distance weights: such features are whole numbers.
"""

import functools

import numpy as np
from sklearn.impute import KNNImputer
from sklearn.linear_model import Ridge
from sklearn.manifold import Isomap, LocallyLinearEmbedding
from sklearn.neighbors import (
    KNeighborsRegressor,
    KNeighborsTransformer,
    NeighborhoodComponentsAnalysis,
    RadiusNeighborsRegressor,
    RadiusNeighborsTransformer,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tests.exporter.catalogue.case import add
from tests.exporter.data import (
    Data,
    column_target,
    counts,
    diabetes,
    far_from_zero,
    in_float32,
    several_targets,
    small,
    unit_scale,
)


@functools.cache
def whole() -> Data:
    """160 × 5, whole numbers with a spread of about 1,000."""
    X, y = unit_scale()
    return np.round(1000 * X), y


@functools.cache
def on_the_sphere() -> Data:
    """160 × 2, latitudes and longitudes in radians."""
    rng = np.random.default_rng(6)
    X = rng.uniform([-1.2, -3.0], [1.2, 3.0], (160, 2))
    return X, np.sin(X[:, 0]) + np.cos(X[:, 1])


@functools.cache
def with_duplicates() -> Data:
    """120 × 3, every row twice with another target."""
    X, y = unit_scale()
    return np.tile(X[:60, :3], (2, 1)), y[:120]


@functools.cache
def one_feature() -> Data:
    """60 × 1."""
    X, y = unit_scale()
    return X[:60, :1], y[:60]


@functools.cache
def with_whole_targets() -> Data:
    """160 × 5, integer targets."""
    X, y = unit_scale()
    return X, np.round(10 * y).astype(np.int64)


@functools.cache
def zeros_and_ones() -> Data:
    """160 × 30, zeros and ones."""
    rng = np.random.default_rng(7)
    X = (rng.random((160, 30)) < 0.4).astype(np.float64)
    return X, X @ rng.standard_normal(30)


def minkowski(p: float, w: object = None) -> dict[str, object]:
    return {"metric": "minkowski", "p": p, "metric_params": None if w is None else {"w": w}}


SPREAD = np.array([0.5, 2.0, 1.0, 3.0, 0.25])
COVARIANCE = np.diag(SPREAD) + 0.2

# Metrics: every one with distance weights, which show the distances themselves

METRICS = {
    "euclidean": {"metric": "euclidean"},
    "manhattan": {"metric": "manhattan"},
    "l1": {"p": 1},
    "chebyshev": {"metric": "chebyshev", "algorithm": "brute"},
    "infinity": {"metric": "infinity", "algorithm": "kd_tree"},
    "minkowski-inf": minkowski(np.inf),
    "minkowski-3": minkowski(3),
    "minkowski-1.5": {**minkowski(1.5), "algorithm": "ball_tree"},
    "minkowski-0.5": {**minkowski(0.5), "algorithm": "brute"},
    "minkowski-weighted": minkowski(2, SPREAD),
    "minkowski-2.5-weighted": {**minkowski(2.5, SPREAD), "algorithm": "brute"},
    "p": {"metric": "p", "metric_params": {"p": 4}},
    "canberra": {"metric": "canberra"},
    "braycurtis": {"metric": "braycurtis", "algorithm": "brute"},
    "seuclidean": {"metric": "seuclidean", "metric_params": {"V": SPREAD}},
    "mahalanobis": {"metric": "mahalanobis", "metric_params": {"V": COVARIANCE}},
    "mahalanobis-inverse": {
        "metric": "mahalanobis",
        "metric_params": {"VI": np.linalg.inv(COVARIANCE)},
        "algorithm": "brute",
    },
    "cosine": {"metric": "cosine"},
    "correlation": {"metric": "correlation"},
}
for name, options in METRICS.items():
    add(f"knn-{name}", "steps", KNeighborsRegressor(weights="distance", **options), unit_scale)
for name, options in {
    "haversine": {"metric": "haversine"},
    "haversine-brute": {"metric": "haversine", "algorithm": "brute", "weights": "distance"},
}.items():
    add(f"knn-{name}", "steps", KNeighborsRegressor(**options), on_the_sphere)
add("knn-sqeuclidean", "steps", KNeighborsRegressor(metric="sqeuclidean", weights="distance"), whole)
add("knn-nan-euclidean", "steps", KNeighborsRegressor(metric="nan_euclidean"), unit_scale)

# Neighbours, weights, algorithms, targets and data

add("knn", "steps", KNeighborsRegressor(), unit_scale)
add("knn-no-weights", "steps", KNeighborsRegressor(weights=None), unit_scale)
for k in (1, 2, 17, 160):
    add(f"knn-of-{k}", "steps", KNeighborsRegressor(k, weights="distance"), whole)
for algorithm in ("brute", "kd_tree", "ball_tree"):
    regressor = KNeighborsRegressor(3, weights="distance", algorithm=algorithm, leaf_size=5)
    add(f"knn-{algorithm.replace('_', '-')}", "steps", regressor, whole)
add(
    "knn-targets", "steps", make_pipeline(StandardScaler(), KNeighborsRegressor(4, weights="distance")), several_targets
)
add("knn-column-target", "steps", KNeighborsRegressor(), column_target)
add("knn-far", "steps", KNeighborsRegressor(weights="distance", algorithm="kd_tree"), far_from_zero)
add("knn-float32", "steps", KNeighborsRegressor(weights="distance"), in_float32(unit_scale))
add("knn-duplicates", "steps", KNeighborsRegressor(2, weights="distance"), with_duplicates)
add("knn-one-feature", "steps", KNeighborsRegressor(4), one_feature)
add("knn-diabetes", "steps", make_pipeline(StandardScaler(), KNeighborsRegressor(9, weights="distance")), diabetes)

# Radii: wide enough for a neighbour of nearly every drawn row

for name, regressor, data in (
    ("radius", RadiusNeighborsRegressor(4.0), unit_scale),
    ("radius-distance", RadiusNeighborsRegressor(4.0, weights="distance", algorithm="kd_tree"), unit_scale),
    ("radius-all", RadiusNeighborsRegressor(np.inf), unit_scale),
    ("radius-brute", RadiusNeighborsRegressor(4000.0, weights="distance", algorithm="brute"), whole),
    ("radius-minkowski", RadiusNeighborsRegressor(4.0, weights="distance", **minkowski(3)), unit_scale),
    ("radius-cosine", RadiusNeighborsRegressor(0.7, metric="cosine"), unit_scale),
    ("radius-haversine", RadiusNeighborsRegressor(1.0, metric="haversine", weights="distance"), on_the_sphere),
    ("radius-nan-euclidean", RadiusNeighborsRegressor(4.0, metric="nan_euclidean"), unit_scale),
    ("radius-targets", RadiusNeighborsRegressor(150.0, weights="distance"), several_targets),
    ("radius-whole-targets", RadiusNeighborsRegressor(4.0), with_whole_targets),
):
    add(name, "steps", regressor, data)
for metric in ("hamming", "dice", "jaccard", "rogerstanimoto", "russellrao", "sokalsneath", "sokalmichener"):
    algorithm = "brute" if metric == "dice" else "ball_tree"
    regressor = RadiusNeighborsRegressor(1.0, metric=metric, algorithm=algorithm, weights="distance")
    add(f"radius-{metric}", "steps", regressor, zeros_and_ones)

# Transformers

for name, transformer in {
    "graph": KNeighborsTransformer(n_neighbors=6),
    "graph-connectivity": KNeighborsTransformer(mode="connectivity", n_neighbors=6),
    "graph-radius": RadiusNeighborsTransformer(radius=1.5),
    "graph-radius-connectivity": RadiusNeighborsTransformer(mode="connectivity", radius=1.5),
    "isomap": Isomap(n_neighbors=8),
    "isomap-manhattan": Isomap(n_neighbors=8, n_components=3, p=1),
    "isomap-radius": Isomap(n_neighbors=None, radius=8.0),
    "lle": LocallyLinearEmbedding(n_neighbors=7, eigen_solver="dense"),
    "lle-3": LocallyLinearEmbedding(n_neighbors=4, n_components=3, reg=0.1, eigen_solver="dense"),
    "lle-modified": LocallyLinearEmbedding(n_neighbors=9, method="modified", eigen_solver="dense"),
    "lle-ltsa": LocallyLinearEmbedding(n_neighbors=9, method="ltsa", eigen_solver="dense"),
    "knn-imputer": KNNImputer(n_neighbors=3),
    "knn-imputer-indicator": KNNImputer(add_indicator=True, weights="distance"),
}.items():
    add(name, "steps", make_pipeline(StandardScaler(), transformer, Ridge(1e-3)), small)
add("nca", "affine", make_pipeline(NeighborhoodComponentsAnalysis(2, max_iter=5, random_state=0), Ridge()), counts)
