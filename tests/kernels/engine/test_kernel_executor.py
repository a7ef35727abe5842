"""Rows that the device gathers itself: their chunks, and the return to staging."""

import tempfile
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

from tests.kernels.operations import affine, columns, polynomial, quadratic, scale
from triton_regressors.kernels.engine import gather, graphs, resident, staging
from triton_regressors.kernels.engine.gather import Gathering
from triton_regressors.kernels.engine.input_check import Allowed
from triton_regressors.kernels.engine.kernel_executor import KernelExecutor
from triton_regressors.kernels.engine.resident import Resident
from triton_regressors.kernels.engine.staging import Staging
from triton_regressors.kernels.format.errors import PlanError
from triton_regressors.kernels.ops.columns.concatenate import Concatenate
from triton_regressors.kernels.ops.linear.affine import Affine
from triton_regressors.kernels.plan.plan import Plan, Step

DEVICE = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
MAX_ROWS = 150
MAPPED: list[np.ndarray] = []
PLANS = {
    "one step": Plan(5, (Step(affine(5, 2), ("X",), "v0"),), {"y": "v0"}),
    "several readers": Plan(
        5,
        (
            Step(scale(5), ("X",), "v0"),
            Step(quadratic(5), ("X",), "v1"),
            Step(columns(5, 3), ("v0",), "v2"),
            Step(polynomial(3, 2), ("v2",), "v3"),
            Step(Concatenate(), ("v1", "v3"), "v4"),
        ),
        {"y": "v4", "scaled": "v0"},
    ),
}
Make = Callable[..., KernelExecutor]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Make:
    """make(plan, nan_columns) returns an executor that gathers, with chunks of 64 rows."""
    monkeypatch.setattr(gather, "LEAST_BYTES", 0)
    monkeypatch.setattr(staging, "CHUNK_BYTES", 64 * 4 * 5)
    if DEVICE.type == "cpu":
        monkeypatch.setattr(gather, "_registered", lambda *region: True)
        monkeypatch.setattr(gather, "driver", object())

    def made(plan: Plan, nan_columns: Sequence[int] = (2,)) -> KernelExecutor:
        lying = Staging(MAX_ROWS, 5, "float32", pinned=DEVICE.type == "cuda")
        return KernelExecutor(plan, lying, DEVICE, Gathering(5, nan_columns, "float32", DEVICE))

    return made


def shared(X: np.ndarray) -> np.ndarray:
    """Return a copy of rows in shared memory. It stays, since the driver may have registered it."""
    with tempfile.TemporaryFile(dir="/dev/shm") as file:
        file.truncate(X.nbytes)
        copy = np.memmap(file, X.dtype, "r+", shape=X.shape)
    MAPPED.append(copy)
    copy[:] = X
    return copy


