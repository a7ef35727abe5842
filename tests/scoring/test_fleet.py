"""Files and tables with ids among their columns, scored by a fleet: as its models, with errors that name the row."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import triton_regressors as tr
from tests.exporter.fleets import regions, whole
from tests.exporter.fleets.fleets import COLUMNS, ridges, table
from triton_regressors.scoring import files, predictor
from triton_regressors.scoring.errors import ScoringError

MODELS, ROWS, UNKNOWN = ridges(5), 1000, 777
Write = Callable[[pd.DataFrame, str], Path]


def numbered(name: str) -> int:
    return int(name.removeprefix("shop-"))


X = table(MODELS, ROWS)[["x3", "shop", "x0", "x1", "x2", "x4", "x5"]]
Y = np.concatenate([MODELS[name].predict(X.loc[[row], COLUMNS]) for row, name in enumerate(X["shop"])])
TABLES = {"strings": X, "numbers": X.assign(shop=X["shop"].map(numbered))}
NOBODY = {"strings": "nobody", "numbers": 99}


@pytest.fixture(scope="module", name="entries")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A fleet with strings as ids, one with whole numbers, and one that has a default."""
    directory = tmp_path_factory.mktemp("fleets")
    numbers = {numbered(name): model for name, model in MODELS.items()}
    tr.export_fleet(MODELS, directory, name="strings", by="shop")
    tr.export_fleet(numbers, directory, name="numbers", by="shop")
    tr.export_fleet(numbers, directory, name="default", by="shop", default=3)
    return {path.name: path for path in directory.iterdir()}


