"""The command `score`: what it says on stderr, and that it reads what a shell gives it."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge
from typer.testing import CliRunner

import triton_regressors as tr
from triton_regressors.__main__ import make_app


@pytest.fixture(name="X")
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    """A folder with an entry in two versions, and two files of its rows."""
    monkeypatch.chdir(tmp_path)
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 3)), columns=list("abc"))
    for alpha in (1, 100):
        tr.export(Ridge(alpha).fit(X, X.sum(axis=1)), name="sums", sample=X)
    for number in (1, 2):
        X.assign(id=range(60)).iloc[:, ::-1].to_parquet(f"{number}.parquet")
    return X


def test_it_says_what_it_wrote_and_what_was_refused(X: pd.DataFrame) -> None:
    run = CliRunner()
    options = ["--keep", "id", "--version", "1"]
    done = run.invoke(make_app(), ["score", "sums", "1.parquet", "2.parquet", "out.parquet", *options])
    assert done.exit_code == 0, done.output
    assert done.stderr.startswith("Wrote 120 rows of 2 files to out.parquet with sums version 1: 120 rows in ")
    told = re.fullmatch(
        r"120 rows in ([\d.,]+) s, ([\d,]+) rows/s with loading, reading, writing and joining; computing took "
        r"([\d.e-]+) s, ([\d,]+) rows/s \(torch on the CPU\)\.\n",
        done.stderr.partition("version 1: ")[2],
    )
    assert told is not None, done.stderr
    whole, computing = float(told[1]), float(told[3])
    assert computing <= whole + 0.05
    assert float(told[4].replace(",", "")) >= float(told[2].replace(",", ""))
    first = pd.read_parquet("out.parquet")
    assert first["id"].tolist() == [*range(60), *range(60)]
    assert first["y"].tolist() == 2 * tr.load("model_repository/sums", version=1).predict(X).tolist()
    X.assign(b=np.where(X.index == 7, np.inf, X["b"])).to_csv("3.csv", index=False)
    done = run.invoke(make_app(), ["score", "sums", "[1-3].*", "out", "--errors", "row"])
    assert "to out with sums version 2: 180 rows in " in done.stderr
    assert "\nRefused 1 row, whose outputs are empty: " in done.stderr
    assert "row 7, column 1 ('b') is inf" in Path("out.refused.csv").read_text()
    assert sorted(path.name for path in Path("out").iterdir()) == ["1.parquet", "2.parquet", "3.parquet"]
    done = run.invoke(make_app(), ["score", "sums", "3.csv", "1.parquet", "out2", "--errors", "file"])
    assert "\nLeft out 1 file:\n  " in done.stderr
    done = run.invoke(make_app(), ["score", "sums", "3.csv", "out3.parquet"])
    assert isinstance(done.exception, tr.ScoringError)
