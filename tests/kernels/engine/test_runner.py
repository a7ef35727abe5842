"""The Runner: staging, batches of any size, outputs, engines."""

import enum
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tests.kernels.operations import affine, columns, polynomial, quadratic, scale
from tests.kernels.operations_trees import path_contributions, tree_contributions
from triton_regressors.kernels.engine import graphs, program, staging
from triton_regressors.kernels.engine.input_check import Allowed
from triton_regressors.kernels.engine.runner import Runner, choose_engine
from triton_regressors.kernels.format.errors import PlanError
from triton_regressors.kernels.ops.columns.concatenate import Concatenate
from triton_regressors.kernels.ops.linear.affine import Affine
from triton_regressors.kernels.plan.plan import Plan, Step

ONE_STEP = Plan(5, (Step(affine(5, 2), ("X",), "v0"),), {"y": "v0"})
TWO_OUTPUTS = Plan(
    5,
    (
        Step(scale(5), ("X",), "v0"),
        Step(affine(5), ("v0",), "v1"),
        Step(quadratic(5), ("v0",), "v2"),
        Step(columns(5, 3), ("v0",), "v3"),
        Step(polynomial(3, 2), ("v3",), "v4"),
        Step(Concatenate(), ("v1", "v4", "v2"), "v5"),
    ),
    {"y": "v5", "std": "v2", "scaled": "v0", "again": "v0"},
)
PLANS = {
    "one step": ONE_STEP,
    "several steps": TWO_OUTPUTS,
    "many targets": Plan(5, (Step(affine(5, 70), ("X",), "v0"),), {"y": "v0"}),
    "parts of trees": Plan(5, (Step(tree_contributions(5, 9, [0, 3, 4, 4, 7]), ("X",), "v0"),), {"y": "v0"}),
    "trees": Plan(5, (Step(path_contributions(5, 6, 3, 6), ("X",), "v0"),), {"y": "v0"}),
}


@pytest.fixture(params=["torch", "kernels"])
def any_engine(request: pytest.FixtureRequest) -> str:
    """Every engine of this machine."""
    if request.param == "torch":
        return "torch"
    return "triton" if torch.cuda.is_available() else "interpret"


def rows(count: int, width: int = 5, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)


def step_by_step(plan: Plan, X: np.ndarray) -> dict[str, np.ndarray]:
    """Compute the plan's operations as a CPU does, one after another."""
    values = {"X": torch.from_numpy(X)}
    for step in plan.steps:
        parameters = {name: torch.from_numpy(array) for name, array in step.operation.plain_parameters().items()}
        inputs = [values[name] for name in step.inputs]
        values[step.output] = step.operation.compute_on_cpu(parameters, *inputs)
    return {output: values[value].numpy() for output, value in plan.outputs.items()}


