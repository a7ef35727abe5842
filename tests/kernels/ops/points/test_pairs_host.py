"""Sums in pairs of float32 numbers: their use, and kernels against float64 and against the emulation."""

import dataclasses

import numpy as np
import pytest
import torch

from tests.kernels.operations import inputs_for, run_kernel, run_reference
from tests.kernels.operations_pairwise import pairwise_affine
from triton_regressors.kernels.ops.points.pairwise_affine import PairwiseAffine
from triton_regressors.kernels.plan.plan import INPUT, Plan, Step

PAIRS = "float32 pairs"
NAMES = ("rbf", "matern_1_2", "matern_3_2", "matern_5_2", "rational_quadratic", "reciprocal", "polynomial", "sigmoid")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")  # the interpreter computes with NumPy


def in_pairs(name: str, features: int, points: int = 150) -> PairwiseAffine:
    return dataclasses.replace(pairwise_affine(name, features, points, 1, 2), precision=PAIRS)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("features", [2, 20])
def test_sums_in_pairs_have_eight_digits(device: torch.device, name: str, features: int) -> None:
    """They are a hundred times closer than in float32, and the exporter's emulation is as close."""
    op = in_pairs(name, features)
    (x,) = inputs_for([features], 40)
    expected = run_reference(op, [x])
    found = run_kernel(op, [x], device, torch.float64)
    unit = np.linalg.norm(op.weight) * max(1.0, float(np.abs(expected).max()) / np.abs(op.weight).sum())
    assert np.abs(found - expected).max() <= 1.5e-8 * unit
    assert np.abs(op.emulate(x) - expected).max() <= 1.5e-8 * unit
    assert np.abs(op.emulate(x) - found).max() <= 1.5e-8 * unit


@pytest.mark.parametrize("name", NAMES)
def test_rows_that_are_points_and_rows_far_away(device: torch.device, name: str) -> None:
    op = in_pairs(name, 20)
    x = np.concatenate([op.points[:6], op.points[:6] + 1e-6, 30.0 * op.points[:6], 1e9 * op.points[:2]])
    x = x / op.factor + op.shift
    expected = run_reference(op, [x])
    unit = np.maximum(np.abs(op.weight).sum(), np.abs(expected))  # each function is off by at most 1.1e-8
    rows = slice(18) if name == "polynomial" else slice(None)  # the other answers are larger than float32 numbers
    assert np.abs((run_kernel(op, [x], device, torch.float64) - expected)[rows] / unit[rows]).max() <= 1.1e-8


@pytest.mark.parametrize("name", ["rbf", "matern_1_2", "matern_3_2", "sigmoid"])
def test_a_row_has_the_same_bits_in_every_batch(device: torch.device, name: str) -> None:
    op = in_pairs(name, 20)
    (x,) = inputs_for([20], 80)
    x[5, 3] = np.nan
    together = run_kernel(op, [x], device, torch.float64)
    assert np.isnan(together[5]).all()
    assert np.isfinite(np.delete(together, 5, axis=0)).all()
    for rows in ([5, 7], [79], [66, 1, 0]):
        np.testing.assert_array_equal(run_kernel(op, [x[rows]], device, torch.float64), together[rows])


@pytest.mark.parametrize("name", ["rbf", "rational_quadratic"])
def test_weights_of_any_size_and_sign(device: torch.device, name: str) -> None:
    op = in_pairs(name, 20)
    weight = op.weight * 10.0 ** np.random.default_rng(0).integers(-20, 21, op.weight.shape)
    weight[[0, 7, 149]] = 0.0
    op = dataclasses.replace(op, weight=weight, intercept=np.zeros(1))
    (x,) = inputs_for([20], 20)
    found, expected = run_kernel(op, [x], device, torch.float64), run_reference(op, [x])
    assert np.abs(found - expected).max() <= 1e-8 * np.abs(weight).max()


def test_gpus_with_many_float64_units_use_them_where_that_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """They then make ten digits of the same sum, in the same parts."""
    few, many = {}, {}
    for name, features in (
        ("rbf", 20),
        ("rbf", 3),
        ("matern_1_2", 20),
        ("matern_3_2", 20),
        ("rational_quadratic", 20),
        ("polynomial", 20),
        ("laplacian", 20),
        ("chi2", 20),
    ):
        op = in_pairs(name, features)
        few[name, features] = op.on_device(torch.device("cpu"))
        assert few[name, features] is op
        with monkeypatch.context() as patch:
            asked = "triton_regressors.kernels.ops.points.pairwise_affine.has_many_float64_units"
            patch.setattr(asked, lambda device: True)
            found = op.on_device(torch.device("cpu"))
            plan = Plan(features, (Step(op, (INPUT,), "y"),), {"y": "y"})
            assert (plan.on_device(torch.device("cpu")) is plan) == (found is op)
        many[name, features] = found.precision
        assert (found.parts, found.part_points()) == (op.parts, op.part_points())
    assert many == {key: PAIRS if key in {("rbf", 20), ("rational_quadratic", 20)} else "ten digits" for key in few}
    short = pairwise_affine("matern_3_2", 20, 150).in_precision("float32")
    assert short.on_device(torch.device("cpu")) is short
    monkeypatch.setattr("triton_regressors.kernels.ops.points.pairwise_affine.shared_memory", lambda device: 0)
    assert in_pairs("rbf", 20).on_device(torch.device("cpu")).precision == "ten digits"
    assert in_pairs("chi2", 20).on_device(torch.device("cpu")).precision == PAIRS  # these need no matrix units


def test_what_pairs_are_for() -> None:
    """They take one target's sum, of a function in pairs, with numbers that are not too large."""
    assert all(PAIRS in pairwise_affine(name, 5, 9).precisions() for name in NAMES)
    for name in ("laplacian", "chi2", "cosine", "power 2.5", "sine", "table", "constant"):
        assert PAIRS not in pairwise_affine(name, 5, 9).precisions()
    assert PAIRS not in pairwise_affine("rbf", 5, 9, 2).precisions()
    assert PAIRS not in pairwise_affine("rbf", 200, 9).precisions()
    rbf = pairwise_affine("rbf", 5, 9)
    assert rbf.precisions() == ("float64", "ten digits", PAIRS, "float32")
    for other in (
        dataclasses.replace(rbf, gamma=-1e3),
        dataclasses.replace(rbf, gamma=0.2),
        dataclasses.replace(rbf, coef0=1.0),
        dataclasses.replace(rbf, weight=rbf.weight * 1e30),
        dataclasses.replace(pairwise_affine("matern_3_2", 5, 9), gamma=100.0),
        dataclasses.replace(pairwise_affine("polynomial", 5, 9), exponent=9.0),
    ):
        assert PAIRS not in other.precisions()
