"""Points within a radius by matrix products: the very points that float64 chooses, and sums that no order changes."""

import dataclasses

import numpy as np
import pytest
import torch

from tests.kernels.operations import run_kernel, run_reference
from tests.kernels.operations_neighbors import drawn_factor, radius_by_products
from triton_regressors.kernels.ops.neighbors import radius_sums
from triton_regressors.kernels.ops.neighbors.radius_neighbors import RadiusNeighbors

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter computes with NumPy


def counting(points: np.ndarray, radius: float, factor: np.ndarray | None = None) -> RadiusNeighbors:
    """Return an operation whose targets are powers of two by point, so that most sets of points have other means."""
    targets = np.ldexp(1.0, np.arange(len(points)) % 40)[:, None]
    factor = np.ones(points.shape[1]) if factor is None else factor
    return RadiusNeighbors(points, targets, factor, np.array([-1.0]), radius)


def check(op: RadiusNeighbors, x: np.ndarray, device: torch.device) -> np.ndarray:
    """The kernels' answers are the reference's, to what float64 sums lose; return them."""
    assert op._by_products
    found = run_kernel(op, [x], device, torch.float64)
    np.testing.assert_allclose(found, run_reference(op, [x]), rtol=1e-13, atol=1e-13)
    return found


@pytest.mark.parametrize(("features", "outputs", "radius"), [(1, 1, 0.1), (3, 3, 0.5), (3, 17, 1.2), (64, 1, 9.8)])
def test_means_are_the_reference_s(device: torch.device, features: int, outputs: int, radius: float) -> None:
    op = radius_by_products(features, 1100, radius, outputs, seed=features)
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.standard_normal((5, features)), op.points[:3], 9 * rng.standard_normal((3, features))])
    found = check(op, x, device)
    assert len(np.unique(found[:8, 0])) > 3
    assert (check(op, np.full((1, features), 50.0), device) == op.empty).all()


@pytest.mark.parametrize("weighted", [False, True])
def test_points_that_products_cannot_tell_apart(device: torch.device, weighted: bool) -> None:
    """Points lie on spheres of exactly the radius, and a few units in the last place larger and smaller."""
    rng = np.random.default_rng(weighted)
    x, factor = rng.standard_normal((4, 5)), drawn_factor(5, weighted)
    points = 8 * rng.standard_normal((1500, 5))
    away = rng.standard_normal((120, 5))
    away /= np.sqrt((factor * away**2).sum(axis=1, keepdims=True))
    points[:120] = x[np.arange(120) % 4] + 3.0 * away * (1 + (np.arange(120) % 7 - 3)[:, None] * 2.0**-52)
    op = counting(points, 3.0, factor)
    assert len(np.unique(check(op, x, device))) == 4


def test_a_grid_has_points_just_a_radius_away(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(radius_sums, "MOST_DOUBTS", 1.0)
    points = np.stack(np.divmod(np.arange(1600.0), 40), axis=1)
    op = counting(points, 5.0)
    inside = ((points[:, None] - points[[0, 820, 1599]]) ** 2).sum(2) <= 25
    expected = [op.targets[each].mean() for each in inside.T]
    np.testing.assert_allclose(check(op, points[[0, 820, 1599]], device)[:, 0], expected, rtol=1e-13)


def test_rows_that_float16_cannot_hold(device: torch.device) -> None:
    op = counting(np.random.default_rng(0).standard_normal((1100, 2)), 1.0)
    x = np.array([[np.nan, 0.0], [np.inf, 0.0], [-np.inf, np.nan], [1e300, 0.0], [-3e7, 1.0], [500.0, 0.0], [0.0, 0.0]])
    answers = check(op, x, device)[:, 0]
    assert (answers[:6] == -1).all()
    assert answers[6] > 0
    for radius in (1e7, 1e200):
        check(dataclasses.replace(op, radius=radius), x[1:], device)


def test_points_small_and_large(device: torch.device) -> None:
    rng = np.random.default_rng(3)
    for size in (1e-60, 1e60):
        points = size * rng.standard_normal((1100, 3))
        check(counting(points, 0.7 * size), size * rng.standard_normal((3, 3)), device)


def test_no_launch_shape_changes_a_bit(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    op = radius_by_products(3, 1100, 0.9, 2)
    x = np.random.default_rng(5).standard_normal((17, 3))
    whole = run_kernel(op, [x], device)
    shapes = [(16, 64, 3, 1), (16, 128, 9, 4)] if device.type == "cpu" else [(64, 128, 2, 4), (128, 64, 18, 8)]
    for block_rows, block_points, tiles_each, warps in shapes:
        shape = {"BLOCK_ROWS": block_rows, "BLOCK_POINTS": block_points, "num_warps": warps}
        monkeypatch.setattr(radius_sums, "sums_shape", lambda *_, given=(shape, tiles_each): given)
        np.testing.assert_array_equal(run_kernel(op, [x], device), whole)
    monkeypatch.setattr(radius_sums, "SUMS_AT_ONCE", 1)
    np.testing.assert_array_equal(run_kernel(op, [x[:3]], device), whole[:3])


def test_digits_are_the_targets() -> None:
    rng = np.random.default_rng(0)
    targets = np.ldexp(rng.standard_normal((500, 3)), rng.integers(-12, 12, (500, 3)))
    targets[:4, 0], targets[:, 2] = [0.0, 2.0**13, -(2.0**13), 1 / 3], 0.0
    digits, quantum = radius_sums.in_digits(targets)
    assert (digits[:, 0] == 1).all()
    assert (digits.astype(np.float16) == digits).all()
    assert np.abs(digits).max() <= 1025
    weights = 2048.0 ** np.arange(4, -1, -1)[:, None]
    found = (digits[:, 1:].reshape(500, 5, 3) * weights).sum(axis=1) * quantum
    assert np.abs(found - targets).max() <= np.abs(targets).max() * 2.0**-52
    assert found[0, 0] == 0
    assert (found[:, 2] == 0).all()


def test_which_models_are_decided_about_by_products() -> None:
    op = radius_by_products(2, 1100, 0.5)
    assert op._by_products
    assert op.launches(1) == 3
    clusters = np.random.default_rng(0).integers(0, 2, (1100, 1)) * np.ones(2) + op.points * 1e-4
    assert not radius_by_products(65, 1100, 10.0)._by_products
    unlike = {"weights": "distance"}, {"metric": "manhattan"}, {"points": clusters, "radius": 1e-4}
    for changes in (*unlike, {"targets": np.full((1100, 1), np.inf)}, {"points": op.points * 1e120}):
        assert not dataclasses.replace(op, **changes)._by_products
