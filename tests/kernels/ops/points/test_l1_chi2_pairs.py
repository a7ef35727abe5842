"""Sums of manhattan's and chi2's exponential functions in pairs of float32 numbers, against float64."""

import dataclasses

import numpy as np
import pytest
import torch

from tests.kernels.operations import inputs_for, run_kernel, run_reference
from tests.kernels.operations_pairwise import pairwise_affine
from tests.kernels.ops.points.test_l1_chi2 import long_metric
from triton_regressors.kernels.numerics.fast_math import LOG2_E
from triton_regressors.kernels.ops.points.l1_chi2_pairs import emulated_pair_metric, pair_columns
from triton_regressors.kernels.ops.points.pairwise_affine import PairwiseAffine

PAIRS = "float32 pairs"
EXPONENTIAL = 1.1e-8
"""The largest error of a function whose values are at most 1."""

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")  # the interpreter computes with NumPy


def in_pairs(name: str, features: int) -> PairwiseAffine:
    op = pairwise_affine(name, features, 150, 1, 2)
    return dataclasses.replace(op, shift=np.zeros(features), factor=np.ones(features), precision=PAIRS)


def rows_of(op: PairwiseAffine) -> np.ndarray:
    """Return rows that are not negative: drawn ones, a point, one near a point, zeros, and some that are far away."""
    x = np.abs(inputs_for([op.points.shape[1]], 24)[0]).astype(np.float64)
    x[0], x[1], x[2] = np.abs(op.points[0]), np.abs(op.points[1]) + 1e-9, 0.0
    x[3], x[4], x[5] = 30.0 * x[3], 1e-12 * x[4], 1e20
    x[6, ::2] = 0.0
    return x


@pytest.mark.parametrize("features", [7, 8, 33])
@pytest.mark.parametrize("name", ["laplacian", "chi2"])
def test_sums_have_eight_digits(device: torch.device, name: str, features: int) -> None:
    op = in_pairs(name, features)
    x, scale = rows_of(op), np.abs(op.weight).sum()
    expected, found = run_reference(op, [x]), run_kernel(op, [x], device, torch.float64)
    assert np.abs(found - expected).max() <= EXPONENTIAL * scale
    assert np.abs(op.emulate(x) - expected).max() <= EXPONENTIAL * scale


@pytest.mark.parametrize("name", ["laplacian", "chi2"])
def test_a_row_has_the_same_bits_in_every_batch(device: torch.device, name: str) -> None:
    op = in_pairs(name, 9)
    x = np.abs(inputs_for([9], 70)[0])
    x[20], x[21], x[22, 3] = np.nan, 3e38, np.inf
    many = run_kernel(op, [x], device, torch.float64)
    assert np.isnan(many[[20, 22]]).all()
    assert np.isfinite(np.delete(many, [20, 22], axis=0)).all()
    for start, count in ((0, 1), (31, 3), (33, 37), (18, 9)):
        few = run_kernel(op, [x[start : start + count]], device, torch.float64)
        assert np.array_equal(few, many[start : start + count], equal_nan=True)


@pytest.mark.parametrize("name", ["laplacian", "chi2"])
def test_weights_of_any_size_and_sign(device: torch.device, name: str) -> None:
    op = in_pairs(name, 9)
    weight = op.weight * 10.0 ** np.random.default_rng(0).integers(-20, 21, op.weight.shape)
    weight[[0, 7, 149]] = 0.0
    op = dataclasses.replace(op, weight=weight, intercept=np.zeros(1))
    x = np.abs(inputs_for([9], 20)[0])
    found, expected = run_kernel(op, [x], device, torch.float64), run_reference(op, [x])
    assert np.abs(found - expected).max() <= EXPONENTIAL * np.abs(weight).max()


def test_chi2_of_a_negative_number_is_none(device: torch.device) -> None:
    op = in_pairs("chi2", 8)
    x = np.abs(inputs_for([8], 6)[0]).astype(np.float64)
    x[1, 2], x[2, 0] = -1e-10, -1e-8
    assert np.isnan(run_kernel(op, [x], device, torch.float64)).ravel().tolist() == [n // 2 == 2 for n in range(12)]


def test_a_unit_of_manhattan_is_a_power_of_two_in_the_exponent() -> None:
    points, gamma = np.random.default_rng(0).standard_normal((40, 9)), 0.3
    columns = pair_columns(points, "manhattan", 64, gamma * LOG2_E)
    mantissa, _ = np.frexp(columns.unit * gamma * LOG2_E)
    assert mantissa == pytest.approx(0.5, abs=1e-15)
    assert np.ptp(points, axis=0).sum() / 2**32 <= columns.unit <= 1.001 * np.ptp(points, axis=0).sum() / 2**31


def test_points_of_chi2_are_moved_by_less_than_float32_moves_them() -> None:
    rng = np.random.default_rng(0)
    points = rng.exponential(size=(50, 12)) * (rng.random((50, 12)) < 0.8)
    whole, rest, squares = pair_columns(points, "chi2", 64, 0.2).table.astype(np.float64)
    moved = (whole + rest)[:, :50].T
    assert (np.abs(moved - points) <= 2.0**-25 * 1.001 * points).all()
    np.testing.assert_allclose(squares[:, :50].T, 0.8 * moved * moved, rtol=1e-12, atol=1e-15)
    largest = points.max(axis=0)
    assert (whole % (2.0 ** (np.ceil(np.log2(largest)) - 23))[:, None] == 0).all()


def test_emulated_chi2_is_off_by_a_trifle() -> None:
    rng = np.random.default_rng(0)
    points, z = rng.exponential(size=(50, 12)), rng.exponential(size=(40, 12))
    found = emulated_pair_metric(z, pair_columns(points, "chi2", 64, 0.2), "chi2")
    assert (
        np.abs(found - long_metric(z, points, "chi2")) <= 1e-7 * (z.sum(axis=1)[:, None] + points.sum(axis=1))
    ).all()


def test_what_pairs_of_columns_are_for() -> None:
    """It needs one target's sum of an exponential function, with points that have columns."""
    for name in ("laplacian", "chi2"):
        op = pairwise_affine(name, 9, 40)
        assert PAIRS in op.precisions()
        for other in (
            pairwise_affine(name, 5, 40),
            pairwise_affine(name, 9, 40, 2),
            dataclasses.replace(op, gamma=0.1),
            dataclasses.replace(op, coef0=1.0),
            dataclasses.replace(op, profile="identity"),
        ):
            assert PAIRS not in other.precisions()
    op = pairwise_affine("chi2", 9, 40)
    assert PAIRS not in dataclasses.replace(op, points=op.points - 1e-3).precisions()
    assert PAIRS not in dataclasses.replace(op, gamma=-100.0).precisions()
