"""The ids of a fleet's models, and the rows that each of them is verified on, as the user gives them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pandas as pd

from triton_regressors.exporter.errors import ExportError


def checked_samples(models: Mapping[Any, Any], samples: Any, by: str) -> Mapping[str, Any]:
    """Return the rows of each model, or no rows; raise `ExportError` for ids and samples that do not fit."""
    if not isinstance(models, Mapping) or not models:
        raise ExportError("A fleet needs a mapping with at least one fitted model by its id.")
    check_ids(models)
    if not isinstance(by, str) or not by:
        raise ExportError(f"by must be the name of the column of ids, not {by!r}.")
    return rows_of_models(models, samples, by)


def check_ids(ids: Iterable[Any]) -> None:
    """Raise `ExportError` unless all ids are strings, or all are whole numbers."""
    whole: bool | None = None
    for each in ids:
        whole = isinstance(each, int) if whole is None else whole
        if not (_is_number(each) if whole else isinstance(each, str) and each):
            kind = "a whole number that INT64 holds, as others are" if whole else "a string that is not empty"
            raise ExportError(f"The id of a model must be {kind}, not {each!r}.")


def rows_of_models(models: Mapping[Any, Any], samples: Any, by: str, others: Collection[Any] = ()) -> Mapping[str, Any]:
    """Return the rows of each model, or no rows; raise `ExportError` for samples that do not fit.

    Rows of `others` are left out.
    """
    if samples is None:
        return {}
    if isinstance(samples, pd.DataFrame):
        if by not in samples.columns:
            raise ExportError(f"The samples lack the column {by!r} with the ids of their models.")
        samples = {key: rows.drop(columns=by) for key, rows in samples.groupby(by, sort=False)}
    unknown = [key for key in samples if key not in models and key not in others]
    lacking = [key for key in models if key not in samples]
    if lacking:
        more = f", nor for {len(lacking) - 1:,} others" if len(lacking) > 1 else ""
        raise ExportError(f"The samples have no rows for the model {lacking[0]!r}{more}.")
    if unknown:
        raise ExportError(f"The samples have rows for {unknown[0]!r}, which is no model of the fleet.")
    return {key: samples[key] for key in models}


def _is_number(given: Any) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and -(2**63) <= given < 2**63
