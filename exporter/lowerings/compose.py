"""Models made of models: pipelines, searches, several targets, transformed targets, RANSAC."""

from __future__ import annotations

from typing import Any

from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import RANSACRegressor
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.model_selection._search_successive_halving import HalvingGridSearchCV, HalvingRandomSearchCV
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import Pipeline

from triton_regressors.exporter.builder import Builder, Value
from triton_regressors.exporter.registry import lowers, lowers_inverse


@lowers(Pipeline)
def lower_pipeline(pipeline: Pipeline, x: Value, builder: Builder) -> dict[str, Value]:
    """Each step reads what the step before it made."""
    outputs = {"y": x}
    for name, step in pipeline.steps:
        if step is None or step == "passthrough":
            continue
        with builder.at(name):
            outputs = builder.lower_outputs(step, outputs["y"])
    return outputs


@lowers_inverse(Pipeline)
def invert_pipeline(pipeline: Pipeline, y: Value, builder: Builder) -> Value:
    """The steps' inverses, last step first."""
    for name, step in reversed(pipeline.steps):
        if step is None or step == "passthrough":
            continue
        with builder.at(name):
            y = builder.lower_inverse(step, y)
    return y


@lowers(GridSearchCV, RandomizedSearchCV, HalvingGridSearchCV, HalvingRandomSearchCV)
def lower_search(search: Any, x: Value, builder: Builder) -> dict[str, Value]:
    """The best estimator that the search refitted."""
    if not hasattr(search, "best_estimator_"):
        raise builder.refuse(search, "it has no best_estimator_; fit it with refit=True")
    with builder.at("best_estimator_"):
        return builder.lower_outputs(search.best_estimator_, x)


@lowers(MultiOutputRegressor)
def lower_multi_output(regressor: MultiOutputRegressor, x: Value, builder: Builder) -> Value:
    """One regressor a target, side by side."""
    values = []
    for index, estimator in enumerate(regressor.estimators_):
        with builder.at(f"estimators_[{index}]"):
            values.append(builder.lower(estimator, x))
    return builder.concatenate(values)


@lowers(TransformedTargetRegressor)
def lower_transformed_target(regressor: TransformedTargetRegressor, x: Value, builder: Builder) -> Value:
    """`y = transformer⁻¹(regressor(x))`."""
    with builder.at("regressor_"):
        y = builder.lower(regressor.regressor_, x)
    with builder.at("transformer_"):
        return builder.lower_inverse(regressor.transformer_, y)


@lowers(RANSACRegressor)
def lower_ransac(regressor: RANSACRegressor, x: Value, builder: Builder) -> Value:
    """The estimator fitted on the inliers."""
    with builder.at("estimator_"):
        return builder.lower(regressor.estimator_, x)
