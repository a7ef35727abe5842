"""Nearest neighbours where it is delicate: ties, exact hits, empty neighbourhoods, missing numbers, odd metrics."""

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.impute import KNNImputer
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.manifold import Isomap, LocallyLinearEmbedding
from sklearn.neighbors import KNeighborsRegressor, KNeighborsTransformer, RadiusNeighborsRegressor
from sklearn.pipeline import make_pipeline

from tests.exporter.data import far_from_zero, small, unit_scale
from tests.kernels.operations import run_plan
from triton_regressors.exporter.lowering.builder import Builder
from triton_regressors.exporter.passes.optimise import fuse

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")

X, y = unit_scale()
NOISE = 1e-10


def compute(estimator: Any, rows: Any) -> np.ndarray:
    """Return what the estimator's plan answers to float64 rows."""
    rows = np.asarray(rows, dtype=np.float64)
    builder = Builder(rows.shape[1])
    plan = fuse(builder.plan({"y": builder.lower(estimator, builder.input)}))
    return run_plan(plan, rows)["y"]


def expected(estimator: Any, rows: Any) -> np.ndarray:
    """Return what scikit-learn answers."""
    rows = np.asarray(rows, dtype=np.float64)
    answer = estimator.predict(rows) if hasattr(estimator, "predict") else estimator.transform(rows)
    return np.asarray(answer, dtype=np.float64).reshape(len(rows), -1)


def check(estimator: Any, rows: Any, noise: float = NOISE) -> np.ndarray:
    """The plan answers as the estimator does, NaN where it does; return the answers."""
    found, wanted = compute(estimator, rows), expected(estimator, rows)
    scale = max(np.abs(np.nan_to_num(wanted)).max(), 1.0)
    assert np.array_equal(np.isnan(found), np.isnan(wanted))
    assert np.allclose(found, wanted, rtol=0, atol=noise * scale, equal_nan=True)
    return found


def near(rows: int = 60, seed: int = 0, width: int = 5) -> np.ndarray:
    """Return rows like the training data, as float32 numbers."""
    return np.random.default_rng(seed).standard_normal((rows, width)).astype(np.float32).astype(np.float64)


# Ties and hits


@pytest.mark.parametrize("algorithm", ["brute", "kd_tree", "ball_tree"])
def test_the_first_of_equally_distant_points_is_nearer(algorithm: str) -> None:
    points = np.array([[0.0, 2.0], [2.0, 0.0], [0.0, -2.0], [1.0, 0.0], [-2.0, 0.0]])
    regressor = KNeighborsRegressor(2, algorithm=algorithm).fit(points, 10.0 ** np.arange(5))
    assert compute(regressor, [[0.0, 0.0]])[0, 0] == (1000 + 1) / 2


@pytest.mark.parametrize("algorithm", ["brute", "kd_tree", "ball_tree"])
@pytest.mark.parametrize("regressor", [KNeighborsRegressor(4), RadiusNeighborsRegressor(2500.0)])
def test_of_exact_hits_only_the_hits_count(regressor: Any, algorithm: str) -> None:
    points = np.round(1000 * np.concatenate([X[:50], X[:20], X[:5]]))
    regressor.set_params(weights="distance", algorithm=algorithm).fit(points, np.arange(75.0))
    found = check(regressor, points[:30])[:, 0]
    assert found[:5] == pytest.approx((np.arange(5) + np.arange(50, 55) + np.arange(70, 75)) / 3)
    assert found[5:20] == pytest.approx((np.arange(5, 20) + np.arange(55, 70)) / 2)
    assert found[20:] == pytest.approx(np.arange(20, 30))


def test_far_from_zero_neighbours_are_the_exact_ones() -> None:
    """scikit-learn's brute force expands |x − y|² and loses what our sums keep; its trees do not."""
    points, targets = far_from_zero()
    tree, brute = (
        KNeighborsRegressor(weights="distance", algorithm=name).fit(points, targets) for name in ("kd_tree", "brute")
    )
    rows = points + 1e-3
    assert np.abs(compute(brute, rows) - expected(tree, rows)).max() <= NOISE * targets.std()
    assert np.abs(expected(brute, rows) - expected(tree, rows)).max() > 1e-6 * targets.std()


@pytest.mark.parametrize("weights", ["uniform", "distance"])
def test_one_training_row(weights: str) -> None:
    regressor = KNeighborsRegressor(1, weights=weights).fit([[1.0, 2.0]], [[3.0, 4.0]])
    assert check(regressor, [[1.0, 2.0], [9.0, 9.0]]).tolist() == [[3.0, 4.0], [3.0, 4.0]]


