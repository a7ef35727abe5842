"""Finds the rows and columns that an entry answers differently than the estimator, and the likely cause, for a refusal.

The row with the largest difference is changed column by column into a row that both answer alike. If changing a column
makes the two agree, that column makes the difference. Possible causes are then tested, and a cause is only named if its
test explains the answers. All of this costs one more prediction of the sample and a few of at most `MOST_COLUMNS` rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from triton_regressors.exporter.evidence.oracle import Answers, Oracle
from triton_regressors.exporter.evidence.sample import Sample
from triton_regressors.exporter.evidence.thresholds import beside
from triton_regressors.exporter.evidence.ties import errors, tied_rows
from triton_regressors.exporter.lowering.estimator import feature_names
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.format.inputs import UNKNOWN, Inputs
from triton_regressors.kernels.format.parity import units
from triton_regressors.tables.values import is_missing

MOST_COLUMNS = 256
"""The most columns that are changed one at a time; a longer list is first halved until it is short enough."""

FEW = 3
"""The number of rows and columns that a sentence names."""

ACCEPT = "ties='accept' (--ties accept) exports the model and leaves such rows out of the parity"

SAMPLE_ROWS = 65_536
"""The most rows that are searched for a cause."""


class Difference:
    """Finds the differences between the answers of an oracle and of the runner of its plan.

    Args:
        oracle: the estimator.
        runner: the plan's runner, which answers rows of the plan's matrix.
        inputs: the entry's inputs, which turn a table into that matrix.
        names: the columns' names; empty if they have none.
        tolerance: the largest difference of answers, in standard deviations.
        rounded: whether the answers should be those to the rounded rows.
    """

    def __init__(
        self, oracle: Oracle, runner: Runner, inputs: Inputs, names: Sequence[str], tolerance: float, rounded: bool
    ) -> None:
        self._oracle, self._runner, self._inputs = oracle, runner, inputs
        self._names = list(names or feature_names(oracle.estimator) or ())
        self._tolerance, self._rounded = tolerance, rounded
        self._units: dict[str, np.ndarray] = {}

    def in_words(self, given: Any | None, sample: Sample) -> str:
        """Return sentences on a sample that is answered beyond the tolerance.

        Args:
            given: the user's rows, None if they were drawn.
            sample: the same rows as the entry gets them.
        """
        self._units = sample.units
        try:
            table = self._oracle.asked(sample.X) if given is None else self._oracle.table(given)
            return self._of(_rows(table, np.arange(min(len(table), SAMPLE_ROWS))), drawn=given is None)
        except Exception as error:  # an estimator may raise anything for a changed row; the export is refused anyway
            return (
                f"The cause was not found, because the estimator refuses changed rows ({str(error).splitlines()[0]})."
            )

    def _of(self, table: Any, drawn: bool) -> str:
        """Return the sentences on a table that `predict` takes."""
        error, expected = self._errors(table), self._expected(table)
        apart = np.flatnonzero(~(error <= self._tolerance))
        if not len(apart):
            return f"The rows that differ lie beyond the first {SAMPLE_ROWS:,}, which were searched for a cause."
        tied = tied_rows(self._runner.plan, self._sent(_rows(table, apart)))
        whose = "drawn rows" if drawn else "sample"
        few = _list(apart.tolist())
        sentences = [f"{len(apart):,} of {len(table):,} rows of the {whose} differ: {few} (counted from 0)."]
        if tied.any():
            share = 100 * tied.sum() / len(table)
            sentences.append(
                f"Cause: in {'all' if tied.all() else f'{tied.sum():,}'} of them ({share:.3g} % of the rows) several "
                "training points are equally near. The entry takes the first of these points, and scikit-learn "
                "takes others. Both answers are right: ties='accept' (--ties accept) exports the model and leaves "
                "such rows out of the parity."
            )
        if tied.all():
            return " ".join(sentences)
        worst = apart[~tied][np.argmax(np.nan_to_num(error[apart[~tied]], nan=np.inf))]
        columns, other = self._columns(table, int(worst), error)
        sentences.append(self._answers(table, int(worst), expected))
        if other is None:
            sentences.append("No row is answered alike, so that no column could be singled out.")
        elif not columns:
            sentences.append("No column makes the difference by itself.")
        else:
            called = _list([self._called(column) for column in columns])
            sentences.append(
                f"The column {called} makes the difference: with row {other}'s value the two agree."
                if len(columns) == 1
                else f"Each of the columns {called} makes the difference: with row {other}'s value the two agree."
            )
        sentences.append(self._cause(table, int(worst), columns))
        return " ".join(sentences)

    def _answers(self, table: Any, row: int, expected: Answers) -> str:
        """Return a sentence with both answers to a row of a table; `expected` are the estimator's to all its rows."""
        found = self._found(_rows(table, np.array([row])))
        error = {
            name: np.nan_to_num(np.abs(found[name][0] - values[row]) / self._units[name], nan=np.inf)
            for name, values in expected.items()
        }
        name = max(error, key=lambda name: float(error[name].max()))
        target = int(np.argmax(error[name]))
        wanted, answer = float(expected[name][row, target]), float(found[name][0, target])
        return f"In row {row} the estimator answers {wanted:.6g} and the entry {answer:.6g} ('{name}')."

    def _columns(self, table: Any, row: int, error: np.ndarray) -> tuple[list[int], int | None]:
        """Return the columns that make a row's difference, and the row that it was compared with."""
        alike = np.flatnonzero(error <= self._tolerance)
        if not len(alike):
            return [], None
        X = self._oracle.matrix(table, self._inputs.numeric)
        with np.errstate(invalid="ignore"):
            same = ((X[alike] == X[row]) | (np.isnan(X[alike]) & np.isnan(X[row]))).sum(axis=1)
        other = int(alike[np.argmax(same)])
        columns = [
            column
            for column in range(self._inputs.n_given)
            if not _same(_cell(table, row, column), _cell(table, other, column))
        ]
        while len(columns) > MOST_COLUMNS:
            halves = [part.tolist() for part in np.array_split(columns, 2)]
            agree = self._agree(table, row, other, halves)
            if not agree.any():
                return [], other
            columns = halves[int(np.argmax(agree))]
        agree = self._agree(table, row, other, [[column] for column in columns])
        return [column for column, agrees in zip(columns, agree, strict=True) if agrees], other

    def _agree(self, table: Any, row: int, other: int, changes: list[list[int]]) -> np.ndarray:
        """Return whether the answers to a row agree after columns take another row's values, bool `[changes]`."""
        take = np.full((len(changes), self._inputs.n_given), row)
        for place, columns in enumerate(changes):
            take[place, columns] = other
        return self._errors(_mixed(table, take)) <= self._tolerance

    def _cause(self, table: Any, row: int, columns: list[int]) -> str:
        """Return the explanation of a row's difference, in a sentence."""
        one = _rows(table, np.array([row]))
        found = self._found(one)
        X = self._oracle.matrix(one, self._inputs.numeric)
        for column in columns:
            cell, called = _cell(table, row, column), self._called(column)
            if X[0, column] == UNKNOWN and column in self._inputs.choosing:
                return f"Cause: {cell!r} is not a category that the model knows in column {called}."
            if is_missing(cell) or cell == "":
                return self._missing(table, row, column, cell)
        if self._holds(found, self._expected(one)):
            return (
                "Cause: the row lies on a threshold of the model. The estimator gives the entry's answer when it is "
                "asked for this row alone, and another answer within the sample, because it rounds a sum in front of "
                f"the threshold differently from batch to batch. {ACCEPT}."
            )
        if self._holds(found, self._oracle.of_matrix(X)):
            cells = [_cell(table, row, column) for column in columns or range(self._inputs.n_given)]
            types = sorted({str(getattr(cell, "dtype", type(cell).__name__)) for cell in cells})
            return (
                f"Cause: the estimator answers the row's values in their own types ({', '.join(types)}) differently "
                "than as float64 numbers and strings, which an entry gets."
            )
        for column in (columns or range(self._inputs.n_given))[:MOST_COLUMNS]:
            if (beside := self._beside(found, X, column)) is not None:
                return (
                    f"Cause: the row lies on a threshold of the model. The estimator itself gives the entry's answer "
                    f"where column {self._called(column)} is {beside:.17g} and not {X[0, column]:.17g}. The last bits "
                    f"of what a transformer makes of the number decide there, and the entry's may differ. {ACCEPT}, "
                    'and sample.astype("float32") exports it for float32 rows instead.'
                )
        return (
            "None of the usual causes explains it (equal distances, missing values, unknown categories, types, rows "
            "on thresholds)."
        )

    def _beside(self, found: Answers, X: np.ndarray, column: int) -> float | None:
        """Return a number next to the row's at which the estimator gives the entry's answer to the row, or None."""
        number = X[0, column]
        if column not in self._inputs.numeric or not np.isfinite(number):
            return None
        near = beside(number)
        rows = np.repeat(X, len(near), axis=0)
        rows[:, column] = near
        answers = self._oracle.finite_answers(rows)
        if answers is None:
            return None
        wanted = {name: np.repeat(values, len(near), axis=0) for name, values in found.items()}
        agrees = np.flatnonzero(errors(wanted, answers, self._units) <= self._tolerance)
        return float(near[agrees[0]]) if len(agrees) else None

    def _missing(self, table: Any, row: int, column: int, cell: Any) -> str:
        """Return the effect of a row's missing value on the answers, in a sentence."""
        called = self._called(column)
        text = (
            f"Cause: the row holds {_spelt(cell)} in column {called}. None, NaN, pd.NA and an empty string are one "
            "missing value to an entry, and different values to scikit-learn."
        )
        for value in (np.nan, None):
            if type(value) is type(cell):
                continue
            changed = _with_cell(table, row, column, value)
            try:
                agrees = bool((self._errors(changed) <= self._tolerance).all())
            except Exception:  # many estimators refuse None, and some refuse NaN
                continue
            if agrees:
                return f"{text} With {_spelt(value)} in its place the two agree: the model was fitted with that."
        return text

    def _called(self, column: int) -> str:
        return f"'{self._names[column]}'" if self._names else str(column)

    def _sent(self, table: Any) -> np.ndarray:
        """Return a table as the matrix that the entry gets."""
        matrix = self._inputs.rounded(self._oracle.matrix(table, self._inputs.numeric))
        return matrix.astype(self._inputs.matrix_dtype)

    def _found(self, table: Any) -> Answers:
        return self._runner.predict(self._sent(table), self._oracle.outputs)

    def _expected(self, table: Any) -> Answers:
        return self._oracle.of_matrix(self._sent(table)) if self._rounded else self._oracle.of_table(table)

    def _holds(self, found: Answers, expected: Answers) -> bool:
        return bool((errors(found, expected, self._units) <= self._tolerance).all())

    def _errors(self, table: Any) -> np.ndarray:
        """Return each row's difference in standard deviations; 0 if the estimator's own answer is not finite."""
        expected, found = self._expected(table), self._found(table)
        answered = np.logical_and.reduce([np.isfinite(values).all(axis=1) for values in expected.values()])
        wanted = {name: np.where(answered[:, None], values, 0.0) for name, values in expected.items()}
        return np.where(answered, errors(found, wanted, self._units or _units(expected)), 0.0)


