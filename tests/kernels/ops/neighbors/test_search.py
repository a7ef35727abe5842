"""Searches for few rows, by exact distances to all points or by bounds of parts, find the same as those for many."""

import numpy as np
import pytest
import torch

from tests.kernels.operations import run_kernel, run_reference
from tests.kernels.operations_neighbors import drawn_factor
from triton_regressors.kernels.ops.neighbors import launch
from triton_regressors.kernels.ops.neighbors.neighbor_graph import NeighborGraph
from triton_regressors.kernels.ops.neighbors.neighbors import Neighbors

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter computes with NumPy

NEVER = {True: 0, False: 0}


def tied(count: int, features: int) -> np.ndarray:
    """Return points on a small grid, many of them equal or equally far away."""
    return np.random.default_rng(features).integers(-2, 3, (count, features)).astype(np.float64)


@pytest.mark.parametrize(
    ("count", "features", "k", "metric"),
    [(1025, 3, 5, "euclidean"), (1100, 2, 16, "euclidean"), (1100, 17, 1, "manhattan")],
)
def test_every_way_answers_alike(
    device: torch.device, count: int, features: int, k: int, metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    points, rng = tied(count, features), np.random.default_rng(0)
    targets = np.ldexp(1.0, rng.permutation(count) % 50)[:, None]  # so that other points have another mean
    op = Neighbors(points, targets, drawn_factor(features, features == 17), k, metric, 3.0)
    x = np.concatenate([points[:1], rng.standard_normal((2, features)), np.full((1, features), np.nan), points[-1:]])
    listed = run_kernel(op, [x], device, torch.float64)
    np.testing.assert_allclose(listed, run_reference(op, [x]), rtol=1e-12)
    assert np.isnan(listed[3])
    np.testing.assert_array_equal(run_kernel(op, [x[1:2]], device, torch.float64), listed[1:2])
    monkeypatch.setattr(launch, "LISTED", NEVER)
    np.testing.assert_array_equal(run_kernel(op, [x], device, torch.float64), listed)
    np.testing.assert_array_equal(run_kernel(op, [x[1:2]], device, torch.float64), listed[1:2])
    monkeypatch.setattr(launch, "PARTED_ROWS", 0)
    np.testing.assert_array_equal(run_kernel(op, [x], device, torch.float64), listed)


def test_parts_that_bounds_cannot_tell_apart(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """All points lie within float16's rounding error, so that every part has to be searched."""
    rng = np.random.default_rng(3)
    points = np.ones((1100, 2)) + 2.0**-40 * rng.integers(-9, 10, (1100, 2))
    points[0] = 1e4
    op = NeighborGraph(points, np.ones(2), 5)
    x = 1.0 + 2.0**-40 * rng.integers(-9, 10, (2, 2))
    expected = run_reference(op, [x])
    np.testing.assert_array_equal(run_kernel(op, [x], device, torch.float64), expected)
    monkeypatch.setattr(launch, "LISTED", NEVER)
    np.testing.assert_array_equal(run_kernel(op, [x], device, torch.float64), expected)