def test_many_neighbours() -> None:
    points = near(700, 1, 2)
    check(KNeighborsRegressor(600, weights="distance").fit(points, points[:, 0]), near(40, 2, 2))


@pytest.mark.parametrize("magnitude", [1e-30, 1e30])
def test_huge_and_tiny_magnitudes(magnitude: float) -> None:
    for p in (1, 2, 3.5):
        regressor = KNeighborsRegressor(3, weights="distance", p=p).fit(X * magnitude, y)
        check(regressor, near() * magnitude)


def test_sparse_training_data() -> None:
    check(KNeighborsRegressor(3).fit(sparse.csr_array(X), y), near())


# Neighbourhoods of a radius


def test_an_empty_neighbourhood_answers_nan() -> None:
    regressor = RadiusNeighborsRegressor(0.5).fit(X, y)
    found = check(regressor, np.concatenate([X[:5], X[:5] + 100]))
    assert np.isnan(found[5:]).all()
    assert np.isfinite(found[:5]).all()


def test_an_empty_neighbourhood_of_integer_targets_answers_what_scikit_learn_makes_of_nan() -> None:
    regressor = RadiusNeighborsRegressor(0.5).fit(X, np.arange(len(X)))
    found = check(regressor, np.concatenate([X[:5], X[:5] + 100]))
    assert np.isfinite(found).all()


@pytest.mark.parametrize("algorithm", ["brute", "kd_tree", "ball_tree"])
def test_the_boundary_belongs_to_the_neighbourhood(algorithm: str) -> None:
    points = np.array([[3.0, 4.0], [-4.0, 3.0], [5.0, 1.0], [0.0, 1.0]])
    for metric, radius in (("euclidean", 5.0), ("manhattan", 7.0), ("chebyshev", 4.0)):
        regressor = RadiusNeighborsRegressor(radius, metric=metric, algorithm=algorithm)
        found = check(regressor.fit(points, [1.0, 10.0, 100.0, 1000.0]), [[0.0, 0.0]])
        assert found[0, 0] == (1011 / 3 if metric != "manhattan" else 1111 / 4)


def test_a_radius_of_zero() -> None:
    found = check(RadiusNeighborsRegressor(0.0, algorithm="kd_tree").fit(X, y), np.concatenate([X[:3], near(3)]))
    assert np.isnan(found[3:]).all()
    assert found[:3, 0] == pytest.approx(y[:3])


# Metrics


def categories(rows: int, seed: int, number: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, number, (rows, 7)).astype(np.float64)


def test_hamming_with_weights() -> None:
    w = [1.0, 2.1, 4.3, 8.7, 16.9, 33.1, 65.7]  # no two sums are equal, so no two points are equally distant
    points = np.unique(categories(150, 0, 2), axis=0)
    regressor = KNeighborsRegressor(3, metric="hamming", metric_params={"w": w}, algorithm="brute", weights="distance")
    check(regressor.fit(points, np.arange(len(points))), categories(50, 1, 2))


@pytest.mark.parametrize(
    "metric", ["hamming", "jaccard", "rogerstanimoto", "russellrao", "sokalsneath", "dice", "canberra", "braycurtis"]
)
@pytest.mark.parametrize("weights", ["uniform", "distance"])
def test_metrics_of_categories(metric: str, weights: str) -> None:
    for radius in (2 / 7, 0.5, 0.75):
        regressor = RadiusNeighborsRegressor(radius, metric=metric, weights=weights, algorithm="brute")
        check(regressor.fit(categories(80, 0), np.arange(80.0)), categories(50, 1))


def test_rows_of_zeros_have_cosine_distance_one() -> None:
    points = np.concatenate([X[:30], np.zeros((2, 5)), 1e-20 * X[:2]])
    for radius in (0.99, 1.0):
        check(RadiusNeighborsRegressor(radius, metric="cosine").fit(points, np.arange(34.0)), [np.zeros(5), X[40]])


def test_points_that_do_not_vary_correlate_with_nothing() -> None:
    points = np.concatenate([np.ones((3, 5)), X[:30]])
    check(KNeighborsRegressor(4, metric="correlation").fit(points, np.arange(33.0)), near(30))


def test_a_singular_covariance() -> None:
    root = near(3, 3, 5)
    regressor = RadiusNeighborsRegressor(2.0, metric="mahalanobis", metric_params={"VI": root.T @ root})
    check(regressor.set_params(algorithm="brute").fit(X, y), near())


