"""A fleet on a real Triton server: rows of many models in one request, asked by tables over gRPC and HTTP."""

import asyncio
import re
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tritonclient.grpc
import tritonclient.http
from sklearn.base import clone
from sklearn.linear_model import Ridge
from tritonclient.utils import InferenceServerException

from tests.exporter.fleets import regions, towns, whole
from tests.exporter.fleets.fleets import COLUMNS, mixed, ridges, rows, samples, table, target
from tests.server.in_process import loaded
from tests.server.snippets import run_snippets
from tests.servers import triton_server
from tests.waiting import wait_for
from triton_regressors import TritonRegressorsError, export, export_fleet, load, update_fleet
from triton_regressors.clients.client.calls import Calls
from triton_regressors.clients.client.client import AsyncClient, Client
from triton_regressors.clients.client.configuration import Configuration
from triton_regressors.clients.errors import InvalidRequest
from triton_regressors.clients.server.triton_server import TritonServer
from triton_regressors.clients.verify import verify
from triton_regressors.kernels.entry import read_document
from triton_regressors.kernels.format.member_tensors import JoinedIds, joined
from triton_regressors.model_config import from_pbtxt, to_pbtxt
from triton_regressors.scoring.backend_stub import Request

pytestmark = pytest.mark.server

MODELS = mixed()
WHOLE = whole.fleet("error")
TOWNS = {f"shop-{shop}": towns.fitted(shop, "ignore" if shop % 2 else "error", "ridge") for shop in range(5)}
CLIENTS, REQUESTS, BAD, SHOWN = 300, 4, 10, 100
KINDS = {"f": "FP32", "d": "FP64", "i": "INT32", "l": "INT64", "O": "BYTES"}
FOUR = [*ridges(4).values()]
ODD: dict[str, list[Any]] = {
    "odd_numbers": [-1, -(2**63), 2**63 - 1, 0x7FA00001_7F800001],  # the last has the bits of float32's NaN
    "odd_strings": ["Zürich", "x" * 70, "x" * 64, "\0a"],  # 64 bytes are joined with rows, and 70 are not
}
UNKNOWN: dict[str, list[Any]] = {"odd_numbers": [0, 2**63 - 2], "odd_strings": ["", "Zürich\0", "x" * 63, "x" * 71]}


def held_out() -> dict[str, tuple[pd.DataFrame, np.ndarray]]:
    """Return calibration rows of each model with noisy targets."""
    noise, given = np.random.default_rng(0), samples(MODELS)
    return {
        name: (X, model.predict(X) + noise.normal(size=len(X)))
        for (name, X), model in zip(given.items(), MODELS.values(), strict=True)
    }


