"""The quadratic form: float32 numbers in three bfloat16 parts, and float64 rows far from zero."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from tests.kernels import operations
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.format.parity import measure, units
from triton_regressors.kernels.ops.linear.quadratic import Quadratic, bfloat16_parts
from triton_regressors.kernels.plan.plan import INPUT, Plan, Step


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


@pytest.mark.parametrize("features", [3, 40])  # in one tile, and in several
def test_float32_sums_keep_float64_rows_far_from_zero(engine: str, features: int) -> None:
    random = np.random.default_rng(0)
    shift, z = np.full(features, 1e6), random.standard_normal((50, features))
    form = np.triu(random.standard_normal((1, features, features)))
    tables = (shift, np.ones(features), form, random.standard_normal((1, features)), np.ones(1))
    operation = Quadratic(*tables, precision="float32")
    plan = Plan(features, (Step(operation, (INPUT,), "y"),), {"y": "y"}, "float64")
    X = shift + z
    expected = operations.run_reference(operation, [X])
    found = Runner(plan, engine=engine, max_rows=64).predict(X)["y"]
    assert measure(found, expected, units(expected)).max_error < 3e-6


@pytest.mark.parametrize(("precision", "least", "most"), [("float64", 0.0, 1e-14), ("float32", 1e-9, 1e-6)])
def test_what_a_kernel_would_sum_is_computed_at_its_precision(precision: str, least: float, most: float) -> None:
    op = operations.quadratic(6, 2, precision=precision)
    x = np.random.default_rng(0).standard_normal((50, 6)).astype(np.float32)
    expected = operations.run_reference(op.in_precision("float64"), [x])
    error = np.abs(op.emulate(x) - expected).max() / np.abs(expected).max()
    assert least <= error <= most
