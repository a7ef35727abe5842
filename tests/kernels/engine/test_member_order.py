"""Rows of a fleet in the order of their members, and their answers back in the order of the request."""

import numpy as np
import pytest
import torch

from tests.kernels.operations_stacked import MEMBERS, stacked
from triton_regressors.kernels.engine import member_order
from triton_regressors.kernels.engine.member_order import BackInOrder, InOrder, MemberOrder, in_order_of_members
from triton_regressors.kernels.engine.program import Program
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.format.errors import PlanError
from triton_regressors.kernels.ops.columns.columns import Columns
from triton_regressors.kernels.ops.columns.slice import Slice
from triton_regressors.kernels.plan.plan import INPUT, Plan, Step

ROWS = member_order.FEWEST_ROWS + 5


def order_of(numbers: np.ndarray, members: int, device: torch.device) -> torch.Tensor:
    """Return the memory that holds the order of rows with these numbers."""
    x = torch.from_numpy(np.stack([np.zeros_like(numbers), numbers], axis=1)).to(device)
    memory = torch.full((len(x), 2), torch.nan, dtype=torch.float64, device=device)
    MemberOrder(1, members).launch({}, [x], memory, len(x))
    return memory


@pytest.mark.parametrize("members", [1, 7, 4096, 5000, 1_000_000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_of_a_group_come_one_after_the_other(members: int, dtype: type, device: torch.device) -> None:
    rng = np.random.default_rng(members)
    numbers = rng.integers(0, members, ROWS).astype(dtype)
    memory = order_of(numbers, members, device)
    order, places = (read(memory, ROWS).cpu().numpy() for read in (member_order._order, member_order._places))
    assert np.array_equal(np.sort(order), np.arange(ROWS))
    assert np.array_equal(order[places], np.arange(ROWS))
    group = -(-members // min(member_order.MOST_GROUPS, ROWS // 2))
    assert (np.diff(numbers[order] // (1 << (group - 1).bit_length())) >= 0).all()


@pytest.mark.parametrize("numbers", [[5.0], [np.nan, -1.0, 3.0, np.inf, 1e30, -np.inf, 7.0]])
def test_any_numbers_have_an_order(numbers: list[float], device: torch.device) -> None:
    memory = order_of(np.resize(np.array(numbers), ROWS), 6, device)
    order, places = (read(memory, ROWS).cpu().numpy() for read in (member_order._order, member_order._places))
    assert np.array_equal(np.sort(order), np.arange(ROWS))
    assert np.array_equal(order[places], np.arange(ROWS))


@pytest.mark.parametrize("rows", [1, member_order.FEWEST_ROWS - 1, ROWS])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_come_back_as_they_went(rows: int, dtype: torch.dtype, device: torch.device) -> None:
    x = torch.from_numpy(np.random.default_rng(0).integers(0, 9, (rows, 4))).to(device, dtype)
    memory = order_of(x[:, 3].double().cpu().numpy(), 9, device)
    taken, back = torch.empty(rows, 2, dtype=dtype, device=device), torch.empty(rows, 2, device=device)
    InOrder(Slice(1, 2)).launch({}, [x, memory], taken, rows)
    if rows == ROWS:
        assert torch.equal(taken, InOrder(Slice(1, 2)).reference({}, x.cpu(), memory.cpu()).to(device))
    BackInOrder().launch({}, [taken, memory], back, rows)
    assert torch.equal(back, x[:, 1:3].float())


def test_references_agree_with_each_other() -> None:
    x = torch.tensor([[1.0, 2.0], [5.0, 0.0], [7.0, 2.0], [9.0, 1.0]])
    memory = MemberOrder(1, 3).reference({}, x)
    taken = InOrder(Slice(0, 1)).reference({}, x, memory)
    assert taken[:, 0].tolist() == [5, 9, 1, 7]
    assert torch.equal(BackInOrder().reference({}, taken, memory), x[:, :1])


def fleet(name: str) -> Plan:
    """Return the plan of a fleet with one stack of members, which answers their numbers too."""
    members, (width,) = MEMBERS[name]
    slices = (Step(Slice(0, width), (INPUT,), "rows"), Step(Slice(width, 1), (INPUT,), "number"))
    return Plan(width + 1, (*slices, Step(stacked(members, 0), ("rows", "number"), "y")), {"y": "y", "m": "number"})


@pytest.mark.parametrize("name", [name for name in MEMBERS if "trees" in name])
def test_a_plan_in_order_answers_with_the_same_bits(
    name: str, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, rng, rows = fleet(name), np.random.default_rng(1), 150
    arranged = in_order_of_members(plan)
    X = rng.standard_normal((rows, plan.n_features)).astype(np.float32)
    X[:, -1] = rng.integers(0, len(MEMBERS[name][0]), rows)
    given = torch.from_numpy(X).to(device)
    given, found = torch.from_numpy(X).to(device), []
    for fewest in (rows, rows + 1):
        monkeypatch.setattr(member_order, "FEWEST_ROWS", fewest)
        outputs = {name: torch.empty(rows, width, device=device) for name, width in arranged.output_widths().items()}
        for task in Program(arranged, device).tasks(arranged.steps, {}, rows, outputs, given):
            task.launch(rows)
        found.append({name: answers.cpu().numpy().tobytes() for name, answers in outputs.items()})
    assert found[0] == found[1]


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["trees", "symmetric trees"])
def test_batches_of_any_size_have_the_bits_of_the_members_alone(name: str) -> None:
    """Few rows go through captured graphs in the order of the request, and many in the order of their members."""
    plan, rng = fleet(name), np.random.default_rng(2)
    members, (width,) = MEMBERS[name]
    runner = Runner(plan, engine="triton", device="cuda:0", max_rows=ROWS)
    runner.warm_up([("y",), ("y", "m")])
    for rows in (1, 3, 700, ROWS):
        X = rng.standard_normal((rows, width + 1)).astype(np.float32)
        X[:, -1] = rng.integers(0, len(members), rows)
        found = runner.predict(X, ("y", "m"))
        assert np.array_equal(found["m"], X[:, -1:])
        for number, member in enumerate(members):
            mine = X[:, -1] == number
            own = Plan(width, (Step(member, (INPUT,), "y"),), {"y": "y"})
            alone = Runner(own, engine="triton", device="cuda:0", max_rows=ROWS)
            if mine.any():
                assert found["y"][mine].tobytes() == alone.predict(np.ascontiguousarray(X[mine, :-1]))["y"].tobytes()


def test_a_plan_that_reads_its_input_otherwise_stays_as_it_is() -> None:
    plan = fleet("trees")
    plan = plan.with_steps([*plan.steps, Step(Columns(np.array([0])), (INPUT,), "first column")])
    assert in_order_of_members(plan) is plan


@pytest.mark.parametrize(("name", "gains"), [("trees", True), ("symmetric trees", True), ("affine 5", False)])
def test_operations_say_whether_they_gain(name: str, gains: bool, device: torch.device) -> None:
    plan = fleet(name)
    assert any(step.operation.gains_by_order() for step in plan.steps) is gains
    assert (Program(plan, device).plan is plan) is (device.type != "cuda" or not gains)


def test_a_column_that_is_not_there_is_refused() -> None:
    with pytest.raises(PlanError, match=r"member_order: there is no column 3"):
        MemberOrder(3, 2).check(3)
