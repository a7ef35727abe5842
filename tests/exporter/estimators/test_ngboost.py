"""Outputs of NGBoost's regressors, and what of them is refused."""

import numpy as np
import pytest
from ngboost import NGBRegressor
from ngboost.distns import Cauchy
from sklearn.model_selection import GridSearchCV

from tests.exporter.catalogue.cases_ngboost import boosted
from tests.exporter.data import small
from triton_regressors import ExportError
from triton_regressors.exporter.compile import compile_estimator


def test_a_search_answers_the_deviation_too() -> None:
    X, y = small()
    search = GridSearchCV(boosted(stages=3), {"learning_rate": [0.1, 0.2]}, cv=2).fit(X, y)
    report = compile_estimator(search, sample=X).report
    assert set(report.outputs) == {"y", "std"}
    assert all(parity.within(1e-5) for parity in report.outputs.values())


def test_early_stopping_keeps_every_stage_that_predict_uses() -> None:
    X, y = small()
    stopped = NGBRegressor(n_estimators=200, early_stopping_rounds=2, verbose=False, random_state=0).fit(X, y)
    assert compile_estimator(stopped, sample=X).report.outputs["y"].within(1e-5)


def test_a_distribution_without_moments_is_refused() -> None:
    X, y = small()
    estimator = boosted(Cauchy, 2).fit(X, y)
    with pytest.raises(ExportError) as raised:
        compile_estimator(estimator)
    assert str(raised.value) == (
        "Cannot export NGBRegressor: its distribution is Cauchy; supported: Exponential, Gamma, HalfNormal, Laplace, "
        "LogNormal, Normal, NormalFixedVar, Poisson, TFixedDf, TFixedDfFixedVar."
    )


def test_another_number_of_columns_is_refused() -> None:
    X, y = small()
    estimator = boosted(stages=2).fit(X, y)
    with pytest.raises(ExportError, match=r"two-dimensional, .rows, 5."):
        compile_estimator(estimator, sample=np.zeros((4, 3)))
