"""A case of the catalogue in cases.py: an estimator, the data to fit it on, and whom to ask for the answers."""

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone

from tests.exporter.data import Data


@dataclass(frozen=True)
class Case:
    """An estimator to fit, on which data, and what is promised for it."""

    name: str
    family: str
    estimator: Any
    data: Callable[[], Data]
    after_fit: Callable[[Any], Any] = lambda estimator: estimator
    gives_std: Callable[[Any], Any] = lambda estimator: estimator  # whom to ask for the standard deviation
    own_error: float = 0.0  # what the estimator's own arithmetic in float32 loses, in standard deviations
    ask: Callable[[Any, Any], dict[str, Any]] = lambda estimator, rows: {"y": estimator.predict(rows)}
    needs_sample: bool = False  # of its own data, as it does not hold its categories

    def fitted(self) -> tuple[Any, Any]:
        """Return the fitted estimator and rows like those it was fitted on; the same ones at each call.

        They are a float64 matrix, or a DataFrame where columns are strings or dates.
        """
        return _fitted(self.name)

    @property
    def strings(self) -> bool:
        """Return whether the estimator reads columns of strings."""
        X = self.data()[0]
        return isinstance(X, pd.DataFrame) and any(map(_are_strings, X.dtypes))

    @property
    def tabular(self) -> bool:
        """Return whether the estimator reads columns that a matrix of numbers does not hold: strings or dates."""
        return self.strings or self.dates

    @property
    def dates(self) -> bool:
        """Return whether the table has columns of dates."""
        X = self.data()[0]
        return isinstance(X, pd.DataFrame) and any(dtype.kind == "M" for dtype in X.dtypes)

    def expected(self) -> dict[str, np.ndarray]:
        """Return scikit-learn's own answers to those rows, float64 `[rows, width]` for each output."""
        return _expected(self.name)

    def answers(self, rows: Any) -> dict[str, np.ndarray]:
        """Return scikit-learn's own answers to rows like those of `fitted`, float64 `[rows, width]` for each output."""
        estimator, _ = self.fitted()
        X: Any = rows
        fitted_on = self.data()[0]
        if isinstance(fitted_on, pd.DataFrame) and not self.tabular:
            X = pd.DataFrame(X, columns=fitted_on.columns)
        answers = self.ask(estimator, X)
        if self.family == "std":
            _, answers["std"] = self.gives_std(estimator).predict(X, return_std=True)
        return {output: np.asarray(y, dtype=np.float64).reshape(len(rows), -1) for output, y in answers.items()}


@functools.cache
def _fitted(name: str) -> tuple[Any, Any]:
    case = CASES[name]
    X, y = case.data()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # small data: fits that do not converge predict all the same
        estimator = case.after_fit(clone(case.estimator).fit(X, y))
    return estimator, table_like(X) if case.tabular else rows_like(np.asarray(X, dtype=np.float64))


@functools.cache
def _expected(name: str) -> dict[str, np.ndarray]:
    return CASES[name].answers(CASES[name].fitted()[1])


def _are_strings(dtype: Any) -> bool:
    """Return whether a column holds strings, or pandas' categories that are strings."""
    if isinstance(dtype, pd.CategoricalDtype):
        return not pd.api.types.is_numeric_dtype(dtype.categories)
    return isinstance(dtype, pd.StringDtype) or bool(pd.api.types.is_object_dtype(dtype))


def rows_like(X: np.ndarray) -> np.ndarray:
    """Return half of the rows as they are and half moved by a quarter of the spread, float64."""
    rng = np.random.default_rng(0)
    chosen = X[rng.integers(0, len(X), ROWS)]
    spread = np.nanstd(X, axis=0) if np.isnan(X).any() else X.std(axis=0)
    moved = chosen + 0.25 * spread * rng.standard_normal(chosen.shape)
    return np.where(np.arange(ROWS)[:, None] % 2 == 0, chosen, moved)


def table_like(X: pd.DataFrame) -> pd.DataFrame:
    """Return rows whose numbers are `rows_like` and whose strings are drawn from theirs."""
    numbers = list(X.select_dtypes("floating").columns)
    rows = X.sample(ROWS, replace=True, random_state=0, ignore_index=True)
    rows[numbers] = rows_like(X[numbers].to_numpy(np.float64))
    return rows


ROWS = 96

CASES: dict[str, Case] = {}


def add(name: str, family: str, estimator: Any, data: Callable[[], Data], **more: Any) -> None:
    if name in CASES:
        raise ValueError(f"Case {name!r} is there twice.")
    CASES[name] = Case(name, family, estimator, data, **more)
