"""Candidates of a float32 product: the same neighbours, and the same distances' bits, as from all float64 distances."""

import numpy as np
import pytest
import torch

from tests.kernels.operations import run_reference
from tests.kernels.operations_neighbors import drawn_factor, drawn_points, neighbors, radius_neighbors
from triton_regressors.kernels.ops.neighbors import cpu_search as module
from triton_regressors.kernels.ops.neighbors.cpu_search import Candidates, candidates, nearest_points
from triton_regressors.kernels.ops.neighbors.distances import METRICS, reference_reduced_distances, transposed

SCALES = (1e-90, 1e-20, 1.0, 1e18, 1e90)


def drawn_rows(points: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Return points and rows near and far from them, some of them with NaN, infinity and numbers that are too large."""
    rng = np.random.default_rng(seed)
    spread = np.abs(points).max() * rng.choice([0.0, 1e-12, 1e-3, 1.0, 1e6, 1e14, 1e17, 1e30], (count, 1))
    rows: np.ndarray = points[rng.integers(0, len(points), count)] + spread * rng.standard_normal((count, 1))
    rows[1::17], rows[2::17, 0], rows[3::17], rows[4::17, -1] = np.nan, np.inf, 1e30, -1e200
    return rows


def drawn_places(kind: str, points: int, features: int, seed: int) -> np.ndarray:
    places = drawn_points(points, features, seed)
    if kind == "whole":
        return places.round()
    if kind == "far":
        return places + 1e6
    if kind == "uneven":
        return places * 10.0 ** np.random.default_rng(seed).integers(-6, 6, features)
    return np.zeros_like(places) if kind == "one" else places


@pytest.mark.parametrize("kind", ["plain", "whole", "far", "uneven", "one"])
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_neighbours_are_those_of_all_distances(monkeypatch: pytest.MonkeyPatch, kind: str, scale: float) -> None:
    monkeypatch.setattr(module, "PRODUCTS_AT_ONCE", 2**13)
    for seed, (points, features, k) in enumerate([(1, 1, 1), (40, 3, 40), (333, 5, 2), (500, 20, 5), (300, 2, 33)]):
        places = drawn_places(kind, points, features, seed) * scale
        factor = drawn_factor(features, weighted=seed % 2 == 1)
        x = torch.from_numpy(drawn_rows(places, 37, seed))
        parameters = {"columns": torch.from_numpy(transposed(places)), "factor": torch.from_numpy(factor)}
        found = Candidates(places, factor)
        expected = nearest_points(x, parameters, "euclidean", 2.0, k, None)
        for got, want in zip(found.nearest(x, k), expected, strict=True):
            assert got.numpy().tobytes() == want.numpy().tobytes()
        distance = reference_reduced_distances(x, *parameters.values(), "euclidean", 2.0)
        for radius in (0.0, float(distance[0].median()), float(distance[5].max()), np.finfo(np.float64).max):
            limit = torch.tensor([radius], dtype=torch.float64)
            assert torch.equal(found.within(x, limit), distance <= limit)


def test_rows_at_one_distance_from_all_points_are_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    places = drawn_points(500, 6, 0)
    found, x = Candidates(places, np.ones(6)), torch.from_numpy(drawn_points(40, 6, 1)) * 1e25
    expected = found._searched(x, 3)
    monkeypatch.setattr(Candidates, "_searched", None)
    for got, want in zip(found.nearest(x, 3), expected, strict=True):
        assert got.equal(want)


def test_rows_beyond_float32_are_not_searched_within_a_radius(monkeypatch: pytest.MonkeyPatch) -> None:
    found, x = Candidates(drawn_points(500, 6, 0), np.ones(6)), torch.from_numpy(drawn_points(5, 6, 1)) * 1e39
    x[0] = x[0] * 1e-39

    def distances(rows: torch.Tensor, *given: object) -> torch.Tensor:
        assert not len(rows)
        return rows.new_zeros(0, 500)

    monkeypatch.setattr(module, "reference_reduced_distances", distances)
    inside = found.within(x, torch.tensor([4.0], dtype=torch.float64))
    assert inside[0].any()
    assert not inside[1:].any()


def test_metrics_and_points_with_candidates() -> None:
    points, ones = drawn_points(9, 2), np.ones(2)
    assert [metric for metric in METRICS if candidates(points, ones, metric)] == ["euclidean", "sqeuclidean"]
    assert candidates(points, -ones, "euclidean") is None
    for factor in (np.inf, 1e-160, 1e160):
        assert candidates(points * factor, ones, "euclidean") is None
    assert candidates(points * 0, ones, "euclidean") is not None


@pytest.mark.parametrize("metric", METRICS)
def test_a_row_has_the_same_bits_in_every_batch(metric: str) -> None:
    features = 2 if metric == "haversine" else 5
    options = {"metric": metric, "p": 2.5, "weights": "distance"}
    for op in (neighbors(features, 1003, 5, 3, **options), radius_neighbors(features, 1003, 2.0, 3, **options)):
        x = np.random.default_rng(0).standard_normal((300, features))
        whole = run_reference(op, [x])
        for count in (1, 2, 7, 25, 64):
            for start in (0, 11, 300 - count):
                part = run_reference(op, [x[start : start + count]])
                assert part.tobytes() == whole[start : start + count].tobytes()
