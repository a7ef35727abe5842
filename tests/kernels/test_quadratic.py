"""Float32 numbers in three bfloat16 parts: nothing is lost, and the parts are as small as rounding makes them."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from triton_regressors.kernels.ops.quadratic import bfloat16_parts


@triton.jit
def parts_kernel(value, parts, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)
    high, middle, low = bfloat16_parts(tl.load(value + at))
    tl.store(parts + at, high.to(tl.float32))
    tl.store(parts + COUNT + at, middle.to(tl.float32))
    tl.store(parts + 2 * COUNT + at, low.to(tl.float32))


def split(values: np.ndarray, device: torch.device) -> np.ndarray:
    value = torch.from_numpy(values).to(device)
    parts = torch.empty(3, len(values), device=device)
    parts_kernel[(1,)](value, parts, len(values))
    return parts.cpu().numpy()


def test_the_parts_add_up_to_the_number(device: torch.device) -> None:
    random = np.random.default_rng(0)
    values = (random.standard_normal(2048) * 10.0 ** random.integers(-20, 30, 2048)).astype(np.float32)
    largest = np.nextafter(np.float32(2.0**128 - 2.0**119), np.float32(0))
    values[:6] = [0.0, -0.0, 1.0, -1.99999988, 2.0**-100, largest]
    high, middle, low = (part.astype(np.float64) for part in split(values, device))
    np.testing.assert_array_equal(high + middle + low, values)
    assert (np.abs(middle) <= 2.0**-8 * np.abs(values)).all()
    assert (np.abs(low) <= 2.0**-16 * np.abs(values)).all()


@pytest.mark.filterwarnings("ignore:invalid value encountered in subtract")
def test_what_is_no_number_stays_so(device: torch.device) -> None:
    bad = np.array([0x7F800000, 0xFF800000, 0x7FC00000, 0xFFFFFFFF], dtype=np.uint32).view(np.float32)
    assert not np.isfinite(split(bad, device).sum(axis=0)).any()
