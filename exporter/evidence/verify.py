"""Measures the parity of a plan with the estimator's own predictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from triton_regressors.exporter.evidence.input_type import InputChoice
from triton_regressors.exporter.evidence.oracle import Oracle
from triton_regressors.exporter.evidence.sample import Sample
from triton_regressors.exporter.lowering.row_types import DOUBLE
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.entry import Float32Rows, OutputParity, ParityReport
from triton_regressors.kernels.format.parity import Parity, measure, ulps, units


@dataclass(frozen=True, repr=False)
class Report:
    """The result of a measurement: its engine, its number of rows, and the parity of each output.

    `outputs` are measured against the estimator's answers to the rows as they were given, `rounded` against those to
    the rows as the input's types hold them; the two are equal if nothing was rounded. `types` are the types of the
    input tensors, `why` is the reason for them, and `forced` says whether the user chose them. `ties` describes the
    effect of neighbours at equal distance. `cause` says which answers differ beyond the tolerance and, if it was found,
    what causes the difference. `float32` holds the findings on a sample with float32 columns.
    """

    engine: str
    rows: int
    drawn: bool
    tolerance: float
    units: Mapping[str, np.ndarray]
    outputs: Mapping[str, Parity]
    rounded: Mapping[str, Parity]
    types: Mapping[str, str]
    why: str
    forced: bool
    ties: str | None = None
    cause: str = ""
    float32: Float32Rows | None = None

    @property
    def judged(self) -> Mapping[str, Parity]:
        """The parity that decides: that of the rounded rows if the user chose the type, otherwise of the given rows."""
        return self.rounded if self.forced else self.outputs

    @property
    def within(self) -> bool:
        """Return whether every output is within the tolerance, or one unit in float32's last place."""
        return all(parity.within(self.tolerance) for parity in self.judged.values())

    def __repr__(self) -> str:
        errors = ", ".join(f"{name}: {parity.max_error:.1e} std" for name, parity in self.outputs.items())
        rows = "drawn" if self.drawn else "given"
        return f"Report({errors}, {self.rows:,} {rows} rows, {self.engine} engine, tolerance {self.tolerance:.0e})"

    def record(self) -> ParityReport:
        """Return the report as an entry keeps it."""
        outputs = {
            name: OutputParity(
                tuple(self.units[name].tolist()),
                **asdict(parity),
                rounded=None if self.rounded[name] == parity else self.rounded[name],
            )
            for name, parity in self.outputs.items()
        }
        rows_from = "a draw to the fitted scale" if self.drawn else "the given sample"
        kept = (self.tolerance, self.engine, self.rows, rows_from, self.types, self.why, outputs)
        return ParityReport(*kept, ties=self.ties, float32=self.float32)


def verify(runner: Runner, sample: Sample, choice: InputChoice, tolerance: float) -> Report:
    """Measure a plan's answers to the sample, as its runner computes them; the tolerance is recorded, not applied."""
    outputs = tuple(runner.plan.outputs)
    found: dict[str, np.ndarray] = {}
    for rows in {len(answers) for answers in sample.expected.values()}:  # of costly outputs the first rows alone
        some = tuple(name for name in outputs if len(sample.expected[name]) == rows)
        found |= runner.predict(sample.X[:rows], some)
    given, rounded = (
        {name: measure(found[name], answers[name], sample.units[name]) for name in outputs}
        for answers in (sample.expected, sample.rounded)
    )
    measured = (tolerance, sample.units, given, rounded)
    types = choice.inputs.datatypes()
    return Report(runner.engine, len(sample.X), sample.drawn, *measured, types, choice.why, choice.forced)


def compare_types(
    single: Oracle, sample: Any, tolerance: float, sums: tuple[str, ...], *, answered: bool
) -> Float32Rows:
    """Return the differences between the estimator's own answers to float32 rows and to the same rows as float64.

    Args:
        single: the estimator, asked in the types of the sample.
        sample: rows with float32 columns, as `predict` takes them.
        tolerance: the difference above which an answer counts as moved, in standard deviations of the answers, on top
            of one float32 unit in the last place.
        sums: the transformers that sum in float32 before a decision.
        answered: whether the entry answers as the estimator does in the types of the sample.
    """
    of_single, of_double = (oracle.of_table(oracle.table(sample)) for oracle in (single, single.in_types(DOUBLE)))
    largest, moved = 0.0, np.zeros(len(of_double["y"]), dtype=bool)
    for name, expected in of_double.items():
        finite = np.isfinite(expected).all(axis=1) & np.isfinite(of_single[name]).all(axis=1)
        error = np.abs(of_single[name] - expected)[finite]
        unit = units(expected[finite])
        moved[finite] |= (error > tolerance * unit + ulps(expected[finite])).any(axis=1)
        largest = max(largest, float((error / unit).max(initial=0.0)))
    return Float32Rows(answered, len(moved), int(moved.sum()), largest, sums)
