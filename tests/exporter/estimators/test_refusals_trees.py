"""Trees that cannot be exported, and the sentence that says so."""

from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import (
    AdaBoostRegressor,
    BaggingRegressor,
    GradientBoostingRegressor,
    RandomForestRegressor,
    RandomTreesEmbedding,
)
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeRegressor, ExtraTreeRegressor

from tests.exporter.data import small
from triton_regressors import ExportError, lowers
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.exporter.estimators.trees import lower_tree
from triton_regressors.exporter.lowering.registry import _LOWERINGS

X, y = small()


class Home(RegressorMixin, BaseEstimator):
    """A regressor that nobody has written a lowering for."""

    def fit(self, X, y, sample_weight=None):
        self.mean_ = y.mean()
        return self

    def predict(self, X):
        return np.sort(X[:, 0]) * 0 + self.mean_


def refusal(estimator: object) -> str:
    with pytest.raises(ExportError) as raised:
        compile_estimator(estimator)
    return str(raised.value)


def test_parts_without_a_lowering_are_named() -> None:
    boosted = AdaBoostRegressor(Home(), n_estimators=2, random_state=0).fit(X, y)
    assert refusal(boosted).startswith(
        "Cannot export Home (step 'estimators_[0]'): no lowering is registered for it (its class is "
        f"{Home.__module__}.Home)"
    )
    gradient = GradientBoostingRegressor(n_estimators=2, init=Home()).fit(X, y)
    assert refusal(gradient).startswith(
        f"Cannot export Home (step 'init_'): no lowering is registered for it (its class is {Home.__module__}.Home)"
    )


def test_trees_that_are_not_fitted() -> None:
    assert refusal(DecisionTreeRegressor()) == (
        "Cannot export DecisionTreeRegressor: it is not fitted; call fit first."
    )


class CappedTree(DecisionTreeRegressor):
    def predict(self, X: Any, check_input: bool = True) -> Any:
        return np.sort(super().predict(X, check_input))


class AppliedTree(ExtraTreeRegressor):
    def apply(self, X: Any, check_input: bool = True) -> Any:
        return super().apply(X, check_input)


class OwnForest(RandomForestRegressor):
    """Has trees of its own, and overrides nothing that predict asks for."""

    def __init__(self, n_estimators: int = 2) -> None:
        super().__init__(n_estimators)
        self.estimator = CappedTree()


def with_trees(forest: Any, tree: Any) -> Any:
    """Return a forest, fitted on trees of another class than its own."""
    forest.estimator = tree
    return forest.fit(X, y)


@pytest.mark.parametrize(
    ("make", "tree"),
    [
        (lambda: OwnForest().fit(X, y), CappedTree),
        (lambda: with_trees(RandomForestRegressor(2), CappedTree()), CappedTree),
        (lambda: make_pipeline(with_trees(RandomTreesEmbedding(2), AppliedTree()), Ridge()).fit(X, y), AppliedTree),
        (lambda: BaggingRegressor(CappedTree(), 2).fit(X, y), CappedTree),
        (lambda: AdaBoostRegressor(CappedTree(), n_estimators=2).fit(X, y), CappedTree),
    ],
)
def test_trees_that_override_what_theirs_compute_with_are_none(make: Any, tree: type) -> None:
    with pytest.raises(
        ExportError, match=rf"^Cannot export {tree.__name__} \(step '.*estimators_\[0\]'\): no lowering is"
    ):
        compile_estimator(make())


@pytest.mark.parametrize(
    ("model", "part"),
    [
        (RandomForestRegressor(2), "estimators_"),
        (BaggingRegressor(n_estimators=2), "estimators_"),
        (AdaBoostRegressor(n_estimators=2), "estimators_"),
        (GradientBoostingRegressor(n_estimators=2), "init_"),
    ],
)
def test_a_method_set_on_a_part_of_an_ensemble_is_refused(model: Any, part: str) -> None:
    held = getattr(model.fit(X, y), part)
    held = held[0] if isinstance(held, list) else held
    held.predict = lambda X, **options: np.minimum(type(held).predict(held, X, **options), 100.0)
    with pytest.raises(ExportError, match=rf"\(step '{part}.*'\): its attribute predict stands in for the method"):
        compile_estimator(model)


def test_a_forest_of_trees_with_a_lowering_of_their_own_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_LOWERINGS, CappedTree, None)

    @lowers(CappedTree)
    def lower(estimator: Any, x: Any, builder: Any) -> Any:
        return builder.elementwise(lower_tree(estimator, x, builder), "identity", high=100.0)

    sentence = "its trees have a lowering of their own. A BaggingRegressor of them is exported."
    with pytest.raises(ExportError, match=rf"^Cannot export OwnForest: {sentence}$"):
        compile_estimator(OwnForest().fit(X, y))
    assert compile_estimator(BaggingRegressor(CappedTree(), 2).fit(X, y)).plan.n_features == X.shape[1]


class Important(RandomForestRegressor):
    @property
    def feature_importances_(self) -> Any:
        return np.ones(self.n_features_in_)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return dict(super().get_params(deep))


class Grown(DecisionTreeRegressor):
    def fit(self, X: Any, y: Any, sample_weight: Any = None, check_input: bool = True) -> Any:
        return super().fit(X, y, sample_weight, check_input)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Important(2).fit(X, y),
        lambda: with_trees(RandomForestRegressor(2), Grown()),
        lambda: BaggingRegressor(Grown(), 2).fit(X, y),
    ],
)
def test_ensembles_and_trees_that_override_nothing_of_that_are_exported(make: Any) -> None:
    assert compile_estimator(make()).plan.n_features == X.shape[1]
