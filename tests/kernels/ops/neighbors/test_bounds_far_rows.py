"""Searches for rows unlike the points: they find the same as all distances, and look at few points."""

import numpy as np
import pytest
import torch

from tests.kernels import operations_neighbors as ops
from tests.kernels.operations import run_kernel, run_reference
from triton_regressors.kernels.ops.neighbors import launch
from triton_regressors.kernels.ops.neighbors.bounds import bound_parameters, bounds_of
from triton_regressors.kernels.ops.neighbors.distances import SQUARED, Metric
from triton_regressors.kernels.ops.neighbors.neighbor_graph import NeighborGraph
from triton_regressors.kernels.ops.neighbors.neighbor_imputer import NeighborImputer
from triton_regressors.kernels.ops.neighbors.neighbors import Neighbors
from triton_regressors.kernels.ops.neighbors.radius_neighbors import RadiusNeighbors

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter computes with NumPy

METRICS = ["euclidean", "manhattan", "chebyshev", "minkowski"]
POINTS, FEATURES, NEIGHBORS = 1100, 5, 3
STEPS = (10.0, 1e3, 1e6, 1e9, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e20, 1e38)
"""Distances of rows from the points, in standard deviations of the points."""


def places() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((POINTS, FEATURES))


def far_rows(count: int = 3, steps: tuple[float, ...] = STEPS) -> np.ndarray:
    """Return rows at each distance, some along one feature alone, and rows of random bits."""
    rng = np.random.default_rng(1)
    x = np.concatenate([step * rng.standard_normal((count, FEATURES)) for step in steps])
    x[::count, 1:] = rng.standard_normal((len(steps), FEATURES - 1))
    bits = rng.integers(0, 2**32, (4, FEATURES), dtype=np.uint32).view(np.float32)
    return np.concatenate([x, np.nan_to_num(bits.astype(np.float64), nan=1.0, posinf=1e30, neginf=-1e30)])


@pytest.fixture(params=["groups", "parts", "many rows"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the search by bounds that the operation takes."""
    monkeypatch.setattr(launch, "LISTED", dict.fromkeys(launch.LISTED, 0))
    if request.param != "parts":
        monkeypatch.setattr(launch, "PARTED_ROWS", 0)
    if request.param == "many rows":
        monkeypatch.setattr(launch, "FUSED_NUMBERS", 0)
    return str(request.param)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("metric", METRICS)
def test_far_rows_find_their_nearest_points(device: torch.device, metric: str, weighted: bool, way: str) -> None:
    factor = ops.drawn_factor(FEATURES, weighted, 3)
    op = NeighborGraph(places(), factor, NEIGHBORS, metric=metric, p=3.0, mode="connectivity")
    x = far_rows()
    if device.type == "cuda":  # a GPU rounds differently if distances differ by rounding alone
        x = x[: 3 * STEPS.index(1e9)]
    np.testing.assert_array_equal(run_kernel(op, [x], device, torch.float64), run_reference(op, [x]))


@pytest.mark.parametrize("metric", METRICS[:3])
def test_far_rows_have_the_same_bits_in_every_search(
    device: torch.device, metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    op = NeighborGraph(places(), np.ones(FEATURES), NEIGHBORS, metric=metric)
    x = far_rows(2)
    listed = run_kernel(op, [x], device, torch.float64)
    np.testing.assert_array_equal(run_kernel(op, [x[5:6]], device, torch.float64), listed[5:6])
    monkeypatch.setattr(launch, "LISTED", dict.fromkeys(launch.LISTED, 0))
    np.testing.assert_array_equal(run_kernel(op, [x], device, torch.float64), listed)
    monkeypatch.setattr(launch, "PARTED_ROWS", 0)
    np.testing.assert_array_equal(run_kernel(op, [x], device, torch.float64), listed)
    monkeypatch.setattr(launch, "FUSED_NUMBERS", 0)
    monkeypatch.setattr(launch, "FEW_ROWS", 0)
    np.testing.assert_array_equal(run_kernel(op, [x], device, torch.float64), listed)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("metric", METRICS[:3])
def test_bounds_of_far_rows_leave_few_groups(
    device: torch.device, metric: str, fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not fused:
        monkeypatch.setattr(launch, "FUSED_NUMBERS", 0)
    op, rng = Neighbors(places(), places()[:, :1], np.ones(FEATURES), NEIGHBORS, metric), np.random.default_rng(2)
    near = rng.standard_normal((4, FEATURES))
    for step in (1.0, 10.0, 1e4, 1e8, 1e15, 1e25):
        assert groups_to_look_at(op, near * step, device) <= 3 * NEIGHBORS, step


def groups_to_look_at(op: Neighbors, x: np.ndarray, device: torch.device) -> int:
    """Return the largest number of groups whose bounds allow a point nearer than the last of a row's nearest."""
    parameters = {
        name: torch.from_numpy(np.ascontiguousarray(array)).to(device)
        for name, array in (bound_parameters(op.points, 3, op.factor, op.metric) | {"factor": op.factor}).items()
    }
    metric = Metric.of(op.metric, 2.0, op.factor)
    rows = torch.from_numpy(x).to(device)
    ((_, bounds, reach),) = bounds_of(rows, parameters, len(x), len(op.points), metric)
    reduced = "sqeuclidean" if op.metric in SQUARED else op.metric
    graph = NeighborGraph(op.points, op.factor, op.n_neighbors, metric=reduced)
    worst = run_kernel(graph, [x], device, torch.float64).max(axis=1)
    scale, offset = reach.cpu().numpy().T
    limit = worst * scale - offset
    return int((bounds.cpu().numpy() < limit[:, None]).sum(axis=1).max())


@pytest.mark.parametrize("metric", METRICS)
def test_no_point_is_within_a_radius_of_far_rows(device: torch.device, metric: str) -> None:
    targets = np.random.default_rng(3).standard_normal((POINTS, 1))
    op = RadiusNeighbors(places(), targets, np.ones(FEATURES), np.array([7.0]), 0.5, metric, 3.0, "distance")
    assert op._few
    x = np.concatenate([places()[:5], far_rows()])
    found = run_kernel(op, [x], device, torch.float64)
    np.testing.assert_allclose(found, run_reference(op, [x]), rtol=1e-12)
    assert (found[5 + 3 :: 3] == 7.0).all()


@pytest.mark.parametrize("weights", ["uniform", "distance"])
def test_far_rows_are_imputed(device: torch.device, weights: str) -> None:
    rng = np.random.default_rng(4)
    points = places()
    points[rng.random(points.shape) < 0.1] = np.nan
    op = NeighborImputer(points, np.nanmean(points, axis=0), np.arange(FEATURES, dtype=np.int32), 3, weights)
    x = far_rows(2, STEPS[:4] if device.type == "cuda" else STEPS)
    x[rng.random(x.shape) < 0.2] = np.nan
    np.testing.assert_allclose(run_kernel(op, [x], device, torch.float64), run_reference(op, [x]), rtol=1e-12)
