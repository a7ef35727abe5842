"""The pool operation against NumPy, which it matches to the bit."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.examples import examples
from tests.kernels.operations import inputs_for, run_kernel, run_on_cpu, run_reference
from tests.kernels.operations_compose import clusters
from triton_regressors.kernels.format.errors import PlanError
from triton_regressors.kernels.ops.columns.pool import Pool

STATISTICS = {"max": np.max, "median": np.median, "min": np.min}


@pytest.mark.parametrize("statistic", STATISTICS)
@examples(8)
@given(features=st.integers(1, 24), share=st.floats(0, 1), rows=st.integers(0, 70), ties=st.booleans())
def test_pool(device: torch.device, statistic: str, features: int, share: float, rows: int, ties: bool) -> None:
    members = clusters(features, 1 + int(share * (features - 1)), features)
    (x,) = inputs_for([features], rows, features)
    if ties:
        x = np.round(x)
    pooled = [STATISTICS[statistic](x.astype(np.float64)[:, row[row >= 0]], axis=1) for row in members]
    expected = np.stack(pooled, axis=1)
    op = Pool(members, statistic)
    assert np.array_equal(run_reference(op, [x]), expected)
    assert np.array_equal(run_on_cpu(op, [x]), expected)
    assert np.array_equal(run_kernel(op, [x], device), expected.astype(np.float32))
    assert np.array_equal(run_kernel(op, [x.astype(np.float64)], device, torch.float64), expected)


MEMBERS = "pool: members must lie in [0, 3), at least one in each row, or be -1."


@pytest.mark.parametrize(
    ("members", "statistic", "message"),
    [
        (np.array([0]), "max", "pool: members must be [clusters, size], not [1]."),
        (np.zeros((0, 2)), "max", "pool: members must be [clusters, size], not [0, 2]."),
        (np.array([[0, 3]]), "max", MEMBERS),
        (np.array([[0, -2]]), "max", MEMBERS),
        (np.array([[0, 1], [-1, -1]]), "max", MEMBERS),
        (np.array([[0, 1]]), "mode", "pool: statistic must be one of ('max', 'median', 'min'), not 'mode'."),
    ],
)
def test_fields_that_do_not_fit_are_named(members: np.ndarray, statistic: str, message: str) -> None:
    with pytest.raises(PlanError) as raised:
        Pool(members, statistic).check(3)
    assert str(raised.value) == message
