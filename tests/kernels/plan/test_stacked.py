"""Stacked operations answer each row with the bits of its member's own operation."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
import torch

from tests.kernels.operations import inputs_for, run_kernel, run_on_cpu, run_reference
from tests.kernels.operations_stacked import MEMBERS, RAGGED, affine, stacked
from triton_regressors.kernels.format.errors import PlanError
from triton_regressors.kernels.ops.columns.columns import Columns
from triton_regressors.kernels.ops.linear.affine import Affine
from triton_regressors.kernels.ops.linear.stacked_affine import StackedAffine
from triton_regressors.kernels.plan.plan import Operation
from triton_regressors.kernels.plan.stacked import stacked_class

START, ROWS = 3, 150


def numbered(members: int, rows: int, seed: int = 0) -> np.ndarray:
    """Return the number of a member for each row, `[rows, 1]`."""
    return np.random.default_rng(seed).integers(START, START + members, (rows, 1)).astype(np.float32)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter computes with NumPy
@pytest.mark.parametrize("name", MEMBERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_row_has_the_bits_of_its_own_member(name: str, dtype: torch.dtype, device: torch.device) -> None:
    members, widths = MEMBERS[name]
    arrays, numbers = inputs_for(widths, ROWS), numbered(len(members), ROWS)
    for value, rows in ((np.nan, slice(1, None, 7)), (np.inf, slice(2, None, 11)), (-np.inf, slice(3, None, 13))):
        arrays[0][rows, ROWS % widths[0]] = value
    arrays[0][::31] = np.nan
    op = stacked(members, START)
    found = run_kernel(op, [*arrays, numbers], device, dtype)
    on_cpu, reference = run_on_cpu(op, [*arrays, numbers]), run_reference(op, [*arrays, numbers])
    for place, member in enumerate(members):
        mine = numbers[:, 0] == START + place
        rows = [array[mine] for array in arrays]
        assert found[mine].tobytes() == run_kernel(member, rows, device, dtype).tobytes()
        assert on_cpu[mine].tobytes() == run_on_cpu(member, rows).tobytes()
        mine &= ~np.isinf(arrays[0]).any(axis=1)  # a reference may multiply by infinity what a kernel leaves out
        rows = [array[mine] for array in arrays]
        np.testing.assert_allclose(reference[mine], run_reference(member, rows), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", MEMBERS)
def test_rows_of_other_members_change_nothing(name: str, device: torch.device) -> None:
    members, widths = MEMBERS[name]
    arrays, numbers = inputs_for(widths, ROWS), numbered(len(members), ROWS)
    op, mixed = stacked(members, START), numbers.copy()
    mixed[::3] = np.array([[-1.0], [0.0], [START + len(members)], [np.nan], [np.inf], [1e30]] * 25, np.float32)[:50]
    mine = (mixed == numbers)[:, 0]
    for run in (lambda rows: run_kernel(op, rows, device), lambda rows: run_on_cpu(op, rows)):
        assert run([*arrays, mixed])[mine].tobytes() == run([*arrays, numbers])[mine].tobytes()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter computes with NumPy
@pytest.mark.parametrize("name", RAGGED)
def test_members_may_make_other_numbers_of_columns(name: str, device: torch.device) -> None:
    """An operation reads as many of them as the operation before made for a row's member."""
    first, second, width = RAGGED[name]
    (x,), numbers = inputs_for([width], ROWS), numbered(len(first), ROWS)
    x[::17] = np.nan

    def check(run: Callable[[Operation, list[np.ndarray]], np.ndarray]) -> None:
        def both(one: Operation, other: Operation, rows: np.ndarray, more: list[np.ndarray]) -> np.ndarray:
            inputs = [run(one, [rows, *more])] + [rows] * (other.kind().endswith("linear_leaves"))
            return run(other, [*inputs, *more])

        found = both(stacked(first, START), stacked(second, START), x, [numbers])
        for place, (one, other) in enumerate(zip(first, second, strict=True)):
            mine = numbers[:, 0] == START + place
            assert found[mine].tobytes() == both(one, other, x[mine], []).tobytes()

    check(run_on_cpu)
    check(lambda op, arrays: run_kernel(op, arrays, device, torch.float64))


