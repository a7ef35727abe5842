"""`verify` of a fleet: some of its many golden rows go one at a time, and some of its models can be asked alone."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge
from typer.testing import CliRunner

from triton_regressors import export, export_fleet
from triton_regressors.__main__ import make_app
from triton_regressors.clients import verify as module
from triton_regressors.clients.errors import RowsError
from triton_regressors.clients.verify import verify
from triton_regressors.commands import verify as command
from triton_regressors.kernels.entry import find_entry, read_document, read_golden

X = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 2)), columns=["u", "v"])
SHOPS = [f"shop-{number}" for number in range(5)]
ROWS = 80
"""16 golden rows of each model."""


class Answering:
    """A client whose server answers golden rows with their expected answers, apart from a model's error."""

    def __init__(self, version: Path) -> None:
        self.document = read_document(version)
        self.golden = read_golden(version, self.document)
        self.error = np.zeros(len(SHOPS))
        self.requests: list[list[int]] = []

    def __enter__(self) -> "Answering":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def infer(self, _: str, tensors: Mapping[str, Any], outputs: Sequence[str], version: str) -> dict[str, np.ndarray]:
        assert version == "1"
        rows = self.document.inputs.encode(tensors)
        places = [int(np.flatnonzero((row == self.golden.X).all(axis=1))[0]) for row in rows]
        self.requests.append(places)
        error = self.error[rows[:, -1].astype(int)][:, None]
        return {name: (self.golden.outputs[name][places] + error).astype(np.float32) for name in outputs}


@pytest.fixture(scope="module")
def entry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    models = {shop: Ridge().fit(X, (X["u"] - X["v"]) * 10**place) for place, shop in enumerate(SHOPS)}
    found: Path = export_fleet(models, tmp_path_factory.mktemp("fleet"), name="demand", by="shop").entry.directory
    return found


@pytest.fixture
def client(entry: Path) -> Any:
    return Answering(find_entry(entry).version_directory)


def test_few_rows_are_sent_as_those_of_a_single_model(entry: Path, client: Any) -> None:
    result = verify(client, entry)
    assert result.passed
    assert (result.rows, result.members) == (ROWS, (5, 5))
    assert result.batchings == ("one row at a time", "all at once", "shuffled, in odd sizes")
    sizes = [len(request) for request in client.requests]
    assert sizes[: ROWS + 1] == [1] * ROWS + [ROWS]
    assert set(sizes[ROWS + 1 :]) <= {1, 3, 5, 7, 11, 13}


def test_some_of_many_rows_are_sent_one_at_a_time(entry: Path, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SINGLE_ROWS", 10)
    monkeypatch.setattr(module, "_ODD_REQUESTS", 5)
    result = verify(client, entry)
    assert result.passed
    assert result.batchings == ("10 of the rows one at a time", "all at once", "shuffled, in odd sizes")
    singles, odd = client.requests[:10], client.requests[11:]
    assert len(np.unique(np.concatenate(singles))) == 10
    assert sorted(np.concatenate(odd)) == list(range(ROWS))
    assert [len(request) for request in odd][:3] == [9, 3, 21]
    monkeypatch.setattr(client, "infer", lambda *a, **k: {"y": Answering.infer(client, *a, **k)["y"] * len(a[1]["X"])})
    assert not verify(client, entry).bit_identical


def test_errors_are_in_units_of_the_row_s_own_model(entry: Path, client: Any) -> None:
    units = [client.golden.units["y"][client.golden.X[:, -1] == number].max() for number in range(5)]
    client.error = np.where(np.argsort(np.argsort(units)) == 0, 3 * np.array(units), 0)
    result = verify(client, entry)
    assert not result.passed
    assert result.outputs[0].max_error == pytest.approx(3, rel=1e-3)


def test_some_models_can_be_asked_alone(entry: Path, client: Any, tmp_path: Path) -> None:
    result = verify(client, entry, members=2)
    assert result.passed
    assert (result.rows, result.members) == (32, (2, 5))
    assert len({client.golden.X[place, -1] for request in client.requests for place in request}) == 2
    assert verify(client, entry, members=9).members == (5, 5)
    with pytest.raises(RowsError, match="members is 0; at least 1 is needed"):
        verify(client, entry, members=0)
    single = export(Ridge().fit(X, X["u"]), tmp_path, name="one")
    with pytest.raises(RowsError, match="one is an entry of one model; members is for a fleet"):
        verify(client, single, members=1)


def test_the_command_says_of_how_many_models_the_rows_are(
    entry: Path, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SINGLE_ROWS", 10)
    monkeypatch.setattr(command, "connect", lambda *_: client)
    arguments = ["verify", str(entry), "--members", "2"]
    done = CliRunner().invoke(make_app(), arguments, env={"COLUMNS": "160"})
    assert done.exit_code == 0, done.output
    assert "demand, version 1: 32 golden rows of 2 of 5 models" in done.output
    said = " ".join(done.output.split())
    assert "Sent 10 of the rows one at a time; all at once; shuffled, in odd sizes: the same bits in every" in said
