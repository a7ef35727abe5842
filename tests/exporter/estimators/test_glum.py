"""What of glum's regressors is refused."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from glum import GeneralizedLinearRegressor

from tests.exporter.data import small
from triton_regressors import ExportError
from triton_regressors.exporter.compile import compile_estimator


def table() -> pd.DataFrame:
    X, y = small()
    frame = pd.DataFrame(X, columns=list("abcde")).assign(y=y)
    return frame.assign(kind=pd.Categorical(np.where(X[:, 0] > 0, "u", "v")))


def test_columns_of_a_matrix_have_no_names() -> None:
    estimator = GeneralizedLinearRegressor(alpha=0.1).fit(*small())
    assert compile_estimator(estimator, sample=small()[0]).report.outputs["y"].within(1e-5)
    named = GeneralizedLinearRegressor(alpha=0.1).fit(table()[list("abcde")], table()["y"])
    assert compile_estimator(named, sample=table()[list("edcba")]).report.outputs["y"].within(1e-5)


REFUSED: dict[str, tuple[Any, str]] = {
    "formula": (
        lambda: GeneralizedLinearRegressor(formula="y ~ a + b", alpha=0.1).fit(table()),
        "it was fitted on a formula; supported: columns of numbers and of categories.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_exported_is_named(case: str) -> None:
    fit, why = REFUSED[case]
    with pytest.raises(ExportError) as raised:
        compile_estimator(fit())
    assert str(raised.value) == f"Cannot export GeneralizedLinearRegressor: {why}"


def categories(missing: bool) -> tuple[pd.DataFrame, Any]:
    """Return columns of numbers, of strings and of numbers that are categories, and targets."""
    X, y = small()
    level = pd.Categorical(np.random.default_rng(0).integers(1, 4, len(X)), categories=[3, 1, 2])
    given = table().assign(level=level)[["a", "kind", "b", "level"]]
    if missing:
        given.loc[::5, "kind"] = np.nan
        given.loc[::7, "level"] = np.nan
    return given, y


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "drop-first": {"drop_first": True},
    "zero": {"cat_missing_method": "zero"},
    "zero-drop-first": {"cat_missing_method": "zero", "drop_first": True},
    "convert": {"cat_missing_method": "convert"},
    "convert-drop-first": {"cat_missing_method": "convert", "drop_first": True},
    "convert-named": {
        "cat_missing_method": "convert",
        "cat_missing_name": "none",
        "categorical_format": "{name}={category}",
    },
    "poisson": {"family": "poisson", "cat_missing_method": "convert"},
}


@pytest.mark.parametrize("option", OPTIONS)
def test_categories_have_coefficients(option: str) -> None:
    options = OPTIONS[option]
    X, y = categories("cat_missing_method" in options)
    estimator = GeneralizedLinearRegressor(alpha=0.01, **options).fit(X, np.abs(y))
    for sample in (X, X[["level", "b", "kind", "a"]], X.assign(other="x"), None):
        compilation = compile_estimator(estimator, sample=sample)
        assert compilation.report.within
        assert compilation.columns == ("a", "kind", "b", "level")
    assert bool(compile_estimator(estimator, sample=X).nan_columns) == ("cat_missing_method" in options)


def test_a_table_of_categories_alone() -> None:
    X, y = categories(False)
    estimator = GeneralizedLinearRegressor(alpha=0.01, drop_first=True).fit(X[["kind"]], y)
    assert compile_estimator(estimator, sample=X).report.within


def test_an_unknown_category_has_no_answer() -> None:
    X, y = categories(False)
    estimator = GeneralizedLinearRegressor(alpha=0.01).fit(X, y)
    compilation = compile_estimator(estimator, sample=X)
    (text,) = compilation.inputs.text
    assert text.closed == (True,)
