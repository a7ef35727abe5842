"""Operations that round to float32: their bits are those of numpy's own float32 arithmetic, in kernel and reference."""

import numpy as np
import pytest
import torch

from tests.kernels.operations import run_kernel, run_on_cpu, run_reference
from triton_regressors.kernels.format.errors import PlanError
from triton_regressors.kernels.ops.columns.float32 import Float32
from triton_regressors.kernels.ops.columns.scale import Scale
from triton_regressors.kernels.ops.linear.polynomial import Polynomial
from triton_regressors.kernels.plan.plan import Operation

RNG = np.random.default_rng(0)
X = (RNG.standard_normal((500, 5)) * np.geomspace(1e-3, 1e3, 5)).astype(np.float32)
A, B = RNG.normal(1, 2, 5), RNG.uniform(0.3, 3, 5)


def check(operation: Operation, expected: np.ndarray, device: str) -> None:
    assert expected.dtype == np.float32
    assert np.array_equal(run_reference(operation, [X.astype(np.float64)]), expected)
    assert np.array_equal(run_on_cpu(operation, [X.astype(np.float64)]), expected)
    for dtype in (torch.float32, torch.float64):
        assert np.array_equal(run_kernel(operation, [X], device, dtype), expected)


def test_a_scale_is_what_numpy_computes_in_place(device: str) -> None:
    divided, multiplied = X.copy(), X.copy()
    divided -= A
    divided /= B
    multiplied *= A
    multiplied += B
    check(Scale(A, 1 / B, "divisor", B, single=True), divided, device)
    check(Scale(-B / A, A, "offset", B, single=True), multiplied, device)
    assert not np.array_equal(divided, ((X - A) / B).astype(np.float32))


def test_monomials_are_products_of_float32_numbers(device: str) -> None:
    indices = np.array([[0, 1, 2], [4, 4, 4], [3, 5, 5], [5, 5, 5]], dtype=np.int32)
    expected = np.stack([X[:, 0] * X[:, 1] * X[:, 2], X[:, 4] * X[:, 4] * X[:, 4], X[:, 3], np.ones_like(X[:, 0])], 1)
    check(Polynomial(indices, np.zeros(5), np.ones(5), single=True), expected, device)
    with pytest.raises(PlanError, match=r"^polynomial: with single, shift must be 0 and factor 1\.$"):
        Polynomial(indices, np.ones(5), np.ones(5), single=True).check(5)


def test_some_columns_are_rounded(device: str) -> None:
    rounded = np.array([1, 0, 0, 1, 1], dtype=np.uint8)
    rows = X.astype(np.float64) * (1 + 1e-9)
    expected = np.where(rounded, rows.astype(np.float32), rows)
    assert np.array_equal(run_reference(Float32(rounded), [rows]), expected)
    assert np.array_equal(run_on_cpu(Float32(rounded), [rows]), expected)
    assert np.array_equal(run_kernel(Float32(rounded), [rows], device, torch.float64), expected)
    with pytest.raises(PlanError, match=r"^float32: rounded must be uint8 \[4\] or \[0\]"):
        Float32(rounded).check(4)
