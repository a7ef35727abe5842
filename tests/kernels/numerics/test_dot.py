"""Products of blocks: right, and with the same bits for a row wherever it stands in the block."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from triton_regressors.kernels.numerics.dot import dot, rounded_product

ROWS, FEATURES, COLUMNS = 64, 32, 16


@triton.jit
def dot_kernel(a, b, acc, out, ROWS: tl.constexpr, FEATURES: tl.constexpr, COLUMNS: tl.constexpr):
    row, feature, column = tl.arange(0, ROWS), tl.arange(0, FEATURES), tl.arange(0, COLUMNS)
    at = row[:, None] * COLUMNS + column[None, :]
    first = tl.load(a + row[:, None] * FEATURES + feature[None, :])
    second = tl.load(b + feature[:, None] * COLUMNS + column[None, :])
    tl.store(out + at, dot(first, second, tl.load(acc + at)))


@triton.jit
def product_kernel(a, b, c, out, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)
    tl.store(out + at, rounded_product(tl.load(a + at), tl.load(b + at)) + tl.load(c + at))


def run(a: np.ndarray, b: np.ndarray, acc: np.ndarray, device: torch.device) -> np.ndarray:
    tensors = [torch.from_numpy(array).to(device) for array in (a, b, acc, np.zeros_like(acc))]
    dot_kernel[(1,)](*tensors, ROWS, FEATURES, COLUMNS)
    return tensors[-1].cpu().numpy()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_blocks(dtype: type, device: torch.device) -> None:
    random = np.random.default_rng(0)
    shapes = (ROWS, FEATURES), (FEATURES, COLUMNS), (ROWS, COLUMNS)
    a, b, acc = (random.standard_normal(shape).astype(dtype) for shape in shapes)
    found = run(a, b, acc, device)
    assert found.dtype == dtype
    wide = [array.astype(np.longdouble) for array in (a, b, acc)]
    magnitude = np.abs(wide[0]) @ np.abs(wide[1]) + np.abs(wide[2])
    assert (np.abs(found - (wide[0] @ wide[1] + wide[2])) <= FEATURES * np.finfo(dtype).eps * magnitude).all()

    order = random.permutation(ROWS)
    assert run(a[order], b, acc[order], device).tobytes() == found[order].tobytes()
    same = run(np.repeat(a[:1], ROWS, axis=0), b, np.repeat(acc[:1], ROWS, axis=0), device)
    assert same.tobytes() == np.repeat(found[:1], ROWS, axis=0).tobytes()


def test_float16_numbers_are_added_up_in_float32(device: torch.device) -> None:
    random = np.random.default_rng(0)
    a = random.integers(-2048, 2049, (ROWS, FEATURES)).astype(np.float16)
    b = random.integers(-128, 129, (FEATURES, COLUMNS)).astype(np.float16)
    found = run(a, b, np.zeros((ROWS, COLUMNS), dtype=np.float32), device)
    np.testing.assert_array_equal(found, a.astype(np.float64) @ b.astype(np.float64))


def test_a_product_is_rounded_before_it_is_added_to(device: torch.device) -> None:
    random = np.random.default_rng(0)
    a, b = random.standard_normal((2, 1024))
    c = -a * b
    tensors = [torch.from_numpy(array).to(device) for array in (a, b, c, np.ones_like(c))]
    product_kernel[(1,)](*tensors, COUNT=1024)
    assert (tensors[-1].cpu().numpy() == 0).all()  # a fused operation would leave the rounding error