def rows(count: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((count, 5)).astype(np.float32)


def refuse(numbers: np.ndarray) -> bool:
    raise AssertionError("the device has searched them")


@pytest.mark.parametrize("plan", PLANS.values(), ids=list(PLANS))
def test_gathered_rows_give_the_bits_of_staged_ones(plan: Plan, make: Make) -> None:
    X, outputs, executor = shared(rows(MAX_ROWS)), tuple(plan.outputs), make(plan)
    executor.warm_up(outputs)
    staged = executor.answer(X, outputs)
    for count in (1, 17, 64, 65, 100, MAX_ROWS):
        answers = executor.launch(np.split(X[:count], [9, 10, 40]), count, outputs)
        assert executor.allowed(count, refuse)
        for name in outputs:
            assert answers.arrays[name].tobytes() == staged[name][:count].tobytes()
            assert (
                answers.pieces[name](count // 2, count).numpy().tobytes() == staged[name][count // 2 : count].tobytes()
            )


def test_what_a_request_may_not_hold_is_found(make: Make) -> None:
    executor, X = make(PLANS["one step"]), shared(rows(80))
    for value, column, allowed in ((np.nan, 2, True), (np.nan, 3, False), (np.inf, 2, False)):
        X[70] = 0
        X[70, column] = value
        executor.launch([X], 80, ("y",))
        assert executor.allowed(80, refuse) == allowed
        executor.launch([X[:70]], 70, ("y",))
        assert executor.allowed(70, refuse)


def test_other_rows_are_staged_and_searched(make: Make) -> None:
    executor, X = make(PLANS["one step"]), rows(80)
    holds = Allowed(5, ()).holds
    expected = executor.answer(X, ("y",))["y"]
    lying = shared(X)
    for parts in ([lying], [X[:3], X[3:]], [lying[:7], X[7:]]):
        answers = executor.launch(parts, 80, ("y",))
        assert executor.allowed(80, refuse if len(parts) == 1 else holds)
        assert answers.arrays["y"].tobytes() == expected.tobytes()
    X[5, 0] = np.nan
    executor.launch([X], 80, ("y",))
    assert not executor.allowed(80, holds)


def test_rows_that_arrive_in_more_memory_are_met_once(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server enlarges its shared memory by mapping all of it anew, elsewhere."""
    regions: list[tuple[int, int]] = []
    register = gather._registered
    monkeypatch.setattr(gather, "_registered", lambda *region: (regions.append(region), register(*region))[1])
    executor, X = make(PLANS["one step"]), rows(80)
    first, second = shared(X), shared(X)
    for part in (first, second, first, second):
        executor.launch([part], 80, ("y",))
        assert executor.allowed(80, refuse)
    assert len(regions) == 2


@pytest.mark.parametrize("plan", PLANS.values(), ids=list(PLANS))
def test_rows_on_the_device_give_the_bits_of_staged_ones(
    plan: Plan, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are computed in a graph and piece by piece, from any start, into answers that later calls leave alone."""
    monkeypatch.setattr(resident, "MOST_STREAMED_ROWS", 80)
    monkeypatch.setattr(resident, "MOST_ROWS", 96)
    X, outputs, executor = rows(3 * MAX_ROWS), tuple(plan.outputs), make(plan)
    parts = [executor.answer(X[start : start + MAX_ROWS], outputs) for start in range(0, len(X), MAX_ROWS)]
    wanted = {name: np.concatenate([part[name] for part in parts]) for name in outputs}
    there = torch.from_numpy(X).to(DEVICE)
    found = {}
    for first, count in ((0, 1), (1, 17), (0, 64), (3, 64), (0, 65), (1, 100), (0, 3 * MAX_ROWS), (1, 17)):
        answers = executor.resident.answer(there[first : first + count], outputs)
        assert answers is not None
        found[first, count] = answers
    for (first, count), answers in found.items():
        for name in outputs:
            assert (answers[name].device, answers[name].dtype) == (DEVICE, torch.float32)
            assert answers[name].cpu().numpy().tobytes() == wanted[name][first : first + count].tobytes()


@pytest.mark.parametrize("count", [40, 150])
def test_what_rows_on_the_device_may_not_hold_is_found(make: Make, count: int) -> None:
    executor, X = make(PLANS["one step"]), torch.from_numpy(rows(count)).to(DEVICE)
    for value, column, allowed in ((np.nan, 2, True), (np.nan, 3, False), (np.inf, 2, False), (-np.inf, 0, False)):
        wrong = X.clone()
        wrong[count - 1, column] = value
        assert (executor.resident.answer(wrong, ("y",)) is not None) == allowed
        assert executor.resident.answer(X, ("y",)) is not None


def test_a_number_of_rows_that_was_met_is_prepared(make: Make) -> None:
    executor, X, outputs = make(PLANS["several readers"]), torch.from_numpy(rows(150)).to(DEVICE), ("y", "scaled")
    wanted = executor.resident.answer(X, outputs)
    assert wanted is not None
    assert executor.resident.prepared(17, outputs) is executor.resident.prepared(150, outputs) is None
    executor.resident.answer(X[:20], outputs)
    prepared = executor.resident.prepared(17, outputs)
    assert prepared is not None
    assert prepared is executor.resident.prepared(32, outputs)
    assert executor.resident.prepared(33, outputs) is executor.resident.prepared(17, ("y",)) is None
    wrong = X.clone()
    wrong[3, 0] = torch.nan
    flat = prepared(X[:9], True)
    assert flat is not None
    assert [list(answer.shape) for answer in flat.values()] == [[9, wanted[name].shape[1]] for name in outputs]
    found = []
    for first, count in ((0, 17), (40, 32), (5, 1)):
        assert prepared(wrong[:count], False) is None or count == 1
        found.append((first, count, prepared(X[first : first + count], False)))
    for first, count, answers in found:
        assert answers is not None
        assert list(answers) == list(outputs)
        for name, answer in answers.items():
            assert answer.cpu().numpy().tobytes() == wanted[name][first : first + count].cpu().numpy().tobytes()


@pytest.mark.parametrize("targets", [1, 2])
def test_answers_are_searched_where_they_tell_what_rows_hold(
    targets: int, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are searched only if an answer is not finite, which a finite number may cause too."""
    plan = Plan(5, (Step(Affine(np.full((5, targets), 2.0), np.zeros(targets)), ("X",), "v0"),), {"y": "v0"})
    searched: list[list[int]] = []
    search = Resident._search
    monkeypatch.setattr(
        Resident, "_search", lambda self, x, nan: (searched.append(list(x.shape)), search(self, x, nan=nan))[1]
    )
    X, executor = torch.from_numpy(rows(150)).to(DEVICE), make(plan, ())
    assert executor.resident.answer(X, ("y",)) is not None
    assert searched == [[150, targets]]
    for value, allowed in ((torch.nan, False), (-torch.inf, False), (3.4e38, True)):
        wrong = X.clone()
        wrong[149] = value
        answers = executor.resident.answer(wrong, ("y",))
        assert (answers is not None) == allowed
        assert answers is None or not bool(answers["y"][149].isfinite().any())
        assert executor.resident.answer(X, ("y",)) is not None
    assert searched == [[150, targets]] + [[150, targets], [150, 5], [150, targets]] * 3
    searched.clear()
    make(plan, (2,)).resident.answer(X, ("y",))
    make(PLANS["several readers"], ()).resident.answer(X, ("y",))
    assert searched == [[150, 5]] * 2


def test_only_what_gathers_reads_rows_on_the_device(make: Make) -> None:
    plan = PLANS["one step"]
    executor = KernelExecutor(plan, Staging(MAX_ROWS, 5, "float32", pinned=False), DEVICE)
    with pytest.raises(PlanError, match="Only an executor with a gathering on this device"):
        executor.resident.answer(torch.zeros(3, 5, device=DEVICE), ("y",))


@pytest.mark.gpu
@pytest.mark.parametrize("by", ["the driver", "torch"])
def test_rows_are_read_on_the_stream_that_makes_them(by: str, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing begins before the caller's work on the stream has ended, and no other stream is waited for."""
    if by == "torch":
        monkeypatch.setattr(graphs, "driver", None)
    executor = make(PLANS["one step"])
    for count in (40, 150):
        X = torch.from_numpy(rows(count)).to(DEVICE)
        wanted = executor.resident.answer(X, ("y",))
        side, other, late = torch.cuda.Stream(DEVICE), torch.cuda.Stream(DEVICE), torch.full_like(X, torch.nan)
        torch.cuda.synchronize(DEVICE)
        with torch.cuda.stream(other):
            torch.cuda._sleep(4_000_000_000)
        with torch.cuda.stream(side):
            torch.cuda._sleep(20_000_000)
            late.copy_(X)
            found = executor.resident.answer(late, ("y",))
        assert not other.query()
        assert wanted is not None
        assert found is not None
        assert found["y"].cpu().numpy().tobytes() == wanted["y"].cpu().numpy().tobytes()
        torch.cuda.synchronize(DEVICE)
