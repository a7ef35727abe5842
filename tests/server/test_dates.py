"""Entries that read columns of dates, on a real Triton server, asked by tables and by hand."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.exporter.dated import NAT, fitted, orders
from tests.server.snippets import run_snippets
from tests.servers import triton_server
from triton_regressors import export, load
from triton_regressors.clients.client.client import Client
from triton_regressors.clients.errors import InvalidRequest
from triton_regressors.clients.rows import read_by_row, read_tensors
from triton_regressors.clients.server.triton_server import TritonServer
from triton_regressors.clients.verify import verify

pytestmark = pytest.mark.server

TABLES = {"naive": orders(unit="us"), "berlin": orders(zone="Europe/Berlin"), "gaps": orders(400)}
MODELS = {name: fitted(table, trees=name == "gaps") for name, table in TABLES.items()}


@pytest.fixture(scope="module", name="repository")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("dates") / "models"
    for name, model in MODELS.items():
        export(model, directory, name=name, sample=TABLES[name])
    return directory


@pytest.fixture(scope="module", name="server")
def running(repository: Path) -> Iterator[TritonServer]:
    with triton_server([repository]) as server:
        yield server


@pytest.fixture(name="client")
def connected(server: TritonServer) -> Iterator[Client]:
    with Client(server.grpc_url) as client:
        yield client


def assert_predicted(found: np.ndarray, name: str, table: pd.DataFrame) -> None:
    np.testing.assert_allclose(found, MODELS[name].predict(table), rtol=2e-6)


@pytest.mark.parametrize("name", MODELS)
def test_tables_over_both_protocols_and_in_process(
    server: TritonServer, client: Client, repository: Path, name: str
) -> None:
    table = TABLES[name]
    found = client.predict(name, table)
    assert_predicted(found, name, table)
    same: list[Any] = [table.to_dict("records"), table.assign(ordered=table["ordered"].dt.as_unit("s"))]
    if name == "berlin":
        same.append(table.assign(ordered=table["ordered"].dt.tz_convert("America/New_York")))
    with Client(server.http_url, "http") as http:
        assert all(http.predict(name, rows).tobytes() == found.tobytes() for rows in (table, *same))
    assert load(repository / name, device="cpu").predict(table).tobytes() == found.tobytes()
    assert verify(client, repository / name).passed
    _, answers = run_snippets(repository / name, server)
    assert len({answer["y"].astype(np.float32).tobytes() for answer in answers}) == 1


def test_a_request_by_hand_is_in_nanoseconds(client: Client) -> None:
    table = TABLES["naive"]
    numbers = table[["price", "weight"]].to_numpy(np.float32)
    for times in (
        table[["ordered"]].to_numpy(),
        table[["ordered"]].to_numpy().astype("datetime64[ns]").astype(np.int64),
    ):
        found = client.infer("naive", {"X": numbers, "integers": times})["y"]
        assert found[:, 0].tobytes() == client.predict("naive", table).tobytes()


def test_a_missing_date(client: Client) -> None:
    table = TABLES["gaps"].head(5).copy()
    table.loc[3, "ordered"] = pd.NaT
    assert_predicted(client.predict("gaps", table), "gaps", table)
    with pytest.raises(InvalidRequest, match=r"^integers must hold no missing date: row 3, column 0 \('ordered'\) is"):
        client.predict("naive", table)
    answers = client.infer("naive", table, errors="row")
    assert list(answers.refused) == [3]
    assert np.isnan(answers["y"][:, 0]).tolist() == [False, False, False, True, False]
    by_hand = {"X": np.zeros((1, 2), np.float32), "integers": np.array([[NAT]])}
    with pytest.raises(InvalidRequest, match="is NaT"):
        client.infer("naive", by_hand)


def test_other_tables_are_refused(client: Client) -> None:
    with pytest.raises(InvalidRequest, match="column 'ordered' must be dates: it has the time zone Europe/Berlin"):
        client.predict("naive", TABLES["berlin"])
    with pytest.raises(InvalidRequest, match=r"must be dates: it has no time zone.*tz_localize\('Europe/Berlin'\)"):
        client.predict("berlin", TABLES["naive"])
    with pytest.raises(InvalidRequest, match="column 'ordered' must be dates: it holds '"):
        client.predict("naive", TABLES["naive"].astype({"ordered": str}))
    with pytest.raises(InvalidRequest, match=r"column 'ordered' must be dates: it holds [0-9]+ in row 0"):
        client.predict("naive", TABLES["naive"].astype({"ordered": np.int64}))
    late = TABLES["naive"].head(3).copy()
    late.loc[2, "ordered"] = pd.Timestamp("9999-12-31")
    with pytest.raises(
        InvalidRequest, match=r"holds '9999-12-31T00:00:00[.]000000' in row 2, and nanoseconds hold only"
    ):
        client.predict("naive", late)
    assert list(client.infer("naive", late, errors="row").refused) == [2]


@pytest.mark.parametrize("name", ["naive", "berlin"])
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_files(client: Client, tmp_path: Path, name: str, suffix: str) -> None:
    path, table = tmp_path / f"rows{suffix}", TABLES[name]
    table.to_csv(path, index=False) if suffix == ".csv" else table.to_parquet(path)
    config = client.config(name)
    tensors = read_tensors(path, config)
    assert client.predict(name, tensors).tobytes() == client.predict(name, table).tobytes()
    rows, kept, refused = read_by_row(path, config)
    assert (len(kept), refused) == (200, {})
    assert client.predict(name, rows).tobytes() == client.predict(name, table).tobytes()
