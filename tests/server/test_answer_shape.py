"""One target is answered in the shape of the estimator's own `predict`: [rows], or [rows, 1] of a column of targets."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

import triton_regressors as tr
from tests.server.conftest import Unload
from tests.server.models import rows
from triton_regressors.__main__ import make_app
from triton_regressors.clients.client.client import AsyncClient, Client
from triton_regressors.clients.server.triton_server import TritonServer

pytestmark = pytest.mark.server

X = rows(200).astype(np.float64)
WEIGHT = np.arange(1.0, 9.0)
Y = X @ WEIGHT
ESTIMATORS = {
    "column_linear": LinearRegression().fit(X, Y[:, None]),
    "column_pipeline": make_pipeline(StandardScaler(), Ridge()).fit(X, Y[:, None]),
    "row_linear": LinearRegression().fit(X, Y),
}


@pytest.fixture(params=list(ESTIMATORS))
def name(request: pytest.FixtureRequest, repository: Path, client: Client, unload: Unload) -> Iterator[str]:
    """An entry of an estimator that is loaded on the server."""
    name: str = request.param
    if not (repository / name).exists():
        tr.export(ESTIMATORS[name], repository, name=name, sample=X, calibrate=(X, Y), level=0.5)
    client.load(name)
    yield name
    unload(name)


def test_predict_has_the_shape_of_the_estimators(name: str, either: Client) -> None:
    wanted = ESTIMATORS[name].predict(X)
    found = either.predict(name, X)
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() < 1e-5 * Y.std()
    assert either.predict(name, X[:1]).shape == wanted[:1].shape
    assert either.predict(name, X, outputs=("lower",)).shape == wanted.shape
    assert either.infer(name, X)["y"].shape == (len(X), 1)
    hole = X.copy()
    hole[3, 1] = np.nan
    by_row = either.predict(name, hole, errors="row")
    assert (by_row.shape, np.isnan(by_row).sum()) == (wanted.shape, 1)
    assert either.predict(name, np.full_like(X[:2], np.nan), errors="row").shape == wanted[:2].shape


def test_every_way_to_ask_has_it(name: str, repository: Path, server: TritonServer, tmp_path: Path) -> None:
    shape = ESTIMATORS[name].predict(X).shape

    async def ask() -> np.ndarray:
        async with AsyncClient(server.grpc_url) as client:
            return await client.predict(name, X)

    assert asyncio.run(ask()).shape == shape
    model = tr.load(repository / name, device="cpu")
    assert model.predict(X).shape == shape
    assert tuple(model.predict(torch.from_numpy(X)).shape) == shape
    assert [end.shape for end in model.predict_interval(X)] == [shape, shape]
    np.save(tmp_path / "rows.npy", X)
    given = ["predict", name, str(tmp_path / "rows.npy"), "--url", server.grpc_url, "-o", str(tmp_path / "y.npy")]
    assert CliRunner().invoke(make_app(), given).exit_code == 0
    assert np.load(tmp_path / "y.npy").shape == shape


def test_a_next_version_says_its_own_shape(tmp_path: Path) -> None:
    """An entry without the word answers [rows], like entries of earlier releases."""
    parameter = "answers_column"
    for estimator, column in (("row_linear", False), ("column_linear", True), ("row_linear", False)):
        done = tr.export(ESTIMATORS[estimator], tmp_path, name="shape", sample=X)
        document = json.loads((done.entry.version_directory / "plan.json").read_text())
        assert document.get(parameter) is (True if column else None)
        assert (parameter in (tmp_path / "shape" / "config.pbtxt").read_text()) is column
        assert tr.load(tmp_path / "shape").predict(X).ndim == 1 + column
    assert tr.load(tmp_path / "shape", version=2).predict(X).ndim == 2
