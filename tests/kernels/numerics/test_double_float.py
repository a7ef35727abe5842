"""Functions of pairs of float32 numbers: against NumPy's float64, for arguments beyond one float32 number."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from triton_regressors.kernels.numerics.double_float import (
    SMALLEST,
    ordered_sum,
    pair_exp2,
    pair_log2,
    pair_matern,
    pair_power,
    pair_product,
    pair_reciprocal,
    pair_sqrt,
    pair_sum,
    pair_tanh,
)
from triton_regressors.kernels.numerics.fast_math import LOG2_E


@triton.jit
def function_kernel(x, x_rest, out, FUNCTION: tl.constexpr, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)
    a, rest = tl.load(x + at), tl.load(x_rest + at)
    if FUNCTION == "exp2":
        y, y_rest = pair_exp2(a, rest)
    elif FUNCTION == "log2":
        y, y_rest = pair_log2(a, rest)
    elif FUNCTION == "reciprocal":
        y, y_rest = pair_reciprocal(a, rest)
    elif FUNCTION == "sqrt":
        y, y_rest = pair_sqrt(a, rest, SMALLEST)
    elif FUNCTION == "tanh":
        y, y_rest = pair_tanh(a, rest)
    elif FUNCTION == "matern 3":
        y, y_rest = pair_matern(a, rest, 3)
    elif FUNCTION == "matern 5":
        y, y_rest = pair_matern(a, rest, 5)
    elif FUNCTION == "square":
        y, y_rest = pair_product(a, rest, a, rest)
    elif FUNCTION == "sum":
        y, y_rest = pair_sum(rest, a)
    elif FUNCTION == "ordered sum":
        y, y_rest = ordered_sum(a, rest)
    elif FUNCTION == "power 5":
        y, y_rest = pair_power(a, rest, 5.0, 0.0, 5)
    else:
        y, y_rest = pair_power(a, rest, -3.0, 0.0, -3)
    tl.store(out + at, y.to(tl.float64) + y_rest.to(tl.float64))


def run(function: str, values: np.ndarray, device: torch.device) -> np.ndarray:
    first = values.astype(np.float32)
    x, rest = (torch.from_numpy(array.astype(np.float32)).to(device) for array in (first, values - first))
    out = torch.empty(len(values), dtype=torch.float64, device=device)
    function_kernel[(1,)](x, rest, out, FUNCTION=function, COUNT=len(values))
    return out.cpu().numpy()


EXPONENTIAL = 1.5e-8
EXACT = 2e-13
"""The relative precision of a pair."""


@pytest.mark.parametrize(
    ("function", "exact", "low", "high", "allowed"),
    [
        ("exp2", np.exp2, -120, 120, EXPONENTIAL),
        ("reciprocal", np.reciprocal, 1e-3, 1e3, EXACT),
        ("sqrt", np.sqrt, 1e-6, 1e3, EXACT),
        ("square", np.square, -10, 10, EXACT),
        ("sum", np.positive, -10, 10, EXACT),
        ("ordered sum", np.positive, -10, 10, EXACT),
        ("power 5", lambda u: u**5, -10, 10, EXACT),
        ("power -3", lambda u: u**-3.0, 0.1, 10, EXACT),
        ("matern 3", lambda u: (1 + u / LOG2_E) * np.exp2(-u), 0, 100, EXPONENTIAL),
        ("matern 5", lambda u: (1 + u / LOG2_E + (u / LOG2_E) ** 2 / 3) * np.exp2(-u), 0, 100, EXPONENTIAL),
    ],
)
def test_relative_errors(
    device: torch.device,
    function: str,
    exact: Callable[[np.ndarray], np.ndarray],
    low: float,
    high: float,
    allowed: float,
) -> None:
    values = np.random.default_rng(0).uniform(low, high, 2048)
    expected = exact(values)
    assert (np.abs(run(function, values, device) - expected) <= allowed * np.abs(expected)).all()


@pytest.mark.parametrize(
    ("function", "exact", "low", "high", "allowed"),
    [
        ("log2", np.log2, 0.5, 1e6, 2e-8),
        ("tanh", lambda u: np.tanh(u / LOG2_E / 2), -30, 30, EXPONENTIAL),
    ],
)
def test_absolute_errors(
    device: torch.device,
    function: str,
    exact: Callable[[np.ndarray], np.ndarray],
    low: float,
    high: float,
    allowed: float,
) -> None:
    values = np.random.default_rng(0).uniform(low, high, 2048)
    assert np.abs(run(function, values, device) - exact(values)).max() <= allowed


def test_the_ends(device: torch.device) -> None:
    values = np.array([0.0, -0.0, -1e4, -1e6, -127.5, 1.0, -1.0, 100.0])
    assert np.array_equal(run("exp2", values, device)[2:5], np.zeros(3))
    assert (
        np.abs(run("exp2", values, device)[[0, 1, 5, 6, 7]] / np.exp2(values[[0, 1, 5, 6, 7]]) - 1).max() <= EXPONENTIAL
    )
    far = np.array([1e9, -1e9, 300.0, -300.0])
    assert np.array_equal(run("tanh", far, device), np.sign(far))
    assert np.abs(run("sqrt", np.array([0.0, -1e-9, 1e-12, 1e-8]), device)).max() <= 1.1e-4
