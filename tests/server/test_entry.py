"""The promises of an entry on the real Triton server: one bad request never harms another."""

import importlib
import queue
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc

from tests.server.conftest import CheckAnswers
from tests.server.models import FEATURES, MAX_ROWS, models, rows
from tests.server.snippets import run_snippets
from tests.waiting import wait_for
from triton_regressors.clients.client.client import Client
from triton_regressors.clients.errors import InvalidRequest
from triton_regressors.clients.server.triton_server import TritonServer
from triton_regressors.kernels.format.columns_digest import columns_digest

pytestmark = pytest.mark.server

Answer = dict[str, np.ndarray] | tritonclient.grpc.InferenceServerException


class Together:
    """Sends requests without waiting for answers, over one gRPC connection."""

    def __init__(self, url: str, model: str) -> None:
        self._client = tritonclient.grpc.InferenceServerClient(url)
        self._model = model
        self._answers: queue.Queue[tuple[int, Any, Any]] = queue.Queue()
        self._sent = 0

    def send(self, X: np.ndarray, outputs: Sequence[str] | None = ("y",), **parameters: object) -> Any:
        """Send one request, for all outputs if None, and return a function that cancels it."""
        tensor = tritonclient.grpc.InferInput("X", list(X.shape), "FP32").set_data_from_numpy(X)
        wanted = None if outputs is None else [tritonclient.grpc.InferRequestedOutput(name) for name in outputs]
        index, self._sent = self._sent, self._sent + 1
        return self._client.async_infer(
            self._model,
            [tensor],
            lambda result, error: self._answers.put((index, result, error)),
            outputs=wanted,
            parameters=parameters or None,
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


def wait_for_a_batch_of_8(client: Client, model: str, before: dict[int, int]) -> None:
    """Wait until one batch of 8 rows more is counted, and no other: the server counts after it has answered."""
    wait_for(lambda: executions(client, model) == {**before, 8: before.get(8, 0) + 1})


def executed_rows(client: Client, model: str) -> int:
    (stats,) = client.statistics(model)["model_stats"]
    return stats["inference_count"]


def waiting(server: TritonServer, model: str) -> int:
    """Return the number of requests in the model's queue, by the server's metrics."""
    with urllib.request.urlopen(f"http://{server.metrics_url}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    line = next(x for x in lines if x.startswith("nv_inference_pending_request_count") and f'"{model}"' in x)
    return int(float(line.split()[-1]))


def bad(X: np.ndarray, row: int, column: int, value: float) -> np.ndarray:
    X = X.copy()
    X[row, column] = value
    return X


def refusal(row: int, column: int, value: float) -> str:
    return f"X must be finite: row {row}, column {column} ('{FEATURES[column]}') is {np.float32(value)}."


# One batch, several requests: `gathered` waits until 8 rows are together.


@pytest.fixture(params=["gathered", "gathered_kernels"])
def gathered(request: pytest.FixtureRequest) -> str:
    """A model that runs 8 rows at a time, with the torch engine and with the kernels."""
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
    wait_for_a_batch_of_8(client, gathered, before)
    for index, (part, answer) in enumerate(zip(parts, answers, strict=True)):
        if index in faults:
            assert isinstance(answer, Exception)
            assert (answer.status(), answer.message()) == ("StatusCode.INVALID_ARGUMENT", refusal(*faults[index]))
        else:
            assert isinstance(answer, dict)
            check_answers(models()[gathered], part, answer)


def test_a_request_made_for_other_columns_is_refused(
    server: TritonServer, client: Client, gathered: str, check_answers: CheckAnswers
) -> None:
    before = executions(client, gathered)
    own = columns_digest({name: value.string_value for name, value in client.config(gathered).parameters.items()})
    together, parts = Together(server.grpc_url, gathered), [rows(2, seed) for seed in range(4)]
    for part, parameters in zip(parts, ({"columns_digest": own}, {"columns_digest": "0"}, {"a": 1}, {}), strict=True):
        together.send(part, **parameters)
    answers = together.answers()
    wait_for_a_batch_of_8(client, gathered, before)
    assert isinstance(answers[1], Exception)
    assert answers[1].status() == "StatusCode.INVALID_ARGUMENT"
    assert answers[1].message() == "columns_digest is not this model's: the request was made for other columns."
    for index in (0, 2, 3):
        check_answers(models()[gathered], parts[index], answers[index])


def test_a_batch_of_bad_requests_alone(server: TritonServer, client: Client, gathered: str) -> None:
    before = executions(client, gathered)
    together = Together(server.grpc_url, gathered)
    for row in range(4):
        together.send(bad(rows(2), row % 2, row, np.nan))
    answers = together.answers()
    wait_for_a_batch_of_8(client, gathered, before)
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
    wait_for_a_batch_of_8(client, gathered, before)
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
    time.sleep(1)  # the server is told of it in its own time; the batch waits for 3 s
    for part in parts[3:]:
        together.send(part)
    answers = together.answers()
    assert isinstance(answers[1], Exception)
    assert answers[1].status() == "StatusCode.CANCELLED"
    for index in (0, 2, 3, 4):
        check_answers(models()[gathered], parts[index], answers[index])
    wait_for(lambda: executed_rows(client, gathered) - before == 8)


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


@pytest.mark.parametrize("name", ["ridge", "bayes"])
def test_the_snippets_of_describe(server: TritonServer, repository: Path, name: str) -> None:
    rows, answers = run_snippets(repository / name, server)
    expected = models()[name].expected(np.array(rows, np.float32))
    for found in answers:
        assert found.keys() == expected.keys()
        for output, values in found.items():
            np.testing.assert_allclose(values, expected[output], rtol=1e-6)
