"""Sums in order have the bits of a loop, however many columns there are."""

import numpy as np
import pytest
import torch

from triton_regressors.kernels.cpu.ordered_sum import FEW_NUMBERS, add_in_order


@pytest.mark.parametrize("rows", [1, FEW_NUMBERS - 1, FEW_NUMBERS, 100])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_in_order_have_the_bits_of_a_loop(rows: int, dtype: type) -> None:
    terms = np.random.default_rng(0).choice([-0.0, 0.0, 1e8, 1.0, -1e8, 3e-8], (12, rows, 1)).astype(dtype)
    terms[:, :1] = -0.0
    total = terms[0].copy()
    for term in terms[1:]:
        total += term
    found = add_in_order(torch.from_numpy(terms)).numpy()
    assert found.tobytes() == total.tobytes()
