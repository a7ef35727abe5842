"""Names for a model's columns, where whoever exports it knows them and the estimator has none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.evidence.oracle import feature_names


def checked_columns(columns: Sequence[str], estimator: Any) -> tuple[str, ...]:
    """Return names for an estimator's columns, in its order.

    Raises:
        ExportError: they are not strings that differ, or not the names that the estimator was fitted on.
    """
    names = [] if isinstance(columns, str) or not isinstance(columns, Iterable) else list(columns)
    if not names or not all(isinstance(name, str) for name in names):
        raise ExportError(f"columns must be a sequence of names, not {columns!r}.")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ExportError(f"columns has the name '{twice[0]}' more than once.")
    difference = unlike(names, feature_names(estimator))
    if difference is not None:
        raise ExportError(f"columns has other names than {type(estimator).__name__} was fitted on: {difference}.")
    return tuple(names)


def unlike(columns: Sequence[str], names: Sequence[str] | None) -> str | None:
    """Return the first difference between names and those that an estimator has, or None.

    A space is as good as the underscore that LightGBM makes of it, and an estimator without names has no others.
    """
    if names is None:
        return None
    for column, name in zip(columns, names, strict=False):
        if column.replace(" ", "_") != name.replace(" ", "_"):
            return f"{column} against {name}"
    return None if len(columns) == len(names) else f"{len(columns)} columns against {len(names)}"


def check_count(columns: Sequence[str], n_features: int, estimator: Any) -> None:
    """Raise `ExportError` unless there are as many names as the estimator takes columns."""
    if len(columns) != n_features:
        raise ExportError(
            f"columns has {len(columns)} name{'s' * (len(columns) != 1)}, and {type(estimator).__name__} takes "
            f"{n_features} column{'s' * (n_features != 1)}."
        )


def in_order(sample: Any, calibrate: Any, profile: Any, columns: Sequence[str], estimator: Any) -> tuple[Any, Any, Any]:
    """Return tables with the columns of these names, as the estimator was fitted on them.

    What has no names, and what is not there, is left as it is.

    Raises:
        ExportError: a column is missing, or there twice.
    """
    if isinstance(calibrate, tuple | list) and len(calibrate) == 2:
        calibrate = _in_order(calibrate[0], columns, estimator, "calibrate"), calibrate[1]
    profile = _in_order(profile, columns, estimator, "The profile")
    return _in_order(sample, columns, estimator, "The sample"), calibrate, profile


def _in_order(table: Any, columns: Sequence[str], estimator: Any, called: str) -> Any:
    """Return a table's columns of these names; `called` begins the sentences of errors."""
    if not hasattr(table, "columns") or not all(isinstance(name, str) for name in table.columns):
        return table
    for name in columns:
        found = int((table.columns == name).sum())
        if found != 1:
            raise ExportError(f"{called} {'has' if found else 'lacks'} the column '{name}'{' twice' * (found > 1)}.")
    table, names = table[list(columns)], feature_names(estimator)
    if names is not None:
        return table.set_axis(names, axis=1)
    matrix = table.to_numpy()
    numbers = all(isinstance(dtype, np.dtype) and dtype.kind in "biuf" for dtype in table.dtypes)
    return matrix.astype(np.float64) if numbers and matrix.dtype == object else matrix  # of booleans beside numbers
