"""What of the tree family cannot be exported, and how that is said."""

import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import AdaBoostRegressor, GradientBoostingRegressor
from sklearn.tree import DecisionTreeRegressor

from tests.exporter.data import small
from triton_regressors import ExportError
from triton_regressors.exporter.compiler import compile_estimator


class Home(RegressorMixin, BaseEstimator):
    """A regressor that nobody has written a lowering for."""

    def fit(self, X, y, sample_weight=None):
        self.mean_ = y.mean()
        return self

    def predict(self, X):
        return X[:, 0] * 0 + self.mean_


def refusal(estimator: object) -> str:
    with pytest.raises(ExportError) as raised:
        compile_estimator(estimator)
    return str(raised.value)


def test_parts_without_a_lowering_are_named() -> None:
    X, y = small()
    boosted = AdaBoostRegressor(Home(), n_estimators=2, random_state=0).fit(X, y)
    assert refusal(boosted).startswith("Cannot export Home (step 'estimators_[0]'): no lowering is registered for it.")
    gradient = GradientBoostingRegressor(n_estimators=2, init=Home()).fit(X, y)
    assert refusal(gradient).startswith("Cannot export Home (step 'init_'): no lowering is registered for it.")


def test_trees_that_are_not_fitted() -> None:
    assert refusal(DecisionTreeRegressor()) == (
        "Cannot export DecisionTreeRegressor: it is not fitted; call fit first."
    )
