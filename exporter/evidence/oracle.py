"""The estimator's own answers: to tables as users hold them, and to rows of the plan's matrix."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np

from triton_regressors.exporter.evidence.intervals import Interval
from triton_regressors.exporter.lowering.estimator import ask, written
from triton_regressors.exporter.lowering.input_columns import Profile
from triton_regressors.exporter.lowering.lower import ENDS
from triton_regressors.exporter.lowering.row_types import DOUBLE, RowTypes
from triton_regressors.exporter.lowering.tables import Tables

Answers = dict[str, np.ndarray]
"""Each output's answers, float64 `[rows, width]`."""


class Oracle(Tables):
    """A fitted estimator, asked for some outputs.

    `quantiles` are the models that answer the outputs `lower` and `upper` if these are not the estimator's own, and
    `ends` is the `repr` of each.
    With an `interval` its ends are these two outputs, computed from the others.
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
        super().__init__(estimator, profile, types)
        self.outputs = outputs if interval is None else tuple(dict.fromkeys((*outputs, *ENDS)))
        self._quantiles = dict(zip(ENDS, quantiles, strict=False))
        self.ends = tuple(map(written, quantiles))
        self._asked, self._interval = tuple(name for name in outputs if name not in self._quantiles), interval
        self._shape: tuple[int, ...] | None = None
        self._last: tuple[np.ndarray, Answers] | None = None

    def in_types(self, types: RowTypes) -> Oracle:
        """Return the same oracle, asked in other types."""
        other = copy.copy(self)
        other.types, other._shape, other._last = types, None, None
        return other

    def of_table(self, table: Any) -> Answers:
        """Return the answers to a table, as the method `table` returns it."""
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            given = self.as_given(table)
            found = ask(self.estimator, given, self._asked)
            found |= {end: ask(model, given, ("y",))["y"] for end, model in self._quantiles.items()}
        self._shape = np.shape(found["y"]) if "y" in found else self._shape
        own = {name: np.asarray(values, dtype=np.float64).reshape(len(table), -1) for name, values in found.items()}
        return own if self._interval is None else self._interval.added(own)

    def answers_column(self, X: np.ndarray) -> bool:
        """Return whether `predict` answers one target as `[rows, 1]`, as it last did, or on rows of the matrix `X`.

        Two rows are enough, unless code of the user's own raises an error on them, as methods of `.str` do on a column
        without any string.
        """
        shape = self._shape
        if shape is None:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                try:
                    shape = np.shape(ask(self.estimator, self.as_given(self.asked(X[:2])), ("y",))["y"])
                except Exception:
                    shape = np.shape(ask(self.estimator, self.as_given(self.asked(X)), ("y",))["y"])
        return len(shape) == 2 and shape[1] == 1

    def of_matrix(self, X: np.ndarray) -> Answers:
        """Return the answers to rows of the plan's matrix; the same rows are not asked twice one after the other."""
        if self._last is None or not _same(self._last[0], X):
            self._last = X.copy(), self.of_table(self.asked(X))
        return {name: values.copy() for name, values in self._last[1].items()}

    def finite_answers(self, X: np.ndarray) -> Answers | None:
        """Return the answers to rows of the plan's matrix, or None if the estimator raises or one is not finite."""
        try:
            found = self.of_matrix(X)
        except Exception:  # an estimator refuses rows in many ways
            return None
        return found if all(np.isfinite(values).all() for values in found.values()) else None


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether two matrices hold the same bits."""
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
