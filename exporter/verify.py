"""Parity of a plan with the estimator's own predictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np

from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.input_type import Rounding
from triton_regressors.exporter.sample import Sample
from triton_regressors.kernels.entry import OutputParity, ParityReport
from triton_regressors.kernels.inputs import NUMBERS, Inputs
from triton_regressors.kernels.parity import Parity, measure
from triton_regressors.kernels.plan import Plan
from triton_regressors.kernels.run import Runner


@dataclass(frozen=True)
class Report:
    """What was measured: by which engine, on how many rows, and the parity of each output.

    `outputs` are measured against the estimator's answers to the rows as they were given, `rounded` against those to
    the rows as the input's types hold them; the same where nothing was rounded. `types` are those of the input tensors,
    `why` is what chose them, and `forced` whether the user did.
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
        return ParityReport(self.tolerance, self.engine, self.rows, rows_from, self.types, self.why, outputs)


def verify(
    plan: Plan, inputs: Inputs, sample: Sample, tolerance: float, rounding: Rounding, wanted: str = "auto"
) -> Report:
    """Measure the plan against the sample with this machine's own engine: kernels on a GPU, else their references."""
    runner = Runner(plan, engine="auto", max_rows=min(len(sample.X), 4096))
    found = runner.predict(sample.X, tuple(plan.outputs))
    given, rounded = (
        {name: measure(found[name], answers[name], sample.units[name]) for name in plan.outputs}
        for answers in (sample.expected, sample.rounded)
    )
    types = inputs.datatypes()
    numbers = " and ".join(kind for kind in dict.fromkeys(types.values()) if kind != "BYTES")
    why = f"{numbers}: {rounding}" if NUMBERS in types and (rounding.moves or wanted == "auto") else ""
    measured = (tolerance, sample.units, given, rounded)
    return Report(runner.engine, len(sample.X), sample.drawn, *measured, types, why, forced=wanted != "auto")


def check(report: Report, subject: str) -> None:
    """Raise `ExportError` unless every output is within the tolerance, or one unit in float32's last place.

    Where the user wants numbers in FP32 that this rounds, the answers must be those to the rounded rows.
    """
    for name, parity in (report.rounded if report.forced else report.outputs).items():
        if not parity.within(report.tolerance):
            raise ExportError(
                f"Cannot export {subject}: output '{name}' differs from its own prediction by {parity.max_error:.1e} "
                f"standard deviations on {report.rows} rows; the tolerance is {report.tolerance:.0e}, or one unit in "
                "the answer's last float32 place."
            )
