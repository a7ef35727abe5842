"""FLAML's AutoML of regression: its preparation of columns, and the best estimator's model.

A DataFrame's categories become codes of those seen in the fit, with a code of their own for missing and unknown ones,
and come before the numbers, in which medians replace missing ones. A matrix stays as it is. The classes of
`flaml.automl.model` hold a model of the library and change its columns once more.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from triton_regressors.exporter.estimators.catboost import lower_catboost_regressor
from triton_regressors.exporter.estimators.category_tables import as_array
from triton_regressors.exporter.estimators.encoding import Codes, category_numbers, lookup
from triton_regressors.exporter.estimators.lightgbm import lower_booster
from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.registry import counts_columns, lowers, names_columns

AUTOML = "flaml.automl.automl.AutoML"
MISSING = "__NAN__"
"""FLAML's category for missing and unknown ones."""


@names_columns(AUTOML)
def columns_of_automl(automl: Any) -> list[str] | None:
    """Return the columns of a DataFrame that `predict` takes, or None if it was fitted on a matrix."""
    known: Any = getattr(automl, "_transformer", None)
    if not hasattr(known, "_cat_columns"):
        return None
    names = [*known._cat_columns, *known._num_columns]
    return [str(name) for name in names] if all(isinstance(name, str) for name in names) else None


@counts_columns(AUTOML)
def count_columns_of_automl(automl: Any) -> int | None:
    """Return how many columns of the rows `predict` takes."""
    names = columns_of_automl(automl)
    return (automl.n_features_in_ if automl.model is not None else None) if names is None else len(names)


@lowers(AUTOML)
def lower_automl(automl: Any, x: Value, builder: Builder) -> Value:
    """The best estimator's answer to the prepared columns."""
    if str(automl._state.task) != "regression":
        raise builder.refuse(automl, f"its task is '{automl._state.task}'; supported: 'regression'")
    known = automl._transformer
    if getattr(known, "_datetime_columns", None):
        raise builder.refuse(
            automl,
            "it was fitted on columns of dates. Make numbers of them before the fit, in a function that is traced as a "
            "step of a Pipeline (docs/own_code.md)",
        )
    if hasattr(known, "_cat_columns"):
        x = _prepared(automl, known, x, builder)
    with builder.at("model"):
        return builder.lower(automl.model, x)


def _prepared(automl: Any, known: Any, x: Value, builder: Builder) -> Value:
    """Return the codes of categories, marked with their strings, and the numbers without missing ones."""
    count, values, codes, strings = len(known._cat_columns), list[Value](), list[Codes](), list[tuple[str, ...]]()
    for column, name in enumerate(known._cat_columns):
        categories = known._cat_categories[name]
        places = [place for place, category in enumerate(categories) if category != MISSING]
        named = [categories[place] for place in places]
        numbers = category_numbers(builder, automl, x, column, as_array(named))
        if not any(isinstance(category, str) for category in named):
            builder.profile.note_categories(x.features[column], named)
        order, missing = np.argsort(numbers), float(categories.index(MISSING))
        found = np.array(places, dtype=np.float64)[order]
        codes.append(Codes(column, numbers[order], found, missing, missing))
        strings.append(tuple(map(str, categories)))
    if codes:
        values.append(dataclasses.replace(lookup(builder, x, codes), strings=tuple(strings)))
    if known._num_columns:
        read = builder.columns(x, range(count, count + len(known._num_columns)))
        values.append(builder.lower_transform(known.transformer, read))
    return builder.concatenate(values)


def _categories(x: Value) -> dict[int, tuple[str, ...]]:
    """Return the categories of each column of codes."""
    return {column: named for column, named in enumerate(x.strings) if named is not None}


_MODEL = "flaml.automl.model."


@lowers(
    "flaml.automl.contrib.histgb.HistGradientBoostingEstimator",
    f"{_MODEL}ElasticNetEstimator",
    f"{_MODEL}ExtraTreesEstimator",
    f"{_MODEL}LassoLarsEstimator",
    f"{_MODEL}RandomForestEstimator",
    f"{_MODEL}SGDEstimator",
    f"{_MODEL}XGBoostLimitDepthEstimator",
    f"{_MODEL}XGBoostSklearnEstimator",
)
def lower_flaml_estimator(estimator: Any, x: Value, builder: Builder) -> Value:
    """The model, which reads codes as numbers; that of SGD reads rows that a Normalizer has scaled."""
    x = dataclasses.replace(x, strings=())
    if hasattr(estimator, "normalizer"):
        x = builder.lower_transform(estimator.normalizer, x)
    return builder.lower(estimator.model, x)


@lowers(f"{_MODEL}LGBMEstimator")
def lower_flaml_lightgbm(estimator: Any, x: Value, builder: Builder) -> Value:
    """LightGBM, for which a category is missing that the fit has not seen."""
    codes, fitted = [], estimator.model.booster_.pandas_categorical or ()
    for (column, named), seen in zip(_categories(x).items(), fitted, strict=True):
        numbers, in_fit = np.arange(len(named), dtype=np.float64), [name in map(str, seen) for name in named]
        codes.append(Codes(column, numbers, np.where(in_fit, numbers, np.nan), np.nan, np.nan))
    if not codes:
        return builder.lower(estimator.model, x)
    read = builder.concatenate([lookup(builder, x, codes), x])
    order = np.arange(x.width) + len(codes)
    order[[code.column for code in codes]] = np.arange(len(codes))
    return lower_booster(estimator, estimator.model.booster_, builder.columns(read, order), builder)


@lowers(f"{_MODEL}CatBoostEstimator")
def lower_flaml_catboost(estimator: Any, x: Value, builder: Builder) -> Value:
    """CatBoost, which reads the categories themselves."""
    found = lower_catboost_regressor(estimator.model, x, builder, _categories(x))
    return found["y"] if isinstance(found, dict) else found


@counts_columns(f"{_MODEL}KNeighborsEstimator")
def count_columns_of_neighbors(estimator: Any) -> int | None:
    """Return None, as the model states the number without the categories."""
    return None


@lowers(f"{_MODEL}KNeighborsEstimator")
def lower_flaml_neighbors(estimator: Any, x: Value, builder: Builder) -> Value:
    """Neighbours of the numbers alone."""
    named = _categories(x)
    return builder.lower(estimator.model, builder.columns(x, [n for n in range(x.width) if n not in named]))
