"""A .csv's empty cells in columns of strings: missing, as in the same rows' .parquet, to commands and to the entry."""

import sys

import numpy as np
import pandas as pd
import pytest
import skops.io
from sklearn.compose import make_column_transformer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import triton_regressors as tr
from triton_regressors.__main__ import main
from triton_regressors.clients.rows import read_tensors
from triton_regressors.commands.model_file import read_rows
from triton_regressors.kernels.entry import read_document
from triton_regressors.scoring.entry_choice import read_config

RANDOM = np.random.default_rng(0)
ROWS = pd.DataFrame({"area": RANDOM.normal(80, 20, 90), "city": RANDOM.choice(["Bonn", "Ulm", None], 90)})
PRICE = ROWS["area"] + ROWS["city"].map({"Bonn": 100.0, "Ulm": 200.0}).fillna(-500.0) + RANDOM.normal(size=90) / 100


def fitted(table):
    encoder = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["city"]), remainder="passthrough")
    return make_pipeline(encoder, Ridge(1e-3)).fit(table[:45], PRICE[:45])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    skops.io.dump(fitted(ROWS), tmp_path / "houses.skops")
    held = ROWS[45:].assign(price=PRICE[45:])
    held.to_csv(tmp_path / "held.csv", index=False)
    held.to_parquet(tmp_path / "held.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["triton-regressors", *map(str, arguments)])
    with pytest.raises(SystemExit) as exited:
        main()
    assert not exited.value.code, exited.value.code


def test_a_csv_is_the_sample_and_the_calibration_that_the_same_parquet_is(folder, monkeypatch):
    found = {}
    for kind in ("csv", "parquet"):
        held = folder / f"held.{kind}"
        run(monkeypatch, "export", "houses.skops", "--name", kind, "--sample", held, "--calibrate", held)
        document = read_document(folder / "model_repository" / kind / "1")
        found[kind] = document.interval.quantile, document.parity.outputs["y"].max_error
    assert found["csv"][0] == pytest.approx(found["parquet"][0])
    assert found["csv"][0][0] < 0.1
    assert max(error for _, error in found.values()) < 1e-5


def test_predict_and_score_answer_a_csv_as_the_same_parquet(folder, monkeypatch):
    entry = tr.export(fitted(ROWS), folder / "models", name="houses", sample=ROWS).entry.directory
    config = read_config(entry)
    csv, parquet = (read_tensors(folder / f"held.{kind}", config) for kind in ("csv", "parquet"))
    assert (csv["onehotencoder"] == b"").any()
    for name, array in csv.items():
        np.testing.assert_array_equal(array, parquet[name])
    for kind in ("csv", "parquet"):
        tr.score(entry, folder / f"held.{kind}", folder / f"{kind}.out.parquet")
    of_csv, of_parquet = (pd.read_parquet(folder / f"{kind}.out.parquet")["y"] for kind in ("csv", "parquet"))
    np.testing.assert_array_equal(of_csv, of_parquet)
    np.testing.assert_allclose(of_csv, fitted(ROWS).predict(ROWS[45:]), rtol=1e-6)


@pytest.mark.parametrize("missing", [None, np.nan, ""])
def test_an_empty_cell_is_what_the_estimator_was_fitted_with(tmp_path, missing):
    cells = ROWS["city"].astype(object).where(ROWS["city"].notna(), missing).tolist()
    estimator = fitted(pd.DataFrame({"area": ROWS["area"], "city": np.array(cells, dtype=object)}, dtype=object))
    ROWS.to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "words.csv").write_text("area,city\n1,NA\n2, Bonn\n3,\n")
    for name in ("rows.csv", "words.csv"):
        cells = read_rows(tmp_path / name, estimator)["city"].tolist()
        empty = {repr(cell) for cell in cells if cell in ("", None) or cell != cell}
        assert empty == {repr(missing)}
    assert read_rows(tmp_path / "words.csv", estimator)["city"].tolist()[:2] == ["NA", " Bonn"]
    table = read_rows(tmp_path / "rows.csv", estimator)
    np.testing.assert_allclose(estimator.predict(table)[:45], PRICE[:45], atol=1)