# Missing numbers


def with_gaps(rows: np.ndarray, share: float = 0.3, seed: int = 5, missing: float = np.nan) -> np.ndarray:
    rows = rows.copy()
    rows[np.random.default_rng(seed).random(rows.shape) < share] = missing
    return rows


@pytest.mark.parametrize("weights", ["uniform", "distance"])
@pytest.mark.parametrize("algorithm", ["auto", "brute"])
def test_nan_euclidean_with_missing_numbers(weights: str, algorithm: str) -> None:
    regressor = KNeighborsRegressor(4, metric="nan_euclidean", weights=weights, algorithm=algorithm)
    check(regressor.fit(with_gaps(X), y), with_gaps(near(), seed=6))
    radius = RadiusNeighborsRegressor(2.0, metric="nan_euclidean", weights=weights)
    check(radius.fit(with_gaps(X), y), with_gaps(near(), seed=6))


IMPUTERS = {
    "three": KNNImputer(n_neighbors=3),
    "distance": KNNImputer(weights="distance"),
    "one": KNNImputer(n_neighbors=1),
    "more than there are": KNNImputer(n_neighbors=500),
    "indicator": KNNImputer(add_indicator=True),
    "empty kept": KNNImputer(keep_empty_features=True, add_indicator=True, weights="distance"),
    "no weights": KNNImputer(weights=None),
}


@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("missing", [np.nan, -1.0])
@pytest.mark.parametrize("name", IMPUTERS)
def test_imputed_rows(name: str, missing: float, empty: bool) -> None:
    training = with_gaps(X, missing=missing)
    if empty:
        training[:, 2] = missing
    model = make_pipeline(IMPUTERS[name].set_params(missing_values=missing), Ridge()).fit(training, y)
    rows = with_gaps(near(), 0.4, 6, missing)
    rows[0], rows[1, [0, 1, 3, 4]] = missing, missing  # nothing to measure by; at most an empty column
    check(model[:1], rows)
    check(model, rows)
    check(model, near())


def test_a_feature_without_common_donors_becomes_its_mean() -> None:
    training = np.array([[1.0, np.nan, np.nan], [3.0, np.nan, np.nan], [np.nan, 1.0, 5.0], [np.nan, 2.0, 7.0]])
    found = check(KNNImputer(n_neighbors=2).fit(training), [[4.0, np.nan, np.nan], [np.nan, 1.0, np.nan]])
    assert found.tolist() == [[4.0, 1.5, 6.0], [2.0, 1.0, 6.0]]


def test_donors_at_no_distance_alone_donate() -> None:
    training = np.array([[1.0, 10.0], [1.0, 30.0], [2.0, 70.0], [4.0, 90.0]])
    found = check(KNNImputer(n_neighbors=4, weights="distance").fit(training), [[1.0, np.nan], [3.0, np.nan]])
    assert found[:, 1] == pytest.approx([20.0, (70 + 90 + 10 / 2 + 30 / 2) / 3])


# Manifolds


def test_isomap_over_unconnected_parts() -> None:
    points, targets = small()
    points = np.concatenate([points[:60], points[60:100] + 500])
    model = make_pipeline(Isomap(n_neighbors=4, n_components=3), LinearRegression()).fit(points, targets[:100])
    check(model, points + 0.1)


def test_isomap_of_a_row_without_a_neighbour_answers_nan() -> None:
    isomap = Isomap(n_neighbors=None, radius=4.0).fit(X)
    assert np.isnan(compute(isomap, X[:1] + 1000)).all()
    with pytest.raises(ValueError, match="zero-size array"):
        isomap.transform(X[:1] + 1000)


@pytest.mark.parametrize("k", [1, 5, 20])
@pytest.mark.parametrize("reg", [1e-3, 0.5])
def test_locally_linear_embedding(k: int, reg: float) -> None:
    embedding = LocallyLinearEmbedding(n_neighbors=k, reg=reg, eigen_solver="dense").fit(X)
    check(embedding, np.concatenate([X[:10], near()]))


def test_locally_linear_embedding_of_equal_points() -> None:
    points = np.repeat(X[:20], 3, axis=0)
    embedding = LocallyLinearEmbedding(n_neighbors=3, eigen_solver="dense").fit(points)
    check(embedding, X[:20])


def test_a_graph_of_all_points_and_targets_of_a_pipeline() -> None:
    model = make_pipeline(KNeighborsTransformer(n_neighbors=159), Ridge()).fit(X, np.stack([y, -y], axis=1))
    check(model, near())
