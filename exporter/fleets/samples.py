"""The ids of a fleet's models, and the rows and further models that belong to each of them, as the user gives them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from triton_regressors.exporter.errors import ExportError


def check_models(models: Mapping[Any, Any], by: str) -> None:
    """Raise `ExportError` unless there are models with ids, and a name for the column of ids."""
    if not isinstance(models, Mapping) or not models:
        raise ExportError("A fleet needs a mapping with at least one fitted model by its id.")
    check_ids(models)
    if not isinstance(by, str) or not by:
        raise ExportError(f"by must be the name of the column of ids, not {by!r}.")


def check_ids(ids: Iterable[Any]) -> None:
    """Raise `ExportError` unless all ids are strings, or all are whole numbers."""
    whole: bool | None = None
    for each in ids:
        whole = isinstance(each, int) if whole is None else whole
        if not (_is_number(each) if whole else isinstance(each, str) and each):
            kind = "a whole number that INT64 holds, as others are" if whole else "a string that is not empty"
            raise ExportError(f"The id of a model must be {kind}, not {each!r}.")


def arguments_of_models(
    models: Mapping[Any, Any],
    by: str,
    *,
    samples: Any = None,
    calibrate: Any = None,
    quantiles: Any = None,
    others: Collection[Any] = (),
) -> dict[Any, dict[str, Any]]:
    """Return the arguments of `compile_estimator` that each model has of its own, by its id.

    Args:
        models: the fitted estimators by their ids.
        by: the name of the column of ids.
        samples: rows of each model by its id, or a table of all of them with their ids; None: there are none.
        calibrate: pairs of rows and targets of each model by its id, or a pair of such a table and its targets; None:
            there are none.
        quantiles: pairs of models of a lower and an upper quantile by the id; None: there are none.
        others: ids of further models, whose rows are left out.

    Raises:
        ExportError: one of these lacks a model, or has a model that the fleet lacks, or is not of this kind.
    """
    if isinstance(samples, pd.DataFrame):
        parts = parts_of(samples, by, "The samples lack")
        samples = {key: samples.iloc[places].drop(columns=by) for key, places in parts.items()}
    given = {
        "sample": _of_models(models, samples, "The samples have", "rows", others),
        "calibrate": _of_models(models, _pairs(calibrate, by), "The calibration tables have", "rows", others),
        "quantiles": _of_models(models, quantiles, "The quantiles have", "models", others),
    }
    return {key: {name: each[key] for name, each in given.items() if each is not None} for key in models}


def parts_of(table: pd.DataFrame, by: Any, lack: str) -> dict[Any, np.ndarray]:
    """Return the places of each model's rows in a table; raise `ExportError` if it has no column of ids."""
    if by not in table.columns:
        raise ExportError(f"{lack} the column {by!r} with the ids of their models.")
    return dict(table.groupby(by, sort=False, observed=True).indices)


def table_and_targets(calibrate: Any, by: Any) -> tuple[Any, np.ndarray]:
    """Return the table of all models and its targets; raise `ExportError` unless they are a pair of one length."""
    if not isinstance(calibrate, tuple | list) or len(calibrate) != 2:
        raise ExportError(
            "calibrate must be a mapping of pairs (X, y) by their ids, or a pair (table, y) whose table has the column "
            f"{by!r}, not {type(calibrate).__name__}."
        )
    table, targets = calibrate[0], np.asarray(calibrate[1])
    if not hasattr(table, "__len__") or not targets.ndim or len(table) != len(targets):
        raise ExportError(
            f"calibrate must have a target for each row, and has {len(table):,} rows and targets of shape "
            f"{list(targets.shape)}."
        )
    return table, targets


def _pairs(calibrate: Any, by: str) -> Mapping[Any, Any] | None:
    """Return pairs of rows and targets by the ids of their models."""
    if calibrate is None or isinstance(calibrate, Mapping):
        return calibrate
    table, targets = table_and_targets(calibrate, by)
    if not isinstance(table, pd.DataFrame):
        raise ExportError(
            f"The rows of calibrate must be a DataFrame with the column {by!r}, not {type(table).__name__}."
        )
    own = table.drop(columns=by, errors="ignore")
    parts = parts_of(table, by, "The calibration rows lack")
    return {key: (own.iloc[places], targets[places]) for key, places in parts.items()}


def _of_models(
    models: Mapping[Any, Any], given: Mapping[Any, Any] | None, have: str, what: str, others: Collection[Any]
) -> Mapping[Any, Any] | None:
    """Return what is given for each model, or None; raise `ExportError` if it fits neither the models nor `others`."""
    if given is None:
        return None
    unknown = [key for key in given if key not in models and key not in others]
    lacking = [key for key in models if key not in given]
    if lacking:
        more = f", nor for {len(lacking) - 1:,} others" if len(lacking) > 1 else ""
        raise ExportError(f"{have} no {what} for the model {lacking[0]!r}{more}.")
    if unknown:
        raise ExportError(f"{have} {what} for {unknown[0]!r}, which is no model of the fleet.")
    return given


def _is_number(given: Any) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and -(2**63) <= given < 2**63
