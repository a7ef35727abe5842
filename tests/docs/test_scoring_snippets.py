"""The snippets of docs/scoring.md for Ray and Spark: their calls to these, as stand-ins note them."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.exporter.catalogue.cases import CASES
from triton_regressors import export

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "scoring.md").read_text()


def snippet(name: str) -> str:
    (found,) = (text for text in re.findall(r"(?s)```python\n(.*?)```", PAGE) if f"it needs {name}." in text)
    return found


@pytest.fixture
def entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The rows of an entry of three inputs, which has the name that the snippets use."""
    model, X = CASES["strings-two-groups"].fitted()
    export(model, tmp_path / "model_repository", name="diabetes", sample=X)
    monkeypatch.chdir(tmp_path)
    return X


@pytest.mark.parametrize(
    ("resources", "asks", "actors"),
    [
        ({"CPU": 8.0}, {"num_cpus": 1}, 7),
        ({"CPU": 1.0}, {"num_cpus": 1}, 1),
        ({"CPU": 8.0, "GPU": 2.0}, {"num_gpus": 1}, 2),
    ],
)
def test_rays_actors_ask_for_a_gpu_where_there_is_one(
    entry: Any, monkeypatch: pytest.MonkeyPatch, resources: dict[str, float], asks: dict[str, int], actors: int
) -> None:
    noted: dict[str, Any] = {}

    def map_batches(_: Any, **options: Any) -> Any:
        noted.update(options)
        return SimpleNamespace(write_parquet=lambda _: None)

    ray = ModuleType("ray")
    rows = SimpleNamespace(map_batches=map_batches)
    data = SimpleNamespace(read_parquet=lambda _: rows, ActorPoolStrategy=lambda size: size)
    vars(ray).update(init=lambda: None, cluster_resources=lambda: resources, data=data)
    monkeypatch.setitem(sys.modules, "ray", ray)
    text = snippet("Ray").replace('keep=["id"]', "keep=[]")
    exec(compile(text, "docs/scoring.md", "exec"), {})
    assert {name: value for name, value in noted.items() if name.startswith("num_")} == asks
    assert noted["compute"] == actors


def test_sparks_function_gets_the_columns_of_every_input(entry: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    written = SimpleNamespace(write=SimpleNamespace(parquet=lambda _: None))
    rows = SimpleNamespace(withColumn=lambda _, column: written)
    session = SimpleNamespace(read=SimpleNamespace(parquet=lambda _: rows))
    sql, functions = ModuleType("pyspark.sql"), ModuleType("pyspark.sql.functions")
    vars(sql)["SparkSession"] = SimpleNamespace(builder=SimpleNamespace(getOrCreate=lambda: session))

    def struct(*columns: str) -> None:
        asked.extend(columns)

    vars(functions).update(pandas_udf=lambda _: lambda function: function, struct=struct)
    for name, module in (("pyspark", ModuleType("pyspark")), (sql.__name__, sql), (functions.__name__, functions)):
        monkeypatch.setitem(sys.modules, name, module)
    space: dict[str, Any] = {"__name__": "snippet"}
    exec(compile(snippet("Spark"), "docs/scoring.md", "exec", dont_inherit=True), space)
    assert len(space["model"].inputs) == 3
    assert sorted(asked) == ["age", "city", "income", "job"]
    (y,) = space["prediction"]([entry[asked]])
    assert np.isfinite(y).all()
    assert len(y) == len(entry)


def test_dasks_function_keeps_columns_and_takes_partitions_without_rows(
    entry: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Any] = []

    def map_partitions(function: Any, meta: dict[str, str]) -> Any:
        table = entry.assign(id=range(len(entry)))
        found.extend(function(part).astype(meta) for part in (table, table[:0]))
        return SimpleNamespace(to_parquet=lambda _: None)

    dask, frame = ModuleType("dask"), ModuleType("dask.dataframe")
    vars(frame)["read_parquet"] = lambda _: SimpleNamespace(map_partitions=map_partitions)
    vars(dask)["dataframe"] = frame
    monkeypatch.setitem(sys.modules, "dask", dask)
    monkeypatch.setitem(sys.modules, "dask.dataframe", frame)
    exec(compile(snippet("Dask"), "docs/scoring.md", "exec"), {})
    whole, none = found
    assert (list(whole.columns), len(whole), len(none)) == (["id", "y"], len(entry), 0)
    assert np.isfinite(whole["y"]).all()
