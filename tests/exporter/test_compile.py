"""An estimator's way through the exporter: what is made once, and what is given in what form."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.linear_model import BayesianRidge, Ridge
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, PolynomialFeatures, QuantileTransformer
from sklearn.svm import SVR

from triton_regressors import ExportError, export
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.exporter.lowering.lower import lower, written_columns
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.plan.plan import Plan

X = np.random.default_rng(0).standard_normal((60, 3))
y = X @ [1.0, -2.0, 0.5]
TABLE = pd.DataFrame(
    {"size": X[:, 0], "zip": np.where(X[:, 1] > 0, "01", "2"), "kind": np.where(X[:, 2] > 0, "a", "b")}
)


@pytest.mark.parametrize(
    ("model", "runners"),
    [
        (Ridge(), 1),
        (RandomForestRegressor(5, random_state=0), 1),
        (make_pipeline(PolynomialFeatures(2), Ridge()), 1),
        (make_pipeline(PolynomialFeatures(2), BayesianRidge()), 1),
    ],
    ids=["affine", "trees", "one quadratic form", "two"],
)
def test_a_plan_is_bound_once(model: Any, runners: int, monkeypatch: pytest.MonkeyPatch) -> None:
    bound: list[Plan] = []
    bind = Runner.__init__

    def count(runner: Runner, plan: Plan, **options: Any) -> None:
        bound.append(plan)
        bind(runner, plan, **options)

    monkeypatch.setattr(Runner, "__init__", count)
    compilation = compile_estimator(model.fit(X, y), sample=X)
    assert len(bound) == runners
    assert bound[-1] is compilation.plan


def test_the_units_of_error_are_computed_once() -> None:
    sample = compile_estimator(Ridge().fit(X, y), sample=X).sample
    assert sample.units is sample.units
    np.testing.assert_array_equal(sample.units["y"], sample.expected["y"].std(axis=0))


def encoded() -> Any:
    encoders = make_column_transformer(
        (OneHotEncoder(), ["zip"]), (OrdinalEncoder(), ["kind"]), remainder="passthrough"
    )
    return make_pipeline(encoders, Ridge()).fit(TABLE, y)


def test_the_columns_of_strings_are_asked_for_by_name() -> None:
    assert list(written_columns(encoded())[0]) == ["zip", "kind"]
    assert written_columns(Ridge().fit(TABLE[["size"]], y)) == ({}, {})
    without_names = make_pipeline(OneHotEncoder(), Ridge()).fit(TABLE[["zip"]].to_numpy(), y)
    assert written_columns(without_names) == ({}, {})
    with pytest.raises(ExportError, match=r"^Cannot export KNeighborsClassifier: it is a classifier, and only"):
        written_columns(KNeighborsClassifier().fit(TABLE[["size"]], TABLE["zip"]))


def test_a_sample_is_rows_or_a_table() -> None:
    with pytest.raises(ExportError, match=r"^The sample has shape \(\); it must be two-dimensional, \[rows, 3\]\.$"):
        compile_estimator(encoded(), sample=lambda names: TABLE)


def test_what_a_model_says_of_its_input_is_a_record() -> None:
    lowered = lower(encoded(), missing_strings=("?",))
    assert lowered.profile.text.columns() == [1, 2]
    assert lowered.inputs.columns() == {"X": (0,), "onehotencoder": (1,), "ordinalencoder": (2,)}
    assert all(group.missing == ("?",) for group in lowered.inputs.text)
    codes = lower(make_pipeline(OneHotEncoder(), Ridge()).fit(np.round(X[:, :2]), y))
    assert codes.inputs.categorical == (0, 1)
    assert np.isfinite(codes.profile.location).all()
    assert set(codes.profile.choices) == {0, 1}


NOTEBOOK = {
    "ridge": (Ridge(), X),
    "degree_2": (make_pipeline(PolynomialFeatures(2), BayesianRidge()), X),
    "forest": (RandomForestRegressor(20, random_state=0), X),
    "process": (GaussianProcessRegressor(alpha=1.0), X),
    "strings": (make_pipeline(make_column_transformer((OneHotEncoder(), ["zip", "kind"])), Ridge()), TABLE),
    "union": (
        make_pipeline(FeatureUnion([(f"u{i}", QuantileTransformer(n_quantiles=20 + i)) for i in range(9)]), SVR()),
        X,
    ),
}


@pytest.mark.parametrize("name", NOTEBOOK)
def test_the_last_line_of_a_notebook_prints_a_few_lines(name: str, tmp_path: Path) -> None:
    estimator, rows = NOTEBOOK[name]
    result = export(estimator.fit(rows, y), tmp_path, name=name, sample=rows)
    compilation = result.compilation
    plan = compilation.plan
    _assert_short(result, 8)
    _assert_short(compilation, 3)
    for shown in (result.entry, plan, *plan.steps, compilation.report, compilation.sample, compilation.nan_sample):
        _assert_short(shown, 1)
    for _, stage in compilation.stages:
        _assert_short(stage, 1)
    assert repr(result).startswith(f"Export of {name} version 1\n  input   ")
    said = str(result).splitlines()
    assert said[0].startswith(f"Wrote {name} version 1 to {tmp_path / name / '1'}: {len(plan.steps)} operation")
    assert "\n".join(said[1:]).startswith(result.contract.brief())
    for note in (*result.contract.notes(), *result.contract.interval):
        assert note in said
    html = result._repr_html_()
    assert html == result.contract.html(str(tmp_path / name / "1"))
    for words in (f"<b>{name}</b>", "version 1", "largest error", "tr.Client(", "curl -s"):
        assert words in html


def _assert_short(shown: Any, lines: int) -> None:
    found = repr(shown).splitlines()
    assert len(found) <= lines
    assert max(map(len, found)) < 200
