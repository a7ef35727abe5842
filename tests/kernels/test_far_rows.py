"""Searches for rows unlike the points: they find what all distances say, and look at few points to do so."""

import numpy as np
import pytest
import torch

from tests.kernels import operations_neighbors as ops
from tests.kernels.operations import run_kernel, run_reference
from triton_regressors.kernels import nearest
from triton_regressors.kernels.ops.neighbor_graph import NeighborGraph

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter computes with NumPy

METRICS = ["euclidean", "manhattan", "chebyshev", "minkowski"]
POINTS, FEATURES, NEIGHBORS = 1100, 5, 3
STEPS = (10.0, 1e3, 1e6, 1e9, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e20, 1e38)
"""How far rows lie from the points, in standard deviations of these."""


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
    """Which of the searches by bounds is taken."""
    monkeypatch.setattr(nearest, "LISTED", dict.fromkeys(nearest.LISTED, 0))
    if request.param != "parts":
        monkeypatch.setattr(nearest, "PARTED_ROWS", 0)
    if request.param == "many rows":
        monkeypatch.setattr("triton_regressors.kernels.bounds.FUSED_NUMBERS", 0)
    return str(request.param)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("metric", METRICS)
def test_far_rows_find_their_nearest_points(device: torch.device, metric: str, weighted: bool, way: str) -> None:
    factor = ops.drawn_factor(FEATURES, weighted, 3)
    op = NeighborGraph(places(), factor, NEIGHBORS, metric=metric, p=3.0, mode="connectivity")
    x = far_rows()
    if device.type == "cuda":  # which rounds otherwise where distances differ by rounding alone
        x = x[: 3 * STEPS.index(1e9)]
    np.testing.assert_array_equal(run_kernel(op, [x], device, torch.float64), run_reference(op, [x]))
