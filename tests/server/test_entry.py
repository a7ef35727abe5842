"""What an entry's model.py promises, kept by the real Triton server: one bad request never harms another."""

import importlib
import json
import queue
import re
import shutil
import sys
import time
import types
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import tritonclient.grpc
from safetensors.numpy import load_file, save_file

from tests.server.conftest import CheckAnswers
from tests.server.models import FEATURES, MAX_ROWS, models, rows
from triton_regressors.clients.errors import InvalidRequest, ServerFault
from triton_regressors.clients.infer import Client
from triton_regressors.clients.server import TritonServer
from triton_regressors.exporter.config import from_pbtxt, to_pbtxt
from triton_regressors.kernels.plan import load_plan
from triton_regressors.kernels.run import Runner

pytestmark = pytest.mark.server

Answer = dict[str, np.ndarray] | tritonclient.grpc.InferenceServerException


class Together:
    """Sends requests without waiting for answers, over one gRPC connection."""

    def __init__(self, url: str, model: str) -> None:
        self._client = tritonclient.grpc.InferenceServerClient(url)
        self._model = model
        self._answers: queue.Queue[tuple[int, Any, Any]] = queue.Queue()
        self._sent = 0

    def send(self, X: np.ndarray, outputs: Sequence[str] | None = ("y",)) -> Any:
        """Send one request, for all outputs if None, and return what cancels it."""
        tensor = tritonclient.grpc.InferInput("X", list(X.shape), "FP32").set_data_from_numpy(X)
        wanted = None if outputs is None else [tritonclient.grpc.InferRequestedOutput(name) for name in outputs]
        index, self._sent = self._sent, self._sent + 1
        return self._client.async_infer(
            self._model, [tensor], lambda result, error: self._answers.put((index, result, error)), outputs=wanted
        )

    def answers(self, timeout_s: float = 30) -> list[Answer]:
        """Wait for all answers and return them in the order of sending: arrays by output, or the error."""
        found: dict[int, Answer] = {}
        while len(found) < self._sent:
            index, result, error = self._answers.get(timeout=timeout_s)
            names = [] if error else [output.name for output in result.get_response().outputs]
            found[index] = error or {name: result.as_numpy(name) for name in names}
        self._client.close()
        return [found[index] for index in sorted(found)]


def executions(client: Client, model: str) -> dict[int, int]:
    """Rows in a batch → how many such batches the model has run."""
    (stats,) = client.statistics(model)["model_stats"]
    return {batch["batch_size"]: batch["compute_infer"]["count"] for batch in stats["batch_stats"]}


def executed_rows(client: Client, model: str) -> int:
    (stats,) = client.statistics(model)["model_stats"]
    return stats["inference_count"]


def waiting(server: TritonServer, model: str) -> int:
    """How many requests wait in the model's queue, by the server's metrics."""
    with urllib.request.urlopen(f"http://{server.metrics_url}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    line = next(x for x in lines if x.startswith("nv_inference_pending_request_count") and f'"{model}"' in x)
    return int(float(line.split()[-1]))


def wait_for(condition: Callable[[], bool], timeout_s: float = 10) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.01)


def bad(X: np.ndarray, row: int, column: int, value: float) -> np.ndarray:
    X = X.copy()
    X[row, column] = value
    return X


def refusal(row: int, column: int, value: float) -> str:
    return f"X must be finite: row {row}, column {column} ('{FEATURES[column]}') is {np.float32(value)}."


# One batch, several requests: `gathered` waits until 8 rows are together.


@pytest.fixture(params=["gathered", "gathered_interpret"])
def gathered(request: pytest.FixtureRequest) -> str:
    """A model that runs 8 rows at a time, with the torch engine and with the kernels through the interpreter."""
    return request.param


def test_bad_requests_of_a_batch_get_errors_of_their_own(
    server: TritonServer, client: Client, gathered: str, check_answers: CheckAnswers
) -> None:
    before = executions(client, gathered)
    parts = [rows(count, seed) for seed, count in enumerate((1, 2, 1, 1, 2, 1))]
    faults = {1: (1, 3, np.nan), 2: (0, 0, np.inf), 4: (0, 7, -np.inf)}
    together = Together(server.grpc_url, gathered)
    for index, part in enumerate(parts):
        together.send(bad(part, *faults[index]) if index in faults else part)
    answers = together.answers()
    assert executions(client, gathered) == {**before, 8: before.get(8, 0) + 1}  # they were one batch
    for index, (part, answer) in enumerate(zip(parts, answers, strict=True)):
        if index in faults:
            assert isinstance(answer, Exception)
            assert (answer.status(), answer.message()) == ("StatusCode.INVALID_ARGUMENT", refusal(*faults[index]))
        else:
            assert isinstance(answer, dict)
            check_answers(models()[gathered], part, answer)


