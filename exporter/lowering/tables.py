"""Tables as a fitted estimator's `predict` takes them, and the same rows as the plan's matrix.

Numbers keep the types of the sample, `RowTypes`: a column that is float32 there is float32 in every table that the
estimator is asked, and all others are float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.lowering.estimator import feature_names
from triton_regressors.exporter.lowering.input_columns import Profile
from triton_regressors.exporter.lowering.row_types import DOUBLE, RowTypes
from triton_regressors.tables import NotNumber, beside, column_numbers, in_words, is_missing


class Tables:
    """The tables of a fitted estimator.

    `profile` holds the number of columns and the columns of strings; `types` are the types of the numbers.
    """

    def __init__(self, estimator: Any, profile: Profile, types: RowTypes = DOUBLE) -> None:
        self.estimator, self.types = estimator, types
        self._profile, self._text = profile, profile.text
        self._names = feature_names(estimator)
        self._n_features = profile.n_features

    def table(self, given: Any, called: str = "The sample") -> Any:
        """Return rows as `predict` takes them: a DataFrame with the model's columns in order, or a matrix.

        `called` begins the sentences of errors.

        Raises:
            ExportError: columns are missing, or a value is neither a number nor a string.
        """
        if hasattr(given, "columns") and self._names is not None:
            table = self._own_columns(given, called)
        else:
            try:
                table = np.asarray(given, dtype=object if self._text else None)
            except ValueError as error:
                raise ExportError(f"{called} must be numbers: {error}.") from None
            if self._names is not None and table.ndim == 2 and table.shape[1] == len(self._names):
                import pandas as pd

                table = pd.DataFrame(table, columns=self._names).infer_objects()
        if np.ndim(table) != 2 or table.shape[1] != self._n_features or not len(table):
            raise ExportError(
                f"{called} must be [rows, {self._n_features}] with at least one row, not {list(np.shape(table))}."
            )
        return self._profile.as_categories(self.types.of_table(self._without_na(table)))

    def matrix(self, table: Any, numeric: tuple[int, ...], called: str = "The sample") -> np.ndarray:
        """Return a table as the plan's matrix, float64 `[rows, n_features]`; `numeric` are its columns of numbers.

        Raises:
            ExportError: one of these holds a value that is neither a finite number nor NaN.
        """
        X = np.zeros(table.shape)
        for column in numeric:
            values = table.iloc[:, column] if hasattr(table, "columns") else table[:, column]
            X[:, column] = self._numbers(values, column, called)
        self._text.fill(X, table, called)
        return X

    def asked(self, X: np.ndarray) -> Any:
        """Return rows of the plan's matrix as `predict` takes them."""
        table = self._text.asked(X.astype(np.float64), self._names, self._profile.never_floats)
        return self._profile.as_categories(self.types.of_table(table))

    def _own_columns(self, given: Any, called: str) -> Any:
        """Return the columns of a DataFrame that the estimator was fitted on, in the order of the fit."""
        assert self._names is not None
        if not all(isinstance(name, str) for name in given.columns):  # without names: a matrix
            return given.set_axis(self._names, axis=1) if given.shape[1] == len(self._names) else given
        unread = [self._names[column] for column in sorted(self._profile.unread)]
        not_there = [name for name in unread if name not in given.columns]
        given = given.assign(**dict.fromkeys(not_there, 0.0)) if not_there else given  # the estimator drops them
        absent = [name for name in self._names if name not in given.columns]
        if absent:
            raise ExportError(
                f"{called} lacks {in_words(absent)}, which the model was fitted on; "
                f"{beside(absent, given.columns, self._names)}."
            )
        twice = [name for name in self._names if (given.columns == name).sum() > 1]
        if twice:
            raise ExportError(f"{called} has the column '{twice[0]}' more than once.")
        return given[self._names]

    def _without_na(self, table: Any) -> Any:
        """Return rows with NaN for pandas.NA in object columns that are not strings: no estimator takes it there."""
        if not hasattr(table, "columns"):
            return table
        text = {table.columns[column] for column in self._text.columns()}
        objects = [name for name, dtype in table.dtypes.items() if dtype.kind == "O" and name not in text]
        held = [name for name in objects if any(map(is_missing, table[name]))]
        return table.assign(**{name: table[name].where(table[name].notna(), np.nan) for name in held})

    def _numbers(self, values: Any, column: int, called: str) -> np.ndarray:
        name = "" if self._names is None else f" ('{self._names[column]}')"
        try:
            numbers = column_numbers(values).astype(np.float64)
        except NotNumber as error:
            raise ExportError(f"{called}'s column {column}{name} must be numbers: {error}.") from None
        if np.isinf(numbers).any():
            raise ExportError(f"{called}'s column {column}{name} holds infinity; give rows that the model can take.")
        found: np.ndarray = numbers
        return found
