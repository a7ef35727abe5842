"""Quantiles of forests on each engine, and what of them is refused."""

import numpy as np
import pytest
from quantile_forest import RandomForestQuantileRegressor
from sklearn.tree import DecisionTreeRegressor

from tests.exporter.data import small
from triton_regressors import ExportError
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.kernels.engine.runner import Runner


class OtherTree(DecisionTreeRegressor):
    """Predicts otherwise than a tree."""

    def predict(self, X: np.ndarray, check_input: bool = True) -> np.ndarray:
        return super().predict(X, check_input) + 1


@pytest.mark.parametrize("trees", [1, 2, 7, 8])
def test_every_quantile_is_an_order_statistic(trees: int, engine: str) -> None:
    X, y = small()
    quantiles = [0.0, 0.01, 0.3, 0.5, 0.77, 1.0]
    forest = RandomForestQuantileRegressor(trees, default_quantiles=quantiles, random_state=0).fit(X, y)
    compilation = compile_estimator(forest, sample=X)
    found = Runner(compilation.plan, engine=engine, max_rows=len(X)).predict(compilation.sample.X)["y"]
    np.testing.assert_allclose(found, forest.predict(X).reshape(len(X), -1), rtol=1e-6, atol=1e-6)


def test_a_quantile_of_all_targets_of_the_leaves_is_refused() -> None:
    X, y = small()
    forest = RandomForestQuantileRegressor(3, max_samples_leaf=None).fit(X, y)
    with pytest.raises(ExportError) as raised:
        compile_estimator(forest)
    assert str(raised.value) == (
        "Cannot export RandomForestQuantileRegressor: with max_samples_leaf=None a quantile weighs all training rows "
        "anew for each row. Fit it with max_samples_leaf=1, or set default_quantiles='mean'."
    )


def test_trees_that_predict_otherwise_are_refused() -> None:
    X, y = small()
    forest = RandomForestQuantileRegressor(2).fit(X, y)
    forest.estimators_ = [OtherTree(random_state=0).fit(X, y) for _ in range(2)]
    with pytest.raises(ExportError, match="OtherTree"):
        compile_estimator(forest)