@pytest.fixture(name="write")
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a table of four parts."""
    monkeypatch.setattr(files.plan_parts, "__defaults__", (250,))

    def write(rows: pd.DataFrame, kind: str) -> Path:
        path = tmp_path / f"rows.{kind}"
        rows.to_csv(path, index=False) if kind == "csv" else rows.to_parquet(path, index=False, row_group_size=100)
        return path

    return write


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize("name", TABLES)
def test_files_have_ids_among_their_columns(
    entries: dict[str, Path], name: str, kind: str, write: Write, tmp_path: Path
) -> None:
    """Answers are those of `predict` to the bit, and the column of ids may be kept."""
    rows = TABLES[name]
    done = tr.score(entries[name], write(rows, kind), tmp_path / "out.parquet", keep=["shop"])
    found = pd.read_parquet(tmp_path / "out.parquet")
    assert (done.rows, done.empty) == (ROWS, 0)
    assert found["shop"].tolist() == rows["shop"].tolist()
    assert found["y"].to_numpy().tobytes() == tr.load(entries[name]).predict(rows).tobytes()
    np.testing.assert_allclose(found["y"], Y, rtol=0, atol=1e-5 * Y.std())


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize("name", TABLES)
def test_an_unknown_id_is_named_with_its_row_of_the_file(
    entries: dict[str, Path], name: str, kind: str, write: Write, tmp_path: Path
) -> None:
    rows = TABLES[name].copy()
    rows.loc[[UNKNOWN, ROWS - 1], "shop"] = NOBODY[name]
    path, out = write(rows, kind), tmp_path / "out.parquet"
    says = f"{path}: shop must name a model of this fleet: row {UNKNOWN} is {NOBODY[name]!r}."
    with pytest.raises(ScoringError) as refusal:
        tr.score(entries[name], path, out)
    assert str(refusal.value).startswith(says)
    done = tr.score(entries[name], path, out, errors="row", restart=True)
    assert done.empty == 2
    listed = pd.read_csv(str(done.listed))
    assert listed["row"].tolist() == [UNKNOWN, ROWS - 1]
    assert f"{path}: {listed['reason'][0]}" == says
    found = pd.read_parquet(out)["y"]
    assert np.flatnonzero(found.isna()).tolist() == [UNKNOWN, ROWS - 1]
    known = found.notna()
    np.testing.assert_allclose(found[known], Y[known], rtol=0, atol=1e-5 * Y.std())


def test_ids_may_have_several_columns(write: Write, tmp_path: Path) -> None:
    """A file has all of them; a row with an unknown id is named with its row of the file."""
    entry = tr.export_fleet(regions.fleet(), tmp_path, name="regions", by=regions.BY).entry.directory
    rows = pd.concat([regions.HISTORY.drop(columns="sold")] * 2, ignore_index=True)
    out = tmp_path / "out.parquet"
    tr.score(entry, write(rows, "csv"), out, keep=regions.BY)
    found = pd.read_parquet(out)
    assert found[regions.BY].equals(rows[regions.BY])
    assert found["y"].to_numpy().tobytes() == tr.load(entry).predict(rows).tobytes()
    rows.loc[333, "region"] = "west"
    done = tr.score(entry, write(rows, "parquet"), tmp_path / "refused.parquet", errors="row")
    (reason,) = pd.read_csv(str(done.listed))["reason"]
    assert reason.startswith(f"region, shop must name a model of this fleet: row 333 is 'west', {rows['shop'][333]}.")


def test_a_default_answers_unknown_ids_and_the_output_says_so(
    entries: dict[str, Path], write: Write, tmp_path: Path
) -> None:
    rows = TABLES["numbers"].copy()
    rows.loc[[UNKNOWN], "shop"] = 99
    tr.score(entries["default"], write(rows, "parquet"), tmp_path / "out.parquet", outputs=["y", "model_used"])
    found = pd.read_parquet(tmp_path / "out.parquet")
    assert found["model_used"].tolist() == [3 if each == 99 else each for each in rows["shop"]]
    assert found["y"][UNKNOWN] == pytest.approx(MODELS["shop-3"].predict(X.loc[[UNKNOWN], COLUMNS])[0], abs=1e-3)


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_columns_beside_the_ids_may_be_whole_numbers_too(kind: str, write: Write, tmp_path: Path) -> None:
    models = whole.fleet("error")
    entry = tr.export_fleet(models, tmp_path, name="whole", by="shop", samples=whole.samples()).entry.directory
    parts = [whole.rows(place, 90).assign(shop=shop) for place, shop in enumerate(models)]
    rows = pd.concat(parts, ignore_index=True).sample(frac=1, random_state=0, ignore_index=True)
    out = tmp_path / "out.parquet"
    tr.score(entry, write(rows, kind), out, keep=["shop"])
    found, answers = pd.read_parquet(out), tr.load(entry).predict(rows)
    assert found["shop"].tolist() == rows["shop"].tolist()
    assert found["y"].to_numpy().tobytes() == answers.tobytes()
    own = [models[shop].predict(rows.loc[[row], whole.COLUMNS])[0] for row, shop in enumerate(rows["shop"])]
    np.testing.assert_allclose(answers, own, rtol=1e-5, atol=1e-5)
    rows.loc[333, "shop"] = whole.ARTICLE
    rows.loc[444, "article"] = whole.ARTICLE + 99
    done = tr.score(entry, write(rows, kind), tmp_path / "refused.parquet", errors="row")
    listed = pd.read_csv(str(done.listed))
    assert listed["row"].tolist() == [333, 444]
    assert listed["reason"][0].startswith(f"shop must name a model of this fleet: row 333 is {whole.ARTICLE}.")
    assert listed["reason"][1].startswith(f"integers must hold categories that the model {rows['shop'][444]} was")


@pytest.mark.parametrize("name", TABLES)
def test_folders_may_state_the_ids(entries: dict[str, Path], name: str, tmp_path: Path) -> None:
    """A data set that is partitioned by shop has no column of ids in its files."""
    for each, rows in TABLES[name].groupby("shop"):
        (tmp_path / f"rows/shop={each}").mkdir(parents=True)
        rows.drop(columns="shop").to_parquet(tmp_path / f"rows/shop={each}/a.parquet", index=False)
    tr.score(entries[name], tmp_path / "rows", tmp_path / "out.parquet", keep=["shop"])
    found = pd.read_parquet(tmp_path / "out.parquet")
    in_order = TABLES[name].assign(y=Y).groupby("shop").head(ROWS).sort_values("shop", kind="stable")
    assert found["shop"].tolist() == in_order["shop"].tolist()
    np.testing.assert_allclose(found["y"], in_order["y"], rtol=0, atol=1e-5 * Y.std())


@pytest.mark.parametrize("name", TABLES)
def test_a_predictor_takes_batches_of_any_kind(entries: dict[str, Path], name: str) -> None:
    """Ray gives mappings of arrays, in which strings are objects, and tables of pyarrow."""
    rows, answer = TABLES[name], predictor(entries[name], keep=["shop"])()
    expected = tr.load(entries[name]).predict(rows)
    batch: dict[str, Any] = {column: rows[column].to_numpy() for column in rows}
    objects = {**batch, "shop": batch["shop"].astype(object)}
    for given in (rows, pa.Table.from_pandas(rows), batch, objects):
        found = answer(given)
        assert np.asarray(found["y"]).tobytes() == expected.tobytes()
        assert list(map(str, found["shop"])) == list(map(str, rows["shop"]))


def test_ray_scores_a_fleet(entries: dict[str, Path], write: Write, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'triton-regressors[ray]'")
    import ray

    tr.score(entries["strings"], write(X, "parquet"), tmp_path / "out.parquet", keep=["shop"], ray="local", workers=1)
    expected = tr.load(entries["strings"]).predict(X)
    assert pd.read_parquet(tmp_path / "out.parquet")["y"].to_numpy().tobytes() == expected.tobytes()
    ray.init("local", num_cpus=2, ignore_reinit_error=True)
    answers = (
        ray.data.read_parquet(str(write(X, "parquet")))
        .map_batches(predictor(entries["strings"], keep=["shop", "x0"]), batch_size=100, concurrency=1)
        .to_pandas()
        .set_index(["shop", "x0"])
    )
    whole = X.assign(y=expected).set_index(["shop", "x0"])["y"]
    assert answers.loc[whole.index, "y"].tolist() == whole.tolist()
    ray.shutdown()
