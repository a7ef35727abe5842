"""Scored without a server, rows have the answers and the errors that a real Triton server gives them, bit for bit."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import triton_regressors as tr
from tests.server.models import FEATURES, rows
from triton_regressors.clients.infer import Client

pytestmark = pytest.mark.server


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
