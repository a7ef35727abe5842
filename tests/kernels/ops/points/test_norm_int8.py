"""Squared norms by digits: as close to float64 as promised, equal to the emulation, and alike in every batch."""

from typing import Any

import numpy as np
import pytest
import torch

from tests.kernels.operations import run_kernel, run_reference
from tests.kernels.operations_pairwise import pairwise
from triton_regressors.kernels.ops.points import launch, norm_int8
from triton_regressors.kernels.ops.points.norm_int8 import emulated_norms, weight_digits
from triton_regressors.kernels.ops.points.squared_norm import SquaredNorm

FEATURES, TARGETS = 370, 363


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have functions in digits on any GPU, as on those with few float64 units."""
    monkeypatch.setattr("triton_regressors.kernels.ops.points.pairwise.has_many_float64_units", lambda _: False)


def norm(seed: int = 0) -> SquaredNorm:
    """Return the norm by a triangle with its largest numbers on the diagonal, as in a Gaussian process."""
    rng = np.random.default_rng(seed)
    weight = np.triu(0.05 * rng.standard_normal((FEATURES, TARGETS)))
    np.fill_diagonal(weight, rng.uniform(1, 9, TARGETS))
    return SquaredNorm(weight, rng.standard_normal(TARGETS)).in_precision("ten digits")  # type: ignore[return-value]


def rows(count: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).random((count, FEATURES))


def test_norms(device: torch.device) -> None:
    """The error is a share of a row's largest number about its middle times a column's above the diagonal."""
    op, x = norm(), rows(20)
    x[3] = 0.0
    x[4] *= 1e6
    x[5] *= 1e-9
    x[6] = 7.0
    x[7] += 1e4
    found, exact = run_kernel(op, [x], device, torch.float64), run_reference(op, [x])
    lost = 2.0**-37 * FEATURES * np.ptp(x, axis=1) / 2 * np.abs(np.triu(op.weight, 1)).max()
    rounding = 2.0**-44 * np.abs(x) @ np.abs(op.weight).max(axis=1)
    allowed = 2 * np.sqrt(32 * exact) * (lost + rounding)[:, None] + 1e-12 * exact
    assert (np.abs(found - exact) <= allowed).all()
    emulated = op.emulate(x)
    assert (np.abs(emulated - exact) <= allowed).all()
    assert np.abs(found - exact)[:3].max() < 4 * np.abs(emulated - exact)[:3].max()
    assert np.array_equal(run_kernel(op, [x], device), found.astype(np.float32))


def test_a_row_has_the_same_bits_in_every_batch(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """They do not depend on the blocks of the batch, nor on matrix units."""
    op, x = norm(), rows(18)
    together = run_kernel(op, [x], device, torch.float64)
    assert np.array_equal(run_kernel(op, [x[:14:-1].copy()], device, torch.float64), together[:14:-1])
    for limit, block_rows in (("NORM_FEW_ROWS", 64), ("NORM_SOME_ROWS", 128)):
        monkeypatch.setattr(launch, limit, 0)
        assert norm_int8.norm_shape(1, 2**30)["BLOCK_ROWS"] == block_rows
        assert np.array_equal(run_kernel(op, [x[:1]], device, torch.float64), together[:1])
    monkeypatch.setattr(norm_int8, "shared_memory", lambda _: 0)
    assert np.array_equal(run_kernel(op, [x[:1]], device, torch.float64), together[:1])


def test_gpus_with_many_float64_units_make_products_with_them(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Digits are faster there too if features are so few that float64 takes differences."""
    for features, keeps in ((9, False), (19, True)):
        op = pairwise("rbf", features, 70).in_precision("ten digits")
        x = np.random.default_rng(0).standard_normal((2, features))
        exact = run_kernel(op.in_precision("float64"), [x], device, torch.float64)
        assert not np.array_equal(run_kernel(op, [x], device, torch.float64), exact)
        monkeypatch.setattr("triton_regressors.kernels.ops.points.pairwise.has_many_float64_units", lambda _: True)
        assert np.array_equal(run_kernel(op.on_device(device), [x], device, torch.float64), exact) == keeps
        monkeypatch.setattr("triton_regressors.kernels.ops.points.pairwise.has_many_float64_units", lambda _: False)


