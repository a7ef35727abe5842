"""Products of digits: exact if so promised, else as close as promised, and equal to the exporter's emulation."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from triton_regressors.kernels.numerics.fp16_digits import (
    BASE,
    LARGEST_NORM,
    common_unit,
    digit_product,
    digits_of,
    product_of_digits,
    row_digits,
    split,
    squared_norm,
)

ROWS, FEATURES, POINTS = 64, 32, 16


@triton.jit
def digits_kernel(
    z, least, points, digits, units, whole, small, ROWS: tl.constexpr, FEATURES: tl.constexpr, POINTS: tl.constexpr
):
    row, feature, point = tl.arange(0, ROWS), tl.arange(0, FEATURES), tl.arange(0, POINTS)
    at = row[:, None] * FEATURES + feature[None, :]
    value = tl.load(z + at)
    z0, z1, z2, unit = row_digits(value, tl.sum(value * value, axis=1), tl.load(least))
    tl.store(digits + at, z0.to(tl.float64))
    tl.store(digits + ROWS * FEATURES + at, z1.to(tl.float64))
    tl.store(digits + 2 * ROWS * FEATURES + at, z2.to(tl.float64))
    tl.store(units + row, unit)
    at = point[None, :] * FEATURES + feature[:, None]
    s0 = tl.load(points + at)
    s1 = tl.load(points + POINTS * FEATURES + at)
    s2 = tl.load(points + 2 * POINTS * FEATURES + at)
    first, second = digit_product(z0, z1, z2, s0, s1, s2)
    at = row[:, None] * POINTS + point[None, :]
    tl.store(whole + at, first)
    tl.store(small + at, second)


@triton.jit
def norms_kernel(z, least, norms, ROWS: tl.constexpr, FEATURES: tl.constexpr):
    row, feature = tl.arange(0, ROWS), tl.arange(0, FEATURES)
    value = tl.load(z + row[:, None] * FEATURES + feature[None, :])
    tl.store(norms + row, squared_norm(value, tl.load(least)))


def vectors(kind: str, count: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    drawn = rng.standard_normal((count, FEATURES))
    if kind == "binary":  # all of one magnitude, so that their norms are large beside their largest numbers
        return np.sign(drawn)
    if kind == "wide":
        return drawn * 10.0 ** rng.integers(-8, 9, (count, FEATURES))
    if kind == "few":
        return drawn * (rng.random((count, FEATURES)) < 0.1)
    return drawn


@pytest.mark.parametrize("kind", ["normal", "binary", "wide", "few"])
def test_products(device: torch.device, kind: str) -> None:
    z, s = vectors(kind, ROWS, 0), vectors(kind, POINTS, 1)
    z[3] = 0
    z[4] *= 1e6  # far from all points
    unit = common_unit(s)
    points = split(s, unit)
    arrays = [z, np.array([unit]), points.astype(np.float16), np.zeros((3, ROWS, FEATURES)), np.zeros(ROWS)]
    arrays += [np.zeros((ROWS, POINTS), dtype=np.float32) for _ in range(2)]
    tensors = [torch.from_numpy(array).to(device) for array in arrays]
    digits_kernel[(1,)](*tensors, ROWS=ROWS, FEATURES=FEATURES, POINTS=POINTS)
    digits, units, whole, small = (tensor.cpu().numpy().astype(np.float64) for tensor in tensors[3:])

    expected = digits_of(z, unit)
    np.testing.assert_array_equal(digits, expected.digits)
    np.testing.assert_array_equal(units, expected.units)
    assert (np.linalg.norm(digits[0], axis=1) <= LARGEST_NORM + FEATURES).all()
    np.testing.assert_array_equal(whole, digits[0] @ points[0].T)
    emulated = product_of_digits(digits, points)
    np.testing.assert_array_equal(emulated[0], whole)
    lengths = np.linalg.norm(digits[0], axis=1)[:, None] * np.linalg.norm(points[0], axis=1) + LARGEST_NORM
    assert (np.abs(emulated[1] - small) <= 2.0**-20 * lengths).all()

    product = (whole + small) * units[:, None] * unit
    magnitude = np.maximum(np.linalg.norm(z, axis=1), units * LARGEST_NORM)[:, None] * unit * LARGEST_NORM
    assert (np.abs(product - z @ s.T) <= 2.0**-31 * magnitude).all()


def test_digits_add_up_to_the_numbers() -> None:
    z = vectors("wide", 100, 0)
    digits, units = digits_of(z)
    assert (digits[0] == np.rint(digits[0])).all()
    assert (np.abs(digits) <= BASE.value).all()
    total = (digits[0] + digits[1] + digits[2]) * units[:, None]
    assert (np.abs(total - z) <= 2.0**-24 * units[:, None]).all()
    assert digits_of(np.zeros((1, 3))).digits.sum() == 0


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", ["normal", "binary", "wide", "few"])
def test_a_norm_depends_on_no_order(device: torch.device, kind: str) -> None:
    z, rng = vectors(kind, ROWS, 0), np.random.default_rng(1)
    z[3], z[4], z[5] = 0, 1e300 * z[4], 1e-200 * z[5]
    z[6, 2], z[7, 0] = np.nan, np.inf
    found = []
    for order in (np.arange(FEATURES), rng.permutation(FEATURES), rng.permutation(FEATURES)):
        arrays = np.ascontiguousarray(z[:, order]), np.array([2.0**-20]), np.zeros(ROWS)
        tensors = [torch.from_numpy(array).to(device) for array in arrays]
        norms_kernel[(1,)](*tensors, ROWS=ROWS, FEATURES=FEATURES)
        found.append(tensors[2].cpu().numpy())
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], found[0])
    assert not np.isfinite(found[0][[4, 6, 7]]).any()
    expected, lost = (
        (z * z).sum(axis=1),
        FEATURES * 2.0**-24 * np.maximum(np.abs(z).max(axis=1) * 2.0**-10, 2.0**-20) ** 2,
    )
    rows = np.setdiff1d(np.arange(ROWS), [4, 6, 7])
    assert (np.abs(found[0] - expected)[rows] <= lost[rows] + 1e-15 * expected[rows]).all()
