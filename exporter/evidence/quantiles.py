"""The quantiles of the target that a fitted model answers, and the models of quantiles that a user gives beside it."""

from __future__ import annotations

import json
from typing import Any

from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.evidence.intervals import ENDS
from triton_regressors.exporter.evidence.oracle import feature_names
from triton_regressors.exporter.lowering.registry import qualified_name

MULTI_QUANTILE = "MultiQuantile:alpha="
"""The prefix of the name of CatBoost's loss of several quantiles."""


def check_quantiles(estimator: Any, quantiles: Any | None, calibrate: Any | None) -> tuple[Any, ...]:
    """Return the fitted models of a lower and of an upper quantile, or nothing for None.

    Raises:
        ExportError: they are no pair, no rows go with them, or they read other columns than the estimator.
    """
    if quantiles is None:
        return ()
    if calibrate is None:
        raise ExportError(
            "quantiles are the ends of a prediction interval, which needs calibration rows: give calibrate."
        )
    if not isinstance(quantiles, tuple | list) or len(quantiles) != 2:
        raise ExportError(
            f"quantiles must be a pair of fitted models, of a lower and an upper quantile, not {quantiles!r:.80}."
        )
    names = feature_names(estimator)
    for end, model in zip(ENDS, quantiles, strict=True):
        if not hasattr(model, "predict"):
            raise ExportError(f"The model of the {end} quantile must be a fitted regressor, not {model!r:.80}.")
        read = feature_names(model)
        if names is not None and read is not None and names != read:
            raise ExportError(
                f"The model of the {end} quantile was fitted on other columns than {type(estimator).__name__}, or in "
                "another order; fit all of them on the same table."
            )
    return tuple(quantiles)


def columns_of_level(estimator: Any, width: int, level: float) -> tuple[tuple[int, int], tuple[float, float]] | None:
    """Return which two columns of `y` are the ends for a level, and their quantiles; None where `y` is no quantiles.

    They are those nearest to the quantiles (1 − level) / 2 and (1 + level) / 2; `width` is that of `y`.

    Raises:
        ExportError: they do not lie on either side of 0.5.
    """
    known = quantile_levels(estimator)
    if len(known) < 2 or len(known) != width:
        return None
    low, high = (
        min(range(width), key=lambda column: abs(known[column] - wanted))
        for wanted in ((1 - level) / 2, (1 + level) / 2)
    )
    if not known[low] < 0.5 < known[high]:
        raise ExportError(
            f"Cannot calibrate {type(estimator).__name__}: an interval needs a quantile below 0.5 and one above 0.5, "
            f"and the model answers {', '.join(f'{quantile:g}' for quantile in known)}; fit it with "
            f"{(1 - level) / 2:g} and {(1 + level) / 2:g} among them."
        )
    return (low, high), (known[low], known[high])


def quantile_levels(estimator: Any) -> tuple[float, ...]:
    """Return the quantiles that the columns of a fitted model's answer are, or nothing where it is not known to be so.

    They are XGBoost's `quantile_alpha` and those of CatBoost's MultiQuantile, also at the end of a Pipeline or in a
    search.
    """
    if hasattr(estimator, "steps"):
        return quantile_levels(estimator.steps[-1][1])
    if hasattr(estimator, "best_estimator_"):
        return quantile_levels(estimator.best_estimator_)
    classes = {qualified_name(cls) for cls in type(estimator).__mro__}
    if "xgboost.sklearn.XGBModel" in classes:
        objective = json.loads(estimator.get_booster().save_config())["learner"]["objective"]
        found = json.loads(objective.get("quantile_loss_param", {}).get("quantile_alpha", "[]"))
    elif "catboost.core.CatBoost" in classes:
        loss = estimator.get_params().get("loss_function")
        several = isinstance(loss, str) and loss.startswith(MULTI_QUANTILE)
        found = loss[len(MULTI_QUANTILE) :].partition(";")[0].split(",") if several else []
    else:
        found = []
    return tuple(float(quantile) for quantile in found)
