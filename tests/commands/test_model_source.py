"""`export` of models in MLflow, and entries written back to it; skipped without MLflow.

With all of MLflow (`pip install mlflow`) they are in a real server on loopback, with its client alone in a folder.
"""

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
import skops.io
from catboost import CatBoostRegressor
from lightgbm import LGBMRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import QuantileRegressor, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, PolynomialFeatures
from xgboost import XGBRegressor

import triton_regressors as tr
from triton_regressors import extras
from triton_regressors.__main__ import main
from triton_regressors.kernels.entry import Source, read_document
from triton_regressors.mlflow import model_registry
from triton_regressors.mlflow.mlmodel import read_mlmodel
from triton_regressors.mlflow.model_registry import Fetched

pytestmark = pytest.mark.skipif(find_spec("mlflow") is None, reason="needs mlflow: pip install mlflow-skinny")
SERVER = ("alembic", "flask", "sqlalchemy", "uvicorn")
"""Packages that MLflow's server needs and `pip install mlflow` brings, but the client mlflow-skinny does not."""
X = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 3)), columns=["b", "a", "c"])
y = X @ [1.0, -2.0, 3.0] + 5
LOW = QuantileRegressor(quantile=0.1, alpha=0).fit(X, y - X["a"])
OPTIONS = {"input_example": X[:20], "pip_requirements": ["scikit-learn"]}


@contextmanager
def serving(folder):
    """Run an MLflow server in a folder for the block, and yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", str(folder / "art")]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            while True:
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                    break
                except OSError:
                    assert server.poll() is None, (folder / "log").read_text()
                    time.sleep(0.2)
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait()


@pytest.fixture(scope="module")
def mlflow_uri(tmp_path_factory):
    """The address of a real MLflow server on loopback, or of a folder where MLflow's client alone is installed."""
    folder = tmp_path_factory.mktemp("mlflow")
    with pytest.MonkeyPatch.context() as patch, ExitStack() as kept:
        for key in ("MLFLOW_DISABLE_TELEMETRY", "DO_NOT_TRACK", "MLFLOW_ALLOW_FILE_STORE"):
            patch.setenv(key, "true")
        lacking = [package for package in SERVER if find_spec(package) is None]
        uri = f"file://{folder}/store" if lacking else kept.enter_context(serving(folder))
        patch.setenv("MLFLOW_TRACKING_URI", uri)
        yield uri


@pytest.fixture(scope="module")
def run_id(mlflow_uri):
    """The run of the model demand, a Ridge whose version 2 is a pickle, of boosted, and of one that lists a type."""
    import mlflow
    import mlflow.catboost
    import mlflow.lightgbm
    import mlflow.sklearn
    import mlflow.xgboost

    ridge, registered = Ridge().fit(X, y), {"name": "model", "registered_model_name": "demand"}
    spaced = X.rename(columns={"a": "a b"})
    with mlflow.start_run() as run:
        mlflow.sklearn.log_model(ridge, serialization_format="skops", **registered, **OPTIONS)
        mlflow.sklearn.log_model(ridge, serialization_format="cloudpickle", **registered, **OPTIONS)
        mlflow.sklearn.log_model(ridge, serialization_format="skops", **registered, **OPTIONS)
        array = OPTIONS | {"input_example": X.to_numpy()[:20]}
        mlflow.sklearn.log_model(Ridge().fit(X.to_numpy(), y), name="array", serialization_format="skops", **array)
        booster = LGBMRegressor(n_estimators=5, verbose=-1).fit(spaced, y).booster_
        mlflow.lightgbm.log_model(booster, name="boosted", **OPTIONS | {"input_example": spaced[:20]})
        xgboost = XGBRegressor(n_estimators=5).fit(X.to_numpy(), y)
        mlflow.xgboost.log_model(xgboost, name="by_xgboost", model_format="xgb", **OPTIONS)
        catboost = CatBoostRegressor(iterations=5, verbose=False, allow_writing_files=False).fit(X, y)
        mlflow.catboost.log_model(catboost, name="by_catboost", **OPTIONS)
        mlflow.sklearn.log_model(LOW, name="low", serialization_format="skops", **OPTIONS)
        listed = make_pipeline(FunctionTransformer(), Ridge()).fit(X, y)
        listed[0].func = os.path.basename
        mlflow.sklearn.log_model(
            listed,
            name="listed",
            registered_model_name="listed",
            serialization_format="skops",
            skops_trusted_types=["posixpath.basename"],
            pip_requirements=["scikit-learn"],
        )
    mlflow.MlflowClient().set_registered_model_alias("demand", "champion", "1")
    return run.info.run_id


