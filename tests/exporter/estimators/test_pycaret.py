"""Pipelines of PyCaret: what setup() puts in front of a regressor, transformed targets, and what is refused.

PyCaret states older releases than it works with: `make pycaret` runs these in an environment of their own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.exporter.catalogue.cases_text import people
from triton_regressors import ExportError
from triton_regressors.exporter.compile import compile_estimator

regression = pytest.importorskip("pycaret.regression", reason="PyCaret is not installed: make pycaret runs these tests")

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(3600)]


def table() -> pd.DataFrame:
    X, y = people(np.nan)
    X = X.drop(columns="id").rename(columns={"income": "income [EUR]"})
    X["member"] = np.where(np.arange(len(X)) % 3 == 0, "yes", "no")
    X.loc[::7, "age"] = np.nan
    return X.assign(target=y + 10)


def finalized(model: str = "lr", **options: Any) -> Any:
    """Return the whole Pipeline of an experiment."""
    experiment = regression.RegressionExperiment()
    experiment.setup(table(), target="target", session_id=0, html=False, verbose=False, n_jobs=1, **options)
    return experiment.finalize_model(experiment.create_model(model, verbose=False, fold=2))


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "normalize": {"normalize": True},
    "transformation": {"transformation": True},
    "target": {"transform_target": True},
    "quantiles-of-target": {"transform_target": True, "transform_target_method": "quantile"},
    "multicollinearity": {"remove_multicollinearity": True, "multicollinearity_threshold": 0.5},
    "polynomial": {"polynomial_features": True},
    "components": {"normalize": True, "pca": True, "pca_components": 3},
    "encoding": {"max_encoding_ohe": 1},
    "variance": {"low_variance_threshold": 0.01},
    "outliers": {"remove_outliers": True},
    "bins": {"bin_numeric_features": ["age"]},
    "selection": {"feature_selection": True, "n_features_to_select": 3, "feature_selection_estimator": "rf"},
}


@pytest.mark.parametrize("option", OPTIONS)
def test_what_setup_makes_is_exported(option: str) -> None:
    pipeline, rows = finalized(**OPTIONS[option]), table().drop(columns="target")
    compilation = compile_estimator(pipeline, sample=rows)
    assert compilation.report.within
    assert compilation.columns == tuple(rows.columns)
    assert 1 in compilation.nan_columns


def test_trees_behind_a_transformed_target() -> None:
    pipeline, rows = finalized("rf", transform_target=True), table().drop(columns="target")
    for sample in (rows, rows[rows.columns[::-1]], None):
        assert compile_estimator(pipeline, sample=sample).report.within


def test_what_cannot_be_exported_is_named() -> None:
    pipeline = finalized(group_features={"numbers": ["age", "income [EUR]"]})
    with pytest.raises(ExportError) as raised:
        compile_estimator(pipeline, sample=table().drop(columns="target"))
    assert str(raised.value) == (
        "Cannot export GroupFeatures (step 'group_features'): a plan has no GroupFeatures; supported: what setup() "
        "makes without it."
    )