@pytest.fixture(scope="module", name="repository")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("fleet") / "models"
    export_fleet(MODELS, directory, name="demand", by="shop", samples=samples(MODELS), max_queue_delay_us=500)
    for name in ("shop-0", "shop-3"):
        export(MODELS[name], directory, name=name, sample=samples(MODELS)[name], input="fp64")
    export_fleet(TOWNS, directory, name="towns", by="shop", samples=towns.samples(TOWNS))
    export_fleet(WHOLE, directory, name="whole", by="shop", samples=whole.samples())
    export(WHOLE[whole.shop_id(1)], directory, name="whole-1", sample=whole.rows(1), input="fp64")
    export_fleet(MODELS, directory, name="counted", by="shop")
    export_fleet(MODELS, directory, name="with_default", by="shop", default="shop-2")
    by_region = {name: model for name, model in regions.fleet(parents=True).items() if name}
    for name, ids in ODD.items():
        numbers = "fp32" if name == "odd_strings" else "fp64"
        export_fleet(dict(zip(ids, FOUR, strict=True)), directory, name=name, by="shop", input=numbers)
    export_fleet(by_region, directory, name="regions", by=regions.BY, samples=regions.HISTORY.drop(columns="sold"))
    export_fleet(MODELS, directory, name="calibrated", by="shop", samples=samples(MODELS), calibrate=held_out())
    many = [*ridges(2).values()] * (SHOWN // 2 + 5)
    export_fleet(dict(enumerate(many)), directory, name="many", by="shop")
    return directory


@pytest.fixture(scope="module", name="server")
def started(repository: Path, numpy1: None) -> Iterator[TritonServer]:
    with triton_server([repository]) as server:
        yield server


def inputs_of(library: ModuleType, given: dict[str, np.ndarray]) -> list[Any]:
    """Return a plain client's inputs for arrays by their names."""
    inputs = [library.InferInput(name, array.shape, KINDS[array.dtype.char]) for name, array in given.items()]
    for tensor, array in zip(inputs, given.values(), strict=True):
        tensor.set_data_from_numpy(array)
    return inputs


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_rows_of_one_request_name_different_models(server: TritonServer, repository: Path, protocol: str) -> None:
    X = table(MODELS, 200)
    expected = np.concatenate([MODELS[name].predict(X.loc[[row], COLUMNS]) for row, name in enumerate(X["shop"])])
    with Client(server.grpc_url if protocol == "grpc" else server.http_url, protocol) as client:
        answers = client.predict("demand", X[["shop", *COLUMNS]])  # columns are found by their names
        np.testing.assert_allclose(answers, expected, rtol=1e-5, atol=1e-4)
        for name in ("shop-0", "shop-3"):
            mine = (X["shop"] == name).to_numpy()
            assert answers[mine].tobytes() == client.predict(name, X.loc[mine, COLUMNS]).tobytes()
        one_by_one = [client.predict("demand", X.iloc[[row]]) for row in range(50)]
        assert np.concatenate(one_by_one).tobytes() == answers[:50].tobytes()
        assert verify(client, repository / "demand").passed


def test_each_model_answers_its_own_interval(server: TritonServer, repository: Path) -> None:
    X, outputs = table(MODELS, 100), ["lower", "y", "upper"]
    expected = load(repository / "calibrated").infer(X)
    with Client(server.grpc_url) as client:
        found = client.infer("calibrated", X, outputs=outputs)
        for output in outputs:
            assert found[output].tobytes() == expected[output].tobytes()
        assert (found["lower"] < found["upper"]).all()
        assert verify(client, repository / "calibrated").passed


@pytest.mark.parametrize("library", [tritonclient.grpc, tritonclient.http], ids=["grpc", "http"])
def test_a_plain_client_may_send_numbers_in_place_of_ids(
    server: TritonServer, repository: Path, library: ModuleType
) -> None:
    """The numbers are the places of the ids in plan.json; a batch may hold requests of both kinds."""
    X, ids = table(MODELS, 64), list(read_document(repository / "demand/1").inputs.text[-1].categories[0])
    numbers = np.array([[ids.index(name)] for name in X["shop"]], dtype=np.int32)
    url = server.grpc_url if library is tritonclient.grpc else server.http_url

    def ask(client: Any, given: dict[str, np.ndarray]) -> np.ndarray:
        found: np.ndarray = client.infer("demand", inputs_of(library, given)).as_numpy("y")
        return found[:, 0]

    rows = X[COLUMNS].to_numpy()
    with Client(server.grpc_url) as named, library.InferenceServerClient(url) as client:
        expected = named.predict("demand", X)
        assert ask(client, {"X": rows, "shop_number": numbers}).tobytes() == expected.tobytes()
        strings = X[["shop"]].to_numpy().astype(object)
        assert ask(client, {"X": rows, "shop": strings}).tobytes() == expected.tobytes()
        for wrong in (-1, len(ids), 2**31 - 1, -(2**31)):
            changed = numbers.copy()
            changed[5] = wrong
            with pytest.raises(InferenceServerException, match=f"shop_number must be from 0 to 7: row 5 is {wrong}"):
                ask(client, {"X": rows, "shop_number": changed})
        with pytest.raises(InferenceServerException, match="shop is missing: it must name a model of this fleet"):
            ask(client, {"X": rows})
        joined = np.hstack([rows, numbers])
        assert ask(client, {"X_shop_number": joined}).tobytes() == expected.tobytes()
        for wrong in (-1.0, 0.5, float(len(ids)), 1e300, np.nan, np.inf):
            changed = joined.copy()
            changed[5, -1] = wrong
            with pytest.raises(
                InferenceServerException,
                match=f"X_shop_number must end with a whole number from 0 to 7: row 5 ends with {wrong}".replace(
                    "+", r"\+"
                ),
            ):
                ask(client, {"X_shop_number": changed})
        joined[7, 2] = np.inf
        with pytest.raises(
            InferenceServerException, match=r"X_shop_number must be finite: row 7, column 2 \('x2'\) is"
        ):
            ask(client, {"X_shop_number": joined})
        with pytest.raises(InvalidRequest, match=r"^X must be finite: row 7, column 2 \('x2'\) is inf"):
            named.predict("demand", X.assign(x2=joined[:, 2]))
        for without in ({"shop_number": numbers}, {"shop": strings}):
            with pytest.raises(InferenceServerException, match="X is missing"):
                ask(client, without)
        with pytest.raises(InferenceServerException):
            ask(client, {})
        assert ask(client, {"X": rows, "shop": strings}).tobytes() == expected.tobytes()


@pytest.mark.parametrize("library", [tritonclient.grpc, tritonclient.http], ids=["grpc", "http"])
@pytest.mark.parametrize("name", ODD)
def test_a_client_joins_rows_and_ids_by_itself(
    server: TritonServer, name: str, library: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bits and errors are those of two tensors, in which ids that the one does not hold are sent."""
    infer, sent = Calls.infer, list[set[str]]()

    def watched(self: Calls, model: str, tensors: dict[str, np.ndarray], *others: Any) -> Any:
        sent.append(set(tensors))
        return infer(self, model, tensors, *others)

    monkeypatch.setattr(Calls, "infer", watched)
    protocol, url = ("grpc", server.grpc_url) if library is tritonclient.grpc else ("http", server.http_url)
    whole, two = name == "odd_numbers", {"X", "shop"}
    one = {"X_shop_FP64x6_INT64" if whole else "X_shop_FP32x6_BYTES"}
    X = np.random.default_rng(0).standard_normal((20, len(COLUMNS))).astype(np.float64 if whole else np.float32)
    apart = {"x" * 70, "x" * 71, "Zürich\0"}

    def given(ids: Sequence[Any]) -> dict[str, np.ndarray]:
        shops = [[each if whole else each.encode()] for each in ids]
        return {"X": X[: len(ids)], "shop": np.array(shops, dtype=np.int64 if whole else object)}

    with Client(url, protocol) as client, library.InferenceServerClient(url) as plain:
        for ids in (ODD[name] * 5, [each for each in ODD[name] if each not in apart] * 5, ODD[name][:1]):
            sent.clear()
            answers = client.predict(name, given(ids))
            assert sent == [two if apart & {*ids} else one]
            expected = plain.infer(name, inputs_of(library, given(ids))).as_numpy("y")
            assert len(answers) == len(ids)
            assert answers.tobytes() == expected.tobytes()
        for unknown in UNKNOWN[name]:
            sent.clear()
            asked = given([ODD[name][2], unknown])
            with pytest.raises(InvalidRequest, match=r"^shop must name a model of this fleet: row 1 is ") as error:
                client.predict(name, asked)
            assert sent == [two if apart & {ODD[name][2], unknown} else one]
            with pytest.raises(InferenceServerException, match=re.escape(str(error.value))):
                plain.infer(name, inputs_of(library, asked))


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_ids_may_have_several_columns(server: TritonServer, repository: Path, protocol: str) -> None:
    """Each is a tensor; parents answer unknown ids, or an error names the row and the id, in its request alone."""
    X, url = regions.unknown(), server.grpc_url if protocol == "grpc" else server.http_url
    strange = X["region"] == "west"
    known, ids = X[~strange], read_document(repository / "regions/1").inputs.models
    expected = load(repository / "regions").infer(known)
    with Client(url, protocol) as client:
        found = client.infer("regions", known, outputs=["y", "model_used"])
        for output, answers in found.items():
            assert answers.tobytes() == expected[output].tobytes()
        assert [ids[int(each)] for each in found["model_used"].ravel()] == regions.answering(dict.fromkeys(ids), known)
        one_by_one = [client.predict("regions", known.iloc[[row]]) for row in range(10)]
        assert np.concatenate(one_by_one).tobytes() == found["y"][:10].tobytes()
        shown = f"row {strange.argmax()} is 'west', {X['shop'][strange.argmax()]}"
        with pytest.raises(InvalidRequest, match=f"^region, shop must name a model of this fleet: {shown}"):
            client.predict("regions", X)
        assert verify(client, repository / "regions").passed
    wait_for(lambda: counted(server, "regions", "id_rows_total")["north,8"] > 0)
    assert counted(server, "regions", "id_rows_total").keys() == {
        "north",
        "south",
        "north,7",
        "north,8",
        "south,7",
        "south,9",
    }
    rows, plain = (
        regions.HISTORY[COLUMNS].to_numpy(np.float32),
        tritonclient.grpc.InferenceServerClient(server.grpc_url),
    )
    names = regions.HISTORY[regions.BY].itertuples(index=False, name=None)
    numbers = np.array([[ids.index(name)] for name in names], dtype=np.int32)
    region = np.array([[text.encode()] for text in regions.HISTORY["region"]], dtype=object)
    bits = load(repository / "regions").predict(regions.HISTORY.drop(columns="sold")).tobytes()

    def ask(**given: np.ndarray) -> bytes:
        return bytes(plain.infer("regions", inputs_of(tritonclient.grpc, given)).as_numpy("y").tobytes())

    with plain:
        assert ask(X=rows, region_shop_number=numbers) == bits
        assert ask(X_region_shop_number=np.hstack([rows, numbers.astype(np.float32)])) == bits
        with pytest.raises(InferenceServerException, match="shop is missing: it must name a model of this fleet"):
            ask(X=rows, region=region)
        with pytest.raises(InferenceServerException, match="X is missing"):
            ask(region=region)


@pytest.mark.parametrize("kinds", [range(7), (2, 2, 2, 3), (5, 5, 5, 6)], ids=["all", "with numbers", "with ids"])
@pytest.mark.parametrize("name", ["demand", "with_default"])
def test_requests_of_all_kinds_are_answered_in_one_batch(
    server: TritonServer, repository: Path, name: str, kinds: Sequence[int]
) -> None:
    """Requests with ids, with numbers and with joined rows come at once, and each bad one gets an error of its own."""
    X = table(MODELS, 240)
    rows, strings = X[COLUMNS].to_numpy(), X[["shop"]].to_numpy().astype(object)
    found: dict[int, Any] = {}
    with Client(server.grpc_url) as named, tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
        ids = list(read_document(repository / name / "1").inputs.models)
        numbers = np.array([[ids.index(shop)] for shop in X["shop"]], dtype=np.int32)
        encoded = np.array([[shop.encode()] for shop in X["shop"]], dtype=object)
        told = Configuration.of(named.config(name))
        make = [
            lambda row: {"X": rows[row], "shop": strings[row]},
            lambda row: {"X": rows[row], "shop_number": numbers[row]},
            lambda row: {"X_shop_number": np.hstack([rows[row], numbers[row]])},
            lambda row: {"X_shop_number": np.hstack([rows[row], numbers[row] + len(ids)])},
            lambda row: {"shop": strings[row]},
            lambda row: told.sent({"X": rows[row], "shop": encoded[row]}),
            lambda row: told.sent({"X": rows[row], "shop": encoded[row] + b"?"}),
        ]
        assert make[6](slice(0, 1)).keys() == {"X_shop_FP64x6_BYTES"}
        expected, answers_all = named.predict("demand", X), named.predict("demand", X.assign(shop="shop-2"))
        for row in range(len(X)):
            given = make[kinds[row % len(kinds)]](slice(row, row + 1))
            client.async_infer(
                name,
                inputs_of(tritonclient.grpc, given),
                lambda result, error, row=row: found.update({row: error or result.as_numpy("y")}),
            )
        wait_for(lambda: len(found) == len(X))
    for row, answer in found.items():
        kind = kinds[row % len(kinds)]
        if kind == 4:
            assert "X is missing" in str(answer)
        elif kind == 3 and name == "demand":
            assert f"must end with a whole number from 0 to 7: row 0 ends with {numbers[row, 0] + 8}.0." in str(answer)
        elif kind == 6 and name == "demand":
            assert f"shop must name a model of this fleet: row 0 is '{X['shop'][row]}?'." in str(answer)
        else:
            right = answers_all if kind in (3, 6) else expected
            assert answer.tobytes() == right[row : row + 1].tobytes()


@pytest.mark.parametrize("default", [False, True], ids=["without default", "with default"])
@pytest.mark.parametrize("shops", [(7, -(2**40), 0), ("a", "Zürich", "0123456789")], ids=["numbers", "strings"])
def test_ids_joined_with_rows_answer_as_the_numbers_of_models(
    shops: tuple[Any, ...], default: bool, tmp_path: Path
) -> None:
    """Ids of few rows are looked up in another way than those of many; so are unknown ids, which may have a default."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3)).astype(np.float32)
    given = {shop: Ridge().fit(X[:50], rng.standard_normal(50)) for shop in shops}
    export_fleet(given, tmp_path, name="demand", by="shop", **({"default": shops[1]} if default else {}))
    with loaded(tmp_path / "demand") as model:
        by_number, by_id = joined(model.inputs)
        assert isinstance(by_id, JoinedIds)

        def named(some: np.ndarray, ids: list[Any]) -> Request:
            cells = [[each.encode() if isinstance(each, str) else each] for each in ids]
            sent = np.array(cells, dtype=object if isinstance(ids[0], str) else np.int64)
            both = by_id.join(some, sent, by_id.width(shops))
            assert both is not None
            return Request({by_id.name: both}, ["y"])

        def numbered(some: np.ndarray, numbers: np.ndarray) -> Request:
            both = np.hstack([some, numbers[:, None]]).astype(np.float32)
            return Request({by_number.name: both}, ["y"])

        for rows_of_requests in ((1,), (3,), (5,), (150,), (1, 1), (1, 40, 2)):
            parts = np.split(X, np.cumsum(rows_of_requests))[:-1]
            numbers = [rng.integers(0, len(shops), len(part)) for part in parts]
            ids = [[model.inputs.models[each] for each in own] for own in numbers]
            of_ids, expected = list(map(named, parts, ids)), model.execute(list(map(numbered, parts, numbers)))
            found = model.execute(of_ids)
            assert [each.error for each in (*found, *expected)] == [None] * 2 * len(parts)
            assert [each.outputs["y"].tobytes() for each in found] == [e.outputs["y"].tobytes() for e in expected]
            last, unknown = len(parts[-1]) - 1, 5 if isinstance(shops[0], int) else "nobody"
            *others, refused = model.execute([*of_ids[:-1], named(parts[-1], [*ids[-1][:-1], unknown])])
            assert [each.outputs["y"].tobytes() for each in others] == [e.outputs["y"].tobytes() for e in expected[:-1]]
            if default:
                numbers[-1][-1] = list(model.inputs.models).index(shops[1])
                (other,) = model.execute([numbered(parts[-1], numbers[-1])])
                assert refused.outputs["y"].tobytes() == other.outputs["y"].tobytes()
            else:
                shown = repr(unknown)
                assert refused.error.message == f"shop must name a model of this fleet: row {last} is {shown}."


@pytest.mark.parametrize("name", ["shop_number", "X_shop_number", "X_shop_FP32x6_INT64"])
def test_an_edited_input_of_numbers_is_refused_when_the_model_loads(name: str, tmp_path: Path) -> None:
    models = dict(enumerate(FOUR[:2]))
    path = export_fleet(models, tmp_path, name="demand", by="shop").entry.directory / "config.pbtxt"
    config = from_pbtxt(path.read_bytes())
    (given,) = [each for each in config.input if each.name == name]
    dims = given.dims[0]
    given.dims[0] += 1
    path.write_text(to_pbtxt(config))
    wrong = rf"config.pbtxt must give {name} the type \w+ and the dims \[{dims}\]"
    with pytest.raises(ValueError, match=wrong), loaded(path.parent):
        pass


def test_many_clients_and_one_bad_id_in_ten(server: TritonServer) -> None:
    """A request with an unknown id gets an error of its own; no other request is lost or answered wrongly."""
    X = table(MODELS, CLIENTS)
    with Client(server.grpc_url) as client:
        expected = client.predict("demand", X)

    async def ask(client: AsyncClient, number: int) -> None:
        rows = X.iloc[[number]]
        for request in range(REQUESTS):
            if (number + request) % BAD == 0:
                with pytest.raises(
                    InvalidRequest, match=f"shop must name a model of this fleet: row 0 is 'no-{number}'"
                ):
                    await client.predict("demand", rows.assign(shop=f"no-{number}"))
            else:
                assert (await client.predict("demand", rows))[0] == expected[number]

    async def ask_all() -> None:
        async with AsyncClient(server.grpc_url) as grpc, AsyncClient(server.http_url, "http") as http:
            await asyncio.gather(*(ask((grpc, http)[number % 2], number) for number in range(CLIENTS)))

    asyncio.run(ask_all())


def test_ids_that_do_not_exist_leave_nothing(server: TritonServer) -> None:
    """Ten thousand of them in a request are one error, and the same rows with known ids are answered afterwards."""
    X = table(MODELS, 1000)
    with Client(server.grpc_url) as client:
        before = client.predict("demand", X)
        for part in range(4):
            unknown = pd.Series([f"nobody-{part}-{row}" for row in range(len(X))])
            with pytest.raises(InvalidRequest, match=f"row 0 is 'nobody-{part}-0'"):
                client.predict("demand", X.assign(shop=unknown))
        assert client.predict("demand", X).tobytes() == before.tobytes()


def test_an_update_under_load_changes_only_the_models_that_are_set(
    server: TritonServer, repository: Path, tmp_path: Path
) -> None:
    """Clients ask all the time, and no request fails; a rollback gives the bytes of before."""
    models = ridges(4)
    entry = export_fleet(models, repository, name="updated", by="shop", max_batch_size=64).entry.directory
    X, stop = table(models, 40), threading.Event()
    is_set, errors = (X["shop"] == "shop-2").to_numpy(), list[str]()
    seen: list[tuple[float, bytes]] = []

    def ask(client: Client, seed: int) -> None:
        rng = np.random.default_rng(seed)
        while not stop.is_set():
            rows, sent_s = np.sort(rng.choice(len(X), 12, replace=False)), time.monotonic()
            try:
                found = client.predict("updated", X.iloc[rows])
            except TritonRegressorsError as error:
                errors.append(str(error))
                continue
            mine = is_set[rows]
            if found[~mine].tobytes() != before[rows][~mine].tobytes():
                errors.append("another model's answer changed")
            if mine.any():
                seen.append((sent_s, (found[mine] == before[rows][mine]).tobytes()))
            time.sleep(0.002)

    def answers_since(moment_s: float) -> set[bool]:
        """Return whether answers of the set model were those of before, of requests that were sent after a moment."""
        wait_for(lambda: sum(sent_s > moment_s for sent_s, _ in list(seen)) >= 10)
        return {bool(same) for sent_s, rows in list(seen) if sent_s > moment_s for same in rows}

    with Client(server.grpc_url) as grpc, Client(server.http_url, "http") as http:
        grpc.load("updated")
        before = grpc.predict("updated", X)
        threads = [threading.Thread(target=ask, args=((grpc, http)[seed % 2], seed)) for seed in range(4)]
        for thread in threads:
            thread.start()
        try:
            assert answers_since(time.monotonic()) == {True}
            model = clone(models["shop-2"]).fit(rows(2), -target(rows(2), 7))
            update_fleet(repository, "updated", set={"shop-2": model})
            assert answers_since(time.monotonic()) == {True}
            grpc.load("updated")
            assert answers_since(time.monotonic()) == {False}
            np.testing.assert_allclose(
                grpc.predict("updated", X[is_set]), model.predict(X.loc[is_set, COLUMNS]), rtol=1e-5, atol=1e-4
            )
            assert verify(grpc, entry).passed
            (entry / "2").rename(tmp_path / "2")
            grpc.load("updated")
            assert answers_since(time.monotonic()) == {True}
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    assert errors == []


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_models_of_a_fleet_know_different_categories(server: TritonServer, repository: Path, protocol: str) -> None:
    """A request is refused for a category that its own model does not know and does not take; others take it."""
    X = pd.concat([towns.rows(shop, 8).assign(shop=name) for shop, name in enumerate(TOWNS)], ignore_index=True)
    expected = np.concatenate([TOWNS[name].predict(part[towns.COLUMNS]) for name, part in X.groupby("shop")])
    with Client(server.grpc_url if protocol == "grpc" else server.http_url, protocol) as client:
        np.testing.assert_allclose(client.predict("towns", X), expected, rtol=1e-5, atol=1e-5)
        odd = X["shop"].isin(["shop-1", "shop-3"])
        unknown = X[odd].assign(town="nowhere")
        own = np.concatenate([TOWNS[name].predict(part[towns.COLUMNS]) for name, part in unknown.groupby("shop")])
        np.testing.assert_allclose(client.predict("towns", unknown), own, rtol=1e-5, atol=1e-5)
        other = next(town for town in towns.rows(3)["town"] if town not in set(towns.rows(2)["town"]))
        X.loc[17, "town"] = other
        with pytest.raises(InvalidRequest, match=f"the model 'shop-2' was fitted on: row 17, .*'{other}'"):
            client.predict("towns", X)
        assert verify(client, repository / "towns").passed


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_ids_and_columns_are_whole_numbers(server: TritonServer, repository: Path, protocol: str) -> None:
    """Both are INT64, in inputs of their own, and an error names the one that holds the wrong number."""
    shops, shop = list(WHOLE), whole.shop_id(1)
    X = pd.concat([whole.rows(place, 8).assign(shop=each) for place, each in enumerate(shops)], ignore_index=True)
    expected = np.concatenate([WHOLE[each].predict(X.loc[X["shop"] == each, whole.COLUMNS]) for each in shops])
    mine = X["shop"] == shop
    with Client(server.grpc_url if protocol == "grpc" else server.http_url, protocol) as client:
        answers = client.predict("whole", X[["shop", *whole.COLUMNS]])
        np.testing.assert_allclose(answers, expected, rtol=1e-5, atol=1e-5)
        assert answers[mine].tobytes() == client.predict("whole-1", X.loc[mine, whole.COLUMNS]).tobytes()
        one_by_one = [client.predict("whole", X.iloc[[row]]) for row in range(len(X))]
        assert np.concatenate(one_by_one).tobytes() == answers.tobytes()
        article = whole.ARTICLE + 99
        wrong = X.assign(article=X["article"].mask(X.index == 9, article))
        why = rf"integers must hold categories that the model {shop} was fitted on: row 9, column 0 \('article'\) is "
        with pytest.raises(InvalidRequest, match=f"{why}{article}"):
            client.predict("whole", wrong)
        with pytest.raises(InvalidRequest, match=f"shop must name a model of this fleet: row 9 is {article}"):
            client.predict("whole", wrong.assign(shop=X["shop"].mask(X.index == 9, article)))
        assert verify(client, repository / "whole").passed
    given, found = run_snippets(repository / "whole", server)
    for each in found:
        assert each["y"].astype(np.float32).tobytes() == found[0]["y"].tobytes()  # JSON has no float32
    own = WHOLE[given["shop"][0]].predict(given[whole.COLUMNS])
    np.testing.assert_allclose(found[0]["y"][:, 0], own, rtol=1e-5, atol=1e-5)


def counted(server: TritonServer, model: str, metric: str) -> dict[str, float]:
    """Return an entry's numbers of a metric by their last label."""
    with urllib.request.urlopen(f"http://{server.metrics_url}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    found = {}
    for line in lines:
        if line.startswith(f"triton_regressors_{metric}{{"):
            labels = dict(re.findall(r'(\w+)="((?:[^"\\\\]|\\\\.)*)"', line))
            if labels["model"] == model:
                label = next((labels[each] for each in ("id", "class", "reason") if each in labels), "")
                found[label] = float(line.rpartition(" ")[2])
    return found


def test_rows_are_counted_by_class_and_by_id(server: TritonServer) -> None:
    """Every row of every batch counts, and no row of a request that is refused."""
    X = table(MODELS, 500, seed=7)
    with Client(server.grpc_url) as client:
        client.predict("counted", X)
        for row in range(20):
            client.predict("counted", X.iloc[[row]])
        with pytest.raises(InvalidRequest):
            client.predict("counted", X.assign(shop=X["shop"].where(X.index != 3, "nobody")))
    asked = pd.concat([X["shop"], X["shop"][:20]]).value_counts()
    wait_for(lambda: counted(server, "counted", "id_rows_total") == {name: asked.get(name, 0) for name in MODELS})
    wait_for(lambda: counted(server, "counted", "refused_rows_total")["unknown_category"] == len(X))
    assert counted(server, "counted", "rows_total") == {"": len(X) + 20}
    assert sum(counted(server, "counted", "class_rows_total").values()) == len(X) + 20


def test_the_busiest_hundred_of_many_models_have_series(server: TritonServer) -> None:
    """The server ends the series of a model that others have overtaken, and begins one with the whole count."""
    rows = pd.DataFrame(np.zeros((SHOWN, len(COLUMNS))), columns=COLUMNS)
    quiet, busy = range(SHOWN), range(SHOWN, SHOWN + 10)

    def shown() -> dict[str, float]:
        return counted(server, "many", "id_rows_total")

    with Client(server.grpc_url) as client:
        client.predict("many", rows.assign(shop=[*quiet]))
        wait_for(lambda: shown() == {str(each): 1 for each in quiet})
        client.predict("many", rows.assign(shop=[*busy] * 10))
        wait_for(lambda: {str(each): 10 for each in busy}.items() <= shown().items())
        overtaken = [each for each in quiet if str(each) not in shown()]
        assert len(overtaken) == len(busy)
        assert len(shown()) == SHOWN
        client.predict("many", rows.assign(shop=overtaken * 10))
        wait_for(lambda: {str(each): 11 for each in overtaken}.items() <= shown().items())
        assert len(shown()) == SHOWN
        assert counted(server, "many", "class_rows_total") == {"0": 3 * SHOWN}
