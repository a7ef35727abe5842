"""Scored without a server, rows have the answers and the errors that a real Triton server gives them, bit for bit."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.svm import SVR

import triton_regressors as tr
from tests.server.conftest import Unload
from tests.server.models import FEATURES, rows
from triton_regressors.clients.client.client import Client

pytestmark = pytest.mark.server


FAMILIES = {
    "loaded_forest": RandomForestRegressor(10, random_state=0),
    "loaded_boosting": HistGradientBoostingRegressor(max_iter=20),
    "loaded_svr": SVR(),
    "loaded_neighbors": KNeighborsRegressor(3),
    "loaded_network": MLPRegressor(hidden_layer_sizes=(16, 16), max_iter=20, random_state=0),
    "loaded_process": GaussianProcessRegressor(RBF(5.0), alpha=0.1, optimizer=None),
}


class Library:
    """A library of arrays with DLPack alone."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __dlpack__(self, **options: Any) -> Any:
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.tensor.__dlpack_device__()


@pytest.mark.parametrize("name", ["ridge", "bayes", "poly", "poisson", "multi", *FAMILIES])
def test_a_loaded_model_has_a_servers_bits(name: str, repository: Path, client: Client, unload: Unload) -> None:
    """Every output is compared, from every library, in any number of rows at once, on the server's device."""
    X = rows(1500, seed=6)
    if name in FAMILIES:
        seen = rows(300)
        y = seen @ np.arange(1.0, 9.0) + np.random.default_rng(1).normal(size=300)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a network that has not converged answers as well
            fitted = FAMILIES[name].fit(seen, y)
        tr.export(fitted, repository, name=name, sample=seen, calibrate=(rows(200, seed=2), y[:200]))
        client.load(name)
    model = tr.load(repository / name)
    wanted = client.infer(name, X, outputs=model.outputs)
    assert model.outputs[0] == "y"
    for given in (X, pd.DataFrame(X), pa.table(pd.DataFrame(X, columns=FEATURES)), torch.from_numpy(X), {"X": X}):
        for output, answer in model.infer(given).items():
            assert np.asarray(answer).tobytes() == wanted[output].tobytes(), (output, type(given))
    assert model.predict(Library(torch.from_numpy(X[:7]))).numpy().tobytes() == wanted["y"][:7].tobytes()
    assert model.predict(X).shape == ((len(X), 3) if name == "multi" else (len(X),))
    X[1203, 2] = np.nan
    if name not in ("loaded_forest", "loaded_boosting"):  # these two take NaN
        with pytest.raises(tr.InvalidRequest) as refused:
            client.infer(name, X)
        for given in (X, torch.from_numpy(X), Library(torch.from_numpy(X))):
            with pytest.raises(tr.InvalidRequest, match="row 1203") as also:
                model.predict(given)
            assert str(also.value) == str(refused.value)
    if name in FAMILIES:
        unload(name)


@pytest.mark.parametrize("name", ["gathered", "poly", "multi"])
def test_scores_are_a_servers_answers(name: str, repository: Path, client: Client, tmp_path: Path) -> None:
    outputs = ["y", "std"] if name == "gathered" else ["y"]
    table = pd.DataFrame(rows(2500, seed=5).astype(np.float64) + 1e-9, columns=FEATURES)
    table.to_parquet(tmp_path / "rows.parquet", index=False, row_group_size=700)
    tr.score(repository / name, tmp_path / "rows.parquet", tmp_path / "out.parquet", outputs=outputs)
    scored = pq.read_table(tmp_path / "out.parquet")
    wanted = client.infer(name, table, outputs=outputs)
    sides = np.concatenate([wanted[output] for output in outputs], axis=1)
    assert np.stack([column.to_numpy() for column in scored.columns], axis=1).tobytes() == sides.tobytes()
    table.loc[1203, "bmi"] = np.nan
    with pytest.raises(tr.InvalidRequest) as refused:
        client.infer(name, table)
    with pytest.raises(tr.InvalidRequest) as also:
        tr.load(repository / name).predict(table)
    assert "row 1203" in str(refused.value)
    assert str(also.value) == str(refused.value)
