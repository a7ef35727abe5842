"""The rows that a plan is verified on: a user's own, or rows drawn to the fitted scale."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.evidence.oracle import Answers, Oracle
from triton_regressors.exporter.lowering.input_columns import Profile
from triton_regressors.exporter.lowering.lower import Lowered
from triton_regressors.exporter.lowering.row_types import dtypes_of
from triton_regressors.kernels.format.inputs import EXACT, PER_MICROSECOND, Inputs
from triton_regressors.kernels.format.parity import units
from triton_regressors.tables.dates import UNITS

DRAWN_ROWS = 1024

EARLIEST, LATEST = (int(np.datetime64(year, "us").astype(np.int64)) for year in ("2000", "2030"))
"""The first moments of the years between which dates are drawn, in microseconds since 1970."""


@dataclass(frozen=True, repr=False)
class _Answered:
    """Rows `X` of the plan's matrix, `[rows, n_features]`, and the estimator's own answers to them as they were given.

    `expected` are float64 `[rows, width]` for each output; `drawn` says that the rows were drawn, not given.
    """

    X: np.ndarray
    expected: Answers
    drawn: bool

    def __repr__(self) -> str:
        rows, features = self.X.shape
        whose = "drawn" if self.drawn else "given"
        return f"{type(self).__name__}({rows:,} {whose} rows of {features:,} features, {self.X.dtype})"

    @functools.cached_property
    def units(self) -> dict[str, np.ndarray]:
        """The unit of error for each output's columns."""
        return {name: units(values) for name, values in self.expected.items()}


@dataclass(frozen=True, repr=False)
class GivenRows(_Answered):
    """Rows as they are given, `X` in float64; `integers` are the columns that hold whole numbers by their dtype."""

    integers: frozenset[int]


@dataclass(frozen=True, repr=False)
class Sample(_Answered):
    """Rows as an entry gets them, `X` in the dtype of its plan.

    `rounded` are the answers to `X`; for rows that were not rounded they equal `expected`. `scales` are the units of
    outputs that are not measured by their own spread.
    """

    rounded: Answers
    scales: Mapping[str, np.ndarray] = field(default_factory=dict)

    @functools.cached_property
    def units(self) -> dict[str, np.ndarray]:
        """The unit of error for each output's columns."""
        return {**super().units, **self.scales}


def take_rows(oracle: Oracle, lowered: Lowered, given: Any | None) -> GivenRows:
    """Return rows with the estimator's answers: the given ones, or rows drawn to the fitted scale.

    Rows that the estimator itself answers with NaN or infinity are left out; they have no right answer.

    Raises:
        ExportError: the rows do not fit, or the estimator answers none of them.
    """
    drawn, name = given is None, type(oracle.estimator).__name__
    which = "drawn rows; give rows of your data with --sample" if drawn else "rows of the sample"
    if drawn:
        X, integers = _draw(lowered.profile), frozenset(lowered.profile.integers)
    else:
        table = oracle.table(given)
        X, dtypes = oracle.matrix(table, lowered.inputs.numeric), enumerate(dtypes_of(table))
        integers = frozenset(column for column, d in dtypes if isinstance(d, np.dtype) and d.kind in "iu")
    try:
        expected = oracle.of_matrix(X) if drawn else oracle.of_table(table)
    except (TypeError, ValueError) as error:
        holes = [] if drawn else _columns_with_none(table)
        if isinstance(error, TypeError) and not holes:
            raise
        why = str(error).splitlines()[0].rstrip(".")
        of_none = f"; column {holes[0]!r} holds None: a missing value may have to be NaN there" if holes else ""
        raise ExportError(f"Cannot verify {name}: it refuses the {which} ({why}{of_none}).") from error
    with np.errstate(over="ignore"):
        finite = np.logical_and.reduce([np.isfinite(v.astype(np.float32)).all(axis=1) for v in expected.values()])
    if not finite.any():
        raise ExportError(f"Cannot verify {name}: it predicts no finite number for the {which}.")
    return GivenRows(X[finite], {output: values[finite] for output, values in expected.items()}, drawn, integers)


def _columns_with_none(table: Any) -> list[Any]:
    """Return the names or numbers of a table's columns that hold None."""
    names = table.columns if hasattr(table, "columns") else range(table.shape[1])
    cells = np.asarray(table, dtype=object)
    return [name for name, column in zip(names, cells.T, strict=True) if any(cell is None for cell in column)]


def as_sent(rows: GivenRows, inputs: Inputs, oracle: Oracle) -> Sample:
    """Return rows as a client sends them to these inputs, without the rows that it refuses to send.

    A client refuses to round a category, or a number beyond the range of the input's type.

    Raises:
        ExportError: no row is left.
    """
    X = inputs.rounded(rows.X)
    changed = differ(X, rows.X)
    sendable = ~(changed[:, list(inputs.categorical)].any(axis=1) | (np.isinf(X) & changed).any(axis=1))
    if not sendable.any():
        raise ExportError(
            f"Cannot export {type(oracle.estimator).__name__}: {inputs.datatypes()['X']} does not hold the "
            "categories of any row; choose --input fp64."
        )
    X, changed = X[sendable], changed[sendable].any(axis=1)
    expected = {name: values[sendable] for name, values in rows.expected.items()}
    rounded = {name: values.copy() for name, values in expected.items()}
    if changed.any():
        for name, values in oracle.of_matrix(X[changed]).items():
            rounded[name][changed] = values
    return Sample(X.astype(inputs.matrix_dtype), expected, rows.drawn, rounded)


def differ(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the mask of the places at which two arrays differ; NaN equals NaN."""
    found: np.ndarray = (a != b) & ~(np.isnan(a) & np.isnan(b))
    return found


def _draw(profile: Profile) -> np.ndarray:
    """Return rows of independent normal features about the fitted location and scale.

    Dates whose location or scale is not known lie between `EARLIEST` and `LATEST`; all are whole units.
    """
    location = np.nan_to_num(profile.location, nan=0.0)
    scale = np.nan_to_num(profile.scale, nan=1.0)
    rng = np.random.default_rng(0)
    rows = max(min(DRAWN_ROWS, 2**22 // profile.n_features), 16)
    X: np.ndarray = location + scale * rng.standard_normal((rows, profile.n_features))
    for column, numbers in sorted(profile.choices.items()):
        X[:, column] = rng.choice(numbers, rows)
    profile.text.draw(X, rng)
    for column, kind in sorted(profile.dates.items()):
        if column not in profile.choices and not np.isfinite(profile.location[column] + profile.scale[column]):
            X[:, column] = rng.uniform(EARLIEST, LATEST, rows)
        whole = max(UNITS[kind.unit] // PER_MICROSECOND, 1)
        X[:, column] = np.floor(np.clip(X[:, column], -EXACT, EXACT) / whole) * whole
    X[:, sorted(profile.unread)] = 0.0
    return profile.text.completed(X)