def _units(expected: Answers) -> dict[str, np.ndarray]:
    return {name: units(values) for name, values in expected.items()}


def _rows(table: Any, rows: np.ndarray) -> Any:
    """Return rows of a DataFrame or a matrix."""
    return table.iloc[rows] if hasattr(table, "iloc") else table[rows]


def _cell(table: Any, row: int, column: int) -> Any:
    return table.iloc[row, column] if hasattr(table, "iloc") else table[row, column]


def _mixed(table: Any, take: np.ndarray) -> Any:
    """Return rows composed of a table's cells: `take`, `[rows, columns]`, is each cell's row in the table."""
    if not hasattr(table, "iloc"):
        return table[take, np.arange(take.shape[1])]
    import pandas as pd

    parts = [table.iloc[rows, [column]].reset_index(drop=True) for column, rows in enumerate(take.T)]
    return pd.concat(parts, axis=1)


def _with_cell(table: Any, row: int, column: int, value: Any) -> Any:
    """Return one row of a table with another value in a column."""
    one = _rows(table, np.array([row])).copy()
    if hasattr(one, "iloc"):
        import pandas as pd

        one.isetitem(column, pd.Series([value], dtype=object, index=one.index))
    else:
        one = one.astype(object)
        one[0, column] = value
    return one


def _same(a: Any, b: Any) -> bool:
    """Return whether two cells are the same value to an estimator."""
    if is_missing(a) or is_missing(b):
        return type(a) is type(b) and bool(is_missing(a) and is_missing(b))
    return bool(a == b)


def _spelt(value: Any) -> str:
    """Return the written form of a missing value."""
    if value is None:
        return "None"
    if isinstance(value, str):
        return "an empty string"
    return "pd.NA" if type(value).__name__ == "NAType" else "NaN"


def _list(things: Sequence[Any]) -> str:
    """Return the first few items in words, and the number of the others."""
    few = [str(thing) for thing in things[:FEW]]
    if len(things) > FEW:
        return f"{', '.join(few)} and {len(things) - FEW:,} more"
    return f"{', '.join(few[:-1])} and {few[-1]}" if len(few) > 1 else few[0]
