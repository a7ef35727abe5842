"""FLAML's AutoML: its estimators on tables of strings, ensembles, and what is refused."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from flaml import AutoML

from tests.exporter.catalogue.cases_flaml import Searched, with_holes
from tests.exporter.catalogue.cases_text import people
from tests.exporter.data import diabetes, small
from triton_regressors import ExportError
from triton_regressors.exporter.compile import compile_estimator

KINDS = (
    *("catboost", "enet", "extra_tree", "histgb", "kneighbor", "lassolars", "lgbm", "rf", "sgd", "xgb_limitdepth"),
    "xgboost",
)


def table() -> tuple[pd.DataFrame, Any]:
    """Rows with missing strings and numbers, pandas' categories that are numbers, and unknown strings beside them."""
    X, y = with_holes()
    level = pd.Categorical(np.random.default_rng(0).integers(1, 5, len(X)))
    return X.assign(level=level, job=X["job"].astype("category")), y


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_every_estimator_reads_categories_beside_numbers(kind: str) -> None:
    X, y = table()
    automl = Searched(kind).fit(X, y).automl_
    new = X.assign(city=np.where(np.arange(len(X)) % 5 == 0, "Berlin", X["city"]))
    compilation = compile_estimator(automl, sample=new)
    assert compilation.report.within
    assert compilation.columns == ("city", "job", "level", "age", "income")
    if kind == "kneighbor":
        return
    asked = pd.concat([X[:1], X[:1].assign(city="Berlin"), X[:1].assign(city=None)])
    assert len(np.unique(automl.predict(asked)[1:])) == 1  # unknown is missing


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("passthrough", [True, False])
def test_an_ensemble_is_a_stack(passthrough: bool) -> None:
    X, y = small()
    automl = AutoML()
    automl.fit(
        X,
        y,
        task="regression",
        estimator_list=["rf", "lgbm"],
        ensemble={"passthrough": passthrough, "n_jobs": 1},
        max_iter=8,
        time_budget=-1,
        n_jobs=1,
        verbose=0,
    )
    assert type(automl.model).__name__ == "StackingRegressor"
    assert compile_estimator(automl, sample=X).report.within


def classes() -> AutoML:
    automl = AutoML()
    X, y = small()
    automl.fit(X, y > 0, task="classification", estimator_list=["rf"], max_iter=1, time_budget=-1, n_jobs=1, verbose=0)
    return automl


def dates() -> AutoML:
    X, y = people()
    X = X[["age"]].assign(day=pd.date_range("2020-01-01", periods=len(X)))
    return Searched("rf").fit(X, y).automl_


REFUSED: dict[str, tuple[Any, str]] = {
    "unfitted": (
        AutoML,
        "none of its attributes ends in '_', as those of a fitted one do; call fit first, or give its class a "
        "__sklearn_is_fitted__.",
    ),
    "classes": (classes, "its task is 'binary'; supported: 'regression'."),
    "dates": (
        dates,
        "it was fitted on columns of dates. Make numbers of them before the fit, in a function that is traced as a "
        "step of a Pipeline (docs/own_code.md).",
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_exported_is_named(case: str) -> None:
    fit, why = REFUSED[case]
    with pytest.raises(ExportError) as raised:
        compile_estimator(fit(), sample=diabetes()[0])
    assert str(raised.value) == f"Cannot export AutoML: {why}"
