"""The estimator's own answers: to tables as users hold them, and to rows of the plan's matrix.

`predict` is given numbers in the types of the sample, `RowTypes`: a column that is float32 there is float32 in every
question, and all others are float64.
"""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.evidence.intervals import ENDS, Interval
from triton_regressors.exporter.lowering.input_columns import Profile
from triton_regressors.exporter.lowering.registry import find_answers
from triton_regressors.exporter.lowering.row_types import DOUBLE, RowTypes
from triton_regressors.tables import NotNumber, beside, column_numbers, in_words, is_missing

INNER_ESTIMATORS = ("best_estimator_", "estimator_", "regressor_")
"""The attributes where scikit-learn's estimators of one other estimator keep it."""

Answers = dict[str, np.ndarray]
"""Each output's answers, float64 `[rows, width]`."""


class Oracle:
    """A fitted estimator, asked for some outputs; `profile` says how many columns it takes, and which are strings.

    `quantiles` are the models that answer the outputs `lower` and `upper`, where these are not the estimator's own, and
    `ends` the `repr` of each.
    With an `interval` its ends are those outputs, made of the others. `types` are those in which it is asked.
    """

    def __init__(
        self,
        estimator: Any,
        profile: Profile,
        outputs: tuple[str, ...],
        interval: Interval | None = None,
        quantiles: tuple[Any, ...] = (),
        types: RowTypes = DOUBLE,
    ) -> None:
        self.estimator, self.types = estimator, types
        self.outputs = outputs if interval is None else tuple(dict.fromkeys((*outputs, *ENDS)))
        self._quantiles = dict(zip(ENDS, quantiles, strict=False))
        self.ends = tuple(map(written, quantiles))
        self._asked, self._interval = tuple(name for name in outputs if name not in self._quantiles), interval
        self._profile, self._text = profile, profile.text
        self._names = feature_names(estimator)
        self._n_features = profile.n_features

    def in_types(self, types: RowTypes) -> Oracle:
        """Return the same oracle, asked in other types."""
        other = copy.copy(self)
        other.types = types
        return other

    def table(self, given: Any, called: str = "The sample") -> Any:
        """Return rows as `predict` takes them: the model's columns, in order, of a DataFrame, or a matrix.

        `called` begins the sentences of errors.

        Raises:
            ExportError: columns are missing, or something is no number and no string.
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
            ExportError: one of these holds what is no finite number and not NaN.
        """
        X = np.zeros(table.shape)
        for column in numeric:
            values = table.iloc[:, column] if hasattr(table, "columns") else table[:, column]
            X[:, column] = self._numbers(values, column, called)
        self._text.fill(X, table, called)
        return X

    def of_table(self, table: Any) -> Answers:
        """Return the answers to a table that `table` returned."""
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found = ask(self.estimator, table, self._asked)
            found |= {end: ask(model, table, ("y",))["y"] for end, model in self._quantiles.items()}
        own = {name: np.asarray(values, dtype=np.float64).reshape(len(table), -1) for name, values in found.items()}
        return own if self._interval is None else self._interval.added(own)

    def answers_column(self, X: np.ndarray) -> bool:
        """Return whether `predict` answers one target as `[rows, 1]`; two rows of the plan's matrix `X` are asked."""
        X = X[:2]
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            shape = np.shape(ask(self.estimator, self.asked(X), ("y",))["y"])
        return bool(shape == (len(X), 1))

    def of_matrix(self, X: np.ndarray) -> Answers:
        """Return the answers to rows of the plan's matrix."""
        return self.of_table(self.asked(X))

    def asked(self, X: np.ndarray) -> Any:
        """Return rows of the plan's matrix as `predict` takes them."""
        table = self._text.asked(X.astype(np.float64), self._names, self._profile.never_floats)
        return self._profile.as_categories(self.types.of_table(table))

    def finite_answers(self, X: np.ndarray) -> Answers | None:
        """Return the answers to rows of the plan's matrix, or None where it raises or one of them is not finite."""
        try:
            found = self.of_matrix(X)
        except Exception:  # an estimator refuses rows in many ways
            return None
        return found if all(np.isfinite(values).all() for values in found.values()) else None

    def _own_columns(self, given: Any, called: str) -> Any:
        """Return the columns of a DataFrame that the estimator was fitted on, in their order."""
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
        """Return rows with NaN for pandas.NA in columns of objects that are no strings: no estimator takes it there."""
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


def written(estimator: Any) -> str:
    """Return the `repr` of an estimator without the addresses of functions, which are others each time."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(estimator))


def feature_names(estimator: Any) -> list[str] | None:
    """Return the names of the columns that the estimator was fitted on, if they had any."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is not None:
        return [str(name) for name in names]
    names = getattr(estimator, "feature_names_", None)  # CatBoost's, which numbers columns that have none
    if isinstance(names, list):
        return None if names == [str(column) for column in range(len(names))] else names
    # What hands its rows on has no names where only CatBoost was asked for them.
    steps, members = getattr(estimator, "steps", ()), getattr(estimator, "estimators_", ())
    inner = [step for _, step in steps[:1]] + [getattr(estimator, name, None) for name in INNER_ESTIMATORS]
    inner += members[:1] if isinstance(members, list) else []
    return next(filter(None, (feature_names(part) for part in inner if part is not None)), None)


def ask(estimator: Any, table: Any, outputs: Sequence[str]) -> dict[str, Any]:
    """Return an estimator's own answers to a table for each of the outputs.

    The function that is registered for its class with `answers` gives them, or else `predict`.
    """
    answering = find_answers(estimator)
    if answering is not None:
        return answering(estimator, table, outputs)
    if "std" in outputs:
        return dict(zip(("y", "std"), estimator.predict(table, return_std=True), strict=True))
    return {"y": estimator.predict(table)}
