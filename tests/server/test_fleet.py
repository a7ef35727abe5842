"""A fleet on a real Triton server: rows of many models in one request, asked by tables over gRPC and HTTP."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.exporter.fleets.fleets import COLUMNS, mixed, samples, table
from tests.servers import triton_server
from triton_regressors import export, export_fleet
from triton_regressors.clients.client.client import AsyncClient, Client
from triton_regressors.clients.errors import InvalidRequest
from triton_regressors.clients.server.triton_server import TritonServer
from triton_regressors.clients.verify import verify

pytestmark = pytest.mark.server

MODELS = mixed()
CLIENTS, REQUESTS, BAD = 300, 4, 10


@pytest.fixture(scope="module", name="repository")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("fleet") / "models"
    export_fleet(MODELS, directory, name="demand", by="shop", samples=samples(MODELS), max_queue_delay_us=500)
    for name in ("shop-0", "shop-3"):
        export(MODELS[name], directory, name=name, sample=samples(MODELS)[name], input="fp64")
    return directory


@pytest.fixture(scope="module", name="server")
def started(repository: Path, numpy1: None) -> Iterator[TritonServer]:
    with triton_server([repository]) as server:
        yield server


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
