"""Products of large weights block by block: the same numbers as at once, and a row's bits in every batch."""

import numpy as np
import pytest
import torch

from triton_regressors.kernels.large_weight import LargeWeight
from triton_regressors.kernels.tiles import one_thread


@pytest.mark.parametrize("kind", ["full", "triangle", "shuffled triangle", "empty"])
def test_products(kind: str) -> None:
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((400, 515)) * (kind != "empty")
    weight = np.triu(weight) if "triangle" in kind else weight
    weight = weight[rng.permutation(400)] if "shuffled" in kind else weight
    assert LargeWeight.suits(weight)
    x = torch.from_numpy(rng.standard_normal((400, 400)))
    large = LargeWeight(weight)
    with one_thread():
        whole = large.product(x, lambda part: part.add_(1.0))
        for count in (0, 1, 5, 64, 200):
            assert torch.equal(large.product(x[7 : 7 + count], lambda part: part.add_(1.0)), whole[7 : 7 + count])
    np.testing.assert_allclose(whole, x.numpy() @ weight + 1.0, rtol=1e-11, atol=1e-11)
