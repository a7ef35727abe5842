"""Names for a model's columns, where whoever exports it knows them and the estimator has none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.evidence.oracle import feature_names
from triton_regressors.tables.columns import take_columns
from triton_regressors.tables.errors import raised_as
from triton_regressors.tables.frames import as_frame, has_names
from triton_regressors.tables.values import NUMERIC_KINDS


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


def in_order(rows: Any, columns: Sequence[str] | None, estimator: Any, called: str) -> Any:
    """Return a table of any kind as a DataFrame, with the columns of these names as the estimator was fitted on them.

    Rows without names are returned as they are. `called` begins the sentences of errors.

    Raises:
        ExportError: a column is missing, or there twice.
    """
    with raised_as(ExportError):
        table, names = as_frame(rows), feature_names(estimator)
        if columns is None or not has_names(table):
            return table
        table = take_columns(table, columns, called)
    if names is not None:
        return table.set_axis(names, axis=1)
    matrix = table.to_numpy()
    numbers = all(isinstance(dtype, np.dtype) and dtype.kind in NUMERIC_KINDS for dtype in table.dtypes)
    return matrix.astype(np.float64) if numbers and matrix.dtype == object else matrix  # of booleans beside numbers
