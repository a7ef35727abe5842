"""Ordered affine maps: the bits of a loop in float32, feature after feature, by both engines and in any batch."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.operations import inputs_for, run_kernel, run_on_cpu, run_reference
from tests.kernels.operations_dense import ordered_affine
from tests.kernels.test_ops import drawn, seeds
from triton_regressors.kernels.format.errors import PlanError
from triton_regressors.kernels.ops.linear import ordered_affine as module
from triton_regressors.kernels.ops.linear.ordered_affine import OrderedAffine

ODD = [0.0, -0.0, 1e-45, -3e-39, 1e-20, 3e38, -3e38, np.nan, 2.0**-24, 1.0, 2.0**24]
"""Numbers whose products and sums overflow, vanish, cancel or are half of a last place, and a missing one."""


def expected(op: OrderedAffine, x: np.ndarray) -> np.ndarray:
    """Return the sums of a loop over the features, each step rounded to float32; missing numbers are left out."""
    total = np.repeat(op.intercept[None], len(x), axis=0)
    with np.errstate(all="ignore"):
        for value, weight in zip(x.astype(np.float32).T[:, :, None], op.weight, strict=True):
            term = value * weight
            assert term.dtype == np.float32
            total = np.where(np.isnan(value), total, total + term)
    return total


def bits(numbers: np.ndarray) -> np.ndarray:
    """Return the bits of float32 numbers, the same for every NaN."""
    single = numbers.astype(np.float32)
    assert np.array_equal(single, numbers, equal_nan=True)
    return np.where(np.isnan(single), np.float32(np.nan), single).view(np.int32)


@drawn
@given(
    features=st.integers(1, 40),
    targets=st.integers(1, 10),
    odd=st.booleans(),
    rows=st.sampled_from([0, 1, 7, 33]),
    seed=seeds,
)
def test_sums(device: torch.device, features: int, targets: int, odd: bool, rows: int, seed: int) -> None:
    op, (x,) = ordered_affine(features, targets, seed=seed), inputs_for([features], rows, seed)
    if odd:
        rng = np.random.default_rng(seed)
        op = dataclasses.replace(op, intercept=np.full(targets, -0.0, np.float32))
        x = np.where(rng.random(x.shape) < 0.5, rng.choice(ODD, x.shape), x).astype(np.float32)
    exact = bits(expected(op, x))
    assert np.array_equal(bits(run_reference(op, [x])), exact)
    assert np.array_equal(bits(run_on_cpu(op, [x])), exact)
    assert np.array_equal(bits(run_kernel(op, [x], device)), exact)
    assert np.array_equal(bits(run_kernel(op, [x.astype(np.float64)], device, torch.float64)), exact)


def test_other_orders_and_products_have_other_bits(device: torch.device) -> None:
    op, (x,) = ordered_affine(30), inputs_for([30], 100)
    found = run_kernel(op, [x], device)
    reverse = dataclasses.replace(op, weight=op.weight[::-1].copy())
    assert (found != expected(reverse, x[:, ::-1])).any()
    together = np.repeat(op.intercept[None].astype(np.float64), len(x), axis=0)
    for value, weight in zip(x.astype(np.float64).T[:, :, None], op.weight.astype(np.float64), strict=True):
        together = (together + value * weight).astype(np.float32).astype(np.float64)
    assert (found != together).any()


def test_rows_in_parts_and_numbers_that_are_rounded_first(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGEST_TERMS", 20)
    op, x = ordered_affine(5, 2), np.random.default_rng(0).standard_normal((21, 5))
    exact = expected(op, x)
    assert np.array_equal(run_reference(op, [x]), exact)
    assert np.array_equal(run_on_cpu(op, [x]), exact)
    assert np.array_equal(run_kernel(op, [x], device), exact)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weight": np.zeros((3, 2))}, "weight must be float32 [3, targets]."),
        ({"weight": np.zeros((4, 2), np.float32)}, "weight must be float32 [3, targets]."),
        ({"intercept": np.zeros(2)}, "intercept must be float32 [2]."),
        ({"intercept": np.zeros(3, np.float32)}, "intercept must be float32 [2]."),
    ],
)
def test_fields_that_do_not_fit_are_named(changes: dict[str, np.ndarray], message: str) -> None:
    op = ordered_affine(3, 2)
    op.check(3)
    with pytest.raises(PlanError) as raised:
        dataclasses.replace(op, **changes).check(3)
    assert str(raised.value) == f"ordered_affine: {message}"
