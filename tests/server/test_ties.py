"""Neighbours at equal distance behind the real server: the points that scikit-learn's tree takes, in any batch."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tests.server.conftest import Unload
from tests.server.models import KERNELS
from triton_regressors import export
from triton_regressors.clients.client.client import Client

pytestmark = pytest.mark.server

ESTIMATORS = {
    "kd_tree": KNeighborsRegressor(),
    "ball_tree": make_pipeline(StandardScaler(), KNeighborsRegressor(algorithm="ball_tree", weights="distance")),
}


@pytest.mark.parametrize("engine", ["torch", KERNELS])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_server_takes_scikit_learns_points(
    repository: Path, client: Client, unload: Unload, name: str, engine: str
) -> None:
    rng = np.random.default_rng(0)
    table, rows = rng.integers(0, 4, (100, 2)).astype(np.float64), rng.integers(-1, 5, (200, 2)).astype(np.float64)
    estimator = ESTIMATORS[name].fit(table, rng.standard_normal(100))
    entry = f"ties_{name}_{engine}"
    rows = rows[:8] if engine == "interpret" else rows  # the interpreter is slow for each row
    export(estimator, repository, name=entry, sample=rows, engine=engine, max_batch_size=len(rows))
    client.load(entry)
    found = client.predict(entry, rows)
    assert np.abs(found - estimator.predict(rows)).max() < 1e-6
    alone = np.concatenate([client.predict(entry, row[None]) for row in rows[:3]])
    assert alone.tobytes() == found[:3].tobytes()
    unload(entry)
