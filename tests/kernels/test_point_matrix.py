"""Functions of rows and points in plain torch: the definition's numbers, and a row's bits in every batch."""

import numpy as np
import pytest
import torch

from tests.kernels.operations_pairwise import FUNCTIONS, pairwise
from triton_regressors.kernels.cpu.tiles import one_thread
from triton_regressors.kernels.ops.points.cpu_function import PointMatrix


def matrix(plain: PointMatrix, x: np.ndarray) -> np.ndarray:
    with one_thread():
        return np.concatenate([part.numpy().copy() for _, part in plain.tiles(torch.from_numpy(x))])


@pytest.mark.parametrize("features", [3, 7, 40])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_row_has_the_same_bits_in_every_batch(name: str, features: int) -> None:
    op = pairwise(name, features, 131)
    x = np.random.default_rng(1).standard_normal((200, features))
    x[20:40] = op.points[:20] / op.factor + op.shift  # nothing away from a point
    plain = op.plain()
    whole = matrix(plain, x)
    assert whole.shape == (200, 136)
    np.testing.assert_allclose(whole[:, 131:], np.tile(whole[:, 130:131], 5), rtol=1e-12, atol=1e-12)
    for count in (1, 2, 5, 30, 64, 97):
        for start in (0, 17, 200 - count):
            part = x[start : start + count]
            assert matrix(plain, part).tobytes() == whole[start : start + count].tobytes()
            assert matrix(plain, part[::-1].copy())[::-1].tobytes() == whole[start : start + count].tobytes()


@pytest.mark.parametrize("scale", [1.0, 1e-9])
def test_distances_near_zero_come_from_differences(scale: float) -> None:
    """Rows at points, and a little beside: a product would be off by the root of its error."""
    rng = np.random.default_rng(2)
    points = 1000.0 + rng.standard_normal((300, 12))
    op = pairwise("matern_1_2", 12, 300)
    plain = PointMatrix(
        **{name: getattr(op, name) for name in ("metric", "profile", "gamma", "coef0", "exponent", "table")},
        points=points,
        shift=np.zeros(12),
        factor=np.ones(12),
        expanded=False,
    )
    x = points[:250].copy()
    x[::3] += 1e-5 * scale * rng.standard_normal(12)
    x[5, 2], x[9, 0] = np.nan, 1e100
    distances = np.sqrt(((x[:, None, :] - points[None, :, :]) ** 2).sum(axis=2))
    found = matrix(plain, x)[:, :300]
    assert np.isnan(found[5]).all()
    np.testing.assert_allclose(found, np.exp(op.gamma * distances), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(found[[1, 2, 4], [1, 2, 4]], 1.0)
