"""From a fitted estimator to an entry: lower → choose the input's types → fuse → verify → publish."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from sklearn.isotonic import IsotonicRegression

from triton_regressors import __version__
from triton_regressors.exporter.builder import Builder
from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.fuse import fusion_steps
from triton_regressors.exporter.input_type import INPUT_TYPES, choose_inputs
from triton_regressors.exporter.missing import nan_columns
from triton_regressors.exporter.oracle import Oracle, feature_names
from triton_regressors.exporter.precision import choose_precision
from triton_regressors.exporter.sample import Sample, as_sent, take_rows
from triton_regressors.exporter.soundness import in_one_sentence
from triton_regressors.exporter.specialise import specialise
from triton_regressors.exporter.text import MISSING_STRINGS
from triton_regressors.exporter.verify import Report, check, verify
from triton_regressors.kernels.entry import Document, Entry, Golden, Provenance, Stage, StepSummary
from triton_regressors.kernels.errors import PlanError
from triton_regressors.kernels.inputs import Inputs
from triton_regressors.kernels.plan import Plan

DEFAULT_TOLERANCE = 1e-5
GOLDEN_ROWS = 16
GOLDEN_NAN_ROWS = 4

INNER_ESTIMATORS = ("best_estimator_", "estimator_", "regressor_")
"""The attributes where scikit-learn's estimators of one other estimator keep it."""


@dataclass(frozen=True)
class Compilation:
    """An estimator as a verified plan, and how it got there."""

    estimator: Any
    stages: Sequence[tuple[str, Plan]]  # the lowered plan, then the plan after each pass that changed it
    inputs: Inputs
    sample: Sample
    report: Report
    nan_columns: Sequence[int]  # where a request may hold NaN
    nan_sample: Sample  # rows with NaN there

    @property
    def plan(self) -> Plan:
        """The plan after the last pass."""
        return self.stages[-1][1]


@dataclass(frozen=True)
class Export:
    """An entry that was written, and the compilation behind it."""

    entry: Entry
    compilation: Compilation


@in_one_sentence
def compile_estimator(
    estimator: Any,
    *,
    sample: Any | None = None,
    tolerance: float = DEFAULT_TOLERANCE,
    input: str = "auto",
    missing_strings: Sequence[str] = MISSING_STRINGS,
) -> Compilation:
    """Lower a fitted estimator, fuse its plan and measure it against the estimator's own `predict`.

    `sample` is rows like those to be served as `predict` takes them, a DataFrame or a matrix `[rows, n_features]`, or,
    for an estimator fitted on named columns, a function from the names of those that are strings to rows; without it
    rows are drawn to the fitted scale. `input` is what numbers come in: "fp32", "fp64", or "auto", which is FP32 where
    rounding to it moves no answer, and else FP64, or FP32 with columns of whole numbers as INT64. `missing_strings`
    stand for a missing value in columns of strings.
    Raises `ExportError` if the estimator cannot be lowered. Parity is measured, and not yet judged.
    """
    if not _is_share(tolerance):
        raise ExportError(f"tolerance must lie between 0 and 1 standard deviations, not {tolerance!r}.")
    if input not in INPUT_TYPES:
        raise ExportError(f"input must be one of {', '.join(INPUT_TYPES)}, not {input!r}.")
    if isinstance(missing_strings, str) or not all(isinstance(text, str) for text in missing_strings):
        raise ExportError(f"missing_strings must be a sequence of strings, not {missing_strings!r}.")
    if isinstance(estimator, str | Path):
        raise ExportError(
            f"export takes a fitted estimator, not a path ({estimator}); read it first with "
            "triton_regressors.exporter.loading.load_estimator, or use the command `triton-regressors export`."
        )
    builder = Builder(_feature_count(estimator, sample))
    builder.text.spellings = tuple(missing_strings)
    outputs = builder.lower_outputs(estimator, builder.input)
    if not hasattr(estimator, "predict"):
        raise builder.refuse(estimator, "it has no predict; give a regressor, or a Pipeline that ends in one")
    try:
        lowered = builder.plan(outputs)
        plain = builder.text.inputs(lowered)
        if callable(sample):
            names = feature_names(estimator) or []
            sample = sample([names[column] for column in builder.text.columns()])
        oracle = Oracle(estimator, builder.input.width, tuple(outputs), builder.text)
        rows = take_rows(oracle, builder, plain.numeric, sample)
        inputs, rounding = choose_inputs(oracle, builder, lowered, plain, rows, input, tolerance)
        stages = [("lowered", specialise(lowered, inputs.matrix_dtype))]
        stages.extend(fusion_steps(stages[0][1]))
    except PlanError as error:
        raise ExportError(f"Cannot export {builder.subject(estimator)}: {error}") from error
    sent = as_sent(rows, inputs, oracle)
    chosen = choose_precision(stages[-1][1], sent.X, tolerance)
    if chosen is not stages[-1][1]:
        stages.append(("choose precision", chosen))
    report = verify(chosen, inputs, sent, tolerance, rounding, input)
    nan = nan_columns(oracle, chosen, inputs, sent, tolerance)
    return Compilation(estimator, stages, inputs, sent, report, *nan)


