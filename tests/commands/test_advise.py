"""`describe --advise`, as a user types it."""

import json
import os
import subprocess
import sys
from pathlib import Path

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
from triton_regressors.advise import measured_models, timing


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    directory = tmp_path_factory.mktemp("advise")
    X = np.random.default_rng(0).normal(size=(60, 4))
    skops.io.dump(Ridge().fit(X, X[:, 0]), directory / "my ridge.skops")
    table = pd.DataFrame({"city": ["Rome", "Oslo", "Bern"] * 20, "size": X[:, 0]})
    houses = make_pipeline(make_column_transformer((OneHotEncoder(), ["city"]), remainder="passthrough"), Ridge())
    tr.export(houses.fit(table, X[:, 1]), directory / "model_repository", name="houses", sample=table)
    skops.io.dump(houses, directory / "houses.skops")
    return directory


@pytest.fixture
def describe(folder, capsys, monkeypatch):
    """Returns a function that runs `describe` and returns its output and its error."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(timing, "ENOUGH_S", 0.0)
    monkeypatch.setattr(timing, "LONGEST_S", 0.02)

    def run(*arguments, columns=80):
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr(sys, "argv", ["triton-regressors", "describe", *arguments])
        with pytest.raises(SystemExit) as exited:
            main()
        return capsys.readouterr().out, exited.value.code

    return run


def test_a_file_piped_has_the_times_the_advice_and_the_command(folder):
    command = [sys.executable, "-m", "triton_regressors", "describe", "my ridge.skops", "--advise"]
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "my ridge (Ridge)"
    assert lines[2].startswith("Measured on this machine (")
    assert lines[3].split("  ")[-1].strip() == "scikit-learn"
    assert [line.split()[0] for line in lines[4:9]] == ["1", "64", "1,024", "16,384", "65,536"]
    assert {"Advice", "Settings"} <= set(lines)
    assert "    triton-regressors export 'my ridge.skops' \\" in lines
    assert all(len(line) <= 80 for line in lines)
    assert "\x1b" not in done.stdout


def test_an_entry_is_timed_on_its_golden_rows_without_its_estimator(describe):
    out, code = describe("houses", "--advise")
    assert code == 0
    assert "scikit-learn" not in out.split("\n\n")[1]
    assert "engine torch" in out
    assert "Settings in config.pbtxt" in out
    assert "max_batch_size: " in out.split("Settings")[1]


def test_a_model_of_columns_and_strings_is_asked_as_it_was_fitted(describe):
    out, code = describe("houses.skops", "--advise")
    assert code == 0
    assert "scikit-learn" in out.split("\n\n")[1]


def test_the_nearest_measured_model_and_own_prices_are_taken(describe, monkeypatch):
    times = {"triton": {"1": 12.0, "64": 14.0}, "onnxruntime": {"1": 5.0}}
    like = {"title": "Ridge, 8 features", "operation": "affine", "parameters": 9, "n_features": 8, "us": times}
    monkeypatch.setattr(measured_models, "TABLE", Path("table.json"))
    measured_models.TABLE.write_text(
        json.dumps({"device": "NVIDIA H200", "cores": 16, "models": [like]}), encoding="utf-8"
    )
    out, _ = describe("my ridge.skops", "--advise", "--gpu-price", "1.5", "--cpu-price", "0.25")
    said = " ".join(out.split())
    assert "Measured on another: NVIDIA H200, 16 cores" in said
    assert "The most similar measured model, not yours: Ridge, 8 features." in said
    assert "on an NVIDIA H200 at $1.50 an hour" in said
    assert "at $0.25 (as given)" in said


def test_prices_without_advice_are_refused(describe):
    out, code = describe("my ridge.skops", "--gpu-price", "1.5")
    assert (out, code) == ("", "Error: --gpu-price and --cpu-price go with --advise.")