@pytest.mark.parametrize("plan", PLANS.values(), ids=list(PLANS))
def test_predict_computes_the_plan(any_engine: str, plan: Plan) -> None:
    X = rows(33)
    found = Runner(plan, engine=any_engine).predict(X, tuple(plan.outputs))
    for output, expected in step_by_step(plan, X).items():
        assert found[output].dtype == np.float32
        np.testing.assert_allclose(found[output], expected, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize(
    "outputs", [("y",), ("std",), ("std", "y"), ("scaled", "again"), ("y", "std", "scaled", "again")]
)
def test_any_set_of_outputs_gives_the_same_bits(any_engine: str, outputs: tuple[str, ...]) -> None:
    runner, X = Runner(TWO_OUTPUTS, engine=any_engine, max_rows=64), rows(20)
    found = runner.predict(X, outputs)
    assert tuple(found) == outputs
    everything = runner.predict(X, tuple(TWO_OUTPUTS.outputs))
    for output in outputs:
        assert found[output].tobytes() == everything[output].tobytes()


@pytest.mark.parametrize("count", [0, 2])
def test_an_output_that_is_not_there(any_engine: str, count: int) -> None:
    with pytest.raises(PlanError, match=r"^There is no output 'z'; the outputs are y\.$"):
        Runner(ONE_STEP, engine=any_engine).predict(rows(count), ("z",))


def test_zero_rows(any_engine: str) -> None:
    found = Runner(TWO_OUTPUTS, engine=any_engine).predict(rows(0), ("y", "std"))
    assert {name: (y.shape, y.dtype) for name, y in found.items()} == {
        "y": ((0, 12), np.float32),
        "std": ((0, 1), np.float32),
    }


@pytest.mark.parametrize("count", [1, 7, 8, 9, 16, 35])
def test_more_rows_than_are_staged_at_a_time(any_engine: str, count: int) -> None:
    X = rows(count)
    whole = Runner(TWO_OUTPUTS, engine=any_engine, max_rows=64).predict(X, ("y", "std"))
    pieces = Runner(TWO_OUTPUTS, engine=any_engine, max_rows=8).predict(X, ("y", "std"))
    for output, y in whole.items():
        assert pieces[output].tobytes() == y.tobytes()


@pytest.mark.parametrize("plan", [ONE_STEP, TWO_OUTPUTS], ids=["one step", "several steps"])
def test_a_large_batch_is_computed_in_pieces(any_engine: str, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    X, outputs = rows(150), tuple(plan.outputs)
    whole = Runner(plan, engine=any_engine, max_rows=150).predict(X, outputs)
    monkeypatch.setattr(staging, "CHUNK_BYTES", 64 * X.itemsize * X.shape[1])
    launched = Runner(plan, engine=any_engine, max_rows=150)
    captured = Runner(plan, engine=any_engine, max_rows=150)
    captured.warm_up([outputs])
    for count in (1, 17, 64, 65, 100, 129, 150):
        for runner in (launched, captured):
            answers = runner.executor.launch(np.split(X[:count], [9, 10, 40]), count, outputs)
            searched: list[bytes] = []
            monkeypatch.setattr(Allowed, "holds", lambda _, numbers, seen=searched: seen.append(numbers.tobytes()))
            runner.executor.allowed(count, Allowed(X.shape[1], ()).holds)
            for output in outputs:
                assert answers.arrays[output].tobytes() == whole[output][:count].tobytes()
            assert searched == [X[:count].tobytes()]
            for output, y in runner.predict(X[:count], outputs).items():
                assert y.tobytes() == whole[output][:count].tobytes()


@pytest.mark.parametrize("count", [9, 64, 150])
def test_staged_rows_are_searched(any_engine: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "CHUNK_BYTES", 64 * 4 * 5)
    runner, X, outputs = Runner(TWO_OUTPUTS, engine=any_engine, max_rows=150), rows(count), ("y", "scaled")
    allowed, wrong = Allowed(5, (2,)), X.copy()
    X[0, 2] = np.nan
    wrong[count - 2, 3] = np.nan
    expected = runner.predict(X, outputs)
    for _ in range(2):
        found = runner.executor.stage((X,), count, outputs).arrays
        assert runner.executor.allowed(count, allowed.holds)
        assert all(found[name].tobytes() == y.tobytes() for name, y in expected.items())
        runner.executor.stage((wrong,), count, outputs)
        assert not runner.executor.allowed(count, allowed.holds)


def test_the_torch_engine_computes_in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """With several threads, a matrix library gives each a share of a tile, and rounds its last rows differently."""
    used: list[int] = []
    compute = Affine.compute_on_cpu
    counted = lambda *given: used.append(torch.get_num_threads()) or compute(*given)  # noqa: E731
    monkeypatch.setattr(Affine, "compute_on_cpu", counted)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        Runner(ONE_STEP, engine="torch").predict(rows(5))
        assert (used, torch.get_num_threads()) == ([1], 3)
    finally:
        torch.set_num_threads(before)


def test_requests_are_staged_one_below_the_other(any_engine: str) -> None:
    runner, X = Runner(ONE_STEP, engine=any_engine, max_rows=32), rows(20)
    whole = runner.predict(X)["y"]
    answers = runner.executor.launch([X[:3], X[3:3], X[3:4], X[4:]], 20, ("y",))
    runner.executor.wait()
    assert answers.arrays["y"].tobytes() == answers.tensors["y"].numpy().tobytes() == whole.tobytes()


def test_what_was_staged_before_does_not_matter(any_engine: str) -> None:
    runner, X = Runner(TWO_OUTPUTS, engine=any_engine, max_rows=32), rows(5)
    clean = runner.predict(X)["y"]
    runner.predict(np.full((32, 5), np.nan, dtype=np.float32))
    assert runner.predict(X)["y"].tobytes() == clean.tobytes()


def test_rows_need_not_be_contiguous(any_engine: str) -> None:
    X = rows(40, 10)[::2, ::2]
    runner = Runner(ONE_STEP, engine=any_engine)
    assert runner.predict(X)["y"].tobytes() == runner.predict(np.ascontiguousarray(X))["y"].tobytes()


def test_answers_are_the_callers(any_engine: str) -> None:
    runner = Runner(TWO_OUTPUTS, engine=any_engine, max_rows=16)
    first = runner.predict(rows(9), ("y", "scaled"))
    kept = {name: y.copy() for name, y in first.items()}
    runner.predict(rows(9, seed=1), ("y", "scaled"))
    assert all(np.array_equal(first[name], kept[name]) for name in kept)
    first["y"][:] = 0
    assert np.array_equal(runner.predict(rows(9), ("y",))["y"], kept["y"])


@pytest.mark.parametrize(
    ("X", "what"),
    [
        (np.zeros((2, 4), np.float32), r"float32 \[2, 4\]"),
        (np.zeros((2, 5)), r"float64 \[2, 5\]"),
        (np.zeros(5, np.float32), r"float32 \[5\]"),
        (np.zeros((1, 2, 5), np.float32), r"float32 \[1, 2, 5\]"),
    ],
)
def test_rows_of_the_wrong_kind(any_engine: str, X: np.ndarray, what: str) -> None:
    with pytest.raises(PlanError, match=rf"^X must be float32 \[rows, 5\], not {what}\.$"):
        Runner(ONE_STEP, engine=any_engine).predict(X)


def test_only_a_gpu_answers_rows_that_lie_there() -> None:
    why = r"^X must be float32 \[rows, 5\] on cpu for engine torch, not torch\.float32 \[2, 5\] on cpu\.$"
    with pytest.raises(PlanError, match=why):
        Runner(ONE_STEP, engine="torch").predict_on_device(torch.zeros(2, 5))


def test_warm_up_changes_no_answer(any_engine: str) -> None:
    X = rows(9)
    runner = Runner(TWO_OUTPUTS, engine=any_engine, max_rows=64)
    before = runner.predict(X, ("y", "std"))
    runner.warm_up([("y",), ("std",), ("y", "std")])
    for output, y in runner.predict(X, ("y", "std")).items():
        assert y.tobytes() == before[output].tobytes()


def test_an_engine_that_is_not_there() -> None:
    with pytest.raises(PlanError) as raised:
        choose_engine("tpu", None)
    assert str(raised.value) == "There is no engine 'tpu'; the engines are auto, triton, torch, interpret."


def test_the_kernels_engine_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(
        PlanError, match=r"^Engine 'triton' needs a CUDA GPU, and torch finds none; on a CPU use 'torch'"
    ):
        choose_engine("triton", None)
    assert choose_engine("auto", None) == ("torch", torch.device("cpu"))


def test_the_kernels_engine_while_interpreting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(PlanError, match=r"^Engine 'triton' cannot run while TRITON_INTERPRET=1; unset it"):
        choose_engine("triton", None)


def test_the_interpreter_must_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(PlanError, match=r"^Engine 'interpret' needs TRITON_INTERPRET=1 in the environment"):
        choose_engine("interpret", None)


def test_auto_follows_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 2)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert choose_engine("auto", None) == ("triton", torch.device("cuda:2"))
    assert choose_engine("auto", "cuda:1") == ("triton", torch.device("cuda:1"))
    assert choose_engine("auto", "cpu") == ("torch", torch.device("cpu"))
    assert choose_engine("torch", None) == ("torch", torch.device("cpu"))


def test_graphs_are_captured_for_small_batches_alone() -> None:
    assert graphs.graph_sizes(20) == [1, 2, 4, 8, 16]
    assert graphs.graph_sizes(16) == [1, 2, 4, 8, 16]
    assert [graphs.graph_rows(rows) for rows in (1, 2, 3, 16, 17)] == [1, 2, 4, 16, 32]


@pytest.mark.gpu
@pytest.mark.parametrize("by", ["the driver", "torch"])
@pytest.mark.parametrize("chunk_rows", [16, 64, 512])
@pytest.mark.parametrize("plan", PLANS.values(), ids=list(PLANS))
def test_captured_graphs_give_the_same_bits_as_launches(
    plan: Plan, chunk_rows: int, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by == "torch":
        monkeypatch.setattr(graphs, "driver", None)
        monkeypatch.setattr(program, "MOST_ALONE", 64)  # from some rows on wide answers are made on the device first
    X, outputs, counts = rows(300), tuple(plan.outputs), (1, 2, 15, 16, 17, 100, 256, 257, 300)
    launched = Runner(plan, engine="triton", max_rows=300)
    plain = {count: launched.predict(X[:count], outputs) for count in counts}
    monkeypatch.setattr(program, "MOST_SCATTERED", 64)
    monkeypatch.setattr(program, "MOST_WHOLE", 64)
    monkeypatch.setattr(staging, "CHUNK_BYTES", chunk_rows * X.itemsize * X.shape[1])
    captured = Runner(plan, engine="triton", max_rows=300)
    captured.warm_up([outputs])
    for count in counts:
        graph, whole = captured.predict(X[:count], outputs), captured.predict(X, outputs)
        for output in outputs:
            assert graph[output].tobytes() == plain[count][output].tobytes() == whole[output][:count].tobytes()


class FailingDriver:
    """A stand-in for the CUDA driver, which fails only if a GPU does."""

    CUgraphExec = CUstream = int
    CUresult = enum.IntEnum(
        "CUresult", {"CUDA_SUCCESS": 0, "CUDA_ERROR_INVALID_CONTEXT": 201, "CUDA_ERROR_ILLEGAL_ADDRESS": 700}
    )

    @classmethod
    def cuGraphLaunch(cls, executable: int, stream: int) -> tuple[int]:  # noqa: N802
        return (cls.CUresult(700),)


def test_a_graph_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "driver", FailingDriver)
    graph, stream = SimpleNamespace(raw_cuda_graph_exec=lambda: 1), SimpleNamespace(cuda_stream=2)
    with pytest.raises(RuntimeError, match=r"^Launching a captured graph failed: CUDA_ERROR_ILLEGAL_ADDRESS\.$"):
        graphs.graph_starter(graph, stream)()


@pytest.mark.gpu
def test_a_second_gpu_or_the_first_by_number() -> None:
    X = rows(20)
    device = f"cuda:{torch.cuda.device_count() - 1}"
    runner = Runner(TWO_OUTPUTS, engine="auto", device=device)
    runner.warm_up([("y",)])
    assert runner.engine == "triton"
    assert runner.predict(X)["y"].tobytes() == Runner(TWO_OUTPUTS, engine="triton").predict(X)["y"].tobytes()
