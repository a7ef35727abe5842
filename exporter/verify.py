"""Measures the parity of a plan with the estimator's own predictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np

from triton_regressors.exporter.input_type import InputChoice
from triton_regressors.exporter.sample import Sample
from triton_regressors.kernels.entry import OutputParity, ParityReport
from triton_regressors.kernels.parity import Parity, measure
from triton_regressors.kernels.run import Runner


@dataclass(frozen=True, repr=False)
class Report:
    """What was measured: by which engine, on how many rows, and the parity of each output.

    `outputs` are measured against the estimator's answers to the rows as they were given, `rounded` against those to
    the rows as the input's types hold them; the same where nothing was rounded. `types` are those of the input tensors,
    `why` is what chose them, and `forced` whether the user did. `ties` says what neighbours at equal distance do, and
    `cause` where answers differ beyond the tolerance and what makes the difference, as far as that was found.
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

    @property
    def judged(self) -> Mapping[str, Parity]:
        """The parity that decides: that of the rounded rows where the user chose the type."""
        return self.rounded if self.forced else self.outputs

    @property
    def within(self) -> bool:
        """Whether every output is within the tolerance, or one unit in float32's last place."""
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
        return ParityReport(*kept, ties=self.ties)


def verify(runner: Runner, sample: Sample, choice: InputChoice, tolerance: float) -> Report:
    """Measure a plan's answers to the sample, as its runner computes them; the tolerance is noted, and not applied."""
    outputs = tuple(runner.plan.outputs)
    found = runner.predict(sample.X, outputs)
    given, rounded = (
        {name: measure(found[name], answers[name], sample.units[name]) for name in outputs}
        for answers in (sample.expected, sample.rounded)
    )
    measured = (tolerance, sample.units, given, rounded)
    types = choice.inputs.datatypes()
    return Report(runner.engine, len(sample.X), sample.drawn, *measured, types, choice.why, choice.forced)
