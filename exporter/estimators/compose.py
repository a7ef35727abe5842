"""Models made of models: pipelines, searches, columns and unions of transformers, several targets, transformed targets.

An estimator whose `predict` and `transform` differ, such as a Pipeline or a search, has a lowering for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.feature_selection import RFE, RFECV
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import RANSACRegressor
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.model_selection._search_successive_halving import HalvingGridSearchCV, HalvingRandomSearchCV
from sklearn.multioutput import MultiOutputRegressor, RegressorChain
from sklearn.pipeline import FeatureUnion, Pipeline

from triton_regressors.exporter.estimators.transforms import as_numpy_compares
from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.estimator import ask
from triton_regressors.exporter.lowering.registry import answers, lowers, lowers_inverse, lowers_transform, refuses

refuses(
    "sklearn-pandas, which has had no release since 2022, does not work with present releases of scikit-learn",
    "Fit a ColumnTransformer of the same transformers.",
    "sklearn_pandas.dataframe_mapper.DataFrameMapper",
)

# Pipelines

WITH_TARGETS = "feature_engine.pipeline.pipeline.Pipeline"
"""A Pipeline whose steps may also change the target during the fit; it answers as scikit-learn's does."""


@lowers(Pipeline, WITH_TARGETS)
def lower_pipeline(pipeline: Pipeline, x: Value, builder: Builder) -> dict[str, Value]:
    """Each step reads the output of the step before it; all but the last transform."""
    *before, (name, last) = pipeline.steps
    x = _transformed(before, x, builder)
    if _passes(last):
        return {"y": x}
    with builder.at(name):
        return builder.lower_outputs(last, x)


@answers(Pipeline, WITH_TARGETS)
def answer_by_pipeline(pipeline: Pipeline, table: Any, outputs: Sequence[str]) -> dict[str, Any]:
    """Return the last step's answers to the table that the steps before it transformed."""
    *before, (_, last) = pipeline.steps
    for _, step in before:
        table = table if _passes(step) else step.transform(table)
    return ask(last, table, outputs)


@lowers_transform(Pipeline, WITH_TARGETS)
def transform_by_pipeline(pipeline: Pipeline, x: Value, builder: Builder) -> Value:
    """Each step reads the output of the step before it."""
    return _transformed(pipeline.steps, x, builder)


@lowers_inverse(Pipeline, WITH_TARGETS)
def invert_pipeline(pipeline: Pipeline, y: Value, builder: Builder) -> Value:
    """The steps' inverses, last step first."""
    for name, step in reversed(pipeline.steps):
        if not _passes(step):
            with builder.at(name):
                y = builder.lower_inverse(step, y)
    return y


def _transformed(steps: Iterable[tuple[str, Any]], x: Value, builder: Builder) -> Value:
    for name, step in steps:
        with builder.at(name):
            x = _member(step, x, builder)
    return x


def _member(transformer: Any, x: Value, builder: Builder) -> Value:
    return x if _passes(transformer) else builder.lower_transform(transformer, x)


def _passes(transformer: Any) -> bool:
    return transformer is None or (isinstance(transformer, str) and transformer == "passthrough")


# Transformers side by side


@lowers(ColumnTransformer)
def lower_column_transformer(transformer: ColumnTransformer, x: Value, builder: Builder) -> Value:
    """Each transformer's output for its columns, times its weight, side by side; the remainder comes last."""
    members = []
    for name, member, _ in transformer.transformers_:
        columns = transformer._transformer_to_input_indices[name]
        if len(columns) and not _dropped(member):
            selected = builder.columns(x, columns)
            builder.profile.name_tensor(selected.features, name)
            members.append((name, member, selected))
    return _side_by_side(transformer, members, builder)


@lowers(FeatureUnion)
def lower_feature_union(union: FeatureUnion, x: Value, builder: Builder) -> Value:
    """Each transformer's output, times its weight, side by side."""
    members = [(name, member, x) for name, member in union.transformer_list if not _dropped(member)]
    return _side_by_side(union, members, builder)


def _dropped(transformer: Any) -> bool:
    return isinstance(transformer, str) and transformer == "drop"


def _side_by_side(owner: Any, members: list[tuple[str, Any, Value]], builder: Builder) -> Value:
    """Return the output of each named transformer for its value, times the owner's weight for it."""
    weights = owner.transformer_weights or {}
    values = []
    for name, member, x in members:
        with builder.at(name):
            z = _member(member, x, builder)
        weight = weights.get(name)
        values.append(z if weight is None else builder.scale(z, 0.0, as_numpy_compares(weight, z)))
    if not values:
        raise builder.refuse(owner, "it makes no column")
    return builder.concatenate(values)


