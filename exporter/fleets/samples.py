"""The ids of a fleet's models, and the rows and further models that belong to each of them, as the user gives them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from triton_regressors.exporter.errors import ExportError
from triton_regressors.tables.columns import in_words


def columns_of_ids(by: Any) -> tuple[Any, ...]:
    """Return the names of the columns of ids: one, or several in the order of an id's parts."""
    return tuple(by) if isinstance(by, list | tuple) else (by,)


def check_models(models: Mapping[Any, Any], by: Sequence[str]) -> None:
    """Raise `ExportError` unless there are models with ids, and names for the columns of ids."""
    if not isinstance(models, Mapping) or not models:
        raise ExportError("A fleet needs a mapping with at least one fitted model by its id.")
    if not by or not all(isinstance(name, str) and name for name in by) or len(set(by)) < len(by):
        given = by[0] if len(by) == 1 else list(by)
        raise ExportError(f"by must be the name of the column of ids, or a list of such names, not {given!r}.")
    check_ids(models, by)


def check_ids(ids: Collection[Any], by: Sequence[str]) -> None:
    """Raise `ExportError` unless ids, or their parts in each of several columns, are all strings or all whole numbers.

    An id in several columns is a tuple with a part for each of them, or for the first of them alone.
    """
    if len(by) == 1:
        _check_alike(ids, "The id of a model")
        return
    for each in ids:
        if not isinstance(each, tuple) or len(each) > len(by):
            raise ExportError(
                f"The id of a model must be a tuple of its {' and '.join(by)}, or of the first of them, not {each!r}."
            )
    for place, name in enumerate(by):
        parts = [each[place] for each in ids if len(each) > place]
        if not parts:
            raise ExportError(f"No model has an id with a part for {name!r}; leave that column out of by=.")
        _check_alike(parts, f"The part of an id for {name!r}")


def _check_alike(ids: Iterable[Any], called: str) -> None:
    whole: bool | None = None
    for each in ids:
        whole = isinstance(each, int) if whole is None else whole
        if not (_is_number(each) if whole else isinstance(each, str) and each):
            kind = "a whole number that INT64 holds, as others are" if whole else "a string that is not empty"
            raise ExportError(f"{called} must be {kind}, not {each!r}.")


def default_of(ids: Collection[Any], default: Any) -> Any:
    """Return the id of the model that answers rows with an unknown id, or None: the id without parts does, if given.

    Raises:
        ExportError: `default` is the id of no model, or of another one than that without parts.
    """
    if () in ids:
        if default not in (None, ()):
            raise ExportError(
                f"The model () answers rows with an unknown id, so {default!r} cannot; leave out default=."
            )
        return ()
    if default is not None and default not in [*ids]:
        raise ExportError(f"default must be the id of a model of the fleet, not {default!r}.")
    return default


def has_parents(ids: Iterable[Any], by: Sequence[str]) -> bool:
    """Return whether ids in several columns have fewer parts: their models answer unknown ids that begin so."""
    return len(by) > 1 and any(len(each) < len(by) for each in ids)


def arguments_of_models(
    models: Mapping[Any, Any],
    by: Sequence[str],
    *,
    samples: Any = None,
    calibrate: Any = None,
    quantiles: Any = None,
    others: Collection[Any] = (),
) -> dict[Any, dict[str, Any]]:
    """Return the arguments of `compile_estimator` that each model has of its own, by its id.

    Args:
        models: the fitted estimators by their ids.
        by: the names of the columns of ids.
        samples: rows of each model by its id, or a table of all of them with their ids; None: there are none.
        calibrate: pairs of rows and targets of each model by its id, or a pair of such a table and its targets; None:
            there are none.
        quantiles: pairs of models of a lower and an upper quantile by the id; None: there are none.
        others: ids of further models, whose rows are left out.

    Raises:
        ExportError: one of these lacks a model, or has a model that the fleet lacks, or is not of this kind.
    """
    ids = {**models, **dict.fromkeys(others)}
    if isinstance(samples, pd.DataFrame):
        parts = parts_of(samples, by, ids, "The samples lack")
        samples = {key: samples.iloc[places].drop(columns=[*by]) for key, places in parts.items()}
    given = {
        "sample": _of_models(models, samples, "The samples have", "rows", others),
        "calibrate": _of_models(models, _pairs(calibrate, by, ids), "The calibration tables have", "rows", others),
        "quantiles": _of_models(models, quantiles, "The quantiles have", "models", others),
    }
    return {key: {name: each[key] for name, each in given.items() if each is not None} for key in models}


def parts_of(table: pd.DataFrame, by: Sequence[Any], models: Collection[Any], lack: str) -> dict[Any, np.ndarray]:
    """Return the places of each model's rows in a table; the rows of an id of fewer parts are all that begin so.

    Raises:
        ExportError: the table has no column of ids.
    """
    for name in by:
        if name not in table.columns:
            raise ExportError(f"{lack} the column {name!r} with the ids of their models.")
    parts = dict(table.groupby(by[0] if len(by) == 1 else [*by], sort=False, observed=True).indices)
    if not has_parents(models, by):
        return parts
    lengths = {*map(len, models)}
    found: dict[Any, list[np.ndarray]] = {}
    for name, places in parts.items():
        for start in (name[:length] for length in lengths):
            if start in models:
                found.setdefault(start, []).append(places)
    return {name: np.sort(np.concatenate(places)) for name, places in found.items()}


def table_and_targets(calibrate: Any, by: Sequence[Any]) -> tuple[Any, np.ndarray]:
    """Return the table of all models and its targets; raise `ExportError` unless they are a pair of one length."""
    if not isinstance(calibrate, tuple | list) or len(calibrate) != 2:
        raise ExportError(
            "calibrate must be a mapping of pairs (X, y) by their ids, or a pair (table, y) whose table has the "
            f"{in_words(by)}, not {type(calibrate).__name__}."
        )
    table, targets = calibrate[0], np.asarray(calibrate[1])
    if not hasattr(table, "__len__") or not targets.ndim or len(table) != len(targets):
        raise ExportError(
            f"calibrate must have a target for each row, and has {len(table):,} rows and targets of shape "
            f"{list(targets.shape)}."
        )
    return table, targets


def _pairs(calibrate: Any, by: Sequence[str], models: Collection[Any]) -> Mapping[Any, Any] | None:
    """Return pairs of rows and targets by the ids of their models."""
    if calibrate is None or isinstance(calibrate, Mapping):
        return calibrate
    table, targets = table_and_targets(calibrate, by)
    if not isinstance(table, pd.DataFrame):
        raise ExportError(
            f"The rows of calibrate must be a DataFrame with the {in_words(by)}, not {type(table).__name__}."
        )
    own = table.drop(columns=[*by], errors="ignore")
    parts = parts_of(table, by, models, "The calibration rows lack")
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
