"""Whether scikit-learn's transformers hand a sparse matrix on: XGBoost takes the zeros of one for missing numbers."""

from __future__ import annotations

from typing import Any

from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomTreesEmbedding
from sklearn.feature_selection import SelectorMixin
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.kernel_approximation import AdditiveChi2Sampler
from sklearn.model_selection._search import BaseSearchCV
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    Normalizer,
    OneHotEncoder,
    PolynomialFeatures,
    QuantileTransformer,
    RobustScaler,
    SplineTransformer,
    StandardScaler,
)

KEEPING = (
    AdditiveChi2Sampler,
    Binarizer,
    FunctionTransformer,
    MaxAbsScaler,
    MissingIndicator,
    Normalizer,
    PolynomialFeatures,
    QuantileTransformer,
    RobustScaler,
    SelectorMixin,
    SimpleImputer,
    StandardScaler,
)
"""The transformers that return a sparse matrix for a sparse one."""


def makes_sparse(transformer: Any, given: bool) -> bool:
    """Return whether a fitted transformer's output is a sparse matrix; `given` says it of its input."""
    match transformer:
        case ColumnTransformer():
            return bool(transformer.sparse_output_)
        case FeatureUnion():
            return any(makes_sparse(member, given) for _, member in transformer.transformer_list)
        case Pipeline():
            for _, step in transformer.steps:
                given = makes_sparse(step, given)
            return given
        case BaseSearchCV():
            return makes_sparse(transformer.best_estimator_, given)
        case OneHotEncoder() | RandomTreesEmbedding() | SplineTransformer():
            return bool(transformer.sparse_output)
        case KBinsDiscretizer():
            return bool(transformer.encode == "onehot")
    passes = transformer is None or (isinstance(transformer, str) and transformer == "passthrough")
    return given and (passes or isinstance(transformer, KEEPING))