def test_a_batch_of_bad_requests_alone(server: TritonServer, client: Client, gathered: str) -> None:
    before = executions(client, gathered)
    together = Together(server.grpc_url, gathered)
    for row in range(4):
        together.send(bad(rows(2), row % 2, row, np.nan))
    answers = together.answers()
    assert executions(client, gathered) == {**before, 8: before.get(8, 0) + 1}
    assert [answer.message() for answer in answers] == [refusal(row % 2, row, np.nan) for row in range(4)]


def test_each_request_of_a_batch_gets_the_outputs_that_it_asked_for(
    server: TritonServer, client: Client, gathered: str, check_answers: CheckAnswers
) -> None:
    before = executions(client, gathered)
    asked = [("y",), ("std",), ("std", "y"), None]
    together = Together(server.grpc_url, gathered)
    parts = [rows(2, seed) for seed in range(4)]
    for part, outputs in zip(parts, asked, strict=True):
        together.send(part, outputs)
    answers = together.answers()
    assert executions(client, gathered) == {**before, 8: before.get(8, 0) + 1}
    for part, outputs, answer in zip(parts, asked, answers, strict=True):
        assert set(answer) == set(outputs or ("y", "std"))
        check_answers(models()[gathered], part, answer)


def test_a_cancelled_request_is_dropped_and_the_others_are_answered(
    server: TritonServer, client: Client, gathered: str, check_answers: CheckAnswers
) -> None:
    before = executed_rows(client, gathered)
    together = Together(server.grpc_url, gathered)
    parts = [rows(2, seed) for seed in range(5)]
    contexts = [together.send(part) for part in parts[:3]]
    wait_for(lambda: waiting(server, gathered) == 3)
    contexts[1].cancel()
    time.sleep(0.3)  # the server is told of it in its own time
    for part in parts[3:]:
        together.send(part)
    answers = together.answers()
    assert isinstance(answers[1], Exception)
    assert answers[1].status() == "StatusCode.CANCELLED"
    for index in (0, 2, 3, 4):
        check_answers(models()[gathered], parts[index], answers[index])
    assert executed_rows(client, gathered) - before == 8


# Requests alone, over both protocols.


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_the_first_number_that_is_not_finite_is_named(either: Client, value: float) -> None:
    X = bad(bad(rows(9), 4, 5, value), 8, 1, np.nan)
    with pytest.raises(InvalidRequest) as caught:
        either.predict("ridge", X)
    assert str(caught.value) == f"X must be finite: row 4, column 5 is {np.float32(value)}."


@pytest.mark.parametrize("outputs", [("y",), ("std",), ("y", "std"), ("std", "y")])
def test_any_set_of_outputs(either: Client, outputs: tuple[str, ...], check_answers: CheckAnswers) -> None:
    X = rows(5)
    found = either.infer("bayes", X, outputs=outputs)
    assert tuple(found) == outputs
    check_answers(models()["bayes"], X, found)


@pytest.mark.parametrize("name", ["ridge", "bayes", "poly", "poisson", "multi"])
def test_every_model_answers_over_both_protocols(either: Client, name: str, check_answers: CheckAnswers) -> None:
    X = rows(MAX_ROWS, seed=9)
    check_answers(models()[name], X, either.infer(name, X))


@pytest.mark.parametrize(
    ("X", "datatype", "output", "said"),
    [
        (np.zeros((0, 8), np.float32), "FP32", "y", "Expected 32, got 0"),
        (np.zeros((2, 8), np.float64), "FP64", "y", "data-type is 'FP64', but model 'ridge' expects 'FP32'"),
        (np.zeros((2, 8), np.int32), "INT32", "y", "data-type is 'INT32', but model 'ridge' expects 'FP32'"),
        (np.zeros((2, 9), np.float32), "FP32", "y", r"Expected \[-1,8\], got \[2,9\]"),
        (np.zeros((2, 7), np.float32), "FP32", "y", r"Expected \[-1,8\], got \[2,7\]"),
        (np.zeros(8, np.float32), "FP32", "y", r"Expected \[-1,8\], got \[8\]"),
        (np.zeros((2, 2, 4), np.float32), "FP32", "y", r"Expected \[-1,8\], got \[2,2,4\]"),
        (np.zeros((MAX_ROWS + 1, 8), np.float32), "FP32", "y", f"batch-size must be <= {MAX_ROWS} for 'ridge'"),
        (np.zeros((2, 8), np.float32), "FP32", "std", "unexpected inference output 'std' for model 'ridge'"),
    ],
    ids=["no rows", "float64", "integers", "too wide", "too narrow", "1-D", "3-D", "too many rows", "no such output"],
)
@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_what_the_server_refuses_by_itself(
    server: TritonServer, client: Client, protocol: str, X: np.ndarray, datatype: str, output: str, said: str
) -> None:
    library = importlib.import_module(f"tritonclient.{protocol}")  # our own client would refuse some of these itself
    raw = library.InferenceServerClient(server.grpc_url if protocol == "grpc" else server.http_url)
    before = executions(client, "ridge")
    tensor = library.InferInput("X", list(X.shape), datatype).set_data_from_numpy(X)
    with pytest.raises(library.InferenceServerException, match=said) as caught:
        raw.infer("ridge", [tensor], outputs=[library.InferRequestedOutput(output)])
    assert caught.value.status() in ("StatusCode.INVALID_ARGUMENT", "400")
    assert executions(client, "ridge") == before
    raw.close()


