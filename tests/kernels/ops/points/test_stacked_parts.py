"""Sums of points whose numbers of parts differ between members of a fleet keep the bits of each member's own sum."""

import dataclasses

import numpy as np
import pytest
import torch

from tests.kernels.operations import run_kernel, run_on_cpu, run_reference
from tests.kernels.operations_pairwise import pairwise_affine
from tests.kernels.operations_stacked import sums_over_points
from triton_regressors.kernels.format.errors import PlanError
from triton_regressors.kernels.ops.points.parts import MOST_PARTS, sum_of_parts
from triton_regressors.kernels.ops.points.stacked_pairwise_affine import StackedPairwiseAffine
from triton_regressors.kernels.ops.points.stacked_parts import SumOfOwnParts, parts_key, ragged_width
from triton_regressors.kernels.plan.plan import Operation

TOGETHER = [parts for parts in range(1, MOST_PARTS + 1) if not parts_key(parts)]


def in_steps(operation: Operation, arrays: list[np.ndarray], device: torch.device) -> np.ndarray:
    """Compute the steps of an operation by their kernels."""
    first, *others = operation.in_steps()
    found = run_kernel(first, arrays, device, torch.float64 if others else torch.float32)
    for number, each in enumerate(others, 1):
        found = run_kernel(each, [found], device, torch.float32 if number == len(others) else torch.float64)
    return found


@pytest.mark.parametrize(("targets", "most"), [(1, MOST_PARTS), (1, 23), (1, 3), (2, 40), (7, 5)])
def test_own_parts_are_added_as_an_affine_map_adds_them(targets: int, most: int, device: torch.device) -> None:
    counts = tuple(parts for parts in TOGETHER if parts <= most)
    rng = np.random.default_rng(0)
    own = rng.choice(counts, 150)
    x = rng.standard_normal((150, ragged_width(counts, targets))) * 10.0 ** rng.integers(-3, 2, (150, 1))
    x[::7, 0] = np.nan
    x[:, -1] = own
    op = SumOfOwnParts(counts, targets, "exp")
    op.check(x.shape[1])
    found, reference = run_kernel(op, [x], device, torch.float64), run_reference(op, [x])
    for parts in counts:
        rows = np.ascontiguousarray(x[own == parts, : parts * targets])
        expected = run_kernel(sum_of_parts(parts, targets, "exp"), [rows], device, torch.float64)
        if parts > 1:
            assert found[own == parts].tobytes() == expected.tobytes(), parts
    clean = ~np.isnan(x).any(axis=1)  # a product multiplies NaN by the zeros of other targets
    np.testing.assert_allclose(found[clean], reference[clean], rtol=1e-10)


@pytest.mark.parametrize(
    ("name", "features", "targets", "precision"),
    [
        ("rbf", 3, 1, "ten digits"),
        ("rbf", 20, 1, "float32 pairs"),
        ("chi2", 9, 1, "float32 pairs"),
        ("laplacian", 9, 2, "ten digits"),
        ("rbf", 5, 1, "float64"),
    ],
)
def test_members_with_other_numbers_of_parts_are_stacked(
    name: str, features: int, targets: int, precision: str, device: torch.device
) -> None:
    sizes = (100, 1, 129, 300, 520) if precision != "float64" else (100, 1_500)
    members = [
        pairwise_affine(name, features, size, targets, seed=seed, function="exp").in_precision(precision)
        for seed, size in enumerate(sizes)
    ]
    assert len({StackedPairwiseAffine.alike(member) for member in members}) == 1
    op = StackedPairwiseAffine.of(members, 3)
    rng = np.random.default_rng(0)
    x, numbers = rng.standard_normal((50, features)).astype(np.float32), rng.integers(3, 3 + len(sizes), (50, 1))
    found = in_steps(op, [x, numbers.astype(np.float32)], device)
    for place, member in enumerate(members):
        mine = numbers[:, 0] == 3 + place
        assert found[mine].tobytes() == in_steps(member, [x[mine]], device).tobytes()
        own = op.member(place)
        assert all(np.array_equal(a, b) for (_, a), (_, b) in zip(own.arrays(), member.arrays(), strict=True))
        assert own.attributes() == member.attributes()


def test_odd_numbers_of_parts_in_tiles_are_not_stacked_with_others() -> None:
    members = [pairwise_affine("rbf", 3, 128 * parts, 1).in_precision("float32") for parts in (24, 25, 26)]
    first, odd, last = (StackedPairwiseAffine.alike(member) for member in members)
    assert first == last != odd


def test_sums_for_several_targets_of_one_block_of_points_are_not_stacked() -> None:
    for points, targets, precision, stacked in (
        (128, 2, "float64", False),
        (129, 2, "float64", True),
        (128, 1, "float64", True),
        (128, 2, "ten digits", True),
    ):
        member = pairwise_affine("rbf", 20, points, targets).in_precision(precision)
        assert (StackedPairwiseAffine.alike(member) is not None) is stacked


def test_a_stack_says_what_does_not_fit() -> None:
    op = StackedPairwiseAffine.of([pairwise_affine("rbf", 3, size) for size in (4, 5)])
    op.check(3, 1)
    for change, why in (
        ({"first_point": np.array([0, 4, 8])}, "first_point must count the points and the weights"),
        ({"first_point": np.array([0, 9, 9])}, "first_point must count the points and the weights"),
        ({"shift": op.shift[:1]}, "each member must have a shift"),
        ({"gamma": np.ones(3)}, "each member must have gamma"),
        ({"metric": "far"}, "metric must be one of"),
    ):
        with pytest.raises(PlanError, match=why):
            dataclasses.replace(op, **change).check(3, 1)
    with pytest.raises(PlanError, match=r"sum_of_own_parts: the input must be \[rows, 4\]"):
        SumOfOwnParts((1, 3), 1).check(3)


@pytest.mark.parametrize(("name", "features"), [("rbf", 16), ("matern_1_2", 9), ("polynomial", 5), ("laplacian", 4)])
def test_many_rows_on_a_cpu_have_the_bits_of_their_members(name: str, features: int) -> None:
    """The functions of these rows and points fill the memory for tiles several times."""
    members = sums_over_points(name, features, (150, 256, 90, 700, 201))
    rng = np.random.default_rng(0)
    x, numbers = rng.standard_normal((900, features)), rng.integers(0, len(members), (900, 1)).astype(np.float64)
    found = run_on_cpu(StackedPairwiseAffine.of(members), [x, numbers])
    for place, member in enumerate(members):
        mine = numbers[:, 0] == place
        assert found[mine].tobytes() == run_on_cpu(member, [x[mine]]).tobytes()
