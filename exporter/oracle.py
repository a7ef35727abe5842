"""The estimator's own answers: to tables as users hold them, and to rows of the plan's matrix.

`predict` is given numbers as they are, float64 where it is float32 that they come in: the answer that the plan is to
round is then the exact one, and float32 rows are not rounded again on the estimator's way.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline

from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.text import TextColumns

Answers = dict[str, np.ndarray]
"""Each output's answers, float64 `[rows, width]`."""


class Oracle:
    """A fitted estimator of `n_features` columns, those of `text` by their categories, asked for some outputs."""

    def __init__(self, estimator: Any, n_features: int, outputs: tuple[str, ...], text: TextColumns) -> None:
        self.estimator = estimator
        self.outputs = outputs
        self.text = text
        self._asked = _without_searches(estimator)
        self._names = feature_names(estimator)
        self._n_features = n_features

    def table(self, given: Any) -> Any:
        """Return a sample as `predict` takes it: the model's columns, in order, of a DataFrame, or a matrix.

        Raises `ExportError` where columns are missing or something is no number and no string.
        """
        if hasattr(given, "columns") and self._names is not None:
            table = self._own_columns(given)
            single = [name for name, dtype in zip(table.columns, table.dtypes, strict=True) if dtype == np.float32]
            table = table.astype(dict.fromkeys(single, np.float64)) if single else table
        else:
            try:
                table = np.asarray(given, dtype=object if self.text else None)
            except ValueError as error:
                raise ExportError(f"The sample must be numbers: {error}.") from None
            if table.dtype.kind == "f":
                table = table.astype(np.float64)
            if self._names is not None and table.ndim == 2 and table.shape[1] == len(self._names):
                import pandas as pd

                table = pd.DataFrame(table, columns=self._names).infer_objects()
        if np.ndim(table) != 2 or table.shape[1] != self._n_features or not len(table):
            raise ExportError(
                f"The sample must be [rows, {self._n_features}] with at least one row, not {list(np.shape(table))}."
            )
        return table

    def matrix(self, table: Any, numeric: tuple[int, ...]) -> np.ndarray:
        """Return a table as the plan's matrix, float64 `[rows, n_features]`; `numeric` are its columns of numbers.

        Raises `ExportError` where one of these holds what is no finite number and not NaN.
        """
        X = np.zeros(table.shape)
        for column in numeric:
            values = table.iloc[:, column] if hasattr(table, "columns") else table[:, column]
            X[:, column] = self._numbers(values, column)
        self.text.fill(X, table)
        return X

    def of_table(self, table: Any) -> Answers:
        """Return the answers to a table that `table` returned."""
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            if "std" in self.outputs:
                found = dict(zip(("y", "std"), self._asked.predict(table, return_std=True), strict=True))
            else:
                found = {"y": self._asked.predict(table)}
        return {name: np.asarray(values, dtype=np.float64).reshape(len(table), -1) for name, values in found.items()}

    def of_matrix(self, X: np.ndarray) -> Answers:
        """Return the answers to rows of the plan's matrix."""
        return self.of_table(self.text.asked(X.astype(np.float64), self._names))

    def finite_answers(self, X: np.ndarray) -> Answers | None:
        """Return the answers to rows of the plan's matrix, or None where it raises or one of them is not finite."""
        try:
            found = self.of_matrix(X)
        except Exception:  # an estimator refuses rows in many ways
            return None
        return found if all(np.isfinite(values).all() for values in found.values()) else None

    def _own_columns(self, given: Any) -> Any:
        """Return the columns of a DataFrame that the estimator was fitted on, in their order."""
        assert self._names is not None
        if not all(isinstance(name, str) for name in given.columns):  # without names: a matrix
            return given.set_axis(self._names, axis=1) if given.shape[1] == len(self._names) else given
        absent = [name for name in self._names if name not in given.columns]
        if absent:
            more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
            raise ExportError(f"The sample lacks the column '{absent[0]}'{more}, which the model was fitted on.")
        twice = [name for name in self._names if (given.columns == name).sum() > 1]
        if twice:
            raise ExportError(f"The sample has the column '{twice[0]}' more than once.")
        return given[self._names]

    def _numbers(self, values: Any, column: int) -> np.ndarray:
        name = "" if self._names is None else f" ('{self._names[column]}')"
        try:
            if values.dtype.kind in "cmM":
                raise TypeError(f"it holds {values.dtype}")
            numbers = (
                values.to_numpy(np.float64, na_value=np.nan)
                if hasattr(values, "to_numpy")
                else values.astype(np.float64)
            )
        except (TypeError, ValueError) as error:
            raise ExportError(f"The sample's column {column}{name} must be numbers: {error}.") from None
        if np.isinf(numbers).any():
            raise ExportError(f"The sample's column {column}{name} holds infinity; give rows that the model can take.")
        found: np.ndarray = numbers
        return found


def feature_names(estimator: Any) -> list[str] | None:
    """Return the names of the columns that the estimator was fitted on, if they had any."""
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def _without_searches(estimator: Any) -> Any:
    """Return what a search found in place of the search, whose `predict` does not pass `return_std` on."""
    if isinstance(estimator, FrozenEstimator):
        return _without_searches(estimator.estimator)
    if hasattr(estimator, "best_estimator_"):
        return _without_searches(estimator.best_estimator_)
    if isinstance(estimator, Pipeline):
        *before, (name, last) = estimator.steps
        found = _without_searches(last)
        return estimator if found is last else Pipeline([*before, (name, found)])
    return estimator
