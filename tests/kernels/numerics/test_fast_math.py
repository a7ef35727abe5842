"""Functions to ten digits: against NumPy's, at the ends of their domains, and through the exporter's emulation."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from triton_regressors.kernels.numerics.fast_math import emulated_exp2, exp2, log2, reciprocal, sqrt


@triton.jit
def function_kernel(x, out, FUNCTION: tl.constexpr, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)
    value = tl.load(x + at)
    if FUNCTION == "exp2":
        y = exp2(value)
    elif FUNCTION == "log2":
        y = log2(value)
    elif FUNCTION == "reciprocal":
        y = reciprocal(value)
    else:
        y = sqrt(value)
    tl.store(out + at, y)


def run(function: str, values: np.ndarray, device: torch.device) -> np.ndarray:
    x = torch.from_numpy(values).to(device)
    out = torch.empty_like(x)
    function_kernel[(1,)](x, out, FUNCTION=function, COUNT=len(values))
    return out.cpu().numpy()


def spread(low: float, high: float) -> np.ndarray:
    """Return 2,048 numbers between powers of ten, both ends among them."""
    drawn = 10.0 ** np.random.default_rng(0).uniform(low, high, 2048)
    drawn[:2] = 10.0**low, 10.0**high
    return drawn


@pytest.mark.parametrize(
    ("function", "exact", "low", "high"),
    [("log2", np.log2, -300, 300), ("reciprocal", np.reciprocal, -300, 300), ("sqrt", np.sqrt, -29, 300)],
)
def test_ten_digits(
    device: torch.device, function: str, exact: Callable[[np.ndarray], np.ndarray], low: float, high: float
) -> None:
    values = spread(low, high)
    expected = exact(values)
    assert (np.abs(run(function, values, device) - expected) <= 2e-11 * np.abs(expected)).all()


def test_powers_of_two(device: torch.device) -> None:
    values = np.random.default_rng(0).uniform(-990, 990, 2048)
    values[:1024] = np.random.default_rng(1).uniform(-3, 1e-9, 1024)
    values[:6] = [0.0, -0.0, 1.0, -1.0, -0.5, 2.0**-40]
    found = run("exp2", values, device)
    assert np.abs(found / 2.0**values - 1).max() <= 2.5e-10
    assert np.abs(found / emulated_exp2(values) - 1).max() <= 1e-14


def test_far_below_powers_of_two_vanish(device: torch.device) -> None:
    values = np.full(16, -np.inf)
    values[:4] = -1e4, -1e6, -1e30, -1e300
    assert (np.abs(run("exp2", values, device)) < 1e-300).all()
    assert (np.abs(emulated_exp2(values)) < 1e-300).all()


def test_roots_of_zero_and_less_are_next_to_nothing(device: torch.device) -> None:
    values = np.zeros(16)
    values[:3] = -1.0, -1e-300, 1e-40
    found = run("sqrt", values, device)
    assert (np.abs(found) <= 1.1e-15).all()
