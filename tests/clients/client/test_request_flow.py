"""Tests of a prediction's requests, and of its answers if models are loaded again meanwhile."""

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pandas as pd
import pytest
from tritonclient.grpc import model_config_pb2

from triton_regressors.clients import errors
from triton_regressors.clients.client.calls import Call
from triton_regressors.clients.client.client import AsyncClient, Client
from triton_regressors.clients.client.configuration import REQUEST_BYTES
from triton_regressors.clients.client.request_flow import SIDE_BY_SIDE
from triton_regressors.clients.server.triton_server import TritonServer

pytestmark = pytest.mark.server

# y = (factor · x₀ + x₁, ...), width of them; a negative x₀ is refused by its row, an x₁ of −2 by no row, and an x₁ of
# −1 makes the answer late.
MODEL = """
import json
import sys
import time

import numpy as np
import triton_python_backend_utils as pb_utils
from triton_regressors.kernels.format.columns_digest import columns_digest

sys.unraisablehook = lambda unraisable: None  # numpy's harmless complaints about DLPack capsules


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        self.digest = columns_digest({name: value["string_value"] for name, value in parameters.items()})

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        if CHECKS and json.loads(request.parameters()).get("columns_digest", self.digest) != self.digest:
            error = pb_utils.TritonError("columns_digest is not this model's", pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=error)
        x = np.from_dlpack(pb_utils.get_input_tensor_by_name(request, "X"))
        code = pb_utils.TritonError.INVALID_ARG
        if (x[:, 0] < 0).any():
            error = pb_utils.TritonError(f"X must hold no debts: row {np.argmax(x[:, 0] < 0)} does", code)
            return pb_utils.InferenceResponse(error=error)
        if (x[:, 1] == -2).any():
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("these rows are too odd", code))
        if (x[:, 1] == -1).any():
            time.sleep(0.3)
        y = (FACTOR * x[:, :1] + x[:, 1:2]).astype(np.float32)
        return pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("y", y)])
"""
HOUSES = pd.DataFrame({"rooms": np.arange(37.0), "year": 0.1 * np.arange(37)}, dtype=np.float32)
NUMBERS = HOUSES.to_numpy()
BOTH = pytest.mark.parametrize("connect", ["grpc", "async http"], indirect=True)

Load = Callable[..., None]
Connect = Callable[..., Client]


@pytest.fixture(scope="module")
def load(server: TritonServer) -> Iterator[Load]:
    """load(columns, factor=10, version=1, ...) loads `houses` anew, as an operator does from somewhere else.

    The entry of one version number is another one's by its files alone, as after `rm -r` and a new export.
    """
    with Client(server.grpc_url) as operator:

        def loaded(
            columns: Sequence[str] = ("rooms", "year"),
            factor: int = 10,
            version: int = 1,
            kind: str = "TYPE_FP32",
            categories: Sequence[int] = (),
            max_batch_size: int = 16,
            checks: bool = True,
        ) -> None:
            config = model_config_pb2.ModelConfig(name="houses", backend="python", max_batch_size=max_batch_size)
            rows = [] if max_batch_size else [-1]
            config.input.add(name="X", data_type=kind, dims=[*rows, 2])
            config.output.add(name="y", data_type="TYPE_FP32", dims=[*rows, 1])
            config.instance_group.add(count=1, kind=model_config_pb2.ModelInstanceGroup.KIND_CPU)
            config.parameters["columns"].string_value = json.dumps({"X": list(columns)})
            config.parameters["categories"].string_value = json.dumps({"X": list(categories)})
            if checks:
                config.parameters["checks_columns"].string_value = "true"
            code = MODEL.replace("FACTOR", str(factor)).replace("CHECKS", str(checks)).encode()
            operator.load("houses", config=config, files={f"{version}/model.py": code})

        yield loaded
        operator.unload("houses")