# What no request may compute in vain.


@pytest.fixture
def plan_directory(repository: Path) -> Path:
    return repository / "bayes" / "1"


def test_outputs_not_asked_for_are_not_computed(plan_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = load_plan(plan_directory)
    only_std = [step for step in plan.steps if step not in plan.steps_for(("y",))]
    only_y = [step for step in plan.steps if step not in plan.steps_for(("std",))]
    assert only_std
    assert only_y
    ran: list[str] = []
    for kind in {type(step.operation) for step in plan.steps}:

        def recorded(self: Any, *arguments: Any, original: Any = kind.reference) -> torch.Tensor:
            ran.extend(step.output for step in plan.steps if step.operation is self)
            return original(self, *arguments)

        monkeypatch.setattr(kind, "reference", recorded)
    runner = Runner(plan, engine="torch", device="cpu", max_rows=16)
    for outputs, spared in ((("y",), only_std), (("std",), only_y), (("y", "std"), [])):
        ran.clear()
        runner.predict(rows(3), outputs)
        assert ran == [step.output for step in plan.steps if step not in spared]


class FakeRequest:
    """A request as the Python backend hands it to `execute`."""

    def __init__(self, X: np.ndarray, outputs: Sequence[str] = ("y",), cancelled: bool = False) -> None:
        self.X, self.outputs, self.cancelled, self.asked = X, list(outputs), cancelled, 0

    def requested_output_names(self) -> list[str]:
        return self.outputs

    def is_cancelled(self) -> bool:
        self.asked += 1
        return self.cancelled


class FakeTensor:
    def __init__(self, name: str, array: np.ndarray) -> None:
        self.name, self.array = name, array

    def to_dlpack(self) -> Any:
        return torch.utils.dlpack.to_dlpack(torch.from_numpy(self.array))

    @classmethod
    def from_dlpack(cls, name: str, capsule: Any) -> "FakeTensor":
        return cls(name, torch.utils.dlpack.from_dlpack(capsule).numpy())


class FakeError:
    INVALID_ARG, INTERNAL, CANCELLED = "INVALID_ARG", "INTERNAL", "CANCELLED"

    def __init__(self, message: str, code: str) -> None:
        self.message, self.code = message, code


@pytest.fixture
def in_process(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The entry `gathered` in this process, for what a real server cannot be made to do at a chosen moment."""
    backend = types.ModuleType("triton_python_backend_utils")
    backend.TritonError, backend.Tensor = FakeError, FakeTensor
    backend.InferenceResponse = lambda output_tensors=(), error=None: types.SimpleNamespace(
        outputs={tensor.name: tensor.array for tensor in output_tensors}, error=error
    )
    backend.get_input_tensor_by_name = lambda request, name: FakeTensor(name, request.X)
    monkeypatch.setitem(sys.modules, backend.__name__, backend)
    monkeypatch.syspath_prepend(repository / "gathered")
    module = importlib.import_module("1.model")  # as the Python backend imports it
    entry = module.TritonPythonModel()
    config = {"max_batch_size": 16, "input": [{"dims": ["8"]}], "parameters": {"engine": {"string_value": "torch"}}}
    threads = torch.get_num_threads()
    entry.initialize(
        {"model_config": json.dumps(config), "model_instance_kind": "CPU", "model_instance_device_id": "0"}
    )
    yield entry
    entry.finalize()
    torch.set_num_threads(threads)
    for name in [name for name in sys.modules if name == "1" or name.startswith("1.")]:
        del sys.modules[name]


def test_a_large_request_that_was_cancelled_is_skipped(in_process: Any, check_answers: CheckAnswers) -> None:
    in_process.large_rows = 4
    large = FakeRequest(rows(4, 1), cancelled=True)
    small = FakeRequest(rows(3, 2), cancelled=True)
    kept = FakeRequest(rows(5, 3))
    answers = in_process.execute([large, small, kept])
    assert (answers[0].error.code, answers[0].error.message) == ("CANCELLED", "The request was cancelled.")
    assert (large.asked, small.asked, kept.asked) == (1, 0, 1)
    for request, answer in ((small, answers[1]), (kept, answers[2])):
        assert answer.error is None
        check_answers(models()["gathered"], request.X, answer.outputs)


def test_no_exception_escapes_execute(in_process: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*arguments: Any) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(in_process.runner, "compute", failing)
    answers = in_process.execute([FakeRequest(rows(1)), FakeRequest(rows(2))])
    assert [answer.error.code for answer in answers] == ["INTERNAL", "INTERNAL"]
    assert {answer.error.message for answer in answers} == {
        "The model failed on this batch: RuntimeError: out of memory"
    }


def test_a_request_without_rows_in_a_batch(in_process: Any, check_answers: CheckAnswers) -> None:
    empty, good = FakeRequest(np.zeros((0, 8), np.float32)), FakeRequest(rows(2))
    answers = in_process.execute([empty, good])
    assert (answers[0].error.code, answers[0].error.message) == ("INVALID_ARG", "X has no rows.")
    check_answers(models()["gathered"], good.X, answers[1].outputs)


# Entries that are damaged.


def change_plan(version: Path, **changes: Any) -> None:
    document = json.loads((version / "plan.json").read_text())
    (version / "plan.json").write_text(json.dumps({**document, **changes}))


def change_weights(version: Path, change: Callable[[dict[str, np.ndarray]], Any]) -> None:
    tensors = load_file(version / "weights.safetensors")
    change(tensors)
    save_file(tensors, version / "weights.safetensors")


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def widen(version: Path) -> None:
    config = from_pbtxt((version.parent / "config.pbtxt").read_text())
    config.input[0].dims[0] += 1
    for sample in config.model_warmup:
        sample.inputs["X"].dims[0] += 1
    (version.parent / "config.pbtxt").write_text(to_pbtxt(config))


def forget(name: str) -> Callable[[dict[str, np.ndarray]], Any]:
    return lambda tensors: tensors.pop(name)


def double(name: str) -> Callable[[dict[str, np.ndarray]], Any]:
    return lambda tensors: tensors[name].__imul__(2)


DAMAGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "protocol": (
        lambda version: change_plan(version, protocol=99),
        r"The plan is written in protocol 99; these kernels read protocol 1\.",
    ),
    "missing_array": (
        lambda version: change_weights(version, forget("0.weight")),
        r"The plan and its weights do not fit together: .*'weight'",
    ),
    "truncated": (
        lambda version: truncate(version / "weights.safetensors"),
        r"Cannot read the weights .*weights\.safetensors: .*",
    ),
    "not_json": (lambda version: truncate(version / "plan.json"), r"Cannot read the plan .*plan\.json: .*"),
    "dims": (widen, r"config\.pbtxt must give X the dims \[8\], the features of the plan\."),
    "tampered": (
        lambda version: change_weights(version, double("0.weight")),
        r"On this device output 'y' of the golden rows is .* standard deviations from the estimator's own",
    ),
    "no_golden": (lambda version: (version / "golden.safetensors").unlink(), r".*golden\.safetensors.*"),
}


@pytest.fixture(scope="module")
def load_errors(repository: Path, server: TritonServer, client: Client) -> dict[str, str]:
    """Damage → what loading such an entry says."""
    config = from_pbtxt((repository / "ridge" / "config.pbtxt").read_text())
    for damage, (inflict, _) in DAMAGE.items():
        shutil.copytree(repository / "ridge", repository / damage)
        config.name = damage
        (repository / damage / "config.pbtxt").write_text(to_pbtxt(config))
        inflict(repository / damage / "1")

    def load(damage: str) -> str:
        with pytest.raises(ServerFault) as caught:
            client.load(damage)
        return str(caught.value)

    with ThreadPoolExecutor(2) as threads:
        return dict(zip(DAMAGE, threads.map(load, DAMAGE), strict=True))


@pytest.mark.parametrize("damage", list(DAMAGE))
def test_a_damaged_entry_does_not_load_and_says_why(load_errors: dict[str, str], damage: str) -> None:
    sentence = load_errors[damage]
    assert re.search(DAMAGE[damage][1], sentence), sentence
    assert "\n" not in sentence


def test_damaged_entries_harm_no_other(
    load_errors: dict[str, str], server: TritonServer, client: Client, check_answers: CheckAnswers
) -> None:
    assert load_errors
    assert server.running
    assert not any(client.ready(damage) for damage in DAMAGE)
    check_answers(models()["ridge"], rows(3), client.infer("ridge", rows(3)))
