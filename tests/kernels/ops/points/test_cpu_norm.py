"""Products with triangular weights by solving: the numbers of the product, and a row's bits in every batch."""

import numpy as np
import pytest
import torch
from scipy.linalg import solve_triangular

from triton_regressors.exporter.estimators.gaussian_process import whiten
from triton_regressors.kernels.cpu.blocked_weight import LargeWeight, rows_of
from triton_regressors.kernels.cpu.tiles import one_thread
from triton_regressors.kernels.ops.points import cpu_norm
from triton_regressors.kernels.ops.points.cpu_norm import TriangularWeight
from triton_regressors.kernels.ops.points.squared_norm import SquaredNorm


def process(spread: float, points: int = 500) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the parts of a Gaussian process's variance, for points that far apart in length scales.

    These are the weight, functions of rows and points, and the variances that scikit-learn computes.
    """
    rng = np.random.default_rng(0)
    places = spread * rng.standard_normal((points, 3))
    rows = np.concatenate([places[:50] + 1e-3 * rng.standard_normal((50, 3)), spread * rng.standard_normal((50, 3))])

    def kernel(first: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(-0.5 * ((first[:, None, :] - places) ** 2).sum(axis=2)))

    cholesky, k = np.linalg.cholesky(kernel(places) + 1e-8 * np.eye(points)), kernel(rows)
    weight, order = whiten(cholesky)
    return weight, k[:, order], (solve_triangular(cholesky, k.T, lower=True) ** 2).sum(axis=0)


@pytest.mark.parametrize("spread", [5.0, 2.0, 1.0, 0.3])
def test_variances_are_nearer_to_the_exact_ones_than_scikit_learn_s(spread: float) -> None:
    weight, k, scikit_learn = process(spread)
    assert TriangularWeight.suits(weight, 512)
    exact = ((k.astype(np.longdouble) @ weight.astype(np.longdouble)) ** 2).sum(axis=1)
    parts = TriangularWeight(weight, 512).products(100, rows_of(torch.from_numpy(k)))
    found = np.concatenate([part.numpy().copy() for _, part in parts])
    assert not found[:, 500:].any()
    np.testing.assert_allclose(found[:, :500], k @ weight, rtol=0, atol=1e-9)
    assert np.abs((found**2).sum(axis=1) - exact).max() < 0.5 * np.abs(scikit_learn - exact).max() + 1e-14


def test_a_row_has_the_same_bits_in_every_batch() -> None:
    weight, k, _ = process(1.0)
    x = torch.from_numpy(np.tile(k, (3, 1)))
    large = TriangularWeight(weight, 512)

    def product(rows: torch.Tensor) -> torch.Tensor:
        return torch.cat([part.clone() for _, part in large.products(len(rows), rows_of(rows))])

    with one_thread():
        whole = product(x)
        for count in (1, 2, 5, 64, 200):
            assert torch.equal(product(x[7 : 7 + count]), whole[7 : 7 + count])
        assert torch.equal(product(x.flip(0)).flip(0), whole)
        assert torch.equal(whole[:100], whole[200:])


def test_a_library_that_treats_rows_differently_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    solve = cpu_norm._solve

    def other(lower: torch.Tensor, tile: torch.Tensor, out: torch.Tensor) -> None:
        solve(lower, tile, out)
        out[1] += 1.0

    monkeypatch.setattr(cpu_norm, "_solve", other)
    cpu_norm._sizes_alike.cache_clear()
    try:
        weight, _, _ = process(1.0)
        assert not TriangularWeight.suits(weight, 512)
        assert isinstance(SquaredNorm(weight, np.zeros(500))._plain, LargeWeight)
    finally:
        cpu_norm._sizes_alike.cache_clear()


def test_which_weights_are_solved_with() -> None:
    weight, _, _ = process(1.0)
    singular = weight.copy()
    singular[3, 3] = 0.0
    few = np.eye(20)
    for other, columns in ((singular, 512), (weight[:, :-1], 512), (few, 32)):
        assert not TriangularWeight.suits(other, columns)
    full = SquaredNorm(weight + np.tril(np.ones((500, 500)), -1), np.zeros(500))
    assert isinstance(full._plain, LargeWeight)
    assert isinstance(SquaredNorm(weight, np.zeros(500))._plain, TriangularWeight)
