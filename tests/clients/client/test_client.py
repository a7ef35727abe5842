import asyncio
import socket
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from tests.waiting import wait_for
from triton_regressors.clients import errors
from triton_regressors.clients.client.client import AsyncClient, Client
from triton_regressors.clients.server.triton_server import TritonServer
from triton_regressors.errors import TritonRegressorsError

pytestmark = pytest.mark.server
ROWS = np.array([[1, 2, 3], [4, 5, 6.5]], np.float32)
SUMS = np.array([12, 31], np.float32)
Connect = Callable[..., Client]


class ArrowOnly:
    """A table of a library that this package does not know, such as polars: it hands itself on as Arrow does."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, schema: object = None) -> object:
        return self._table.__arrow_c_stream__(schema)


class TestGoodRequests:
    def test_predict(self, client: Client) -> None:
        y = client.predict("sums", ROWS)
        assert y.dtype == np.float32
        np.testing.assert_array_equal(y, SUMS)
        y[0] = 0  # the caller's own array

    def test_only_the_outputs_asked_for(self, client: Client) -> None:
        assert set(client.infer("sums", ROWS)) == {"y"}
        both = client.infer("sums", ROWS, outputs=("std", "y"), version=1)
        np.testing.assert_array_equal(both["std"], ROWS[:, :1])
        np.testing.assert_array_equal(both["y"], SUMS[:, None])

    @pytest.mark.parametrize(
        "X",
        [ROWS.astype(np.float64), ROWS.astype(">f4"), np.asfortranarray(ROWS), ROWS[::-1][::-1], ROWS.tolist()],
        ids=["float64", "big-endian", "fortran", "reversed", "lists"],
    )
    def test_any_layout(self, client: Client, X: np.ndarray) -> None:
        np.testing.assert_array_equal(client.predict("sums", X), SUMS)

    def test_more_rows_than_a_request_may_have(self, client: Client) -> None:
        X = np.arange(37 * 3, dtype=np.float32).reshape(37, 3) % 50
        answers = client.infer("sums", X, outputs=("y", "std"))
        np.testing.assert_array_equal(answers["y"], 2 * X.sum(axis=1, keepdims=True))
        np.testing.assert_array_equal(answers["std"], X[:, :1])

    @pytest.mark.parametrize("count", [37, 1200])
    def test_rows_that_are_refused_are_nan_on_request(self, client: Client, count: int) -> None:
        X = np.arange(count * 3, dtype=np.float32).reshape(count, 3) % 50
        wrong = [0, 5, 6, count - 1]
        X[wrong, 0] = -1
        with pytest.raises(errors.InvalidRequest, match="row 0 of X is negative"):
            client.predict("sums", X)
        found = client.infer("sums", X, outputs=("y", "std"), errors="row")
        expected = 2 * X.sum(axis=1, keepdims=True)
        expected[wrong] = np.nan
        np.testing.assert_array_equal(found["y"], expected)
        assert np.isnan(found["std"][wrong]).all()
        assert found.refused == {row: f"row {row} of X is negative." for row in wrong}
        np.testing.assert_array_equal(client.predict("sums", X, errors="row"), expected[:, 0])
        assert client.infer("sums", ROWS, errors="row").refused == {}

    def test_cells_that_are_no_numbers_are_refused_by_row_too(self, client: Client) -> None:
        found = client.infer("sums", pd.DataFrame({"a": [1, "x", 3], "b": 1.0, "c": [None, 2, "y"]}), errors="row")
        assert np.isnan(found["y"][:, 0]).tolist() == [True, True, True]
        assert list(found.refused) == [1, 2]
        assert found.refused[1].endswith("must be numbers: 'a' holds 'x' in row 1.")
        with pytest.raises(errors.InvalidRequest, match="shape"):  # of the request, no row's
            client.infer("sums", ROWS[:, :2], errors="row")
        with pytest.raises(errors.InvalidRequest, match=r"^errors is 'file'; accepted: 'stop', 'row'\.$"):
            client.predict("sums", ROWS, errors="file")

    def test_tables_of_other_kinds(self, client: Client) -> None:
        table = pa.table(dict(zip("abc", ROWS.T, strict=True)))
        records = [dict(zip("abc", row, strict=True)) for row in ROWS.tolist()]
        for rows in (table, table.to_batches()[0], records, ArrowOnly(table)):
            np.testing.assert_array_equal(client.predict("sums", rows), SUMS)
        with pytest.raises(errors.InvalidRequest, match=r"^Rows of type .* are not a table"):
            client.predict("sums", table["a"])

    def test_ready(self, client: Client) -> None:
        assert client.ready()
        assert client.ready("sums")
        assert not client.ready("nothing")

    def test_config(self, client: Client) -> None:
        config = client.config("sums")
        assert isinstance(config, model_config_pb2.ModelConfig)
        assert (config.name, config.max_batch_size, list(config.input[0].dims)) == ("sums", 16, [3])

    def test_index(self, operator: Client) -> None:
        assert {"name": "sums", "version": "1", "state": "READY", "reason": ""} in operator.index()


def test_statistics_are_the_same_over_both_protocols(server: TritonServer) -> None:
    with Client(server.grpc_url) as grpc, Client(server.http_url, "http") as http:
        grpc.predict("sums", ROWS)
        read: list[dict[str, Any]] = []

        def same() -> bool:
            read[:] = [client.statistics("sums")["model_stats"][0] for client in (grpc, http)]
            over_grpc, over_http = read
            return over_http["inference_count"] >= 2 and {key: over_grpc[key] for key in over_http} == over_http

        wait_for(same)  # the server counts after it has answered
    for model in read:
        assert model["version"] == "1"
        assert {entry["batch_size"] for entry in model["batch_stats"]} >= {2}


class TestBadRequests:
    """Each error is typed, and says what the server said."""

    @pytest.mark.parametrize(
        ("model", "X", "options", "error", "says"),
        [
            ("nothing", ROWS, {}, errors.ModelNotFound, "Request for unknown model: 'nothing'"),
            ("sums", ROWS, {"version": 7}, errors.ModelNotFound, "'sums' version 7 is not found"),
            ("sums", ROWS[:, :2], {}, errors.InvalidRequest, r"unexpected shape for input 'X'.*got \[2,2\]\.$"),
            ("sums", ROWS, {"outputs": ("z",)}, errors.InvalidRequest, "unexpected inference output 'z'"),
            ("sums", -ROWS, {}, errors.InvalidRequest, r"^row 0 of X is negative\.$"),
            ("sums", ROWS * [0, 0, 0] + 100, {}, errors.ServerFault, "ArithmeticError: the sums do not add up.$"),
            ("", ROWS, {}, errors.InvalidRequest, "must be a string that is not empty"),
            ("sums", ROWS, {"version": "one"}, errors.InvalidRequest, "version is 'one'"),
            ("sums", ROWS, {"outputs": "y"}, errors.InvalidRequest, "outputs is 'y'"),
            ("sums", ROWS[0], {}, errors.InvalidRequest, r"shape \(3,\).*\.reshape\(1, -1\) makes one row of it"),
        ],
    )
    def test_infer(
        self, client: Client, model: str, X: np.ndarray, options: dict, error: type[Exception], says: str
    ) -> None:
        with pytest.raises(error, match=says) as caught:
            client.predict(model, X, **options)
        assert isinstance(caught.value, TritonRegressorsError)
        assert "\n" not in str(caught.value)
        np.testing.assert_array_equal(client.predict("sums", ROWS), SUMS)  # the connection is still good

    def test_unknown_model(self, client: Client, operator: Client) -> None:
        for ask in (client.config, operator.statistics):
            with pytest.raises(errors.ModelNotFound, match="'nothing'"):
                ask("nothing")

    def test_a_model_that_takes_another_type_by_now(self, client: Client, server: TritonServer) -> None:
        config, expected = client.config("spare"), client.predict("spare", ROWS)
        config.input[0].data_type = model_config_pb2.TYPE_FP64
        with Client(server.grpc_url) as operator:
            operator.load("spare", config=config)
            try:
                np.testing.assert_array_equal(client.predict("spare", ROWS), expected)
            finally:
                operator.unload("spare")
                operator.load("spare")

    def test_timeout(self, connect: Connect) -> None:
        impatient = connect(timeout_s=0.3)
        with pytest.raises(errors.RequestTimeout, match=r"^No answer from the Triton server at .* within 0\.3 s\.$"):
            impatient.predict("sums", [[200, 0.8, 0]])

    def test_nothing_listens(self, connect: Connect) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            gone = connect(f"127.0.0.1:{free.getsockname()[1]}")
        with pytest.raises(errors.ServerUnavailable, match="Cannot reach the Triton server at 127"):
            gone.predict("sums", ROWS)
        assert not gone.ready()

    def test_unknown_host(self, connect: Connect) -> None:
        with pytest.raises(errors.ServerUnavailable, match=r"no-such-host\.invalid:1"):
            connect("no-such-host.invalid:1", timeout_s=5).predict("sums", ROWS)

    @pytest.mark.parametrize("kind", [Client, AsyncClient])
    def test_the_other_protocols_port(self, server: TritonServer, kind: type) -> None:
        def ask(url: str, protocol: str) -> None:
            if kind is Client:
                with Client(url, protocol, timeout_s=5) as client:
                    client.predict("sums", ROWS)
            else:
                asyncio.run(ask_async(url, protocol))

        async def ask_async(url: str, protocol: str) -> None:
            async with AsyncClient(url, protocol, timeout_s=5) as client:
                await client.predict("sums", ROWS)

        with pytest.raises(errors.ServerUnavailable, match="does not speak HTTP; is it the port for gRPC"):
            ask(server.grpc_url, "http")
        with pytest.raises(
            errors.ServerUnavailable, match=f"{server.http_url} does not speak gRPC; is it the port for HTTP"
        ):
            ask(server.http_url, "grpc")

    def test_closed(self, connect: Connect) -> None:
        client = connect()
        client.close()
        with pytest.raises(errors.InvalidRequest, match="closed"):
            client.predict("sums", ROWS)


class TestLoad:
    def test_with_another_configuration(self, operator: Client) -> None:
        config = operator.config("spare")
        assert list(config.dynamic_batching.preferred_batch_size) == [16]  # the server's own default
        config.max_batch_size = 2
        config.dynamic_batching.Clear()
        config.dynamic_batching.max_queue_delay_microseconds = 300
        config.dynamic_batching.preferred_batch_size.append(2)
        operator.load("spare", config=config)
        try:
            used = operator.config("spare")
            assert used.max_batch_size == 2
            assert used.dynamic_batching.max_queue_delay_microseconds == 300
        finally:
            operator.unload("spare")
            operator.load("spare")
        assert operator.config("spare").max_batch_size == 16  # the entry's own configuration, from its files

    def test_with_files(self, operator: Client, server: TritonServer) -> None:
        directory = server.repositories[0] / "sums"
        config = text_format.Parse((directory / "config.pbtxt").read_text(), model_config_pb2.ModelConfig())
        config.name = "made"
        code = (directory / "1" / "model.py").read_bytes().replace(b"2 * x.sum", b"3 * x.sum")
        operator.load("made", config=config, files={"1/model.py": code})
        try:
            np.testing.assert_array_equal(operator.predict("made", ROWS), SUMS * 1.5)
        finally:
            operator.unload("made")

    def test_unload(self, operator: Client) -> None:
        operator.unload("spare")
        try:
            assert not operator.ready("spare")
            with pytest.raises(errors.ModelNotFound, match="'spare'"):
                operator.predict("spare", ROWS)
        finally:
            operator.load("spare")
        assert operator.ready("spare")

    def test_unknown_model(self, operator: Client) -> None:
        with pytest.raises(errors.InferenceError, match="failed to load 'nothing'"):
            operator.load("nothing")

    def test_files_replace_a_loaded_model(self, operator: Client, server: TritonServer) -> None:
        config = operator.config("spare")
        code = (server.repositories[0] / "spare" / "1" / "model.py").read_bytes()
        try:
            for factor in (3, 5):  # the configuration stays the same, the files alone differ
                changed = code.replace(b"2 * x.sum", b"%d * x.sum" % factor)
                operator.load("spare", config=config, files={"1/model.py": changed})
                np.testing.assert_array_equal(operator.predict("spare", ROWS), SUMS / 2 * factor)
        finally:
            operator.unload("spare")
            operator.load("spare")
        np.testing.assert_array_equal(operator.predict("spare", ROWS), SUMS)

    def test_a_model_that_fails(self, operator: Client) -> None:
        config = operator.config("spare")
        code = b"class TritonPythonModel:\n    def initialize(self, args):\n        raise ValueError('no weights')\n"
        with pytest.raises(errors.ServerFault, match="ValueError: no weights") as caught:
            operator.load("spare", config=config, files={"1/model.py": code})
        assert "At:" not in str(caught.value)
        np.testing.assert_array_equal(operator.predict("spare", ROWS), SUMS)  # what was loaded before still answers
        operator.load("spare")

    def test_an_invalid_configuration(self, operator: Client) -> None:
        config = operator.config("spare")
        config.max_batch_size = 2  # below the preferred batch size
        with pytest.raises(errors.ServerFault, match="configuration is not valid"):
            operator.load("spare", config=config)
        assert operator.ready("spare")

    def test_files_need_a_config(self, operator: Client) -> None:
        with pytest.raises(errors.InvalidRequest, match="files need a config"):
            operator.load("spare", files={"1/model.py": b""})


def test_one_client_for_many_threads(server: TritonServer) -> None:
    for url, protocol in ((server.grpc_url, "grpc"), (server.http_url, "http")):
        wrong = []
        with Client(url, protocol) as client:

            def ask(first: int, client: Client = client, wrong: list = wrong) -> None:
                for row in range(first, first + 10):
                    if client.predict("sums", [[row, 1, 2]])[0] != 2 * row + 6:
                        wrong.append(row)

            threads = [threading.Thread(target=ask, args=(first,)) for first in range(0, 80, 10)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert wrong == []


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_many_requests_at_a_time(server: TritonServer, protocol: str) -> None:
    async def ask() -> None:
        url = server.grpc_url if protocol == "grpc" else server.http_url
        async with AsyncClient(url, protocol) as client:
            answers = await asyncio.gather(
                *(client.predict("sums", [[-1 if i % 10 == 0 else i % 90, 1, i]]) for i in range(150)),
                return_exceptions=True,
            )
        for i, answer in enumerate(answers):
            if i % 10 == 0:
                assert isinstance(answer, errors.InvalidRequest)
            else:
                assert answer[0] == 2 * (i % 90 + 1 + i)

    asyncio.run(ask())


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_bad_requests_at_a_time_are_each_refused(server: TritonServer, protocol: str) -> None:
    """Each looks what the model takes by now; one that found it forgotten by another ended in a KeyError."""

    async def ask() -> None:
        url = server.grpc_url if protocol == "grpc" else server.http_url
        async with AsyncClient(url, protocol) as client:
            await client.predict("sums", ROWS)
            refused = await asyncio.gather(*(client.predict("sums", -ROWS) for _ in range(20)), return_exceptions=True)
        assert [(type(error), str(error)) for error in refused] == [
            (errors.InvalidRequest, "row 0 of X is negative.")
        ] * 20

    asyncio.run(ask())


def test_what_a_service_asks_is_all_that_the_asynchronous_client_has() -> None:
    methods = {name for name in dir(AsyncClient) if not name.startswith("_")}
    assert methods == {"close", "config", "explain", "infer", "predict", "ready"}
    assert methods < {name for name in dir(Client) if not name.startswith("_")}


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_cancelled_task_is_cancelled(server: TritonServer, protocol: str) -> None:
    async def ask() -> None:
        url = server.grpc_url if protocol == "grpc" else server.http_url
        async with AsyncClient(url, protocol) as client:
            task = asyncio.create_task(client.predict("sums", [[200, 1.5, 0]]))
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            np.testing.assert_array_equal(await client.predict("sums", ROWS), SUMS)

    asyncio.run(ask())


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_an_asynchronous_client_of_another_event_loop(server: TritonServer, protocol: str) -> None:
    url = server.grpc_url if protocol == "grpc" else server.http_url

    async def make() -> AsyncClient:
        client = AsyncClient(url, protocol)
        await client.predict("sums", ROWS)
        return client

    client = asyncio.run(make())
    with pytest.raises(errors.InvalidRequest, match="belongs to the event loop of its first call"):
        asyncio.run(client.predict("sums", ROWS))


def test_what_they_show_of_themselves() -> None:
    client = Client("127.0.0.1:1")
    assert repr(client) == "<Client of 127.0.0.1:1 over gRPC>"
    client.close()
    assert repr(client) == "<Client of 127.0.0.1:1 over gRPC, closed>"
    assert repr(AsyncClient("http://h:8000", "http")) == "<AsyncClient of h:8000 over HTTP>"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("h:1", "rest"), "protocol is 'rest'"),
        (("https://h:1",), "without TLS"),
        (("h:1", "grpc", 0), "timeout_s is 0"),
    ],
)
def test_client_arguments(arguments: tuple, says: str) -> None:
    with pytest.raises(errors.InvalidRequest, match=says):
        Client(*arguments)


def test_a_scheme_may_stand_before_the_address(server: TritonServer) -> None:
    with Client(f"http://{server.http_url}/", "http") as client:
        assert client.ready()
