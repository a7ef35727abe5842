"""Entries of Pipelines with own code in polars, on a real Triton server, asked by tables of polars."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.exporter.tracing.own_code_polars import MODELS, rides
from tests.servers import triton_server
from triton_regressors import export, load
from triton_regressors.clients.client.client import Client
from triton_regressors.clients.server.triton_server import TritonServer

pytestmark = pytest.mark.server

SERVED = ("filled", "words", "calendar", "MedianByGroup")
FITTED = {name: MODELS[name]().fit(*rides()) for name in SERVED}


@pytest.fixture(scope="module", name="repository")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("polars") / "models"
    for name, model in FITTED.items():
        export(model, directory, name=name, sample=rides()[0])
    return directory


@pytest.fixture(scope="module", name="server")
def running(repository: Path) -> Iterator[TritonServer]:
    with triton_server([repository]) as server:
        yield server


@pytest.mark.parametrize("name", SERVED)
def test_tables_of_polars_over_both_protocols_and_in_process(server: TritonServer, repository: Path, name: str) -> None:
    table = rides()[0].sample(150, seed=3)
    with Client(server.grpc_url) as client, Client(server.http_url, "http") as http:
        found = client.predict(name, table)
        np.testing.assert_allclose(found, FITTED[name].predict(table), rtol=2e-6, atol=2e-6)
        assert http.predict(name, table).tobytes() == found.tobytes()
        assert client.predict(name, table[40:41]).tobytes() == found[40:41].tobytes()
    assert load(repository / name, device="cpu").predict(table).tobytes() == found.tobytes()


def test_a_missing_value_is_null_or_nan_as_in_the_sample(server: TritonServer) -> None:
    X, _ = rides()
    table = X.head(2).with_columns(minutes=None, wind=float("nan"), age=None)
    with Client(server.grpc_url) as client:
        expected = FITTED["filled"].predict(table.cast(X.schema))
        np.testing.assert_allclose(client.predict("filled", table), expected, rtol=2e-6)
        np.testing.assert_allclose(client.predict("filled", table.to_pandas()), expected, rtol=2e-6)
