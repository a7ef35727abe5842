"""Encoders and imputers that cannot be exported, and the sentence that says why."""

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.impute._iterative import IterativeImputer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

from triton_regressors import ExportError
from triton_regressors.exporter.compile import compile_estimator

WORDS = np.array([["blue", "s"], ["red", "m"], ["red", "s"], ["green", "l"]], dtype=object)
NUMBERS = np.array([[1.0, 2], [3, 4], [3, 2], [5, 4]])
NAN = np.array([[1.0, np.nan], [np.nan, 4], [3, 2], [5, 4]])
Y = np.array([1.0, 2.5, 3, 4])

REFUSED: dict[str, tuple[Any, np.ndarray, str]] = {
    "dates": (
        OneHotEncoder(),
        np.array([["2020-01-01"], ["2021-01-01"], ["2021-01-01"], ["2022-01-01"]], dtype="datetime64[D]"),
        "OneHotEncoder (step 'encoder'): column 0 has categories of type date; supported: numbers, or strings.",
    ),
    "no column": (
        OneHotEncoder(drop="first"),
        np.ones((4, 2)),
        "OneHotEncoder (step 'encoder'): it makes no column: every category is dropped.",
    ),
    "unknown value out of range": (
        OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=300, dtype=np.int8),
        NUMBERS,
        "OrdinalEncoder (step 'encoder'): unknown_value is 300, which its dtype int8 does not hold.",
    ),
    "nothing to impute": (
        SimpleImputer(),
        np.full((4, 2), np.nan),
        "SimpleImputer (step 'encoder'): it keeps no feature: it was fitted on columns without a number.",
    ),
    "missing None": (
        SimpleImputer(missing_values=None, strategy="most_frequent"),
        NUMBERS.astype(object),
        "SimpleImputer (step 'encoder'): missing_values is None; supported: NaN and numbers.",
    ),
    "missing word": (
        MissingIndicator(missing_values="?"),
        np.where(NUMBERS == 3, "?", NUMBERS.astype(object)),
        "MissingIndicator (step 'encoder'): missing_values is '?'; supported: NaN and numbers.",
    ),
    "no indicator": (
        MissingIndicator(),
        NUMBERS,
        "MissingIndicator (step 'encoder'): it makes no column: no feature had missing values in training.",
    ),
    "random": (
        IterativeImputer(sample_posterior=True, max_iter=1),
        NAN,
        "IterativeImputer (step 'encoder'): sample_posterior is True, which draws its answers at random; "
        "supported: False.",
    ),
}


class Stranger(RegressorMixin, BaseEstimator):
    """A regressor without a lowering."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> "Stranger":
        self.n_features_in_ = X.shape[1]
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.sort(X[:, 0]) * 0


def fitted(step: Any, X: np.ndarray) -> Any:
    """Return a pipeline of the fitted step and a Ridge that was fitted on its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        step.fit(X, Y)
    pipeline = make_pipeline(step, Ridge().fit(NUMBERS, Y))
    pipeline.steps[0] = ("encoder", step)
    return pipeline


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_exported_is_named(case: str) -> None:
    step, X, message = REFUSED[case]
    with pytest.raises(ExportError) as raised:
        compile_estimator(fitted(step, X))
    assert str(raised.value) == f"Cannot export {message}"


def test_an_estimator_inside_an_imputer_is_named_with_its_place() -> None:
    imputer = IterativeImputer(make_pipeline(SimpleImputer(), Stranger()), max_iter=1)
    with pytest.raises(ExportError) as raised:
        compile_estimator(fitted(imputer, NAN))
    assert str(raised.value).startswith(
        "Cannot export Stranger (step 'encoder.imputation_sequence_[0].estimator.stranger'): "
        f"no lowering is registered for it (its class is {__name__}.Stranger)"
    )