@pytest.mark.filterwarnings("ignore:invalid value encountered", "ignore:overflow encountered")
def test_what_is_no_number_stays_in_its_row(device: torch.device) -> None:
    op, x = norm(), rows(5)
    expected = run_kernel(op, [x], device, torch.float64)
    x[1, 2], x[3, 0] = np.nan, np.inf
    found = run_kernel(op, [x], device, torch.float64)
    assert np.isnan(found[[1, 3]]).all()
    assert np.array_equal(found[[0, 2, 4]], expected[[0, 2, 4]])


def test_many_features_are_made_digits_block_by_block(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    op, x = norm(), rows(3).astype(np.float32)
    together = run_kernel(op, [x], device, torch.float64)
    monkeypatch.setattr(norm_int8, "MOST_FEATURES_AT_ONCE", 128)
    assert np.array_equal(run_kernel(op, [x], device, torch.float64), together)


@pytest.mark.parametrize(("features", "targets"), [(1, 1), (5, 3), (64, 128), (65, 130)])
def test_tables(features: int, targets: int) -> None:
    """They stand for the weight, whatever its shape, and zeros past it."""
    rng = np.random.default_rng(0)
    weight, offset = np.triu(rng.standard_normal((features, targets))), rng.standard_normal(targets)
    tables = weight_digits(weight, offset)
    units, sums, own, offsets = tables["terms"]
    places = 256.0 ** -np.arange(1, 6)
    above = (np.einsum("d,dtf->tf", places, tables["digits"].astype(np.float64)) * units[:, None]).T
    found = above + np.eye(*above.shape) * own
    assert np.abs(found[:features, :targets] - weight).max() < 1e-11
    assert not found[features:].any()
    assert not found[:, targets:].any()
    assert np.allclose(sums[:targets], np.triu(weight, 1).sum(axis=0))
    x, parts = rng.random((4, features)), -(-targets // 32)
    squares = (x @ weight + offset) ** 2
    expected = np.add.reduceat(squares, np.arange(0, targets, 32), axis=1)
    assert np.allclose(emulated_norms(x, tables, parts), expected, rtol=1e-9)
    assert not offsets[targets:].any()


def test_which_norms_have_digits() -> None:
    full, small = np.ones((FEATURES, TARGETS)), np.triu(np.ones((20, 20)))
    assert SquaredNorm(full, np.zeros(TARGETS)).precisions() == ("float64",)
    assert SquaredNorm(small, np.zeros(20)).precisions() == ("float64",)
    wide = np.zeros((norm_int8.MOST_FEATURES + 1, 8))
    assert SquaredNorm(wide, np.zeros(8)).precisions() == ("float64",)
    op = norm()
    assert op.precisions() == ("float64", "ten digits")
    assert (op.launches(1), SquaredNorm(op.weight, op.offset).launches(1)) == (2, 1)
    assert op.describe() == "370 → 363 by a triangle in 12 parts in ten digits"


@pytest.mark.parametrize(
    ("name", "features"), [("rbf", 9), ("rational_quadratic", 20), ("matern_5_2", 17), ("cosine", 3)]
)
def test_functions_in_ten_digits(device: torch.device, name: str, features: int) -> None:
    exact: Any = pairwise(name, features, 70)
    op = exact.in_precision("ten digits")
    x = np.random.default_rng(0).standard_normal((20, features)).astype(np.float32)
    x[3, 0] = np.nan
    expected = run_reference(exact, [x])
    found = run_kernel(op, [x], device, torch.float64)
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    scale = max(1.0, float(np.nanmax(np.abs(expected))))
    assert np.nanmax(np.abs(found - expected)) < 1e-9 * scale
    sound = np.arange(len(x)) != 3
    assert np.abs(op.emulate(x[sound]) - expected[sound]).max() < 1e-9 * scale
    alone = run_kernel(op, [x[7:8]], device, torch.float64)
    assert np.array_equal(alone, found[7:8])
