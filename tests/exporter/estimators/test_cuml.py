"""cuML's estimators. cuML needs a GPU even to be imported, so classes of the module `cuml` stand in for its own here.

They keep what the export relies on: the name of the module, `as_sklearn`, and methods that answer NumPy's arrays for
NumPy's arrays. No test here says anything of cuML's own numbers.
"""

from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin, TransformerMixin
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tests.exporter.data import small
from triton_regressors import ExportError
from triton_regressors.exporter.compile import compile_estimator

X, Y = small()


class StandInRidge(RegressorMixin, BaseEstimator):
    """A stand-in for `cuml.linear_model.Ridge`."""

    __module__ = "cuml.linear_model.ridge"

    def fit(self, X: Any, y: Any) -> "StandInRidge":
        inner = Ridge().fit(X, y)
        self.coef_, self.intercept_, self.n_features_in_ = inner.coef_, inner.intercept_, X.shape[1]
        return self

    def predict(self, X: Any) -> Any:
        return np.asarray(X) @ self.coef_.T + self.intercept_

    def as_sklearn(self) -> Ridge:
        model = Ridge()
        model.coef_, model.intercept_, model.n_features_in_ = self.coef_, self.intercept_, self.n_features_in_
        return model


class StandInScaler(TransformerMixin, BaseEstimator):
    """A stand-in for `cuml.preprocessing.StandardScaler`."""

    __module__ = "cuml._thirdparty.sklearn.preprocessing"

    def fit(self, X: Any, y: Any = None) -> "StandInScaler":
        self.scaler_ = StandardScaler().fit(X)
        self.n_features_in_ = X.shape[1]
        return self

    def transform(self, X: Any) -> Any:
        return self.scaler_.transform(X)

    def inverse_transform(self, X: Any) -> Any:
        return self.scaler_.inverse_transform(X)

    def as_sklearn(self) -> StandardScaler:
        return self.scaler_


class StandInWithout(StandInRidge):
    """A stand-in for an estimator of a cuML without `as_sklearn`."""

    __module__ = "cuml.linear_model.ridge"

    @property
    def as_sklearn(self) -> Any:  # type: ignore[override]
        raise AttributeError


@pytest.mark.parametrize(
    "estimator",
    [
        StandInRidge(),
        make_pipeline(StandInScaler(), StandInRidge()),
        make_pipeline(StandInScaler(), Ridge()),
        TransformedTargetRegressor(StandInRidge(), transformer=StandInScaler(), check_inverse=False),
    ],
    ids=["alone", "pipeline", "transformer", "target"],
)
def test_estimators_are_scikit_learns(estimator: Any) -> None:
    assert compile_estimator(estimator.fit(X, Y), sample=X).report.within
    assert compile_estimator(estimator).report.drawn


@pytest.mark.parametrize("place", ["", " (step 'standinwithout')"])
def test_an_older_cuml_is_named(place: str) -> None:
    estimator: Any = make_pipeline(StandInScaler(), StandInWithout()) if place else StandInWithout()
    with pytest.raises(ExportError) as raised:
        compile_estimator(estimator.fit(X, Y), sample=X)
    assert str(raised.value) == (
        f"Cannot export StandInWithout{place}: it has no as_sklearn(), which cuML has from version 25.02 on for the "
        "estimators that scikit-learn has too. Fit it with a newer cuML, or fit scikit-learn's estimator under "
        "cuml.accel."
    )