def export(
    estimator: Any,
    repository: str | Path = "model_repository",
    *,
    name: str | None = None,
    sample: Any | None = None,
    tolerance: float = DEFAULT_TOLERANCE,
    input: str = "auto",
    missing_strings: Sequence[str] = MISSING_STRINGS,
    **options: Any,
) -> Export:
    """Write a fitted estimator into a model repository as an entry, or as the next version of one.

    `name`: the model's name on the server (default: the estimator's class in snake case, a Pipeline's last step's).
    `sample`: rows to verify on, as `predict` takes them (default: rows drawn to the fitted scale).
    `tolerance`: the largest difference from the estimator's own prediction, in its standard deviations. One unit in the
    answer's last float32 place is allowed in any case.
    `input`: the type of numbers in requests, "auto", "fp32" or "fp64", see `compile_estimator`. An entry that exists
    with FP64 keeps it.
    `missing_strings`: strings that stand for a missing value, in each column of strings of which they are no category.
    `options`: see `ServingOptions`.

    Raises `ExportError`, and writes nothing, if the estimator, an option or the repository does not allow the export
    or the plan's answers are not the estimator's.
    """
    # Here, so that compiling alone does without the server's protobuf.
    from triton_regressors.exporter import repository as repositories
    from triton_regressors.exporter.config import ServingOptions

    accepted = ServingOptions.__dataclass_fields__
    unknown = [option for option in options if option not in accepted]
    if unknown:
        known = ", ".join(accepted)
        raise ExportError(
            f"There is no option '{unknown[0]}'; export takes name, sample, tolerance, input, {known}, missing_strings."
        )
    serving = ServingOptions(**options)
    name = default_name(estimator) if name is None else name
    repository = Path(repository)
    repositories.check_name(name)
    existing = repositories.input_type(repository, name)
    if input == "auto" and existing == "fp64":
        input = "fp64"
    compilation = compile_estimator(
        estimator, sample=sample, tolerance=tolerance, input=input, missing_strings=missing_strings
    )
    plan = compilation.plan
    if existing == "fp32" and input == "auto" and compilation.inputs.dtype == "float64":
        raise ExportError(
            f"The entry '{name}' exists with FP32, and this model needs {compilation.report.why}; choose another name, "
            "or --input fp32."
        )
    repositories.check_target(
        repository, name, compilation.inputs, plan.output_widths(), feature_names(estimator) or ()
    )
    check(compilation.report, type(estimator).__name__)
    try:
        entry = repositories.publish(repository, name, plan, _golden(compilation), _document(compilation), serving)
    except OSError as error:
        raise ExportError(f"Cannot write into the repository {repository}: {error}.") from error
    return Export(entry, compilation)


def default_name(estimator: Any) -> str:
    """Return the name of an entry whose user gives none."""
    last = estimator.steps[-1][1] if hasattr(estimator, "steps") else estimator
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", type(last).__name__).lower()


def stage_summary(stage: str, plan: Plan) -> Stage:
    """Return a stage of a compilation as an entry keeps it and `describe` prints it."""
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


def _golden(compilation: Compilation) -> Golden:
    """Return the first rows of the sample, and of those with NaN where the model takes them, with their answers.

    The rows are as the entry gets them, and the answers the estimator's to these.
    """
    parts = [(compilation.sample, GOLDEN_ROWS), (compilation.nan_sample, GOLDEN_NAN_ROWS)]
    return Golden(
        np.concatenate([sample.X[:rows] for sample, rows in parts]),
        {
            name: np.concatenate([sample.rounded[name][:rows] for sample, rows in parts])
            for name in compilation.sample.rounded
        },
    )


def _document(compilation: Compilation) -> Document:
    """Return the plan, where it came from, how it got here, and its parity."""
    estimator = compilation.estimator
    return Document(
        plan=compilation.plan.to_json(),
        provenance=Provenance(
            estimator=re.sub(r" at 0x[0-9a-f]+", "", repr(estimator)),  # a function's address is another each time
            class_=f"{type(estimator).__module__}.{type(estimator).__qualname__}",
            feature_names=tuple(feature_names(estimator) or ()),
            scikit_learn=sklearn.__version__,
            triton_regressors=__version__,
        ),
        inputs=compilation.inputs,
        nan_columns=tuple(compilation.nan_columns),
        parity=compilation.report.record(),
        stages=tuple(stage_summary(stage, plan) for stage, plan in compilation.stages),
    )


def _feature_count(estimator: Any, sample: Any | None) -> int:
    """Return how many features the estimator was fitted on."""
    stated = _stated_width(estimator)
    if stated is not None:
        return stated
    given = np.empty(0) if sample is None else np.asarray(sample)
    if given.ndim == 2:
        return len(given.T)
    # An unfitted or unknown estimator is refused by name before its width matters.
    builder = Builder(1)
    builder.lower_outputs(estimator, builder.input)
    raise ExportError(
        f"Cannot export {type(estimator).__name__}: it does not say how many features it was fitted on; give a sample."
    )


def _is_share(number: Any) -> bool:
    """Whether this is a number between 0 and 1."""
    return isinstance(number, int | float | np.floating) and bool(0 < number < 1)


def _stated_width(estimator: Any) -> int | None:
    """Return how many features an estimator, or the first part of it that changes them, says that it takes."""
    if isinstance(estimator, IsotonicRegression):
        return 1
    try:
        return int(estimator.n_features_in_)
    except (AttributeError, TypeError):
        steps = getattr(estimator, "steps", getattr(estimator, "transformer_list", None))
    if isinstance(steps, list):
        # A fitted step that keeps no count may change it; what follows would be a guess. A union gives all the same.
        first = next((step for _, step in steps if step is not None and not isinstance(step, str)), None)
        return None if first is None else _stated_width(first)
    inner = next((getattr(estimator, name) for name in INNER_ESTIMATORS if hasattr(estimator, name)), None)
    return None if inner is None else _stated_width(inner)
