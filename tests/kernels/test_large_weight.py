"""Products of large weights block by block: the same numbers as at once, and a row's bits in every batch."""

import numpy as np
import pytest
import torch

from triton_regressors.kernels.cpu.blocked_weight import LargeWeight, rows_of
from triton_regressors.kernels.cpu.tiles import one_thread


@pytest.mark.parametrize("kind", ["full", "triangle", "shuffled triangle", "empty"])
def test_products(kind: str) -> None:
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((400, 515)) * (kind != "empty")
    weight = np.triu(weight) if "triangle" in kind else weight
    weight = weight[rng.permutation(400)] if "shuffled" in kind else weight
    assert LargeWeight.suits(weight)
    x = torch.from_numpy(rng.standard_normal((400, 400)))
    large = LargeWeight(weight)

    def product(rows: torch.Tensor) -> torch.Tensor:
        return torch.cat(
            [x[:0, :1].expand(0, 515), *(part.clone() for _, part in large.products(len(rows), rows_of(rows)))]
        )

    with one_thread():
        whole = product(x)
        for count in (0, 1, 5, 64, 200):
            assert torch.equal(product(x[7 : 7 + count]), whole[7 : 7 + count])
        assert torch.equal(product(x.flip(0)).flip(0), whole)
    np.testing.assert_allclose(whole, x.numpy() @ weight, rtol=1e-11, atol=1e-11)