# Wrappers of one estimator


@lowers(GridSearchCV, RandomizedSearchCV, HalvingGridSearchCV, HalvingRandomSearchCV)
def lower_search(search: Any, x: Value, builder: Builder) -> dict[str, Value]:
    """The best estimator that the search refitted."""
    best = _best(search, builder)
    with builder.at("best_estimator_"):
        return builder.lower_outputs(best, x)


@answers(GridSearchCV, RandomizedSearchCV, HalvingGridSearchCV, HalvingRandomSearchCV)
def answer_by_search(search: Any, table: Any, outputs: Sequence[str]) -> dict[str, Any]:
    """Return the best estimator's answers: the search's own `predict` does not pass `return_std` on."""
    return ask(search.best_estimator_, table, outputs)


@lowers_transform(GridSearchCV, RandomizedSearchCV, HalvingGridSearchCV, HalvingRandomSearchCV)
def transform_by_search(search: Any, x: Value, builder: Builder) -> Value:
    """The best transformer that the search refitted."""
    best = _best(search, builder)
    with builder.at("best_estimator_"):
        return builder.lower_transform(best, x)


def _best(search: Any, builder: Builder) -> Any:
    if not hasattr(search, "best_estimator_"):
        raise builder.refuse(search, "it has no best_estimator_; fit it with refit=True")
    return search.best_estimator_


@lowers(FrozenEstimator)
def lower_frozen(frozen: FrozenEstimator, x: Value, builder: Builder) -> dict[str, Value]:
    """The frozen estimator itself."""
    with builder.at("estimator"):
        return builder.lower_outputs(frozen.estimator, x)


@answers(FrozenEstimator)
def answer_by_frozen(frozen: FrozenEstimator, table: Any, outputs: Sequence[str]) -> dict[str, Any]:
    """Return the frozen estimator's own answers."""
    return ask(frozen.estimator, table, outputs)


@lowers_transform(FrozenEstimator)
def transform_by_frozen(frozen: FrozenEstimator, x: Value, builder: Builder) -> Value:
    """The frozen transformer itself."""
    with builder.at("estimator"):
        return builder.lower_transform(frozen.estimator, x)


@lowers_inverse(FrozenEstimator)
def invert_frozen(frozen: FrozenEstimator, y: Value, builder: Builder) -> Value:
    """The inverse of the frozen transformer."""
    with builder.at("estimator"):
        return builder.lower_inverse(frozen.estimator, y)


@lowers(RFE, RFECV)
def lower_elimination(selector: Any, x: Value, builder: Builder) -> Value:
    """The estimator fitted on the selected features."""
    selected = builder.lower_transform(selector, x)
    with builder.at("estimator_"):
        return builder.lower(selector.estimator_, selected)


@lowers(RANSACRegressor)
def lower_ransac(regressor: RANSACRegressor, x: Value, builder: Builder) -> Value:
    """The estimator fitted on the inliers."""
    with builder.at("estimator_"):
        return builder.lower(regressor.estimator_, x)


@lowers(TransformedTargetRegressor)
def lower_transformed_target(regressor: TransformedTargetRegressor, x: Value, builder: Builder) -> Value:
    """`y = transformer⁻¹(regressor(x))`."""
    with builder.at("regressor_"):
        y = builder.lower(regressor.regressor_, x)
    with builder.at("transformer_"):
        return builder.lower_inverse(regressor.transformer_, y)


# Several targets


@lowers(MultiOutputRegressor)
def lower_multi_output(regressor: MultiOutputRegressor, x: Value, builder: Builder) -> Value:
    """One regressor for each target, side by side."""
    values = []
    for index, estimator in enumerate(regressor.estimators_):
        with builder.at(f"estimators_[{index}]"):
            values.append(builder.lower(estimator, x))
    return builder.concatenate(values)


@lowers(RegressorChain)
def lower_chain(chain: RegressorChain, x: Value, builder: Builder) -> Value:
    """One regressor for each target, which also reads the predictions before it; `order_` gives the targets."""
    values: list[Value] = []
    for index, estimator in enumerate(chain.estimators_):
        with builder.at(f"estimators_[{index}]"):
            values.append(builder.lower(estimator, builder.concatenate([x, *values])))
    return builder.columns(builder.concatenate(values), np.argsort(chain.order_))
