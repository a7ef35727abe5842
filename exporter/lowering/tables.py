"""Tables as a fitted estimator's `predict` takes them, and the same rows as the plan's matrix.

Numbers keep the types of the sample, `RowTypes`: a column that is float32 there is float32 in every table that the
estimator is asked, and all others are float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.lowering.input_columns import Profile
from triton_regressors.exporter.lowering.row_types import DOUBLE, RowTypes
from triton_regressors.kernels.format.inputs import microseconds, nanoseconds
from triton_regressors.tables.columns import in_words, take_columns
from triton_regressors.tables.dates import as_dates, dates
from triton_regressors.tables.errors import raised_as
from triton_regressors.tables.frames import as_matrix, as_rows, has_names, is_table
from triton_regressors.tables.values import NUMERIC_KINDS, is_na, numbers


class Tables:
    """The tables of a fitted estimator.

    `profile` holds the number of columns and the columns of strings; `types` are the types of the numbers.
    """

    def __init__(self, estimator: Any, profile: Profile, types: RowTypes = DOUBLE) -> None:
        self.estimator, self.types = estimator, types
        self._profile, self._text = profile, profile.text
        self._names = list(profile.names) or None
        self._n_features = profile.n_features

    def table(self, given: Any, called: str = "The sample") -> Any:
        """Return rows as `predict` takes them: the model's columns, in order, of a DataFrame, or a matrix.

        `called` begins the sentences of errors.

        Raises:
            ExportError: columns are missing, or the rows are no matrix of as many columns.
        """
        with raised_as(ExportError):
            width = self._n_features
            if is_table(given) and self._names is not None:
                table = as_rows(self._own_columns(given, called), called, width)
            else:
                table = as_matrix(given, called, width, objects=bool(self._text))
                if self._names is not None and len(self._names) == width:
                    import pandas as pd

                    table = pd.DataFrame(table, columns=self._names).infer_objects()
            table = self._with_dates(table, called)
        return self._profile.as_categories(self.types.of_table(self._without_na(table)))

    def matrix(self, table: Any, numeric: tuple[int, ...], called: str = "The sample") -> np.ndarray:
        """Return a table as the plan's matrix, float64 `[rows, n_features]`; `numeric` are its columns of numbers.

        Raises:
            ExportError: one of these holds what is no finite number and not NaN.
        """
        X, columns = np.zeros(table.shape), list(numeric)
        with raised_as(ExportError):
            given = table.iloc[:, columns] if is_table(table) else table[:, columns]
            X[:, columns] = numbers(given, called, names=columns)
        infinite = [column for column in columns if np.isinf(X[:, column]).any()]
        if infinite:
            which = in_words([table.columns[column] if is_table(table) else column for column in infinite])
            raise ExportError(f"{called}'s {which} must not hold infinity; give rows that the model can take.")
        self._text.fill(X, table, called)
        if self._dates:
            with raised_as(ExportError):
                X[:, self._dates] = microseconds(self._nanoseconds(table, called))
        return self._text.completed(X)

    def completed(self, X: np.ndarray) -> np.ndarray:
        """Return rows of the plan's matrix with the columns that steps make of their strings."""
        return self._text.completed(X)

    def asked(self, X: np.ndarray) -> Any:
        """Return rows of the plan's matrix as `predict` takes them."""
        X = X[:, : self._n_features]
        given = {feature: as_dates(nanoseconds(X[:, feature]), kind) for feature, kind in self._profile.dates.items()}
        table = self._text.asked(X.astype(np.float64), self._names, self._profile.never_floats, given)
        table = self._kept(table) if self._names is not None else table
        return self._profile.as_categories(self.types.of_table(table))

    def as_given(self, table: Any) -> Any:
        """Return a table as the estimator's own code takes it: of polars if that does."""
        profile = self._profile
        return profile.polars.table(table) if profile.asks_polars and profile.polars is not None else table

    def _kept(self, table: Any) -> Any:
        """Return a DataFrame whose columns have the sample's dtypes where own code takes them and these hold them."""
        found, unread = table, self._profile.unread
        for feature, dtype in self._profile.kept.items():
            name = found.columns[feature]
            if feature in self._profile.dates and feature not in unread:
                continue
            if feature in unread and not _is_number(dtype):
                values = self._profile.given(feature)[:1] if self._profile.given is not None else [None]
                column = type(found[name])(values * len(found), dtype=dtype, index=found.index)
                found = found.assign(**{name: column})
            elif not _is_number(dtype) or _holds(found[name], dtype):
                found = found.astype({name: dtype})
        return found

    @property
    def _dates(self) -> list[int]:
        """The columns of dates that are inputs."""
        return sorted(self._profile.dates.keys() - self._profile.unread)

    def _nanoseconds(self, table: Any, called: str) -> np.ndarray:
        """Return the columns of dates of a table."""
        zones = [self._profile.dates[column].zone for column in self._dates]
        given = table.iloc[:, self._dates] if is_table(table) else table[:, self._dates]
        return dates(given, called, self._dates, zones)

    def _with_dates(self, table: Any, called: str) -> Any:
        """Return rows with dates in the unit and the time zone of the model's columns, in a DataFrame."""
        if not self._dates or not is_table(table):
            return table
        table = table.copy(deep=False)
        for column, found in zip(self._dates, self._nanoseconds(table, called).T, strict=True):
            table.isetitem(column, as_dates(found, self._profile.dates[column]))
        return table

    def _own_columns(self, given: Any, called: str) -> Any:
        """Return the columns of a DataFrame that the estimator was fitted on, in their order."""
        assert self._names is not None
        if not has_names(given):  # a matrix
            return given.set_axis(self._names, axis=1) if given.shape[1] == len(self._names) else given
        unread = [self._names[column] for column in sorted(self._profile.unread)]
        not_there = [name for name in unread if name not in given.columns]
        given = given.assign(**dict.fromkeys(not_there, 0.0)) if not_there else given  # the estimator drops them
        return take_columns(given, self._names, called)

    def _without_na(self, table: Any) -> Any:
        """Return rows with NaN for pandas.NA in columns of objects that are no strings: no estimator takes it there."""
        if not hasattr(table, "columns"):
            return table
        text = {table.columns[column] for column in self._text.columns()}
        objects = [name for name, dtype in table.dtypes.items() if dtype.kind == "O" and name not in text]
        held = [name for name in objects if any(map(is_na, table[name]))]
        return table.assign(**{name: table[name].where(table[name].notna(), np.nan) for name in held})


def _is_number(dtype: Any) -> bool:
    return isinstance(dtype, np.dtype) and dtype.kind in NUMERIC_KINDS


def _holds(column: Any, dtype: Any) -> bool:
    """Return whether a dtype of numbers holds those of a column, float64."""
    if dtype.kind == "b":
        return bool(column.isin((0.0, 1.0)).all())
    return dtype.kind == "f" or bool((column == column.round()).all())
