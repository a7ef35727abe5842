"""The table of measured models: which is nearest, and how it is made of a benchmark's results."""

import json

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.linear_model import Ridge

from triton_regressors import measured
from triton_regressors.advise.measured_models import Shape, nearest, shape_of, small_table
from triton_regressors.exporter.compile import compile_estimator


def timing(us):
    return {"median_us": us, "p10_us": us}


def model(title, operation, parameters, n_features):
    points = [
        {"rows": 1, "timings": {"triton": timing(12.0), "scikit-learn, float64": timing(80.0)}, "wrong": {}},
        {"rows": 64, "timings": {"triton": timing(13.0), "scikit-learn, float64": timing(99.0)}, "wrong": {}},
    ]
    points[1]["timings"]["scikit-learn, 16 threads"] = timing(50.0)
    return {
        "title": title,
        "operation": operation,
        "parameters": parameters,
        "n_features": n_features,
        "points": points,
        "without": {"onnxruntime": "it is not here"},
    }


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A table as `benchmarks.figures.tables` makes it of results."""
    families = [
        {"models": [model("small", "affine", 9, 8), model("large", "affine", 513, 512)]},
        {"models": [model("trees", "tree_ensemble", 100_000, 64)]},
    ]
    document = {"environment": {"device": "A GPU", "cores": 16}, "families": families}
    monkeypatch.setattr(measured, "TABLE", tmp_path / "worth.json")
    measured.TABLE.write_text(json.dumps(small_table(document)), encoding="utf-8")


@pytest.mark.usefixtures("table")
def test_of_each_library_the_fastest_way_is_kept():
    first = next(measured.measured())
    assert (first.device, first.cores, first.title) == ("A GPU", 16, "small")
    assert first.times == {"triton": {1: 12.0, 64: 13.0}, "scikit-learn": {1: 80.0, 64: 50.0}}


@pytest.mark.parametrize(
    ("shape", "title"),
    [
        (Shape("affine", 20, 19), "small"),
        (Shape("affine", 200, 199), "large"),
        (Shape("tree_ensemble", 3, 4), "trees"),
        (Shape("neighbors", 9, 8), None),
    ],
)
@pytest.mark.usefixtures("table")
def test_the_nearest_has_the_operation_and_is_nearest_in_size(shape, title):
    found = nearest(shape)
    assert (found and found.title) == title


def test_without_a_table_nothing_is_near(tmp_path, monkeypatch):
    monkeypatch.setattr(measured, "TABLE", tmp_path / "none.json")
    assert nearest(Shape("affine", 9, 8)) is None


def test_every_model_of_the_table_is_nearest_to_itself():
    for found in measured.measured():
        assert nearest(found.shape) == found


def test_the_shape_is_that_of_the_prediction_alone():
    X = np.random.default_rng(0).normal(size=(30, 4))
    assert shape_of(compile_estimator(Ridge().fit(X, X[:, 0])).plan) == Shape("affine", 5, 4)
    process = shape_of(compile_estimator(GaussianProcessRegressor().fit(X, X[:, 0])).plan)
    assert process.operation == "pairwise_affine"  # and not the triangular product behind the standard deviation
