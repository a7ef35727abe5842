"""`export` of models in a real MLflow server on loopback, and entries written back to it; skipped without MLflow."""

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from importlib.util import find_spec
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
from catboost import CatBoostRegressor
from lightgbm import LGBMRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from xgboost import XGBRegressor

import triton_regressors as tr
from triton_regressors.__main__ import main
from triton_regressors.kernels.entry import read_document

SERVER = ("alembic", "flask", "mlflow", "sqlalchemy", "uvicorn")
LACKING = [package for package in SERVER if find_spec(package) is None]
pytestmark = pytest.mark.skipif(bool(LACKING), reason=f"needs {', '.join(LACKING)}: pip install mlflow")
X = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 3)), columns=["b", "a", "c"])
y = X @ [1.0, -2.0, 3.0] + 5
OPTIONS = {"input_example": X[:20], "pip_requirements": ["scikit-learn"]}


@pytest.fixture(scope="module")
def mlflow_uri(tmp_path_factory):
    """The address of an MLflow server that lives as long as these tests do."""
    folder = tmp_path_factory.mktemp("mlflow")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", str(folder / "art")]
    environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
    with pytest.MonkeyPatch.context() as patch, (folder / "log").open("w") as log:
        for key in ("MLFLOW_DISABLE_TELEMETRY", "DO_NOT_TRACK"):
            patch.setenv(key, "true")
        patch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
        server = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
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
def run_id(mlflow_uri):
    """The run of the model demand, a Ridge whose version 2 is a pickle, of boosted, and of one that lists a type."""
    import mlflow
    import mlflow.catboost
    import mlflow.lightgbm
    import mlflow.sklearn
    import mlflow.xgboost

    ridge, registered = Ridge().fit(X, y), {"name": "model", "registered_model_name": "demand"}
    with mlflow.start_run() as run:
        mlflow.sklearn.log_model(ridge, serialization_format="skops", **registered, **OPTIONS)
        mlflow.sklearn.log_model(ridge, serialization_format="cloudpickle", **registered, **OPTIONS)
        mlflow.sklearn.log_model(ridge, serialization_format="skops", **registered, **OPTIONS)
        booster = LGBMRegressor(n_estimators=5, verbose=-1).fit(X, y).booster_
        mlflow.lightgbm.log_model(booster, name="boosted", **OPTIONS)
        xgboost = XGBRegressor(n_estimators=5).fit(X, y)
        mlflow.xgboost.log_model(xgboost, name="by_xgboost", **OPTIONS)
        catboost = CatBoostRegressor(iterations=5, verbose=False, allow_writing_files=False).fit(X, y)
        mlflow.catboost.log_model(catboost, name="by_catboost", **OPTIONS)
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

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["triton-regressors", "export", *map(str, arguments)])
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
    assert "has version 3; remove it first" in export("models:/demand/3")
    source = read_document(Path("model_repository/demand/1")).provenance.source
    assert (source.uri, source.run) == ("models:/demand/1", run_id)

    uri = tr.log_entry("model_repository/demand", version=1)
    assert uri == f"runs:/{run_id}/entries/demand/1"
    back = Path(mlflow.artifacts.download_artifacts(artifact_uri=uri, dst_path="back"))
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
    ("name", "options"), [("boosted", ()), ("by_xgboost", ("--missing", "nan")), ("by_catboost", ())]
)
def test_a_booster_s_own_file_in_a_run_has_its_path_s_name(export, run_id, name, options):
    """MLflow ends LightGBM's in .lgb and CatBoost's in .cb."""
    said = export(f"runs:/{run_id}/{name}", *options)
    assert f"Wrote {name} version 1" in said
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
    assert not Path("model_repository").exists()
