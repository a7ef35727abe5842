"""Stacked operations give the members' own operations back."""

import numpy as np
import pytest

from tests.kernels.operations import inputs_for, run_on_cpu
from tests.kernels.operations_stacked import MEMBERS, stacked
from triton_regressors.exporter.fleets.unstacked import unstacked
from triton_regressors.kernels.plan.plan import Operation

START = 3
WITH_OTHER_ARRAYS = ("trees", "symmetric trees", "piecewise_affine", "linear leaves")
"""The names begin with these where leaves become integers, sets and leaves get wider or functions are joined."""


def same(first: Operation, second: Operation) -> bool:
    """Whether operations have the same fields, to the bit."""
    arrays = zip(first.arrays(), second.arrays(), strict=True)
    return first.attributes() == second.attributes() and all(
        name == other and (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
        for (name, a), (other, b) in arrays
    )


@pytest.mark.parametrize("name", MEMBERS)
def test_members_that_are_stacked_again_give_the_same_arrays(name: str) -> None:
    members, widths = MEMBERS[name]
    stack = stacked(members, START)
    found = unstacked(stack)
    for member in found:
        member.check(*widths)
    assert same(stacked(found, START), stack)
    assert {type(stack).alike(member) for member in found} == {type(stack).alike(members[0])}
    if not name.startswith(WITH_OTHER_ARRAYS):
        assert all(map(same, found, members))


@pytest.mark.parametrize("name", MEMBERS)
def test_they_answer_with_the_bits_of_what_was_stacked(name: str) -> None:
    members, widths = MEMBERS[name]
    arrays = inputs_for(widths, 60)
    arrays[0][::7] = np.nan
    for found, member in zip(unstacked(stacked(members, START)), members, strict=True):
        assert run_on_cpu(found, arrays).tobytes() == run_on_cpu(member, arrays).tobytes()


@pytest.mark.parametrize("name", MEMBERS)
def test_some_of_them_are_stacked_with_others_as_what_was_stacked(name: str) -> None:
    """A member's own operation in front of kept ones, and one of these left out, computes what it did."""
    members, widths = MEMBERS[name]
    kept = unstacked(stacked(members, START))
    mixed = [members[0], *kept[2:]]
    arrays = inputs_for(widths, 60)
    numbers = np.random.default_rng(0).integers(0, len(mixed), (60, 1)).astype(np.float32)
    found = run_on_cpu(stacked(mixed), [*arrays, numbers])
    for place, member in enumerate([members[0], *members[2:]]):
        mine = numbers[:, 0] == place
        assert found[mine].tobytes() == run_on_cpu(member, [array[mine] for array in arrays]).tobytes()
