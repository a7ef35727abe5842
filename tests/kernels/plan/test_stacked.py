"""Stacked operations answer each row with the bits of its member's own operation."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

from tests.kernels.operations import inputs_for, run_kernel, run_on_cpu, run_reference, tensors
from tests.kernels.operations_polynomial import polynomial_affine, quadratic
from tests.kernels.operations_stacked import MEMBERS, RAGGED, affine, stacked
from triton_regressors.kernels.cpu.member_sums import TERMS_OF_A_MEMBER
from triton_regressors.kernels.cpu.tiles import one_thread
from triton_regressors.kernels.engine.torch_executor import with_joined
from triton_regressors.kernels.format.errors import PlanError
from triton_regressors.kernels.ops.columns.columns import Columns
from triton_regressors.kernels.ops.linear.by_members import FEW, NEVER_FALLING, Rounded, SumsByMembers
from triton_regressors.kernels.ops.linear.stacked_affine import StackedAffine
from triton_regressors.kernels.plan.plan import INPUT, Operation, Plan, Step
from triton_regressors.kernels.plan.stacked import stacked_class

START, ROWS = 3, 150


def numbered(members: int, rows: int, seed: int = 0) -> np.ndarray:
    """Return the number of a member for each row, `[rows, 1]`."""
    return np.random.default_rng(seed).integers(START, START + members, (rows, 1)).astype(np.float32)


def run_rounded(op: Operation, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Compute what a CPU serves of a step whose answers are an output alone."""
    assert isinstance(op, SumsByMembers)
    with one_thread():
        found = op.compute_rounded(tensors(op, torch.device("cpu"), plain=True), *map(torch.from_numpy, arrays))
    return found.numpy()


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
    for number in (-1.0, START + len(members), np.nan, np.inf, -np.inf):  # of no member: some answer, and no error
        assert len(run_on_cpu(stacked(members, START), [*arrays, np.array([[number]], np.float32)])) == 1


@pytest.mark.parametrize("name", [name for name in MEMBERS if isinstance(stacked(MEMBERS[name][0]), SumsByMembers)])
@pytest.mark.parametrize("rows", [0, 1, FEW, FEW + 1, 150])
def test_outputs_are_rounded_as_those_of_the_members(name: str, rows: int) -> None:
    members, widths = MEMBERS[name]
    arrays = [*inputs_for(widths, rows), numbered(len(members), rows)]
    arrays[0][::5, -1], arrays[0][1::5] = np.inf, 0
    op = stacked(members, START)
    found = run_rounded(op, arrays)
    assert found.astype(np.float32).tobytes() == run_on_cpu(op, arrays).astype(np.float32).tobytes()


BETWEEN: dict[str, tuple[int, list[Operation]]] = {
    "affine to 3": (32, [affine(32, seed, targets=3, unused=9) for seed in range(1, 6)]),
    **{f"affine, {name}": (32, [affine(32, seed, name, unused=9) for seed in range(1, 6)]) for name in NEVER_FALLING},
    "quadratic": (9, [quadratic(9, 2, seed, "float64", True) for seed in range(5)]),
    "quadratic in float32": (9, [quadratic(9, 1, seed, "float32", False) for seed in range(5)]),
    "polynomial": (5, [polynomial_affine(5, 3, 2, seed) for seed in range(5)]),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_answers_between_two_float32_are_rounded_as_those_of_the_member_alone(name: str) -> None:
    """The sum lies at the middle between two float32 numbers, or next to it, so that its last bit decides."""
    features, members = BETWEEN[name]
    op, numbers, rng = stacked(members, START), numbered(5, 3_000), np.random.default_rng(0)
    x = 0.3 * rng.standard_normal((len(numbers), features))

    def answers(last: np.ndarray) -> np.ndarray:
        x[:, -1] = last
        return run_reference(op, [x, numbers])[:, 0]

    last = x[:, -1].copy()
    y = answers(last).astype(np.float32)
    middle = (y.astype(np.float64) + np.nextafter(y, np.float32(np.inf))) / 2
    for _ in range(4):
        now = answers(last)
        last = last + 1e-7 * (middle - now) / (answers(last + 1e-7) - now)
    plain = answers(last).astype(np.float32)
    found, expected = (run(op, [x, numbers]).astype(np.float32) for run in (run_rounded, run_on_cpu))
    assert found.tobytes() == expected.tobytes()
    assert plain.tobytes() != expected[:, 0].tobytes(), "no row was next to the middle"


@pytest.mark.parametrize("name", ["affine 32", "quadratic of 6 to 2 in float64", "nested polynomial"])
def test_many_rows_of_few_members_are_computed_member_by_member(name: str) -> None:
    members, widths = MEMBERS[name]
    op = stacked(members, START)
    assert isinstance(op, SumsByMembers)
    rows = TERMS_OF_A_MEMBER // op.terms_per_row + 1
    arrays = [*inputs_for(widths, rows), np.full((rows, 1), START + 1.0)]
    assert run_rounded(op, arrays).tobytes() == run_on_cpu(members[1], arrays[:1]).tobytes()


def test_answers_are_rounded_where_no_step_of_a_request_reads_them() -> None:
    op, after = stacked([affine(3, seed) for seed in range(1, 4)]), affine(1, 5)
    steps = (Step(Columns(np.arange(3)), (INPUT,), "x"), Step(Columns(np.array([3])), (INPUT,), "m"))
    plan = Plan(4, (*steps, Step(op, ("x", "m"), "v"), Step(after, ("v",), "w")), {"y": "v", "z": "w"})
    rounded = {
        outputs: [each for each in with_joined(plan, plan.steps_for(outputs)) if isinstance(each, Rounded)]
        for outputs in (("y",), ("z",), ("y", "z"))
    }
    assert rounded == {("y",): [Rounded(plan.steps[2])], ("z",): [], ("y", "z"): []}


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