class Watched:
    """The requests that clients send; `then` happens once, behind the next one of a kind."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.most = self._open = 0
        self._then: list[tuple[str, Callable[[], None]]] = []

    def then(self, method: str, *happens: Callable[[], None]) -> None:
        """Let something happen behind each of the next requests of a kind."""
        self._then = [(method, do) for do in happens]

    def counted(self) -> list[str]:
        """Return what was sent since the last time."""
        sent, self.sent = self.sent, []
        return [{"get_model_config": "config"}.get(method, method) for method in sent]

    def begin(self, call: Call) -> None:
        self.sent.append(call.method)
        self._open += 1
        self.most = max(self.most, self._open)

    def end(self, call: Call) -> None:
        self._open -= 1
        if self._then and self._then[0][0] == call.method:
            self._then.pop(0)[1]()


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    watch, run, run_async = Watched(), Client._run, AsyncClient._run

    def watching(self: Client, call: Call) -> object:
        if self.timeout_s != 29:  # the operator's are not counted
            return run(self, call)
        watch.begin(call)
        try:
            return run(self, call)
        finally:
            watch.end(call)

    async def watching_async(self: AsyncClient, call: Call) -> object:
        watch.begin(call)
        try:
            return await run_async(self, call)
        finally:
            watch.end(call)

    monkeypatch.setattr(Client, "_run", watching)
    monkeypatch.setattr(AsyncClient, "_run", watching_async)
    return watch


@pytest.fixture
def client(connect: Connect, watched: Watched) -> Client:
    return connect(timeout_s=29)


def answers(rows: pd.DataFrame, factor: int = 10) -> np.ndarray:
    """Return what `houses` answers to a table."""
    return (factor * rows["rooms"].to_numpy() + rows["year"].to_numpy()).astype(np.float32)


@BOTH
class TestRequests:
    """The server is asked what a model takes once, and again only where a model would not see that it is wrong."""

    def test_numbers_of_the_models_types(self, client: Client, load: Load, watched: Watched) -> None:
        load()
        few = NUMBERS[:16]
        for rows in (few, few.astype(np.float64), few.astype(np.float16).astype(int).tolist(), {"X": few}):
            client.predict("houses", rows)
        assert watched.counted() == ["config", *["infer"] * 4]

    def test_tables_and_rounded_numbers(self, client: Client, load: Load, watched: Watched) -> None:
        load()
        for rows in (HOUSES[:16], NUMBERS[:16] * 0.1 + np.float64(1e-9)):
            client.predict("houses", rows)
        np.testing.assert_array_equal(client.predict("houses", HOUSES), answers(HOUSES))
        assert watched.counted() == ["config", *["infer"] * 5]

    def test_tables_and_rounded_numbers_where_the_model_does_not_look(
        self, client: Client, load: Load, watched: Watched
    ) -> None:
        load(checks=False)
        np.testing.assert_array_equal(client.predict("houses", HOUSES), answers(HOUSES))
        assert watched.counted() == ["config", *["infer"] * 3, "config"]
        for rows in (HOUSES[:16], NUMBERS[:16] * 0.1 + np.float64(1e-9)):
            client.predict("houses", rows)
            assert watched.counted() == ["infer", "config"]
        client.predict("houses", NUMBERS)
        assert watched.counted() == ["infer"] * 3

    def test_what_config_told_is_not_asked_again(self, client: Client, load: Load, watched: Watched) -> None:
        load()
        client.config("houses")
        client.predict("houses", HOUSES[:1])
        assert watched.counted() == ["config", "infer"]

    def test_what_has_no_batches_is_sent_whole(self, client: Client, load: Load, watched: Watched) -> None:
        load(max_batch_size=0)
        np.testing.assert_array_equal(client.predict("houses", NUMBERS), answers(HOUSES))
        assert watched.counted() == ["config", "infer"]

    def test_what_is_larger_than_a_message(self, client: Client, load: Load, watched: Watched) -> None:
        load(max_batch_size=2**31 - 1)
        rows = np.ones((REQUEST_BYTES // 8 + 3, 2), np.float32)
        rows[-3:, 0] = 2, 3, 4
        y = client.predict("houses", rows)
        assert y.shape == (len(rows),)
        assert y[-4:].tolist() == [11, 21, 31, 41]
        assert watched.counted() == ["config", "infer", "infer"]

    def test_wrong_arguments_are_not_sent(self, client: Client, watched: Watched) -> None:
        for wrong in ({"version": "one"}, {"outputs": "y"}, {"outputs": ()}):
            with pytest.raises(errors.InvalidRequest):
                client.predict("houses", NUMBERS, **wrong)
        assert watched.counted() == []


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_client_that_loads_a_model_asks_anew(server: TritonServer, watched: Watched, protocol: str) -> None:
    url = server.grpc_url if protocol == "grpc" else server.http_url
    with Client(url, protocol, timeout_s=29) as client:
        for _ in range(2):
            client.predict("spare", np.ones((1, 3)))
            client.load("spare")
    assert watched.counted() == ["config", "infer", "load_model"] * 2


@BOTH
class TestModelsThatAreLoadedAnew:
    """Under the same version number, so that no answer tells."""

    SWAPPED = HOUSES.rename(columns={"rooms": "year", "year": "rooms"})

    @pytest.mark.parametrize("checks", [True, False])
    def test_columns_elsewhere(self, client: Client, load: Load, watched: Watched, checks: bool) -> None:
        load(checks=checks)
        np.testing.assert_array_equal(client.predict("houses", HOUSES), answers(HOUSES))
        load(["year", "rooms"], checks=checks)
        np.testing.assert_array_equal(client.predict("houses", self.SWAPPED), answers(HOUSES))

    @pytest.mark.parametrize("method", ["get_model_config", "infer"])
    def test_while_a_model_is_asked_that_does_not_look(
        self, client: Client, load: Load, watched: Watched, method: str
    ) -> None:
        load(checks=False)
        watched.then(method, lambda: load(["year", "rooms"], checks=False))
        np.testing.assert_array_equal(client.predict("houses", HOUSES), answers(self.SWAPPED))

    def test_while_a_table_is_asked(self, client: Client, load: Load, watched: Watched) -> None:
        load()
        watched.then("get_model_config", lambda: load(["year", "rooms"]))
        np.testing.assert_array_equal(client.predict("houses", HOUSES), answers(self.SWAPPED))
        watched.then("infer", load)  # behind one of three parts; an AsyncClient may have the others' answers by then
        found = client.predict("houses", HOUSES)
        assert any(np.array_equal(found, answers(rows)) for rows in (HOUSES, self.SWAPPED))
        np.testing.assert_array_equal(client.predict("houses", HOUSES), answers(HOUSES))

    def test_and_put_back(self, client: Client, load: Load, watched: Watched) -> None:
        load()
        client.config("houses")
        load(["year", "rooms"])
        watched.then("infer", load)
        np.testing.assert_array_equal(client.predict("houses", HOUSES), answers(HOUSES))
        assert watched.counted().count("config") == 2

    def test_a_number_that_is_a_category_now(self, client: Client, load: Load) -> None:
        load()
        client.predict("houses", [[1, 0.1]])
        load(categories=[1])
        with pytest.raises(errors.InvalidRequest, match=r"^X\[0, 1\] \('year'\) is 0.1, a category, which FP32 would"):
            client.predict("houses", [[1, 0.1]])
        np.testing.assert_array_equal(client.predict("houses", [[1, 0.5]]), [10.5])

    def test_another_type_and_fewer_rows(self, client: Client, load: Load, watched: Watched) -> None:
        load()
        client.predict("houses", NUMBERS)
        load(kind="TYPE_FP64", max_batch_size=8)
        watched.counted()
        np.testing.assert_array_equal(client.predict("houses", NUMBERS), answers(HOUSES))
        assert watched.counted().count("config") == 1
        np.testing.assert_array_equal(client.predict("houses", NUMBERS), answers(HOUSES))
        assert watched.counted() == ["infer"] * 5

    def test_columns_that_the_new_one_does_not_need(self, client: Client, load: Load) -> None:
        load()
        client.predict("houses", HOUSES)
        load(["rooms", "built"])
        built = HOUSES.rename(columns={"year": "built"})
        np.testing.assert_array_equal(client.predict("houses", built), answers(HOUSES))
        with pytest.raises(errors.InvalidRequest, match="The table lacks column 'built'"):
            client.predict("houses", HOUSES)


@BOTH
class TestVersions:
    """A table in ten parts, of which an AsyncClient has four under way."""

    def test_no_answer_is_joined_from_two(self, client: Client, load: Load, watched: Watched) -> None:
        load(max_batch_size=4)
        watched.then("infer", lambda: load(factor=20, version=2, max_batch_size=4))
        np.testing.assert_array_equal(client.predict("houses", NUMBERS), answers(HOUSES, 20))
        assert watched.counted().count("infer") == 20

    def test_where_they_come_too_fast_nothing_is_answered(self, client: Client, load: Load, watched: Watched) -> None:
        load(max_batch_size=4)
        fifth = [lambda n=n: n % 10 == 5 and load(version=n // 10 + 2, max_batch_size=4) for n in range(1, 31)]
        watched.then("infer", *fifth)
        with pytest.raises(
            errors.ServerUnavailable, match=r"^Model 'houses' was loaded again, .* during each of 3 attempts"
        ):
            client.predict("houses", NUMBERS)


@BOTH
class TestErrorsOfAPart:
    @pytest.mark.parametrize(
        ("place", "value", "says"),
        [
            ((35, 0), -1, r"^X must hold no debts: row 35 does\.$"),
            ((3, 0), -1, r"^X must hold no debts: row 3 does\.$"),
            ((20, 1), -2, r"^these rows are too odd \(rows 16 to 31 of 37\)\.$"),
        ],
    )
    def test_name_rows_of_the_table(
        self, client: Client, load: Load, place: tuple[int, int], value: float, says: str
    ) -> None:
        load()
        rows = NUMBERS.copy()
        rows[place] = value
        with pytest.raises(errors.InvalidRequest, match=says):
            client.predict("houses", rows)

    def test_the_first_of_several(self, client: Client, load: Load) -> None:
        load()
        rows = NUMBERS.copy()
        rows[[2, 20, 36], 0] = -1
        rows[0, 1] = -1  # its error comes last
        with pytest.raises(errors.InvalidRequest, match="row 2 does"):
            client.predict("houses", rows)


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_parts_go_side_by_side_within_a_bound(
    server: TritonServer, load: Load, watched: Watched, protocol: str
) -> None:
    load(max_batch_size=1)

    async def ask() -> None:
        url = server.grpc_url if protocol == "grpc" else server.http_url
        async with AsyncClient(url, protocol) as client:
            np.testing.assert_array_equal(await client.predict("houses", NUMBERS), answers(HOUSES))
            assert watched.most == SIDE_BY_SIDE

            slow = NUMBERS.copy()
            slow[:, 1] = -1
            task = asyncio.create_task(client.predict("houses", slow))
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            sent = len(watched.sent)
            await asyncio.sleep(0.05)
            assert len(watched.sent) == sent

    asyncio.run(ask())


@BOTH
def test_a_version_that_there_was_is_named(client: Client, load: Load) -> None:
    load(version=1)
    load(version=2)
    client.predict("houses", NUMBERS, version=2)
    with pytest.raises(errors.ModelNotFound, match="'houses' version 1 is not at ready state"):
        client.predict("houses", NUMBERS, version=1)
