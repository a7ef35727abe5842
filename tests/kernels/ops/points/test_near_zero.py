"""Functions of distances that are not smooth at zero, of rows on points, beside them and on equal ones."""

import dataclasses

import numpy as np
import pytest
import torch
import triton.language as tl

from tests.kernels.operations import inputs_for, run_kernel, run_reference
from tests.kernels.operations_pairwise import pairwise, pairwise_affine
from triton_regressors.kernels.ops.points import near_zero
from triton_regressors.kernels.ops.points import pairwise as matrices
from triton_regressors.kernels.ops.points import pairwise_affine as sums
from triton_regressors.kernels.ops.points.function import PointFunction
from triton_regressors.kernels.ops.points.launch import DISTANCES
from triton_regressors.kernels.ops.points.near_zero import NEAR

FEATURES, POINTS = 20, 200
OF_A_POINT = {"ten digits": 1e-9, "float32 pairs": 2e-8}
AT_THE_LIMIT = {"ten digits": 2e-8, "float32 pairs": 2e-8}
"""The largest error at a distance about the smallest that comes from products."""
FORMS = ["matrix in ten digits", "ten digits", "float32 pairs", "ten digits to 3"]
forms = pytest.mark.parametrize("form", FORMS)
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")  # the interpreter computes with NumPy


def matern(form: str, features: int = FEATURES, copies: slice = slice(0)) -> tuple[PointFunction, PointFunction]:
    """Return Matern 1/2 by products, and in float64; some of the points are copies of the fifth."""
    if form.startswith("matrix"):
        exact: PointFunction = pairwise("matern_1_2", features, POINTS)
    else:
        exact = pairwise_affine("matern_1_2", features, POINTS, 3 if form.endswith("to 3") else 1, 2)
    points = exact.points.copy()
    points[copies] = points[5]
    exact = dataclasses.replace(exact, points=points)
    op = exact.in_precision("float32 pairs" if form == "float32 pairs" else "ten digits")
    assert isinstance(op, PointFunction)
    assert op.way() == "digits"
    return op, exact


def on_points(op: PointFunction, chosen: np.ndarray) -> np.ndarray:
    """Return rows, float64, that lie on points as nearly as rounding allows."""
    return np.asarray(op.points[chosen] / op.factor + op.shift)


def mixed_rows(op: PointFunction, count: int) -> np.ndarray:
    """Return rows on points, beside points, about as far from them as is near, and anywhere, one kind after another."""
    rng = np.random.default_rng(1)
    x = on_points(op, rng.integers(0, POINTS, count))
    (away,) = inputs_for([op.points.shape[1]], count)
    x[1::4] += 1e-7 * away[1::4]
    x[2::4] += NEAR.value**0.5 * away[2::4] * rng.uniform(0.5, 2.0, len(x[2::4]))[:, None]
    x[3::4] = away[3::4]
    x[::8] = on_points(op, np.full(len(x[::8]), 5))
    return x


def check(op: PointFunction, found: np.ndarray, expected: np.ndarray) -> None:
    """Answers to `mixed_rows` are those of float64, to what the precision promises."""
    weight = float(np.abs(getattr(op, "weight", np.ones((1, 1)))).sum(axis=0).max())
    error = np.abs(found - expected)
    assert error.max() <= AT_THE_LIMIT[op.precision] * weight
    error[2::4] = 0
    assert error.max() <= OF_A_POINT[op.precision] * weight


@forms
@pytest.mark.parametrize("copies", [slice(0), slice(20, 23), slice(10, 100)], ids=["none", "few", "many"])
def test_rows_on_points_and_beside_them(device: torch.device, form: str, copies: slice) -> None:
    """The root of what products leave of zero would be 1e-5, and each copy of a point would have it."""
    op, exact = matern(form, copies=copies)
    x = mixed_rows(op, 70)
    expected = run_reference(exact, [x])
    for found in (op.emulate(x), run_kernel(op, [x], device, torch.float64)):
        check(op, found, expected)


@pytest.mark.parametrize("features", [3, 33])
def test_float32_pairs_of_any_number_of_features(device: torch.device, features: int) -> None:
    op, exact = matern("float32 pairs", features, slice(20, 23))
    x = mixed_rows(op, 40)
    check(op, run_kernel(op, [x], device, torch.float64), run_reference(exact, [x]))


@forms
def test_the_bits_of_a_row_depend_on_no_other_row(device: torch.device, form: str) -> None:
    """Alone, in another order, and beside rows none of which is near a point."""
    op, _ = matern(form, copies=slice(10, 80))
    x = mixed_rows(op, 70)
    together = run_kernel(op, [x], device, torch.float64)
    order = np.random.default_rng(2).permutation(len(x))
    assert np.array_equal(run_kernel(op, [x[order]], device, torch.float64), together[order])
    (others,) = inputs_for([FEATURES], len(x), seed=3)
    for place in range(9):
        assert np.array_equal(run_kernel(op, [x[[place]]], device, torch.float64)[0], together[place])
        company = others.astype(np.float64)
        company[69 - place] = x[place]
        assert np.array_equal(run_kernel(op, [company], device, torch.float64)[69 - place], together[place])


def test_a_point_alone_in_its_block_has_the_bits_of_its_copies_in_others(device: torch.device) -> None:
    """One distance of a row comes from differences in the first block, and 64 do in the second."""
    op, _ = matern("matrix in ten digits", copies=slice(64, 130))
    x = mixed_rows(op, 70)
    found = run_kernel(op, [x], device, torch.float64)
    assert (found[:, 64:130] == found[:, [5]]).all()
    assert np.abs(found[::8, 5] - 1).max() <= OF_A_POINT["ten digits"]


@forms
def test_nan_stays_in_its_row(device: torch.device, form: str) -> None:
    op, exact = matern(form, copies=slice(10, 80))
    x = mixed_rows(op, 20)
    x[8, 1] = np.nan
    found, expected = run_kernel(op, [x], device, torch.float64), run_reference(exact, [x])
    assert np.isnan(found[8]).all()
    found[8] = expected[8] = 0
    check(op, found, expected)


@forms
@pytest.mark.parametrize("wide", [False, True], ids=["narrow", "wide"])
def test_pairs_one_by_one_and_whole_blocks_have_the_same_bits(
    form: str, wide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interpreter reads the limits anew; a compiled kernel keeps those that it was compiled with."""
    monkeypatch.setattr(near_zero, "MOST_MOVED", tl.constexpr(FEATURES - wide))
    op, _ = matern(form, copies=slice(10, 30))
    x = mixed_rows(op, 40)
    cpu = torch.device("cpu")
    found = run_kernel(op, [x], cpu, torch.float64)
    for most in (0, POINTS):
        monkeypatch.setattr(near_zero, "MOST_TURNS", tl.constexpr(most))
        assert np.array_equal(run_kernel(op, [x], cpu, torch.float64), found)


@forms
def test_no_bit_depends_on_how_many_rows_a_block_has(
    device: torch.device, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    op, _ = matern(form, copies=slice(10, 80))
    x = mixed_rows(op, 70)
    found = run_kernel(op, [x], device, torch.float64)
    monkeypatch.setattr(sums, "DISTANCES", DISTANCES._replace(rows=2 * DISTANCES.rows, warps=2 * DISTANCES.warps))
    larger = {name: 2 * matrices.BLOCK_OF_DIGITS[name] for name in ("BLOCK_ROWS", "num_warps")}
    monkeypatch.setattr(matrices, "BLOCK_OF_DIGITS", {**matrices.BLOCK_OF_DIGITS, **larger})
    assert np.array_equal(run_kernel(op, [x], device, torch.float64), found)