@pytest.fixture
def export(run_id, tmp_path, monkeypatch, capsys):
    """Returns a function that runs the command in an empty folder and returns what it says, or why it ends."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")

    def run(*arguments, command="export"):
        monkeypatch.setattr(sys, "argv", ["triton-regressors", command, *map(str, arguments)])
        with pytest.raises(SystemExit) as exited:
            main()
        return exited.value.code or capsys.readouterr().out

    return run


def test_a_registered_version_becomes_the_same_version_of_an_entry_and_goes_back_to_its_run(export, run_id):
    import mlflow

    said = export("models:/demand@champion")
    assert "Wrote demand version 1 to model_repository/demand/1" in said
    assert "on 20 rows from the given sample" in said
    said = export("models:/demand/3")
    assert "Wrote demand version 3" in said
    assert "has version 3; remove that version first" in export("models:/demand/3")
    source = read_document(Path("model_repository/demand/1")).provenance.source
    assert (source.uri, source.run) == ("models:/demand/1", run_id)
    file = mlflow.artifacts.download_artifacts(artifact_uri="models:/demand/1/model.skops", dst_path="file")
    assert source.sha256 == hashlib.sha256(Path(file).read_bytes()).hexdigest()

    uri = tr.log_entry("model_repository/demand", version=1)
    assert uri == f"runs:/{run_id}/entries/demand/1"
    back = Path(mlflow.artifacts.download_artifacts(artifact_uri=f"runs:/{run_id}/entries", dst_path="back"), "demand")
    assert (back / "config.pbtxt").read_bytes() == Path("model_repository/demand/config.pbtxt").read_bytes()
    back /= "1"
    assert read_document(back).provenance.feature_names == ("b", "a", "c")  # which checks every file's digest
    parity = mlflow.artifacts.load_dict(f"runs:/{run_id}/entries/demand/parity-1.json")
    assert parity == json.loads((back / "plan.json").read_bytes())["parity"]
    tags = mlflow.MlflowClient().get_run(run_id).data.tags
    assert {key: value for key, value in tags.items() if key.startswith("triton_regressors.")} == {
        "triton_regressors.entry": "demand/1",
        "triton_regressors.entry_sha256": hashlib.sha256((back / "plan.json").read_bytes()).hexdigest(),
        "triton_regressors.source": "models:/demand/1",
        "triton_regressors.source_run": run_id,
        "triton_regressors.source_sha256": source.sha256,
    }


def test_registered_models_whose_names_fit_a_pattern_become_a_fleet(export, run_id):
    """The id is what * stands for. Of each model the newest version is taken, or the one with an alias."""
    import mlflow.sklearn

    for name, models in {
        "shop-a": (make_pipeline(PolynomialFeatures(2), Ridge()), Ridge()),
        "shop-b": (Ridge(),),
        "shop-": (Ridge(),),
    }.items():
        for model in models:
            options = OPTIONS | {"registered_model_name": name, "serialization_format": "skops"}
            mlflow.sklearn.log_model(model.fit(X, y), name="model", **options)
        mlflow.MlflowClient().set_registered_model_alias(name, "first", "1")
    said = export("--mlflow", "shop-*", "--name", "shops", "--by", "shop", command="export-fleet")
    assert "Wrote shops version 1" in said
    assert " on 40 rows from 2 models, the given sample of each\n" in said
    assert "2 models (Ridge): 1 launch" in said
    said = export("--mlflow", "shop-*@first", "--name", "shops", "--by", "shop", command="export-fleet")
    assert "2 models in 2 classes" in said
    for version in ("1", "2"):
        assert sorted(read_document(Path("model_repository/shops", version)).inputs.text[0].categories[0]) == ["a", "b"]
    said = export("--mlflow", "shop-*@last", "--name", "shops", "--by", "shop", command="export-fleet")
    assert "Cannot read shop-*@last: " in said
    said = export("--mlflow", "house-*", "--name", "shops", "--by", "shop", command="export-fleet")
    assert said == "Error: Cannot read house-*: no registered model has such a name."


def test_a_pickle_is_not_loaded_unless_it_is_trusted(export, monkeypatch):
    loaded = []
    load = joblib.load
    monkeypatch.setattr(joblib, "load", lambda path: loaded.append(path) or load(path))
    said = export("models:/demand/2")
    assert "model.pkl of models:/demand/2 is a pickle, and loading it runs whatever code is in it" in said
    assert loaded == []
    assert "Wrote trusted version 2" in export("models:/demand/2", "--trust-pickle", "--name", "trusted")
    assert len(loaded) == 1


@pytest.mark.parametrize(
    ("name", "columns", "options"),
    [
        ("array", "in training order", ()),
        ("boosted", "b, a b, c", ()),
        ("by_xgboost", "b, a, c", ("--missing", "nan")),
        ("by_catboost", "b, a, c", ()),
    ],
)
def test_a_model_of_a_run_has_its_path_s_name_and_the_signature_s_columns(export, run_id, name, columns, options):
    """LightGBM makes "a_b" of "a b", and XGBoost was given an array; MLflow ends the files in .lgb, .xgb and .cb."""
    said = export(f"runs:/{run_id}/{name}", *options)
    assert f"Wrote {name} version 1" in said
    assert f"[rows, 3]  {columns}\n" in said
    assert "on 20 rows from the given sample" in said


def test_a_logged_model_has_the_name_that_it_was_logged_under(export, run_id):
    import mlflow

    address = mlflow.MlflowClient().get_model_version("demand", "1").source
    assert address.startswith("models:/m-")
    assert "Wrote model version 1" in export(address)
    assert read_document(Path("model_repository/model/1")).provenance.source.run == run_id


def test_types_that_the_model_lists_as_trusted_are_not(export):
    assert "model.skops of models:/listed/1 holds types that are not trusted: posixpath.basename" in export(
        "models:/listed/1"
    )


def test_what_mlflow_does_not_have_is_said(export, monkeypatch):
    assert "Cannot read models:/demand/9: " in export("models:/demand/9")
    assert "models are named models:/NAME/VERSION" in export("models:/demand/latest")
    assert "Cannot ask MLflow: " in export("models:/demand/1", "--tracking-uri", "gopher://localhost")
    assert "--tracking-uri goes with a model in MLflow" in export("demand.skops", "--tracking-uri", "http://localhost")
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert "give --tracking-uri, or set MLFLOW_TRACKING_URI" in export("models:/demand/1")
    assert not Path("model_repository").exists()


def test_the_models_of_two_quantiles_are_read_as_the_model_is(export, run_id):
    """One is a run's and one a registered pickle; the model of `y` is a file."""
    skops.io.dump(Ridge(alpha=9).fit(X, y), "middle.skops")
    truth = y + np.linspace(-3, 3, len(y))
    X.assign(y=truth).to_csv("rows.csv", index=False)
    ends = ["--lower", f"runs:/{run_id}/low", "--upper", "models:/demand/2"]
    options = ["--calibrate", "rows.csv", "--level", "0.8", *ends]
    assert "Error: --upper: model.pkl of models:/demand/2 is a pickle" in export("middle.skops", *options)
    said = export("middle.skops", *options, "--trust-pickle")
    assert "Wrote middle version 1" in said
    assert "lower and upper are the answers of the two quantile models" in said
    ends = np.sort([LOW.predict(X), Ridge().fit(X, y).predict(X)], axis=0)
    scores = np.sort(np.maximum(ends[0] - truth, truth - ends[1]))
    document = read_document(Path("model_repository/middle/1"))
    assert document.interval.quantile[0] == pytest.approx(scores[48])  # ⌈61 · 0.8⌉ = 49
    assert document.provenance.source is None


