"""The division of a sum over points among programs: shapes that fit a GPU, and shapes for few rows."""

import numpy as np
import pytest
import torch

from tests.kernels.operations import inputs_for, run_kernel
from tests.kernels.operations_pairwise import pairwise_affine
from triton_regressors.kernels.ops.points.launch import (
    EXPONENTIAL_PAIRS,
    FEWER_ROWS,
    OWN_ROWS,
    Shape,
    digit_shape,
    for_few_rows,
    parts_of_a_program,
)


def test_a_program_makes_parts_enough_to_fill_a_device() -> None:
    """A few blocks of rows have a program for each part; many have whole waves of programs, with most parts each."""
    assert [parts_of_a_program(blocks, 64, 264) for blocks in (1, 4, 64, 256, 1024)] == [1, 1, 16, 64, 64]
    assert parts_of_a_program(1, 1, 264) == 1
    for blocks in range(1, 200, 7):
        assert 1 <= parts_of_a_program(blocks, 9, 64) <= 9


def test_digits_need_memory_on_the_processor() -> None:
    """A block's digits lie in shared memory, of which GPUs have 99 to 227 KB; others compute in another way."""
    for features in (16, 32, 64, 128):
        for shared in (227 * 1024, 164 * 1024, 99 * 1024):
            shape = digit_shape(features, shared)
            assert shape is not None
            assert 6 * features * (shape.rows + shape.stages * shape.points) <= shared
    assert digit_shape(128, 0) is None
    assert digit_shape(256, 2**30) is None


def test_few_rows_take_smaller_blocks_where_these_were_tried() -> None:
    """Their points are the same, as their order in the sum is."""
    many = EXPONENTIAL_PAIRS
    few = for_few_rows(many, "digits", 64, "9.0")
    assert few == many._replace(rows=64)
    assert for_few_rows(many, "digits", 65, "9.0") is many
    assert for_few_rows(many, "products", 1, "9.0") is many
    for capability in ("8.9", "10.0", ""):
        assert for_few_rows(many, "digits", 1, capability) is many
    for way, rows, points, warps in FEWER_ROWS:
        found = for_few_rows(Shape(rows, points, 16, warps, 3), way, OWN_ROWS, "9.0")
        assert found.rows < rows
        assert (found.points, found.features, found.stages) == (points, 16, 3)


@pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")
@pytest.mark.parametrize(
    ("name", "features", "precision"),
    [
        ("rbf", 3, "float32"),
        ("rbf", 3, "ten digits"),
        ("rbf", 20, "float32"),
        ("rbf", 20, "ten digits"),
        ("rbf", 20, "float32 pairs"),
        ("cosine", 20, "ten digits"),
        ("matern_1_2", 20, "ten digits"),
    ],
)
def test_few_rows_have_the_bits_that_they_have_among_many(
    device: torch.device, name: str, features: int, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows may be prepared by a kernel of their own or not, and in smaller blocks, which no CPU has by itself."""
    op = pairwise_affine(name, features, 150, 1, 2).in_precision(precision)
    (x,) = inputs_for([features], 80)
    together = run_kernel(op, [x], device, torch.float64)
    if device.type == "cpu":
        monkeypatch.setattr("triton_regressors.kernels.ops.points.pairwise_affine.capability", lambda device: "9.0")
    for rows in (slice(7, 8), slice(20, 36), slice(40, 57), slice(10, 74)):
        found = run_kernel(op, [np.ascontiguousarray(x[rows])], device, torch.float64)
        np.testing.assert_array_equal(found, together[rows])
