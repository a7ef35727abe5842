"""Weighted medians: the kernel and the reference against scikit-learn's own, ties and halves included."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.examples import examples
from tests.kernels.operations import run_kernel, run_on_cpu, run_reference
from triton_regressors.kernels.format.errors import PlanError
from triton_regressors.kernels.ops.columns.weighted_median import WeightedMedian


def expected(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the medians of `AdaBoostRegressor._get_median_predict`, with a stable order."""
    order = np.argsort(x, axis=1, kind="stable")
    sums = np.cumsum(weights[order], axis=1)
    at = (sums >= 0.5 * sums[:, -1:]).argmax(axis=1)
    return np.take_along_axis(x, np.take_along_axis(order, at[:, None], axis=1), axis=1)


def check(x: np.ndarray, weights: np.ndarray, device: torch.device) -> None:
    op = WeightedMedian(weights)
    answer = expected(x, weights)
    assert np.array_equal(run_reference(op, [x]), answer, equal_nan=True)
    assert np.array_equal(run_on_cpu(op, [x]), answer, equal_nan=True)
    assert np.array_equal(run_kernel(op, [x], device, torch.float64), answer, equal_nan=True)
    assert np.array_equal(run_kernel(op, [x.astype(np.float32)], device), answer.astype(np.float32), equal_nan=True)


@examples(15)
@given(
    columns=st.integers(1, 40),
    values=st.integers(1, 30),
    weight=st.sampled_from(["drawn", "equal", "a tenth", "some zero"]),
    rows=st.integers(1, 30),
    seed=st.integers(0, 2**32 - 1),
)
def test_weighted_median(device: torch.device, columns: int, values: int, weight: str, rows: int, seed: int) -> None:
    """Few different values make ties; equal weights make sums that are half of all but for their rounding."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-values, values, (rows, columns)) / 8
    weights = {
        "drawn": rng.uniform(0.1, 3, columns),
        "equal": np.full(columns, 1.0),
        "a tenth": np.full(columns, 0.1),
        "some zero": rng.integers(0, 3, columns).astype(np.float64),
    }[weight]
    check(x, weights, device)


def test_infinity_and_nan_come_last(device: torch.device) -> None:
    inf, nan = np.inf, np.nan
    x = np.array([[inf, 1, -inf], [nan, 2, 1], [nan, nan, 1], [nan, nan, nan], [inf, nan, 3], [-inf, -inf, 0]])
    check(x, np.ones(3), device)


def test_many_columns(device: torch.device) -> None:
    rng = np.random.default_rng(0)
    check(rng.standard_normal((2, 130)).astype(np.float32).astype(float), rng.uniform(0, 1, 130), device)


@pytest.mark.parametrize("weights", [np.ones(2), np.array([1.0, -1.0, 1.0]), np.array([1.0, np.nan, 1.0])])
def test_weights_that_do_not_fit_are_named(weights: np.ndarray) -> None:
    with pytest.raises(PlanError) as raised:
        WeightedMedian(weights).check(3)
    assert str(raised.value) == "weighted_median: weights must be [3] and not negative."