def test_what_a_quantile_s_model_lacks_is_said_with_its_option(export, run_id, monkeypatch):
    XGBRegressor(n_estimators=5).fit(X[["a", "b", "c"]], y).save_model("middle.ubj")
    X.assign(y=y).to_csv("rows.csv", index=False)

    def export_with(lower, *options):
        given = ["--missing", "nan", "--calibrate", "rows.csv", "--lower", lower, "--upper", "middle.ubj", *options]
        return export("middle.ubj", *given)

    unsigned = f"runs:/{run_id}/by_xgboost"  # fitted on an array, and logged with names
    assert export_with(unsigned) == (
        f"Error: --lower: {unsigned} has other columns than middle.ubj, or in another order: b against a; fit all of "
        "them on the same table."
    )
    assert "Error: --lower: Cannot read models:/demand/9: " in export_with("models:/demand/9")
    elsewhere = export_with("models:/demand/1", "--tracking-uri", "gopher://localhost")
    assert "Error: --lower: Cannot ask MLflow: " in elsewhere
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "mlflow" else find_spec(name))
    said = export_with("models:/demand/1")
    assert "Error: --lower: Reading models:/demand/1 needs mlflow, not installed here; `pip install " in said
    assert "'triton-regressors[mlflow]'` brings it." in said
    assert not Path("model_repository").exists()


