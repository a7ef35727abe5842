"""NaN in a request to the real server: answered in columns where the estimator accepts it, else refused by name."""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

from tests.exporter.data import small
from tests.server.snippets import run_snippets
from tests.servers import triton_server
from triton_regressors import export
from triton_regressors.clients.client.client import Client
from triton_regressors.clients.errors import InvalidRequest
from triton_regressors.clients.server.triton_server import TritonServer
from triton_regressors.clients.verify import verify

X, y = small()
ESTIMATORS = {
    "boosting": HistGradientBoostingRegressor(max_iter=5).fit(X, y),
    "imputed": make_pipeline(
        ColumnTransformer([("some", SimpleImputer(), [1, 4])], remainder="passthrough"), Ridge()
    ).fit(X, y),
}


@pytest.fixture(scope="module", name="server")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    repository = tmp_path_factory.mktemp("repository")
    for name, estimator in ESTIMATORS.items():
        export(estimator, repository, name=name, sample=X)
    with triton_server([repository], models=list(ESTIMATORS)) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: TritonServer) -> Iterator[tuple[Client, Path]]:
    with Client(server.grpc_url) as connected:
        yield connected, server.repositories[0]


def with_nan(*columns: int) -> np.ndarray:
    rows = X[:20].astype(np.float32)
    rows[::3, columns] = np.nan
    return rows


@pytest.mark.parametrize(("name", "columns"), [("boosting", (0, 1, 2, 3, 4)), ("imputed", (1, 4))])
def test_nan_is_answered(client: tuple[Client, Path], name: str, columns: tuple[int, ...]) -> None:
    rows = with_nan(*columns)
    expected = ESTIMATORS[name].predict(rows.astype(np.float64))
    np.testing.assert_allclose(client[0].predict(name, rows), expected, rtol=2e-7)


def test_over_rest_a_missing_number_is_nan_without_quotes(server: TritonServer) -> None:
    """The Triton server's own JSON reader takes no null for a number, and never asks the model."""

    def asked(number: str) -> tuple[int, str]:
        shape, numbers = [1, X.shape[1]], ", ".join([number, *map(str, range(1, X.shape[1]))])
        data = f'{{"inputs": [{{"name": "X", "datatype": "FP64", "shape": {shape}, "data": [[{numbers}]]}}]}}'
        try:
            with urlopen(f"http://{server.http_url}/v2/models/boosting/infer", data.encode()) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()

    status, answer = asked("NaN")
    assert status == 200, answer
    expected = ESTIMATORS["boosting"].predict(np.array([[np.nan, *range(1, X.shape[1])]]))
    assert json.loads(answer)["outputs"][0]["data"] == pytest.approx(expected)
    assert asked("null") == (500, '{"error":"Unable to parse \'data\': attempt to access JSON non-number as double"}')


def test_nan_in_the_snippets_of_describe(server: TritonServer) -> None:
    nothing = {r"-?\d+\.\d+(?=[],])": 'float("nan")'}
    rows, answers = run_snippets(server.repositories[0] / "boosting", server, nothing)
    assert np.isnan(rows).all()
    for found in answers:
        np.testing.assert_allclose(found["y"][:, 0], ESTIMATORS["boosting"].predict(rows), rtol=2e-7)


@pytest.mark.parametrize(
    ("name", "rows", "where"),
    [
        ("imputed", with_nan(1, 2, 4), "row 0, column 2 is nan"),
        ("boosting", np.where(np.isnan(with_nan(3)), np.inf, with_nan(1)), "row 0, column 3 is inf"),
    ],
)
def test_what_is_not_allowed_is_named(client: tuple[Client, Path], name: str, rows: np.ndarray, where: str) -> None:
    with pytest.raises(InvalidRequest, match=rf"^X must be finite: {where}\.$"):
        client[0].predict(name, rows.astype(np.float32))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_golden_rows_with_nan_verify(client: tuple[Client, Path], name: str) -> None:
    connected, repository = client
    found = verify(connected, name, repository=repository)
    assert found.passed
    assert found.rows == 20
