"""Columns of dates in process and in files: pandas, pyarrow, .parquet and .csv, in every unit."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import triton_regressors as tr
from tests.exporter.dated import fitted, orders
from triton_regressors.clients.errors import InvalidRequest

TABLES = {None: orders(), "Europe/Berlin": orders(zone="Europe/Berlin")}


@pytest.fixture(scope="module", name="entries")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str | None, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {
        zone: tr.export(fitted(table), folder, name=f"orders{place}", sample=table).entry.directory
        for place, (zone, table) in enumerate(TABLES.items())
    }


@pytest.mark.parametrize("zone", TABLES)
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_tables(entries: dict[str | None, Path], zone: str | None, unit: str) -> None:
    model, table = tr.load(entries[zone], device="cpu"), TABLES[zone]
    wanted = model.predict(table)
    np.testing.assert_allclose(wanted, fitted(table).predict(table), rtol=2e-6)
    column = table["ordered"].dt.as_unit(unit)
    arrow = pa.Table.from_pandas(table).set_column(1, "ordered", pa.array(column, pa.timestamp(unit, zone)))
    tables: list[Any] = [table.assign(ordered=column), arrow, arrow.to_batches()[0]]
    if zone is None:
        tables.append({name: table[name].to_numpy() for name in table} | {"ordered": column.to_numpy()})
    assert all(model.predict(rows).tobytes() == wanted.tobytes() for rows in tables)


def test_refused_tables(entries: dict[str | None, Path]) -> None:
    naive, aware = (tr.load(entries[zone], device="cpu") for zone in TABLES)
    with pytest.raises(InvalidRequest, match="column 'ordered' must be dates: it has the time zone Europe/Berlin"):
        naive.predict(TABLES["Europe/Berlin"])
    with pytest.raises(InvalidRequest, match="must be dates: it has no time zone"):
        aware.predict(pa.Table.from_pandas(TABLES[None]))


@pytest.mark.parametrize("zone", TABLES)
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_files(entries: dict[str | None, Path], tmp_path: Path, zone: str | None, suffix: str) -> None:
    path, table = tmp_path / f"rows{suffix}", TABLES[zone]
    table.to_csv(path, index=False) if suffix == ".csv" else table.to_parquet(path)
    tr.score(entries[zone], path, tmp_path / "answers.parquet", keep=["ordered"], device="cpu")
    found = pq.read_table(tmp_path / "answers.parquet")
    assert found["y"].to_numpy().tobytes() == tr.load(entries[zone], device="cpu").predict(table).tobytes()
    kept = found["ordered"].to_pandas()
    assert pd.to_datetime(kept, utc=zone is not None).tolist() == table["ordered"].tolist()


def test_wrong_cells(entries: dict[str | None, Path], tmp_path: Path) -> None:
    rows = orders(6).astype({"ordered": str})
    rows.loc[2, "ordered"], rows.loc[4, "ordered"] = "31.01.2026", "2026-01-31T00:00Z"
    path, answers = tmp_path / "rows.csv", tmp_path / "answers.parquet"
    rows.to_csv(path, index=False)
    with pytest.raises(
        tr.TritonRegressorsError, match=r"column 'ordered' must be dates: it holds '31[.]01[.]2026' in row 2"
    ):
        tr.score(entries[None], path, answers, device="cpu")
    result = tr.score(entries[None], path, answers, errors="row", device="cpu")
    assert result.listed is not None
    assert "with an offset from UTC" in result.listed.read_text()
    assert pd.read_parquet(answers)["y"].isna().tolist() == [False, False, True, False, True, False]
    rows.to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(tr.TritonRegressorsError, match="column 'ordered' must be dates: it is of type"):
        tr.score(entries[None], tmp_path / "rows.parquet", tmp_path / "others.parquet", device="cpu")
