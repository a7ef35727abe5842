"""Chooses the types of the entry's numbers: FP32 if rounding a user's rows to it moves no answer, FP64 otherwise.

Users hold float64 tables. FP32 is half the bytes, and enough for a model that varies smoothly. If a model compares its
input with thresholds or categories, or data lie far from zero, rounding moves answers. The estimator itself measures
how many answers move, and how far, on the rows as they are given and on rows at the model's own edges. Columns of whole
numbers may come as INT64 beside FP32 if only their rounding moves answers and the estimator takes no NaN in them.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.evidence.edges import features_behind, find_edges, rows_at_edges
from triton_regressors.exporter.evidence.jumps import rows_at_jumps
from triton_regressors.exporter.evidence.oracle import Answers, Oracle
from triton_regressors.exporter.evidence.sample import GivenRows, differ
from triton_regressors.exporter.evidence.ties import errors
from triton_regressors.exporter.lowering.input_columns import Profile, with_integers
from triton_regressors.exporter.lowering.lower import Lowered
from triton_regressors.kernels.format.inputs import NUMBERS, Inputs
from triton_regressors.kernels.format.parity import ulps

INPUT_TYPES = ("auto", "fp32", "fp64")

SHARE_OF_TOLERANCE = 0.75
"""The share of the tolerance for rounding the input, and half of one unit in the answer's last float32 place.

Float32 sums may take the last quarter of the tolerance (`passes/precision.py`), and rounding the answer the other half
unit."""


TINY = np.finfo(np.float64).tiny
"""The error of a row that a client refuses to send, since it would have to round a category."""


@dataclass(frozen=True)
class Rounding:
    """The effect of rounding numbers to FP32: the number of rows, the number of moved answers, and the largest move.

    `rows` were given or drawn, `edges` lie at the model's own edges. The errors are in standard deviations; they are
    infinite if the estimator refuses the rounded rows or has no finite answer to them.
    """

    rows: int = 0
    moved: int = 0
    edges: int = 0
    moved_edges: int = 0
    max_error: float = 0.0
    max_error_at_edges: float = 0.0
    drawn: bool = False

    @property
    def moves(self) -> bool:
        """Return whether an answer moves beyond the share of the tolerance for rounding."""
        return self.moved + self.moved_edges > 0

    def __str__(self) -> str:
        if self.moved:
            whose = "rows drawn to the fitted scale" if self.drawn else "your rows"
            return f"rounding {whose} to FP32 would move {_share(self.moved, self.rows)} answers{_by(self.max_error)}"
        if self.moved_edges:
            share, by = _share(self.moved_edges, self.edges), _by(self.max_error_at_edges)
            return f"rounding to FP32 would move {share} answers beside the model's own thresholds{by}"
        return "rounding to FP32 moves no answer beyond the tolerance"


@dataclass(frozen=True)
class InputChoice:
    """The inputs with their types, the effect of rounding numbers to FP32, and the user's choice."""

    inputs: Inputs
    rounding: Rounding
    wanted: str

    @property
    def forced(self) -> bool:
        """Return whether the user chose the type."""
        return self.wanted != "auto"

    @property
    def why(self) -> str:
        """The reason for the types, in a clause; empty without numbers, or if the user's choice moves no answer."""
        types = self.inputs.datatypes()
        if NUMBERS not in types or (self.forced and not self.rounding.moves):
            return ""
        return f"{' and '.join(kind for kind in dict.fromkeys(types.values()) if kind != 'BYTES')}: {self.rounding}"


def choose_inputs(oracle: Oracle, lowered: Lowered, rows: GivenRows, wanted: str, tolerance: float) -> InputChoice:
    """Return the lowered model's inputs with their types; `wanted` is "auto", "fp32" or "fp64".

    Raises:
        ExportError: FP32 is wanted, and rounds two categories to one number.
    """
    plain, profile = lowered.inputs, lowered.profile
    probe = _Probe(oracle, lowered, rows, tolerance)
    rounding = probe.rounding(plain)
    chosen = dataclasses.replace(plain, dtype="float64")
    if wanted == "fp32":
        _check_categories(oracle, profile, plain)
        chosen = plain
    elif wanted == "auto" and not rounding.moves:
        chosen = plain
    elif wanted == "auto":
        apart = with_integers(plain, _integers(oracle, profile, plain, rows))
        if apart is not plain and not probe.rounding(apart).moves:
            chosen = apart
    return InputChoice(chosen, rounding, wanted)


