"""Missing numbers, unknown categories and numbers at cuts in explainable boosting machines."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from interpret.glassbox import ExplainableBoostingRegressor

from tests.exporter.catalogue.cases_category_encoders import read_people
from tests.exporter.catalogue.cases_interpret import machine, with_codes
from triton_regressors import ExportError
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.kernels.engine.runner import Runner


def check(estimator: ExplainableBoostingRegressor, X: Any, engine: str) -> None:
    """Compare a machine's plan with the machine on these rows, which are the sample too."""
    compilation = compile_estimator(estimator, sample=X)
    found = Runner(compilation.plan, engine=engine, max_rows=len(X)).predict(compilation.sample.X)["y"][:, 0]
    expected = estimator.predict(X)
    assert len(found) == len(expected)
    assert np.abs(found - expected).max() <= 1e-5 * expected.std()


def test_numbers_at_the_cuts_and_between_neighbours(engine: str) -> None:
    X, y = with_codes()
    estimator = machine(max_bins=16, max_interaction_bins=5).fit(X, y)
    cuts = np.unique(np.concatenate([level for levels in estimator.bins_[:1] for level in levels]))
    rows = X[: 3 * len(cuts)].copy()
    rows[:, 0] = np.concatenate([np.nextafter(cuts, -np.inf), cuts, np.nextafter(cuts, np.inf)])
    check(estimator, rows, engine)


def test_missing_and_unknown_categories(engine: str) -> None:
    X, y = read_people()
    estimator = machine(interactions=[("city", "job"), ("city", "age"), ("age", "income")], missing="gain").fit(X, y)
    rows = X.iloc[:40].copy()
    rows.loc[rows.index[::3], "city"] = "Atlantis"
    rows.loc[rows.index[1::5], "job"] = None
    rows.loc[rows.index[::4], "age"] = np.nan
    check(estimator, rows, engine)


def test_codes_that_were_never_seen(engine: str) -> None:
    X, y = with_codes()
    estimator = machine(feature_types=["continuous", "nominal", "nominal", "nominal"]).fit(X, y)
    rows = X[:40].copy()
    rows[::3, 1], rows[1::3, 1], rows[::4, 2], rows[::5, 3] = 77.0, 1.5, np.nan, 2.0
    check(estimator, rows, engine)


def test_the_sample_says_that_numerals_are_strings() -> None:
    X = pd.DataFrame({"code": pd.Series(["1", "2", "10", "2"] * 20, dtype=object), "size": np.arange(80.0)})
    estimator = machine(feature_types=["nominal", "continuous"]).fit(X, X["code"].astype(float) + X["size"])
    compilation = compile_estimator(estimator, sample=X)
    assert set(compilation.inputs.datatypes().values()) >= {"BYTES"}
    assert compilation.report.outputs["y"].within(1e-5)
    assert "BYTES" not in compile_estimator(estimator).inputs.datatypes().values()


def test_another_link_is_refused() -> None:
    X, y = with_codes()
    estimator = machine().fit(X, y)
    estimator.link_ = "logit"
    with pytest.raises(ExportError) as raised:
        compile_estimator(estimator)
    message = "Cannot export ExplainableBoostingRegressor: its link is 'logit'; supported: 'identity', 'log'."
    assert str(raised.value) == message
