"""A fitted estimator's `repr`, the columns it was fitted on, and its answers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from numbers import Integral
from typing import Any

from sklearn.preprocessing import FunctionTransformer

from triton_regressors.exporter.boosters import fitted
from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.lowering.registry import find_answers, find_names, takes_own_code
from triton_regressors.tables.frames import has_names

INNER_ESTIMATORS = ("best_estimator_", "estimator_", "regressor_")
"""The attributes in which scikit-learn's estimators keep one inner estimator."""


def written(estimator: Any) -> str:
    """Return the `repr` of an estimator without the addresses of functions, which differ each time.

    Some classes keep no attribute for a parameter, so that they cannot be shown; the name of the class then stands.
    """
    try:
        shown = repr(estimator)
    except AttributeError:
        shown = f"{type(estimator).__name__}()"
    return re.sub(r" at 0x[0-9a-f]+", "", shown)


def feature_names(estimator: Any) -> list[str] | None:
    """Return the names of the columns that the estimator was fitted on, if they had any; numbers are no names."""
    naming = find_names(estimator)
    if naming is not None:
        return naming(estimator)
    names = getattr(estimator, "feature_names_in_", None)
    if names is not None and any(isinstance(name, Integral) for name in names):
        return None
    if names is not None:
        return [str(name) for name in names]
    if hasattr(estimator, "feature_names_"):
        return fitted.column_names(estimator)
    # An estimator that hands its rows on to CatBoost has no names itself.
    steps, members = getattr(estimator, "steps", ()), getattr(estimator, "estimators_", ())
    inner = [step for _, step in steps[:1]] + [getattr(estimator, name, None) for name in INNER_ESTIMATORS]
    inner += members[:1] if isinstance(members, list) else []
    return next(filter(None, (feature_names(part) for part in inner if part is not None)), None)


def table_names(estimator: Any, sample: Any | None) -> list[str] | None:
    """Return the names of an estimator's columns: those of its fit, or a sample's if own code takes the rows first.

    A class of the user's own seldom keeps the names of the columns that it was fitted on.
    """
    names = feature_names(estimator)
    if names is not None or sample is None or not has_names(sample) or not named_by_sample(estimator):
        return names
    return [str(name) for name in sample.columns]


def named_by_sample(estimator: Any) -> bool:
    """Return whether own code takes an estimator's rows first and has not kept their columns' names."""
    if isinstance(estimator, type) or feature_names(estimator) is not None:
        return False
    first = _first_part(estimator)
    return not hasattr(first, "n_features_in_") and (takes_own_code(first) or isinstance(first, FunctionTransformer))


def _first_part(estimator: Any) -> Any:
    """Return the part of an estimator that takes the rows first."""
    steps = getattr(estimator, "steps", None)
    if isinstance(steps, list) and steps:
        kept = next((step for _, step in steps if step is not None and not isinstance(step, str)), None)
        return estimator if kept is None else _first_part(kept)
    inner = next((getattr(estimator, name) for name in INNER_ESTIMATORS if hasattr(estimator, name)), None)
    return estimator if inner is None else _first_part(inner)


def ask(estimator: Any, table: Any, outputs: Sequence[str]) -> dict[str, Any]:
    """Return an estimator's own answers to a table for each of the outputs.

    They come from the function that is registered for its class with `answers`, or from `predict` if there is none.
    """
    answering = find_answers(estimator)
    if answering is not None:
        found = answering(estimator, table, outputs)
    elif "std" in outputs:
        found = dict(zip(("y", "std"), estimator.predict(table, return_std=True), strict=True))
    else:
        found = {"y": estimator.predict(table)}
    unanswered = next((output for output in outputs if output not in found), None)
    if unanswered is not None:
        name = type(estimator).__name__
        raise ExportError(
            f"Cannot export {name}: its lowering returns the output {unanswered}, and nothing asks the estimator for "
            f"it. Register a function that does with @triton_regressors.answers({name})."
        )
    return found
