"""Fitted boosters whose attributes differ from those of scikit-learn's estimators."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

MULTI_QUANTILE = "MultiQuantile:alpha="
"""The prefix of the name of CatBoost's loss of several quantiles."""


def column_names(estimator: Any) -> list[str] | None:
    """Return the names that CatBoost keeps in `feature_names_`, or None; it numbers columns without names."""
    names = getattr(estimator, "feature_names_", None)
    return names if isinstance(names, list) and names != [str(number) for number in range(len(names))] else None


def width(estimator: Any) -> int:
    """Return the number of features that an estimator states.

    CatBoost's `n_features_in_` is 0 in a loaded model, but its `feature_names_` remain. NGBoost has `n_features`, pyGAM
    a statistic, and results of statsmodels have a parameter for each.

    Raises:
        AttributeError, TypeError: the estimator states no number.
    """
    modules = {cls.__module__.partition(".")[0] for cls in type(estimator).__mro__}
    if "ngboost" in modules:
        return int(estimator.n_features)
    if "pygam" in modules:
        return int(estimator.statistics_["m_features"])
    if "statsmodels" in modules:
        return len(estimator.params)
    return int(estimator.n_features_in_) or len(estimator.feature_names_)


def says_fitted(estimator: Any) -> bool:
    """Return whether an estimator says itself that it is fitted, as a sum of CatBoost's models and optbinning do."""
    says_itself = getattr(estimator, "is_fitted", None)
    return bool(says_itself()) if callable(says_itself) else getattr(estimator, "_is_fitted", None) is True


def quantile_levels(estimator: Any, classes: Collection[str]) -> tuple[float, ...]:
    """Return the quantiles in the columns of a booster's answer, or nothing if they are not known to be quantiles.

    They are XGBoost's `quantile_alpha` and those of CatBoost's MultiQuantile. `classes` are the qualified names of the
    estimator's classes.
    """
    found: list[Any] = []
    if "xgboost.sklearn.XGBModel" in classes:
        objective = json.loads(estimator.get_booster().save_config())["learner"]["objective"]
        found = json.loads(objective.get("quantile_loss_param", {}).get("quantile_alpha", "[]"))
    elif "catboost.core.CatBoost" in classes:
        loss = estimator.get_params().get("loss_function")
        several = isinstance(loss, str) and loss.startswith(MULTI_QUANTILE)
        found = loss[len(MULTI_QUANTILE) :].partition(";")[0].split(",") if several else []
    return tuple(float(quantile) for quantile in found)
