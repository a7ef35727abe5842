"""`export --calibrate`: which columns of a file are the rows, and which the target."""

import sys

import numpy as np
import pandas as pd
import pytest
import skops.io
from sklearn.linear_model import LinearRegression, QuantileRegressor, Ridge

from triton_regressors.__main__ import main
from triton_regressors.commands.model_file import read_calibration
from triton_regressors.errors import TritonRegressorsError
from triton_regressors.kernels.entry import read_document

NAMES = ["age", "bmi", "bp"]
RANDOM = np.random.default_rng(0)
TABLE = pd.DataFrame(RANDOM.normal(size=(60, 3)), columns=NAMES)
Y = TABLE @ [1.0, -2.0, 3.0] + RANDOM.normal(size=60)
NAMED = Ridge().fit(TABLE[:30], Y[:30])
UNNAMED = Ridge().fit(TABLE[:30].to_numpy(), Y[:30])
WITH_TARGET = TABLE.assign(progression=Y)[["progression", *NAMES]]
WITH_MORE = WITH_TARGET.assign(id=range(60))


@pytest.fixture
def written(tmp_path):
    """written(rows): the file of a table, or of an array's rows."""

    def write(rows, suffix):
        path = tmp_path / f"rows{suffix}"
        if suffix == ".npy":
            np.save(path, rows)
        elif suffix == ".csv":
            rows.to_csv(path, index=False)
        else:
            rows.to_parquet(path)
        return path

    return write


@pytest.fixture
def run_here(tmp_path, capsys, monkeypatch):
    """run_here(*arguments): the command line in the folder of the files; its exit code, output and error output."""

    def run(*arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["triton-regressors", *arguments])
        with pytest.raises(SystemExit) as exited:
            main()
        out, err = capsys.readouterr()
        sentence = isinstance(exited.value.code, str)  # Python prints it, and its exit code is 1
        return (1, out, err + exited.value.code) if sentence else (exited.value.code or 0, out, err)

    return run


@pytest.mark.parametrize(
    ("estimator", "rows", "suffix", "target"),
    [
        (NAMED, WITH_TARGET, ".csv", None),
        (NAMED, WITH_TARGET, ".parquet", None),
        (NAMED, WITH_MORE, ".csv", ["progression"]),
        (NAMED, TABLE.assign(y=Y).to_numpy(), ".npy", None),
        (UNNAMED, TABLE.assign(y=Y).to_numpy(), ".npy", None),
        (UNNAMED, TABLE.assign(y=Y), ".csv", None),
        (UNNAMED, WITH_TARGET, ".parquet", ["progression"]),
    ],
)
def test_rows_and_their_target_are_found(written, estimator, rows, suffix, target):
    X, y = read_calibration(written(rows, suffix), estimator, target)
    np.testing.assert_allclose((X[NAMES] if hasattr(X, "columns") else X), TABLE)
    np.testing.assert_allclose(np.ravel(y), Y)


def test_several_targets_come_in_the_order_in_which_they_are_named(written):
    estimator = LinearRegression().fit(TABLE, np.stack([Y, -Y], axis=1))
    path = written(WITH_TARGET.assign(id=0, minus=-Y), ".csv")
    _, y = read_calibration(path, estimator, ["minus", "progression"])
    np.testing.assert_allclose(y, np.stack([-Y, Y], axis=1))


@pytest.mark.parametrize(
    ("estimator", "rows", "suffix", "target", "sentence"),
    [
        (
            NAMED,
            TABLE,
            ".csv",
            None,
            "Say with --target which column of .* besides the model's own columns it has none",
        ),
        (NAMED, WITH_MORE, ".csv", None, "it has columns 'progression', 'id'"),
        (NAMED, WITH_MORE, ".csv", ["prog"], "'prog' of .*, which is not there; .* columns 'progression', 'id'"),
        (NAMED, WITH_TARGET, ".csv", ["bmi"], "'bmi' of .*, which the model itself reads; .* column 'progression'"),
        (UNNAMED, TABLE.to_numpy(), ".npy", ["y"], "--target names column 'y', but the columns of .* have no names"),
        (UNNAMED, np.zeros(5), ".npy", None, r"has shape \(5,\); the model's columns and one for the target"),
    ],
)
def test_what_does_not_say_it_is_refused(written, estimator, rows, suffix, target, sentence):
    with pytest.raises(TritonRegressorsError, match=sentence):
        read_calibration(written(rows, suffix), estimator, target)


def test_the_command_writes_the_interval_and_says_what_it_is(written, run_here, tmp_path):
    skops.io.dump(NAMED, tmp_path / "ridge.skops")
    rows = written(WITH_TARGET[30:], ".csv")
    code, out, err = run_here(
        "export", "ridge.skops", "--calibrate", rows.name, "--level", "0.8", "--sample", rows.name
    )
    assert (code, err) == (0, "")
    assert "  output  lower  FP32  [rows, 1]  the lower end of the prediction interval\n" in out
    assert "for 80 % of new rows by split conformal prediction from the absolute residuals of 30 calibration" in out
    found = read_document(tmp_path / "model_repository/ridge/1").interval
    scores = np.sort(np.abs(Y[30:] - NAMED.predict(TABLE[30:])))
    assert found.quantile[0] == pytest.approx(scores[24])  # ⌈31 · 0.8⌉ = 25
    assert "\nPrediction interval\n" in run_here("describe", "ridge")[1]


def test_the_models_of_two_quantiles_are_read_beside_the_model(written, run_here, tmp_path):
    quantiles = {name: QuantileRegressor(quantile=q, alpha=0) for name, q in (("q10", 0.1), ("q90", 0.9))}
    for name, model in {"ridge": NAMED, **quantiles}.items():
        skops.io.dump(model.fit(TABLE[:30], Y[:30]), tmp_path / f"{name}.skops")
    rows = written(WITH_TARGET[30:], ".csv")
    options = ["--calibrate", rows.name, "--level", "0.8", "--lower", "q10.skops", "--upper", "q90.skops"]
    code, out, err = run_here("export", "ridge.skops", *options, "--sample", rows.name)
    assert (code, err) == (0, "")
    assert "  output  upper  FP32  [rows, 1]  the upper end of the prediction interval\n" in out
    assert "\nlower and upper are the answers of the two quantile models, each moved outwards by " in out
    found = read_document(tmp_path / "model_repository/ridge/1").interval
    low, high = (quantiles[name].predict(TABLE[30:]) for name in ("q10", "q90"))
    assert (low <= high).all()
    scores = np.sort(np.maximum(low - Y[30:], Y[30:] - high))
    assert found.quantile[0] == pytest.approx(scores[24])  # ⌈31 · 0.8⌉ = 25


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--lower", "ridge.skops"], "Error: --lower and --upper go together, and with --calibrate."),
        (["--lower", "a.skops", "--upper", "b.skops"], "Error: --lower and --upper go together, and with --calibrate."),
        (["--target", "y"], "Error: --target goes with --calibrate."),
        (["--level", "0.9"], "Error: level is for a prediction interval"),
        (["--calibrate", "nothing.csv"], "Error: Cannot read rows from nothing.csv: there is no such file."),
    ],
)
def test_options_that_do_not_go_together_are_one_sentence(run_here, tmp_path, arguments, sentence):
    skops.io.dump(NAMED, tmp_path / "ridge.skops")
    code, out, err = run_here("export", "ridge.skops", *arguments)
    assert (code, out) == (1, "")
    assert err.startswith(sentence)
