"""A stacked predictor of AutoGluon on a real Triton server, asked by the user's own table over gRPC and HTTP.

AutoGluon wants an older pandas than the other tests have: `make autogluon` runs these in an environment of their own.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.servers import triton_server
from triton_regressors import export
from triton_regressors.clients.client.client import Client
from triton_regressors.clients.server.triton_server import TritonServer
from triton_regressors.clients.verify import verify

tabular = pytest.importorskip("autogluon.tabular", reason="AutoGluon is not installed: make autogluon runs these tests")
tables = pytest.importorskip("plotly.data", reason="plotly, which brings the table, is not installed")

pytestmark = [pytest.mark.server, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(3600)]
TOLERANCE = 1e-5
KINDS: dict[str, dict[str, Any]] = {
    "GBM": {"num_boost_round": 80},
    "CAT": {"iterations": 60},
    "XGB": {"n_estimators": 60},
    "RF": {"n_estimators": 20},
    "NN_TORCH": {"num_epochs": 5},
}


def countries() -> pd.DataFrame:
    """Return the life expectancy of 142 countries every five years, beside strings, dates and missing cells."""
    table = tables.gapminder(return_type="pandas")[["country", "continent", "year", "pop", "gdpPercap", "lifeExp"]]
    table["year"] = pd.to_datetime(table["year"].astype(str) + "-07-01")
    rng = np.random.default_rng(0)
    for column in ("continent", "year", "gdpPercap"):
        table.loc[rng.random(len(table)) < 0.05, column] = None
    return table


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("autogluon")


@pytest.fixture(scope="module")
def asked() -> pd.DataFrame:
    """Return rows that were not fitted, the last ones with cells that no fitted row has."""
    table = countries().drop(columns="lifeExp")[::4].reset_index(drop=True)
    table.loc[table.index[-3:], "country"] = ["Atlantis", "", None]
    table.loc[table.index[-1], "year"] = pd.Timestamp("1911-02-03 04:05:06")
    return table


@pytest.fixture(scope="module")
def predictor(folder: Path) -> Any:
    table = countries()
    made = tabular.TabularPredictor("lifeExp", problem_type="regression", path=str(folder / "predictor"), verbosity=0)
    bagged: dict[str, Any] = {"num_bag_folds": 2, "num_stack_levels": 1, "dynamic_stacking": False}
    inside = {"fold_fitting_strategy": "sequential_local"}
    rows = table[np.arange(len(table)) % 4 > 0]
    return made.fit(rows, hyperparameters=KINDS, num_cpus=1, num_gpus=0, ag_args_ensemble=inside, **bagged)


@pytest.fixture(scope="module")
def server(predictor: Any, asked: pd.DataFrame, folder: Path, numpy1: None) -> Iterator[TritonServer]:
    export(predictor, folder / "models", name="countries", sample=asked)
    with triton_server([folder / "models"], startup_timeout_s=240) as running:
        yield running


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_the_server_answers_what_predict_does_whatever_the_batch(predictor, asked, server, protocol):
    expected = predictor.predict(asked, as_pandas=False).astype(np.float64)
    url = server.grpc_url if protocol == "grpc" else server.http_url
    with Client(url, protocol) as client:
        together = client.predict("countries", asked)
        error = np.abs(together - expected).max()
        assert error <= TOLERANCE * expected.std(), f"{error / expected.std():.1e} standard deviations"
        for size in (1, 7, 100):
            parts = [asked[start : start + size] for start in range(0, min(40 * size, len(asked)), size)]
            found = np.concatenate([client.predict("countries", part) for part in parts])
            assert (found == together[: len(found)]).all()


def test_its_golden_rows_pass(server, folder):
    with Client(server.grpc_url) as client:
        assert verify(client, folder / "models" / "countries").passed
