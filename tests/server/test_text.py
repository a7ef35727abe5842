"""Entries that read columns of strings, on a real Triton server, asked by tables over gRPC and HTTP.

Their answers are compared with scikit-learn's in test_parity.py. The embedded server's Python backend reads strings
beside numpy 1 alone; `TritonServer` gives it that.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.exporter.cases import CASES
from triton_regressors.clients.errors import InvalidRequest, ServerFault
from triton_regressors.clients.infer import Client
from triton_regressors.clients.server import TritonServer
from triton_regressors.clients.verify import verify
from triton_regressors.exporter import export

pytestmark = pytest.mark.server

MODELS = {name: CASES[f"strings-{name}"] for name in ("one-hot", "one-hot-ignore", "two-groups", "alone")}


@pytest.fixture(scope="module", name="repository")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("strings") / "models"
    for name, case in MODELS.items():
        model, X = case.fitted()
        export(model, directory, name=name, sample=X, max_queue_delay_us=500)
    return directory


@pytest.fixture(scope="module", name="server")
def running(repository: Path, numpy1: None) -> Iterator[TritonServer]:
    with TritonServer([repository]) as server:
        yield server


@pytest.fixture(scope="module", name="client")
def connected(server: TritonServer) -> Iterator[Client]:
    with Client(server.grpc_url) as client:
        yield client


@pytest.mark.parametrize("name", MODELS)
def test_both_protocols_and_the_golden_rows(server: TritonServer, client: Client, repository: Path, name: str) -> None:
    _, X = MODELS[name].fitted()
    with Client(server.http_url, "http") as http:
        assert http.predict(name, X).tobytes() == client.predict(name, X).tobytes()
    assert verify(client, repository / name).passed


def test_requests_with_bad_strings_fail_alone(client: Client) -> None:
    model, X = MODELS["one-hot"].fitted()
    expected = model.predict(X)
    unknown, missing = X.head(3).copy(), X.head(3).copy()
    unknown.loc[2, "city"] = "Atlantis"
    missing.loc[1, "job"] = None
    errors = {
        "unknown": "cat must hold categories that the model was fitted on: row 2, column 0 ('city') is 'Atlantis'.",
        "missing": "cat must hold no empty string, which is a missing value: row 1, column 1 ('job') is empty.",
    }

    def ask(number: int) -> str:
        kind = ("good", "unknown", "good", "missing")[number % 4]
        if kind == "good":
            rows = slice(number % 90, number % 90 + 5)
            found = client.predict("one-hot", X[rows])
            return "" if np.allclose(found[:, 0], expected[rows], rtol=1e-5) else "wrong"
        try:
            client.predict("one-hot", unknown if kind == "unknown" else missing)
        except InvalidRequest as error:
            return "" if errors[kind] in str(error) else str(error)
        return f"{kind} was answered"

    with ThreadPoolExecutor(16) as threads:
        assert [answer for answer in threads.map(ask, range(200)) if answer] == []


def test_bits_do_not_depend_on_the_batch(client: Client) -> None:
    name = "one-hot-ignore"
    _, X = MODELS[name].fitted()
    X = pd.concat([X, X.head(20).assign(city="Atlantis")], ignore_index=True)
    whole = client.predict(name, X)
    order = np.random.default_rng(0).permutation(len(X))
    for size in (1, 2, 7, 64, len(X)):
        chosen = order[:size]
        assert client.predict(name, X.iloc[chosen]).tobytes() == whole[chosen].tobytes()


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.0.0", reason="beside numpy 1 every server reads strings")
def test_an_environment_that_cannot_read_strings_is_named(repository: Path, tmp_path: Path) -> None:
    """An entry that comes when the server runs already, which had no need of numpy 1."""
    (tmp_path / "models").mkdir()
    with TritonServer([tmp_path / "models"]) as server, Client(server.grpc_url) as client:
        (tmp_path / "models" / "one-hot").symlink_to(repository / "one-hot")
        with pytest.raises(
            ServerFault, match=r"cannot read strings with numpy .*: give its models numpy below 2, as `"
        ):
            client.load("one-hot")