@pytest.fixture
def saved(export, tmp_path, monkeypatch):
    """Returns a function that has `fetch` find a Ridge saved with these names in its signature and in its example."""

    def save(signed, exemplified, optional=(), estimator=None):
        folder = tmp_path / "saved"
        folder.mkdir(exist_ok=True)
        skops.io.dump(estimator or Ridge().fit(X, y), folder / "model.skops")
        columns = [{"name": name, "type": "double", "required": name not in optional} for name in signed]
        rows = X.iloc[:5, : len(exemplified)].to_numpy().tolist()
        (folder / "example").write_text(json.dumps({"columns": exemplified, "data": rows}))
        whole = {
            "flavors": {"sklearn": {"pickled_model": "model.skops"}},
            "signature": {"inputs": json.dumps(columns)},
            "saved_input_example_info": {"artifact_path": "example"},
        }
        (folder / "MLmodel").write_text(json.dumps(whole))
        fetched = Fetched(read_mlmodel(folder), "saved", None, Source("models:/saved/1", "0" * 64))
        monkeypatch.setattr(model_registry, "fetch", lambda *_: fetched)

    return save


def test_a_signature_of_other_columns_is_refused_and_an_example_of_others_gives_way_to_a_sample(export, saved):
    saved(["b", "c", "a"], ["b", "a", "c"])
    said = export("models:/saved/1")
    assert said == "Error: The signature of models:/saved/1 has other columns than its estimator: c against a."
    saved(["b", "a", "c"], ["b", "a", "d"])
    said = export("models:/saved/1")
    assert "models:/saved/1: The input example lacks column 'c'" in said
    assert said.endswith("; give rows with --sample.")
    X[["c", "b", "a"]].to_csv("rows.csv", index=False)
    assert "on 60 rows from the given sample" in export("models:/saved/1", "--sample", "rows.csv")


def test_what_becomes_of_optional_columns_is_said(export, saved):
    takes_nan = make_pipeline(SimpleImputer(), Ridge()).fit(X, y)
    saved(["b", "a", "c"], ["b", "a"], ["c"], takes_nan)
    said = export("models:/saved/1")
    where = "The signature makes these columns optional, but every request to the entry must have them: "
    assert f"{where}'c' (NaN or null if it is unknown).\n" in said
    assert "on 5 rows from the given sample" in said
    saved(["b", "a", "c"], ["b", "a", "c"], ["b", "c"])
    said = export("models:/saved/1")
    refuses = "it must be known, because the model refuses NaN"
    assert f"{where}'b' ({refuses}), 'c' ({refuses}).\n" in said
    saved(["b", "a", "c"], ["b", "a"], ["c"])
    said = export("models:/saved/1")
    assert said == (
        "Error: Cannot verify Ridge: it refuses the rows of the sample (Input X contains NaN). The signature lets a "
        "table leave out 'c', which is missing in every row of the sample; give rows that have it with --sample."
    )
    saved(["b", "a", "c"], ["b", "a", "c"])
    assert "Optional" not in export("models:/saved/1")


def test_an_entry_of_no_run_needs_one_and_the_given_address_counts(run_id, mlflow_uri, tmp_path, monkeypatch):
    entry = tr.export(Ridge().fit(X, y), tmp_path, name="own").entry
    with pytest.raises(tr.RegistryError, match="Give run_id, the run that"):
        tr.log_entry(entry.directory)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "gopher://localhost")
    with pytest.raises(tr.RegistryError, match=r"^Cannot ask MLflow: "):
        tr.log_entry(entry.directory, run_id)
    with pytest.raises(tr.RegistryError, match=r"^Cannot write own/1 into run 0: "):
        tr.log_entry(entry.directory, "0", tracking_uri=mlflow_uri)
    assert tr.log_entry(entry.directory, run_id, tracking_uri=mlflow_uri) == f"runs:/{run_id}/entries/own/1"
    (entry.version_directory / "weights.safetensors").write_bytes(b"")
    with pytest.raises(tr.RegistryError, match="is not as it was exported"):
        tr.log_entry(entry.directory, run_id)