class _Probe:
    """Given rows and rows at edges with the estimator's answers, to be asked again with rounded numbers."""

    def __init__(self, oracle: Oracle, lowered: Lowered, rows: GivenRows, tolerance: float) -> None:
        self._oracle, self._rows = oracle, rows
        self._limit = SHARE_OF_TOLERANCE * tolerance
        edges = find_edges(lowered.plan)
        for exact in (*lowered.inputs.dates, *range(lowered.inputs.n_given, lowered.inputs.n_features)):
            edges.pop(exact, None)  # no type rounds it
        known = rows_at_edges(edges, rows.X)
        at_edges = oracle.types.of_matrix(np.concatenate([known, self._rows_at_jumps(lowered)]))
        answers = oracle.finite_answers(at_edges) if len(at_edges) else None
        self._edges = at_edges if answers is not None else at_edges[:0]
        expected = {name: [values] + ([answers[name]] if answers else []) for name, values in rows.expected.items()}
        self._expected = {name: np.concatenate(parts) for name, parts in expected.items()}

    def _rows_at_jumps(self, lowered: Lowered) -> np.ndarray:
        """Return rows at jumps along the columns whose thresholds the plan does not show.

        Columns whose numbers are all float32 numbers are left out, since FP32 rounds none of them.
        """
        X, inputs = self._rows.X, lowered.inputs
        with np.errstate(over="ignore"):
            rounds = np.any(differ(X.astype(np.float32).astype(np.float64), X), axis=0)
        sought = features_behind(lowered.plan) & set(inputs.numeric) - set(inputs.categorical)
        along = sorted(column for column in sought - set(self._oracle.types.float32) if rounds[column])
        return rows_at_jumps(self._apart, X, along, self._limit) if along else X[:0]

    def _apart(self, a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
        """Return the distances between the answers to two matrices of rows, in standard deviations."""
        found = self._oracle.finite_answers(np.concatenate([a, b]))
        if found is None:
            return None
        first, second = ({name: np.split(values, 2)[half] for name, values in found.items()} for half in (0, 1))
        return errors(first, second, self._rows.units)

    def rounding(self, inputs: Inputs) -> Rounding:
        """Return the effect of these inputs' rounding on the rows."""
        X = np.concatenate([self._rows.X, self._edges])
        rounded = inputs.rounded(X)
        moves = differ(rounded, X)
        changed = np.asarray(moves.any(axis=1))
        error = np.zeros(len(X))
        if changed.any():
            found = self._oracle.finite_answers(rounded[changed])
            error[changed] = np.inf if found is None else self._errors(found, changed)
            unsent = moves[:, list(inputs.categorical)].any(axis=1)
            error[unsent] = np.maximum(error[unsent], TINY)
        given, at_edges = np.split(error, [len(self._rows.X)])
        moved, moved_edges = (int(np.count_nonzero(part)) for part in (given, at_edges))
        largest, largest_at_edges = (float(part.max(initial=0.0)) for part in (given, at_edges))
        counts = (len(given), moved, len(at_edges), moved_edges)
        return Rounding(*counts, largest, largest_at_edges, self._rows.drawn)

    def _errors(self, found: Answers, changed: np.ndarray) -> np.ndarray:
        """Return the distances of answers from those to unrounded rows, in standard deviations; 0 if near enough."""
        largest = np.zeros(int(changed.sum()))
        for name, values in found.items():
            expected, unit = self._expected[name][changed], self._rows.units[name]
            error = np.abs(values - expected)
            half = ulps(expected) / 2
            beyond = error > np.maximum(self._limit * unit - half, half)
            largest = np.maximum(largest, np.where(beyond, error / unit, 0.0).max(axis=1))
        return largest


def _integers(oracle: Oracle, profile: Profile, inputs: Inputs, rows: GivenRows) -> list[int]:
    """Return the columns of whole numbers that FP32 would round and in which the estimator takes no NaN."""
    found = []
    for column in sorted((rows.integers | profile.integers if rows.drawn else rows.integers) & set(inputs.numeric)):
        numbers = np.append(rows.X[:, column], profile.choices.get(column, np.zeros(0)))
        with_nan = rows.X[:1].copy()
        with_nan[:, column] = np.nan
        if (numbers != numbers.astype(np.float32)).any() and oracle.finite_answers(with_nan) is None:
            found.append(column)
    return found


def _check_categories(oracle: Oracle, profile: Profile, inputs: Inputs) -> None:
    """Raise `ExportError` if two categories of a column are one number in FP32."""
    for column in set(inputs.categorical) - set(inputs.float32 or ()):
        numbers = np.unique(profile.choices[column])
        same = np.flatnonzero(np.diff(numbers.astype(np.float32)) == 0)
        if len(same):
            a, b = (f"{number:.17g}" for number in numbers[same[0] : same[0] + 2])
            raise ExportError(
                f"Cannot export {type(oracle.estimator).__name__}: the categories {a} and {b} of "
                f"{profile.called(range(profile.n_features), column)} are "
                "one number in FP32; choose --input auto or fp64."
            )


def _share(part: int, whole: int) -> str:
    percent = 100 * part / whole
    return f"{percent:.0f} % of" if percent >= 1 else f"{part:,} of {whole:,}"


def _by(error: float) -> str:
    if not np.isfinite(error):
        return " or leave rows without an answer"
    return f", by up to {error:.2g} std" if error > TINY else ": FP32 does not hold the rows' categories"
