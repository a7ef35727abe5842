"""Metrics from columns: the emulation against long doubles, and kernels against both."""

import dataclasses

import numpy as np
import pytest
import torch

from tests.kernels.operations import inputs_for, run_kernel, run_reference
from tests.kernels.operations_pairwise import pairwise_affine
from triton_regressors.kernels.ops.points.l1_chi2 import emulated_metric, point_columns
from triton_regressors.kernels.ops.points.pairwise_affine import PairwiseAffine

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")  # the interpreter computes with NumPy


def long_metric(z: np.ndarray, points: np.ndarray, metric: str) -> np.ndarray:
    """Return the metric of rows and points by its formula."""
    a, b = z[:, None].astype(np.longdouble), points.astype(np.longdouble)
    if metric == "manhattan":
        terms = np.abs(a - b)
    else:
        total = a + b
        terms = np.where(total == 0, 0, (a - b) ** 2 / np.where(total == 0, 1, total))
    found: np.ndarray = terms.sum(axis=2).astype(np.float64)
    return found


@pytest.mark.parametrize("features", [1, 2, 7, 32, 500])
def test_manhattan_is_off_by_half_a_unit_of_each_number(features: int) -> None:
    rng = np.random.default_rng(features)
    points, z = 3.0 + rng.standard_normal((50, features)), rng.standard_normal((40, features))
    z[0], z[1], z[2] = points[0], 1e6, -1e30
    columns = point_columns(points, "manhattan", 64)
    spans = np.ptp(points, axis=0).sum()
    assert columns.table.shape == (features, 64)
    assert spans / 2**32 <= columns.unit <= 1.001 * spans / 2**31
    expected, found = long_metric(z, points, "manhattan"), emulated_metric(z, columns, "manhattan")
    assert (np.abs(found - expected) <= 1.01 * features * columns.unit + 1e-14 * expected).all()
    assert found[0, 0] == 0


def test_sums_of_differences_fit_32_bits() -> None:
    """The largest numbers that rows and points may have are tried, in one feature and in many."""
    for features in (1, 3, 1000):
        points = np.zeros((2, features))
        points[1] = 1e5
        columns = point_columns(points, "manhattan", 2)
        whole = columns.table.astype(np.int64)
        assert whole.max() < 2**31
        assert np.abs(whole[:, 0] - whole[:, 1]).sum() < 2**32


def test_points_that_are_all_the_same_have_no_span() -> None:
    points = np.full((3, 4), 0.7)
    columns = point_columns(points, "manhattan", 3)
    assert (columns.table == 0).all()
    z = np.array([[0.7] * 4, [1.7, -0.3, 0.7, 0.7]])
    assert emulated_metric(z, columns, "manhattan")[:, 0].tolist() == [0.0, 2.0]


@pytest.mark.parametrize("features", [1, 2, 7, 32])
def test_chi2_is_off_by_a_trifle_of_the_sum(features: int) -> None:
    rng = np.random.default_rng(features)
    points, z = rng.exponential(size=(50, features)), rng.exponential(size=(40, features))
    points[rng.random(points.shape) < 0.3] = 0.0
    z[rng.random(z.shape) < 0.3] = 0.0
    z[0], z[1], z[2] = points[0], 0.0, 1e9
    points[3] = 0.0
    expected = long_metric(z, points, "chi2")
    found = emulated_metric(z, point_columns(points, "chi2", 64), "chi2")
    reach = z.sum(axis=1)[:, None] + 3 * points.sum(axis=1)
    assert (np.abs(found - expected) <= 2e-12 * reach).all()
    assert found[1, 3] == 0


def columns_op(name: str, features: int, precision: str = "ten digits", points: int = 150) -> PairwiseAffine:
    op = pairwise_affine(name, features, points, 1, 2)
    found = dataclasses.replace(op, shift=np.zeros(features), factor=np.ones(features), precision=precision)
    assert found.way() == "columns"
    return found


@pytest.mark.parametrize("features", [7, 8, 33])
@pytest.mark.parametrize(
    ("name", "precision"), [("laplacian", "ten digits"), ("laplacian", "float32"), ("chi2", "ten digits")]
)
def test_kernels_do_what_is_emulated(device: torch.device, name: str, features: int, precision: str) -> None:
    op = columns_op(name, features, precision)
    x = np.abs(inputs_for([features], 40)[0]).astype(np.float64)
    x[0], x[1] = op.points[0], 0.0
    scale = np.abs(op.weight).sum()
    found, emulated = run_kernel(op, [x], device, torch.float64), op.emulate(x)
    assert np.abs(found - emulated).max() <= (1e-10 if precision == "ten digits" else 1e-6) * scale
    assert np.abs(found - run_reference(op, [x])).max() <= (1e-9 if precision == "ten digits" else 1e-6) * scale


@pytest.mark.parametrize(
    ("name", "precision"), [("laplacian", "ten digits"), ("laplacian", "float32"), ("chi2", "ten digits")]
)
def test_a_row_has_the_same_bits_in_every_batch(device: torch.device, name: str, precision: str) -> None:
    op = columns_op(name, 9, precision)
    x = np.abs(inputs_for([9], 70)[0])
    x[20], x[21] = np.nan, 3e38
    many = run_kernel(op, [x], device, torch.float64)
    for start, count in ((0, 1), (31, 3), (33, 37), (18, 9)):
        few = run_kernel(op, [x[start : start + count]], device, torch.float64)
        assert np.array_equal(few, many[start : start + count], equal_nan=True)


def test_chi2_takes_a_little_less_than_zero_for_zero(device: torch.device) -> None:
    op = columns_op("chi2", 8)
    x = np.abs(inputs_for([8], 6)[0]).astype(np.float64)
    x[1, 2], x[2, 0] = -1e-10, -1e-8
    zero = x.copy()
    zero[1, 2] = 0.0
    found, expected = run_kernel(op, [x], device, torch.float64), run_kernel(op, [zero], device, torch.float64)
    assert np.isnan(found[2]).all()
    assert np.array_equal(found[[0, 1, 3, 4, 5]], expected[[0, 1, 3, 4, 5]])


def test_points_below_zero_are_no_points_of_chi2(device: torch.device) -> None:
    """Their sums with rows may be zero where neither is: such functions go by features."""
    op = pairwise_affine("chi2", 8, 30)
    points = op.points.copy()
    points[0, 0] = -1e-12
    assert dataclasses.replace(op, points=points, precision="ten digits").way() == "features"
    assert op.in_precision("ten digits").way() == "columns"
