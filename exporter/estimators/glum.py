"""glum's generalised linear regressors: `y = link⁻¹(X coef + intercept)`; a category has a coefficient of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from triton_regressors.exporter.estimators.category_tables import as_array
from triton_regressors.exporter.estimators.encoding import Codes, are_large, are_strings, category_numbers, lookup
from triton_regressors.exporter.estimators.strings import refuse_unknown
from triton_regressors.exporter.lowering.builder import Builder, Value
from triton_regressors.exporter.lowering.registry import counts_columns, lowers, names_columns
from triton_regressors.kernels.ops.columns.combine import Combine

FUNCTIONS = {
    "CloglogLink": ("exp", "negative", "expm1", "negative"),
    "IdentityLink": (),
    "LogLink": ("exp",),
    "LogitLink": ("expit",),
}
"""The functions that each link's inverse applies in turn."""


REGRESSORS = ("glum._glm.GeneralizedLinearRegressor", "glum._glm_cv.GeneralizedLinearRegressorCV")
NUMBERED = "_col_"
"""The prefix of the names that glum gives to columns without names."""


@names_columns(*REGRESSORS)
def columns_of_glum(estimator: Any) -> list[str] | None:
    """Return the columns of the table, each of which has one or several coefficients; None for a matrix."""
    names = list(dict.fromkeys(getattr(estimator, "term_names_", ())))
    return None if not names or names == [f"{NUMBERED}{number}" for number in range(len(names))] else names


@counts_columns(*REGRESSORS)
def count_columns_of_glum(estimator: Any) -> int | None:
    """Return how many columns the table has."""
    return len(dict.fromkeys(estimator.term_names_)) if hasattr(estimator, "term_names_") else None


@lowers(*REGRESSORS)
def lower_generalised_linear(estimator: Any, x: Value, builder: Builder) -> Value:
    """`y = link⁻¹(X coef + intercept)`, with the last coefficients of a path."""
    if hasattr(estimator, "X_model_spec_"):
        raise builder.refuse(estimator, "it was fitted on a formula; supported: columns of numbers and of categories")
    link = estimator.link_instance
    name = type(link).__name__
    if name not in FUNCTIONS and name != "TweedieLink":
        raise builder.refuse(estimator, f"its link is {name}; supported: {', '.join([*FUNCTIONS, 'TweedieLink'])}")
    y = _sum(estimator, x, builder)
    if name == "TweedieLink" and link.power not in (0, 1):
        return builder.add(Combine("sum", exponent=float(1 / (1 - link.power))), y)
    functions = FUNCTIONS.get(name, ("exp",) if getattr(link, "power", 0) == 1 else ())
    for function in functions:
        y = builder.elementwise(y, function)
    return y


def _sum(estimator: Any, x: Value, builder: Builder) -> Value:
    """Return `X coef + intercept`, where a category stands for the row of its coefficient."""
    levels = getattr(estimator, "categorical_levels_", None) or {}
    if not levels:
        return builder.affine(x, estimator.coef_, estimator.intercept_)
    terms, weight, codes = np.array(estimator.term_names_), np.zeros(x.width), []
    for column, name in enumerate(dict.fromkeys(estimator.term_names_)):
        coefficients = np.asarray(estimator.coef_)[terms == name]
        if name in levels:
            codes.append(_coefficients(estimator, x, column, levels[name], coefficients, builder))
        else:
            (weight[column],) = coefficients
    found = lookup(builder, x, codes, summed=True)
    numeric = np.flatnonzero(~np.isin(np.arange(x.width), [code.column for code in codes]))
    if not len(numeric):
        return builder.affine(found, np.ones(1), estimator.intercept_)
    linear = builder.affine(builder.columns(x, numeric), weight[numeric], estimator.intercept_)
    return builder.add(Combine("sum"), linear, found)


def _coefficients(
    estimator: Any, x: Value, column: int, levels: list[Any], coefficients: np.ndarray, builder: Builder
) -> Codes:
    """Return the coefficient of each category of a column, NaN where `predict` raises an error."""
    name = list(dict.fromkeys(estimator.term_names_))[column]
    values, missing = list(coefficients), np.nan
    if estimator.cat_missing_method == "zero":
        missing = 0.0
    elif estimator.has_missing_category_[name]:
        missing = values.pop()
    values = [0.0] * (len(levels) - len(values)) + values  # that of the first one is dropped
    categories = as_array(levels)
    numbers = category_numbers(builder, estimator, x, column, categories)
    builder.profile.note_categories(x.features[column], levels)
    if are_strings(categories) or are_large(categories):
        refuse_unknown(builder, x, column)
    order = np.argsort(numbers)
    return Codes(column, numbers[order], np.array(values)[order], missing, np.nan)
