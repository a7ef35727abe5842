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

    def fitted(self) -> tuple[Any, np.ndarray]:
        """Return the fitted estimator and float32 rows like those it was fitted on; the same ones at each call."""
        return _fitted(self.name)

    def expected(self) -> dict[str, np.ndarray]:
        """Return scikit-learn's own answers to those rows, float64 `[rows, width]` for each output."""
        return _expected(self.name)


@functools.cache
def _fitted(name: str) -> tuple[Any, np.ndarray]:
    case = CASES[name]
    X, y = case.data()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # small data: fits that do not converge predict all the same
        estimator = case.after_fit(clone(case.estimator).fit(X, y))
    return estimator, rows_like(np.asarray(X, dtype=np.float64))


@functools.cache
def _expected(name: str) -> dict[str, np.ndarray]:
    case = CASES[name]
    estimator, rows = case.fitted()
    X: Any = rows.astype(np.float64)
    fitted_on = case.data()[0]
    if isinstance(fitted_on, pd.DataFrame):
        X = pd.DataFrame(X, columns=fitted_on.columns)
    answers = {"y": estimator.predict(X)}
    if case.family == "std":
        _, answers["std"] = case.gives_std(estimator).predict(X, return_std=True)
    return {output: np.asarray(y, dtype=np.float64).reshape(len(rows), -1) for output, y in answers.items()}


def rows_like(X: np.ndarray, rows: int = 96) -> np.ndarray:
    """Return half of the rows as they are and half moved by a quarter of the spread, float32."""
    rng = np.random.default_rng(0)
    X = X.astype(np.float32).astype(np.float64)  # so that a case fitted on float32 is asked the same rows
    chosen = X[rng.integers(0, len(X), rows)]
    moved = chosen + 0.25 * X.std(axis=0) * rng.standard_normal(chosen.shape)
    return np.where(np.arange(rows)[:, None] % 2 == 0, chosen, moved).astype(np.float32)


CASES: dict[str, Case] = {}


def add(name: str, family: str, estimator: Any, data: Callable[[], Data], **more: Any) -> None:
    if name in CASES:
        raise ValueError(f"Case {name!r} is there twice.")
    CASES[name] = Case(name, family, estimator, data, **more)