@pytest.mark.parametrize("name", MEMBERS)
def test_a_cpu_computes_few_rows(name: str) -> None:
    members, widths = MEMBERS[name]
    for rows in (0, 1):
        arrays = inputs_for(widths, rows)
        found = run_on_cpu(stacked(members, START), [*arrays, np.full((rows, 1), START, np.float32)])
        assert found.shape == (rows, members[0].output_width(*widths))
        assert found.tobytes() == run_on_cpu(members[0], arrays).tobytes()


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_no_answer_need_be_near_a_middle(rows: int) -> None:
    op = stacked([affine(9, seed) for seed in range(3)], START)
    arrays = [*inputs_for([9], rows), numbered(3, rows)]
    found = run_on_cpu(dataclasses.replace(op, rounded=True), arrays)
    assert found.astype(np.float32).tobytes() == run_on_cpu(op, arrays).astype(np.float32).tobytes()


@pytest.mark.parametrize("targets", [1, 3])
def test_answers_between_two_float32_are_rounded_as_those_of_the_member_alone(targets: int) -> None:
    """The sum lies at the middle between two float32 numbers, or next to it, so that its last bit decides."""
    rng = np.random.default_rng(0)
    members: list[Operation] = [affine(32, seed, targets=targets, unused=9) for seed in range(1, 6)]
    x, numbers = rng.standard_normal((3_000, 32)), numbered(5, 3_000)
    for row, number in enumerate(numbers[:, 0].astype(int) - START):
        member = members[number]
        assert isinstance(member, Affine)
        last = np.flatnonzero(member.weight[:, 0])[-1]
        y = np.float32(x[row] @ member.weight[:, 0] + member.intercept[0])
        middle = (float(y) + float(np.nextafter(y, np.float32(np.inf)))) / 2
        x[row, last] += (middle - (x[row] @ member.weight[:, 0] + member.intercept[0])) / member.weight[last, 0]
    op = stacked(members, START)
    assert isinstance(op, StackedAffine)
    plain = run_reference(op, [x, numbers]).astype(np.float32)
    found = run_on_cpu(dataclasses.replace(op, rounded=True), [x, numbers]).astype(np.float32)
    expected = run_on_cpu(op, [x, numbers]).astype(np.float32)
    assert found.tobytes() == expected.tobytes()
    assert plain.tobytes() != expected.tobytes(), "no row was next to the middle"


def test_what_cannot_be_stacked_says_so() -> None:
    assert StackedAffine.alike(affine(3, 1)) != StackedAffine.alike(affine(4, 1))
    assert StackedAffine.alike(affine(3, 1)) != StackedAffine.alike(affine(3, 1, targets=2))
    assert StackedAffine.alike(affine(3, 0, targets=2)) != StackedAffine.alike(affine(3, 1, targets=2))
    assert StackedAffine.alike(affine(3, 1)) != StackedAffine.alike(affine(3, 1, "exp"))
    assert stacked_class(Columns(np.arange(3))) is None


@pytest.mark.parametrize("name", MEMBERS)
def test_the_last_input_holds_the_numbers_of_members(name: str) -> None:
    members, widths = MEMBERS[name]
    op = stacked(members)
    op.check(*widths, 1)
    for wrong in (widths, (*widths, 2), (*widths, 1, 1)):
        with pytest.raises(PlanError, match=rf"{op.kind()}: the last of {len(widths) + 1} inputs must be \[rows, 1\]"):
            op.check(*wrong)


@pytest.mark.parametrize("widths", [(3,), (3, 2), (2, 1), (3, 1, 1)])
def test_widths_that_do_not_fit_are_refused(widths: tuple[int, ...]) -> None:
    with pytest.raises(PlanError, match="stacked_affine: "):
        stacked([affine(3, 1), affine(3, 2)]).check(*widths)


def test_few_members_own_operations_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    members, widths = MEMBERS["points"]
    op, arrays = stacked(members, START), [*inputs_for(widths, 20), numbered(len(members), 20)]
    before = run_on_cpu(op, arrays)
    monkeypatch.setattr("triton_regressors.kernels.ops.linear.by_members.MOST_KEPT", 2)
    op = stacked(members, START)
    assert run_on_cpu(op, arrays).tobytes() == before.tobytes()
    assert 0 < len(vars(op)["_own"]) <= 2
    assert op.own(1) is op.own(1)
