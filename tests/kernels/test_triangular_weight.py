"""Products with triangular weights by solving: the numbers of the product, and a row's bits in every batch."""

import numpy as np
import pytest
import torch

from triton_regressors.exporter.lowerings.gaussian_process import whiten
from triton_regressors.kernels import triangular_weight
from triton_regressors.kernels.large_weight import LargeWeight, rows_of
from triton_regressors.kernels.ops.squared_norm import SquaredNorm
from triton_regressors.kernels.tiles import one_thread
from triton_regressors.kernels.triangular_weight import TriangularWeight


def whitening(spread: float, points: int = 500) -> tuple[np.ndarray, np.ndarray]:
    """Return the weight of a Gaussian process whose length scale is so many times its points' spread, and rows of k."""
    rng = np.random.default_rng(0)
    places = rng.standard_normal((points, 3)) / spread
    rows = np.concatenate([places[:50] + 1e-3 * rng.standard_normal((50, 3)), rng.standard_normal((50, 3)) / spread])

    def kernel(first: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(-0.5 * ((first[:, None, :] - places) ** 2).sum(axis=2)))

    weight, order = whiten(np.linalg.cholesky(kernel(places) + 1e-8 * np.eye(points)))
    return weight, kernel(rows)[:, order]


@pytest.mark.parametrize("spread", [0.2, 1.0, 3.0])
def test_variances_are_as_near_as_the_product_s(spread: float) -> None:
    weight, k = whitening(spread)
    assert TriangularWeight.suits(weight, 512)
    exact = ((k.astype(np.longdouble) @ weight.astype(np.longdouble)) ** 2).sum(axis=1)
    found = np.concatenate(
        [part.numpy().copy() for _, part in TriangularWeight(weight, 512).products(100, rows_of(torch.from_numpy(k)))]
    )
    assert not found[:, 500:].any()
    error, product_error = (
        np.abs((found**2).sum(axis=1) - exact).max(),
        np.abs(((k @ weight) ** 2).sum(axis=1) - exact).max(),
    )
    assert error < 2 * product_error + 1e-15


def test_a_row_has_the_same_bits_in_every_batch() -> None:
    weight, k = whitening(1.0)
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
    solve = triangular_weight._solve

    def other(lower: torch.Tensor, tile: torch.Tensor, out: torch.Tensor) -> None:
        solve(lower, tile, out)
        out[1] += 1.0

    monkeypatch.setattr(triangular_weight, "_solve", other)
    triangular_weight._sizes_alike.cache_clear()
    try:
        weight, _ = whitening(1.0)
        assert not TriangularWeight.suits(weight, 512)
        assert isinstance(SquaredNorm(weight, np.zeros(500))._plain, LargeWeight)
    finally:
        triangular_weight._sizes_alike.cache_clear()


def test_which_weights_are_solved_with() -> None:
    weight, _ = whitening(1.0)
    singular = weight.copy()
    singular[3, 3] = 0.0
    few = np.eye(20)
    for other, columns in ((singular, 512), (weight[:, :-1], 512), (few, 32)):
        assert not TriangularWeight.suits(other, columns)
    full = SquaredNorm(weight + np.tril(np.ones((500, 500)), -1), np.zeros(500))
    assert isinstance(full._plain, LargeWeight)
    assert isinstance(SquaredNorm(weight, np.zeros(500))._plain, TriangularWeight)
