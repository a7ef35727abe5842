"""The division of a sum over points among programs: shapes that fit a GPU, and shapes for few rows."""

import numpy as np
import pytest
import torch

from tests.kernels.operations import inputs_for, run_kernel
from tests.kernels.operations_pairwise import pairwise_affine
from triton_regressors.kernels.ops.points.launch import (
    EXPONENTIAL_PAIRS,
    FEW_ROWS_CAPABILITY,
    FEWER_ROWS,
    MEMBER_ROWS,
    OWN_ROWS,
    Shape,
    digit_shape,
    for_few_rows,
    for_members,
    parts_of_a_program,
    rows_of_a_program,
)
from triton_regressors.kernels.plan import launch_shapes


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


def test_rows_of_many_models_take_small_blocks() -> None:
    """A block of a fleet's rows takes as long as it has models."""
    many = EXPONENTIAL_PAIRS
    few = for_members(many, "digits", 65_536, 1024, "9.0")
    assert few == many._replace(rows=MEMBER_ROWS, warps=1)
    assert for_members(many, "digits", 65_536, 1023, "9.0") is many
    assert for_members(many, "digits", 64, 1000, "9.0") == many._replace(rows=64)
    assert for_members(many, "digits", 65, 1000, "8.9") is many
    assert for_members(Shape(64, 32, 16, 1, 3), "products", 10, 10, "9.0").rows == 32


def test_few_rows_of_a_fleet_are_spread_over_a_device() -> None:
    assert [rows_of_a_program(rows, 16, 1056) for rows in (1, 1056, 1057, 2113, 65_536)] == [1, 1, 2, 4, 16]
    assert rows_of_a_program(65_536, 64, 264) == 64


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


@pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")
@pytest.mark.parametrize("precision", ["float32", "ten digits", "float32 pairs"])
@pytest.mark.parametrize("features", [20, 64, 100])
@pytest.mark.parametrize("name", ["rbf", "matern_1_2", "matern_5_2", "cosine", "polynomial", "sigmoid"])
def test_blocks_of_fleets_have_the_bits_of_one_model(
    device: torch.device, name: str, features: int, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Smaller blocks take other instructions for products, and add the same numbers in the same order."""
    op = pairwise_affine(name, features, 150, 1, 2)
    if precision not in op.precisions():
        pytest.skip(f"{name} is not computed in {precision}")
    if features > 64 and device.type == "cpu":
        pytest.skip("the interpreter takes no products of so many numbers")
    if device.type == "cuda" and launch_shapes.capability(device) != FEW_ROWS_CAPABILITY:
        pytest.skip(f"only GPUs of {FEW_ROWS_CAPABILITY} get these blocks")
    op = op.in_precision(precision)
    (x,) = inputs_for([features], 80)
    expected = run_kernel(op, [x], device, torch.float64)
    blocks = []

    def small(shape: Shape, way: str, rows: int, capability: str) -> Shape:
        blocks.append(for_members(shape, way, max(rows, 65), max(rows, 65), "9.0"))
        return blocks[-1]

    monkeypatch.setattr("triton_regressors.kernels.ops.points.pairwise_affine.for_few_rows", small)
    np.testing.assert_array_equal(run_kernel(op, [x], device, torch.float64), expected)
    assert {(each.rows, each.warps) for each in blocks} == {(MEMBER_ROWS, 1)}
