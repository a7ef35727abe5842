"""Models made of models, projections and networks that cannot be exported, and the sentence that says so."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.cluster import FeatureAgglomeration
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.cross_decomposition import PLSRegression
from sklearn.decomposition import (
    NMF,
    DictionaryLearning,
    FactorAnalysis,
    LatentDirichletAllocation,
    MiniBatchDictionaryLearning,
    MiniBatchNMF,
    SparseCoder,
)
from sklearn.ensemble import BaggingRegressor, StackingRegressor, VotingRegressor
from sklearn.feature_selection import VarianceThreshold
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.multioutput import RegressorChain
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from tests.exporter.data import several_targets
from triton_regressors import ExportError
from triton_regressors.exporter.compile import compile_estimator

X, Y = several_targets()
X, y = np.abs(X), Y[:, 0]


class Doubled(Ridge):
    """A subclass that predicts something of its own."""

    def predict(self, X: np.ndarray) -> np.ndarray:
        return 2 * super().predict(np.argsort(X, axis=1))


class OwnScores(PLSRegression):
    """A subclass that transforms in a way of its own."""

    def transform(self, X: np.ndarray, y: None = None, copy: bool = True) -> np.ndarray:
        return 2 * super().transform(np.argsort(X, axis=1))


def spread(values: np.ndarray, axis: int) -> np.ndarray:
    return values.max(axis) - values.min(axis)


def before_ridge(transformer: Any) -> Callable[[], Any]:
    return lambda: make_pipeline(transformer, Ridge()).fit(X, y)


def scores_before_ridge() -> Pipeline:
    scores = OwnScores(2).fit(X, y)
    return Pipeline([("scores", scores), ("ridge", Ridge().fit(scores.transform(X), y))])


def member_of_fewer_features() -> VotingRegressor:
    voting = VotingRegressor([("ridge", Ridge()), ("other", Ridge())]).fit(X, y)
    voting.estimators_[1].fit(X[:, :3], y)
    return voting


def nothing_selected() -> Pipeline:
    transformer = ColumnTransformer([("few", VarianceThreshold(), [0, 1])], remainder="passthrough")
    pipeline = before_ridge(transformer)()
    pipeline[0].named_transformers_["few"].variances_[:] = 0
    return pipeline


ITERATIVE = "its transform is an iterative solver, run for each row until it converges."
CODE = "its transform is an iterative solver for each row; supported: 'threshold'."
NOT_RIDGE = (
    "no lowering is registered for it (it is not treated as a Ridge, because it overrides predict; its class is "
)
ESTIMATORS: dict[str, tuple[Callable[[], Any], str]] = {
    "member of voting": (
        lambda: VotingRegressor([("ridge", Ridge()), ("mine", Doubled())]).fit(X, y),
        "Cannot export Doubled (step 'mine'): " + NOT_RIDGE,
    ),
    "member of other features": (
        member_of_fewer_features,
        "Cannot export Ridge (step 'other'): it was fitted on 3 features and would get 7.",
    ),
    "final estimator of stacking": (
        lambda: StackingRegressor([("ridge", Ridge())], Doubled(), cv=2).fit(X, y),
        "Cannot export Doubled (step 'final_estimator_'): " + NOT_RIDGE,
    ),
    "member of bagging in a pipeline": (
        lambda: Pipeline([("bag", BaggingRegressor(Doubled(), 2))]).fit(X, y),
        "Cannot export Doubled (step 'bag.estimators_[0]'): " + NOT_RIDGE,
    ),
    "link of a chain": (
        lambda: RegressorChain(Doubled()).fit(X, Y),
        "Cannot export Doubled (step 'estimators_[0]'): " + NOT_RIDGE,
    ),
    "transformer of columns": (
        before_ridge(ColumnTransformer([("a", StandardScaler(), [1]), ("b", NMF(1), [2, 3])])),
        f"Cannot export NMF (step 'columntransformer.b'): {ITERATIVE}",
    ),
    "remainder": (
        before_ridge(ColumnTransformer([("a", StandardScaler(), [1])], remainder=NMF(2))),
        f"Cannot export NMF (step 'columntransformer.remainder'): {ITERATIVE}",
    ),
    "no column": (
        before_ridge(FeatureUnion([("x", "passthrough"), ("none", ColumnTransformer([("a", "drop", [0])]))])),
        "Cannot export ColumnTransformer (step 'featureunion.none'): it makes no column.",
    ),
    "no feature in columns": (
        nothing_selected,
        "Cannot export VarianceThreshold (step 'columntransformer.few'): it selects no feature.",
    ),
    "scores of a subclass": (
        scores_before_ridge,
        "Cannot export OwnScores (step 'scores'): no lowering is registered for it (it is not treated as a PLS",
    ),
    "search without refit before another step": (
        lambda: Pipeline([("search", GridSearchCV(NMF(1), {"tol": [1]}, refit=False)), ("ridge", Ridge().fit(X, y))]),
        "Cannot export GridSearchCV (step 'search'): it ",
    ),
    "unfitted frozen": (
        lambda: FrozenEstimator(Ridge()),
        "Cannot export FrozenEstimator: it is not fitted; call fit first.",
    ),
    "factorisation": (before_ridge(MiniBatchNMF(2)), f"Cannot export MiniBatchNMF (step 'minibatchnmf'): {ITERATIVE}"),
    "topics": (
        before_ridge(LatentDirichletAllocation(2, max_iter=1)),
        f"Cannot export LatentDirichletAllocation (step 'latentdirichletallocation'): {ITERATIVE}",
    ),
    "code": (
        before_ridge(SparseCoder(np.eye(7)[:3])),
        f"Cannot export SparseCoder (step 'sparsecoder'): transform_algorithm is 'omp', {CODE}",
    ),
    "learned code": (
        before_ridge(DictionaryLearning(2, max_iter=1, transform_algorithm="lasso_lars")),
        f"Cannot export DictionaryLearning (step 'dictionarylearning'): transform_algorithm is 'lasso_lars', {CODE}",
    ),
    "code learned in batches": (
        before_ridge(MiniBatchDictionaryLearning(2, max_iter=1, transform_algorithm="lasso_cd")),
        "Cannot export MiniBatchDictionaryLearning (step 'minibatchdictionarylearning'): "
        f"transform_algorithm is 'lasso_cd', {CODE}",
    ),
    "pooling by a function of the user's": (
        before_ridge(FeatureAgglomeration(2, pooling_func=spread)),
        "Cannot export FeatureAgglomeration (step 'featureagglomeration'): pooling_func is spread; "
        "supported: numpy's mean, sum, max, amax, min, amin, median.",
    ),
    "pooling by standard deviation": (
        before_ridge(FeatureAgglomeration(2, pooling_func=np.std)),
        "Cannot export FeatureAgglomeration (step 'featureagglomeration'): pooling_func is std; supported: numpy's ",
    ),
    "function with arguments": (
        before_ridge(FunctionTransformer(np.sqrt, kw_args={"dtype": np.float32})),
        "Cannot export FunctionTransformer (step 'functiontransformer'): its func cannot be exported: it cannot be "
        "traced: it calls numpy.sqrt with dtype. Use astype to choose types. Or keep the step in front ",
    ),
    "target transformer without inverse": (
        lambda: TransformedTargetRegressor(
            Ridge(), transformer=make_pipeline(StandardScaler(), FactorAnalysis(2)), check_inverse=False
        ).fit(X, Y),
        "Cannot export FactorAnalysis (step 'transformer_.factoranalysis'): "
        "no lowering is registered for its inverse_transform.",
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", ESTIMATORS)
def test_estimators_that_cannot_be_exported(case: str) -> None:
    make, message = ESTIMATORS[case]
    with pytest.raises(ExportError) as raised:
        compile_estimator(make(), sample=X)
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)
    assert str(raised.value).endswith(".")


class DataFrameMapper(TransformerMixin, BaseEstimator):
    """Stands for sklearn-pandas' class, which cannot be imported beside scikit-learn."""

    def fit(self, X: Any, y: Any = None) -> Any:
        self.built_features_: list[Any] = []
        return self

    def transform(self, X: Any) -> Any:
        return X


DataFrameMapper.__module__ = "sklearn_pandas.dataframe_mapper"


def test_another_way_than_a_data_frame_mapper_is_named() -> None:
    with pytest.raises(ExportError, match=r"Fit a ColumnTransformer of the same transformers\."):
        compile_estimator(make_pipeline(DataFrameMapper(), Ridge()).fit(X, y), sample=X)
