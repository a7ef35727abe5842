"""Sums of rows of several members."""

import numpy as np
import pytest
import torch

from triton_regressors.kernels.cpu.member_sums import products
from triton_regressors.kernels.cpu.tiles import one_thread, product


@pytest.mark.parametrize(("features", "columns"), [(1, 1), (5, 1), (32, 1), (32, 3), (13, 4), (9_000, 5)])
@pytest.mark.parametrize("counts", [[1], [1, 1, 2], [3, 4, 5, 1, 17, 30], [2, 700, 1, 100, 9], [100, 100]])
def test_products_have_the_bits_of_each_members_own(features: int, columns: int, counts: list[int]) -> None:
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal((sum(counts), features)).astype(np.float32))
    weights, places = rng.standard_normal((9, features, columns)), rng.permutation(9)[: len(counts)].tolist()
    with one_thread():
        found = products(x, weights, places, counts)
        parts = zip(x.split(counts), torch.from_numpy(weights[places]), strict=True)
        own = torch.cat([product(rows, weight) for rows, weight in parts])
    assert found.numpy().tobytes() == own.numpy().tobytes()
