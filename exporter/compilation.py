"""The results of compiling an estimator: a verified plan with its history, and the entry written from it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any

import numpy as np
import sklearn

from triton_regressors.contribution_game import OUTPUTS
from triton_regressors.defaults import DEFAULT_REPOSITORY
from triton_regressors.describe.contract import Contract, contract_of, cost_sentences
from triton_regressors.exporter.evidence.sample import Sample
from triton_regressors.exporter.evidence.verify import Report
from triton_regressors.exporter.lowering.estimator import written
from triton_regressors.exporter.lowering.text_columns import without_other_strings
from triton_regressors.kernels.entry import (
    ContributionsReport,
    Document,
    Entry,
    Float32Rows,
    Golden,
    IntervalReport,
    Provenance,
    Stage,
    StepSummary,
)
from triton_regressors.kernels.format.inputs import Inputs
from triton_regressors.kernels.format.row_profile import RowProfile
from triton_regressors.kernels.plan.plan import Plan
from triton_regressors.version import __version__

GOLDEN_ROWS = 16
GOLDEN_NAN_ROWS = 4


@dataclass(frozen=True, repr=False)
class Compilation:
    """An estimator as a verified plan, with the stages that led to it."""

    estimator: Any
    stages: Sequence[tuple[str, Plan]]  # the lowered plan, then the plan after each pass that changed it
    inputs: Inputs
    sample: Sample
    report: Report
    precision: str | None  # the precision asked for and the ones chosen, in a sentence
    nan_columns: Sequence[int]  # the columns in which a request may hold NaN
    nan_sample: Sample  # rows with NaN in these columns
    interval: IntervalReport | None = None  # the calibration of `lower` and `upper`, if there are such outputs
    contributions: ContributionsReport | None = None  # the game of the output `contributions`, if there is one
    columns: tuple[str, ...] = ()  # the names by which clients know the columns
    profile: RowProfile | None = None  # the profile of the given rows; served rows are compared with it
    answers_column: bool = False  # whether `predict` answers one target as [rows, 1]
    boolean_columns: tuple[int, ...] = ()  # the columns that held booleans in the sample or in training

    @property
    def plan(self) -> Plan:
        """The plan after the last pass."""
        return self.stages[-1][1]

    def __repr__(self) -> str:
        return f"Compilation of {type(self.estimator).__name__}\n  {self.plan!r}\n  {self.report!r}"

    def saying(self, float32: Float32Rows) -> Compilation:
        """Return the compilation with the findings on a sample with float32 columns in its report."""
        return dataclasses.replace(self, report=dataclasses.replace(self.report, float32=float32))

    def contract(self, name: str, version: int | None = None) -> Contract:
        """Return the model's inputs and outputs under a name."""
        return contract_of(name, version, self.document(), self.golden(), self.profile)

    def golden(self) -> Golden:
        """Return the first rows of the sample, then the first rows with NaN if the model takes them, with answers.

        The rows are as the entry gets them. The answers are the estimator's own for these rows.
        """
        return Golden(
            self._served[1],
            {
                name: np.concatenate([sample.rounded[name][:rows] for sample, rows in self._golden_parts])
                for name in self.sample.rounded
            },
            {name: tuple(unit.tolist()) for name, unit in self.report.units.items()},
        )

    @property
    def _golden_parts(self) -> list[tuple[Sample, int]]:
        """The samples that golden rows are taken from, and how many of each; fewer if an output is costly."""
        parts = (self.sample, GOLDEN_ROWS), (self.nan_sample, GOLDEN_NAN_ROWS)
        return [(sample, min(rows, *map(len, sample.rounded.values()))) for sample, rows in parts]

    @functools.cached_property
    def _served(self) -> tuple[Inputs, np.ndarray]:
        """The inputs as the entry holds them, and the golden rows."""
        return without_other_strings(
            self.inputs, np.concatenate([sample.X[:rows] for sample, rows in self._golden_parts])
        )

    def document(self) -> Document:
        """Return the plan, its provenance, its stages and its parity."""
        estimator = self.estimator
        return Document(
            plan=self.plan.to_json(),
            provenance=Provenance(
                estimator=written(estimator),
                class_=f"{type(estimator).__module__}.{type(estimator).__qualname__}",
                feature_names=self.columns,
                scikit_learn=sklearn.__version__,
                triton_regressors=__version__,
            ),
            inputs=self._served[0],
            nan_columns=tuple(self.nan_columns),
            parity=dataclasses.replace(self.report.record(), precision=self.precision),
            stages=tuple(stage_summary(stage, plan) for stage, plan in self.stages),
            interval=self.interval,
            contributions=self.contributions,
            answers_column=self.answers_column or None,
            boolean_columns=self.boolean_columns or None,
        )


@dataclass(frozen=True, repr=False)
class Export:
    """An entry that was written, and the compilation behind it; a notebook shows its contract."""

    entry: Entry
    compilation: Compilation

    @property
    def contract(self) -> Contract:
        """The inputs and outputs of the entry."""
        return self.compilation.contract(self.entry.name, self.entry.version)

    def __repr__(self) -> str:
        return f"Export of {self.entry.name} version {self.entry.version}\n{self.contract.brief()}"

    def __str__(self) -> str:
        return self.text()

    def text(self, notes: Sequence[str] = ()) -> str:
        """Return the text that the command `export` prints: the files written, a short contract, and the next steps.

        `notes` are further sentences, which follow those of the contract.
        """
        entry, plan, contract = self.entry, self.compilation.plan, self.contract
        count = len(plan.steps)
        lines = (
            f"Wrote {entry.name} version {entry.version} to {entry.version_directory}: {count} "
            f"operation{'s' * (count != 1)}, {plan.parameter_count():,} parameters, {_bytes(plan)}.",
            contract.brief(),
            *contract.notes(),
            *contract.interval,
            *cost_sentences(self.compilation.contributions),
            *notes,
            *next_steps(entry),
        )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return self.contract.html(str(self.entry.version_directory))


def _bytes(plan: Plan) -> str:
    """Return the bytes of a plan's parameters, and how many of them only the contributions need."""
    every = plan.parameter_bytes()
    others = plan.steps_for([output for output in plan.outputs if output not in OUTPUTS])
    more = every - sum(array.nbytes for step in others for _, array in step.operation.arrays())
    return f"{every:,} bytes" + (f", {more:,} of them for contributions" if more else "")


def next_steps(entry: Entry) -> tuple[str, str]:
    """Return the commands that serve and describe an entry, in sentences."""
    repository = entry.directory.parent
    at = quote(str(repository))
    name = entry.name if repository == DEFAULT_REPOSITORY else f"{entry.name} --repository {at}"
    return (
        f"Serve it with: triton-regressors serve {at}",
        f"See its columns and how to query it: triton-regressors describe {name}",
    )


def stage_summary(stage: str, plan: Plan) -> Stage:
    """Return a stage of a compilation as an entry keeps it and `describe --passes` prints it."""
    return Stage(
        stage,
        tuple(
            StepSummary(
                output=step.output,
                op=step.operation.kind(),
                inputs=step.inputs,
                what=step.operation.describe(),
                parameters=sum(array.size for _, array in step.operation.arrays()),
                bytes=sum(array.nbytes for _, array in step.operation.arrays()),
                launches=step.launches(),
            )
            for step in plan.steps
        ),
    )
