"""The door of the evidence: the estimator's answers, and a comparison of a plan's answers with them.

An export takes four steps through it: the `Terms` are checked, `ask` asks the estimator about rows before the passes,
`compare` looks for rows without one right answer, and `report` measures the parity of the last plan on the others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.evidence.calibration import CALIBRATION, check_level, find_interval
from triton_regressors.exporter.evidence.difference import Difference
from triton_regressors.exporter.evidence.input_type import INPUT_TYPES, InputChoice, choose_inputs
from triton_regressors.exporter.evidence.intervals import Interval
from triton_regressors.exporter.evidence.missing import made_nan_columns, nan_columns
from triton_regressors.exporter.evidence.oracle import Oracle
from triton_regressors.exporter.evidence.out_of_range import with_count
from triton_regressors.exporter.evidence.quantiles import check_quantiles
from triton_regressors.exporter.evidence.row_profile import PROFILE, find_profile
from triton_regressors.exporter.evidence.sample import Sample, as_sent, take_rows
from triton_regressors.exporter.evidence.thresholds import search_thresholds
from triton_regressors.exporter.evidence.ties import LEFT_OUT, TIES, search_ties, ties_in_words, without
from triton_regressors.exporter.evidence.verify import Report, verify
from triton_regressors.exporter.lowering.column_names import in_order
from triton_regressors.exporter.lowering.lower import Lowered
from triton_regressors.exporter.lowering.polars_tables import PolarsType, polars_types
from triton_regressors.exporter.lowering.row_types import RowTypes, boolean_columns
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.format.inputs import Inputs
from triton_regressors.kernels.format.row_profile import RowProfile


@dataclass(frozen=True)
class Terms:
    """The rows and limits of an export, as `compile_estimator` takes them; `ends` are the models of quantiles.

    `polars` are the types of the columns of a sample that was a DataFrame of polars.
    """

    sample: Any | None
    calibrate: Any | None
    level: float
    ends: tuple[Any, ...]
    profile: Any | None
    tolerance: float
    input: str
    ties: str
    polars: Mapping[str, PolarsType] | None = None

    @classmethod
    def checked(
        cls,
        estimator: Any,
        *,
        sample: Any | None,
        calibrate: Any | None,
        level: float | None,
        quantiles: Any | None,
        profile: Any | None,
        tolerance: float,
        input: str,
        ties: str,
    ) -> Terms:
        """Return the terms; raise `ExportError` for a value that its argument does not accept."""
        level, ends = check_level(level, calibrate), check_quantiles(estimator, quantiles, calibrate)
        if not isinstance(tolerance, int | float | np.floating) or not 0 < tolerance < 1:
            raise ExportError(f"tolerance must lie between 0 and 1 standard deviations, not {tolerance!r}.")
        if input not in INPUT_TYPES:
            raise ExportError(f"input must be one of {', '.join(INPUT_TYPES)}, not {input!r}.")
        if ties not in TIES:
            raise ExportError(f"ties must be one of {', '.join(TIES)}, not {ties!r}.")
        return cls(sample, calibrate, level, ends, profile, tolerance, input, ties)

    def in_order(self, columns: Sequence[str] | None, estimator: Any) -> Terms:
        """Return the terms with every table as a DataFrame that has these columns in the order of the fit."""
        calibrate = self.calibrate
        if isinstance(calibrate, tuple | list) and len(calibrate) == 2:
            calibrate = in_order(calibrate[0], columns, estimator, CALIBRATION), calibrate[1]
        sample = in_order(self.sample, columns, estimator, "The sample")
        profile = self.profile if self.profile is False else in_order(self.profile, columns, estimator, PROFILE)
        polars = polars_types(self.sample)
        return dataclasses.replace(self, sample=sample, calibrate=calibrate, profile=profile, polars=polars)


@dataclass(frozen=True)
class Asked:
    """An estimator's answers: the oracle, the interval around them, the input's types, and the rows as sent."""

    oracle: Oracle
    interval: Interval | None
    choice: InputChoice
    sample: Sample
    booleans: tuple[int, ...]  # the columns that held booleans in the sample or in training


@dataclass(frozen=True)
class Compared:
    """A plan beside the estimator: rows with one right answer, rows with NaN, and sentences on the rows left out."""

    sample: Sample
    nan_columns: Sequence[int]
    nan_sample: Sample
    ties: str | None

    def counted(self, profile: RowProfile, inputs: Inputs) -> Compared:
        """Return a copy with the answers of the output `out_of_range`."""
        sample, nan_sample = (with_count(each, profile, inputs) for each in (self.sample, self.nan_sample))
        return dataclasses.replace(self, sample=sample, nan_sample=nan_sample)


def ask(estimator: Any, lowered: Lowered, terms: Terms, types: RowTypes) -> Asked:
    """Ask an estimator about the sample in these types, calibrate the interval, and choose the input's types.

    Raises:
        ExportError: rows do not fit the estimator, or it answers none of them.
    """
    outputs, interval = tuple(lowered.plan.outputs), None
    oracle = Oracle(estimator, lowered.profile, outputs, None, terms.ends, types)
    if terms.calibrate is not None:
        rounded = terms.input == "fp32"
        interval = find_interval(oracle, lowered.inputs, terms.calibrate, terms.level, rounded=rounded)
        oracle = Oracle(estimator, lowered.profile, outputs, interval, terms.ends, types)
    rows = take_rows(oracle, lowered, terms.sample)
    choice = choose_inputs(oracle, lowered, rows, terms.input, terms.tolerance)
    booleans = set(lowered.profile.booleans)
    if terms.sample is not None:
        booleans |= boolean_columns(oracle.table(terms.sample[:1]))
    return Asked(oracle, interval, choice, as_sent(rows, choice.inputs, oracle), tuple(sorted(booleans)))


def profile_of(asked: Asked, lowered: Lowered, runner: Runner, terms: Terms) -> RowProfile | None:
    """Return the profile of the given rows, or of the sample, or None if there are neither; see `find_profile`."""
    return find_profile(lowered, asked.oracle, asked.choice.inputs, asked.sample, runner, terms.profile)


def compare(runner: Runner, asked: Asked, terms: Terms) -> Compared:
    """Find the rows to which the estimator has several answers, and the columns in which a request may hold NaN.

    `ties="accept"` leaves such rows out of the sample.

    Raises:
        ExportError: no row is left.
    """
    oracle, choice, sample, tolerance = asked.oracle, asked.choice, asked.sample, terms.tolerance
    accept = terms.ties == "accept"
    tied, ties = search_ties(runner, sample, choice.forced, tolerance)
    thresholds = None
    if accept:
        on_bits, thresholds = search_thresholds(runner, oracle, choice.inputs, sample, choice.forced, tolerance, tied)
        sample = without(sample, tied | on_bits)
    columns, with_nan, closed = nan_columns(runner, oracle, choice.inputs, sample, tolerance, accept_ties=accept)
    columns = columns + made_nan_columns(runner, oracle, choice.inputs, (sample, with_nan), tolerance)
    said = ties_in_words(ties, accepted=accept, closed=closed, some=bool(columns))
    left_out = None if thresholds is None else f"Thresholds: {thresholds}{LEFT_OUT}"
    return Compared(sample, columns, with_nan, ". ".join(filter(None, [said, left_out])) or None)


def report(
    runner: Runner, asked: Asked, compared: Compared, terms: Terms, names: Sequence[str], *, explain: bool
) -> Report:
    """Measure the parity of a plan; if `explain` is true, find the cause of answers beyond the tolerance too."""
    found = dataclasses.replace(verify(runner, compared.sample, asked.choice, terms.tolerance), ties=compared.ties)
    if not explain or all(found.judged[name].within(terms.tolerance) for name in asked.oracle.outputs):
        return found
    choice = asked.choice
    difference = Difference(asked.oracle, runner, choice.inputs, names, terms.tolerance, choice.forced)
    return dataclasses.replace(found, cause=difference.in_words(terms.sample, compared.sample))
