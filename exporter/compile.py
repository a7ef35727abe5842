"""From a fitted estimator to an entry: lower → take rows → choose the input's types → optimise → verify → publish.

Rows come before the passes, since what these may do is measured on them: whether the input is FP32, and which sums are.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from triton_regressors.defaults import DEFAULT_PRECISION, DEFAULT_REPOSITORY, DEFAULT_TOLERANCE, MISSING_STRINGS
from triton_regressors.exporter.compilation import Compilation, Export
from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.evidence.calibration import check_level, find_interval
from triton_regressors.exporter.evidence.difference import Difference
from triton_regressors.exporter.evidence.input_type import INPUT_TYPES, choose_inputs
from triton_regressors.exporter.evidence.intervals import STAGE
from triton_regressors.exporter.evidence.missing import nan_columns
from triton_regressors.exporter.evidence.oracle import Oracle, feature_names
from triton_regressors.exporter.evidence.out_of_range import STAGE as COUNT_STAGE
from triton_regressors.exporter.evidence.out_of_range import add_count, with_count
from triton_regressors.exporter.evidence.quantiles import check_quantiles
from triton_regressors.exporter.evidence.row_profile import find_profile
from triton_regressors.exporter.evidence.sample import as_sent, take_rows
from triton_regressors.exporter.evidence.thresholds import search_thresholds
from triton_regressors.exporter.evidence.ties import LEFT_OUT, TIES, search_ties, ties_in_words, without
from triton_regressors.exporter.evidence.verify import Report, compare_types, verify
from triton_regressors.exporter.lowering.column_names import check_count, checked_columns, in_order
from triton_regressors.exporter.lowering.lower import lower
from triton_regressors.exporter.lowering.registry import check_instance
from triton_regressors.exporter.lowering.rounding import round_input
from triton_regressors.exporter.lowering.row_types import DOUBLE, RowTypes, boolean_columns, row_types
from triton_regressors.exporter.lowering.soundness import in_one_sentence
from triton_regressors.exporter.passes.optimise import optimise
from triton_regressors.exporter.passes.precision import PRECISIONS, allowed_error, in_words
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.entry import Source
from triton_regressors.kernels.format.errors import PlanError

ROWS_AT_ONCE = 4096


@in_one_sentence
def compile_estimator(
    estimator: Any,
    *,
    sample: Any | None = None,
    calibrate: tuple[Any, Any] | None = None,
    level: float | None = None,
    quantiles: tuple[Any, Any] | None = None,
    profile: Any | None = None,
    out_of_range: bool = False,
    tolerance: float = DEFAULT_TOLERANCE,
    precision: str = DEFAULT_PRECISION,
    input: str = "auto",
    missing_strings: Sequence[str] = MISSING_STRINGS,
    columns: Sequence[str] | None = None,
    kept: Collection[str] = (),
    ties: str = "refuse",
) -> Compilation:
    """Lower a fitted estimator, fuse its plan and measure it against the estimator's own `predict`.

    Parity is measured, and not yet judged.

    Args:
        estimator: a fitted regressor, or a Pipeline or search that ends in one.
        sample: rows like those to be served, as `predict` takes them: a DataFrame or a matrix `[rows, n_features]`;
            None: rows drawn to the fitted scale.
        calibrate: rows that the estimator was not fitted on and their targets `(X, y)`, for the outputs `lower` and
            `upper`; None: there are no such outputs.
        level: which share of new rows these are for (default 0.9).
        quantiles: fitted models of a lower and of an upper quantile, of which `lower` and `upper` are then made.
        profile: rows whose profile served rows are compared with, as `predict` takes them; None: the sample's.
        out_of_range: whether there is an output that counts the columns in which a row is unlike these rows.
        tolerance: of the whole export, in standard deviations of the predictions; the passes are given a part of it.
        precision: what kernels may lose by computing some of it in less than float64: "exact", which is half a
            millionth of that standard deviation, or "fast", a quarter of the tolerance.
        input: what numbers come in: "fp32", "fp64", or "auto", which is FP32 where rounding to it moves no answer, and
            else FP64, or FP32 with columns of whole numbers as INT64.
        missing_strings: strings that stand for a missing value in columns of strings.
        columns: their names, for an estimator that was fitted on columns without; None: its own.
        kept: names of columns of numbers that are inputs even where the model drops them.
        ties: "accept" leaves rows out of the parity that have neighbours at equal distance or lie on thresholds behind
            sums; "refuse" does not.

    Raises:
        ExportError: the estimator cannot be lowered, or an argument is none of those above.
    """
    level, ends = check_level(level, calibrate), check_quantiles(estimator, quantiles, calibrate)
    if not _is_share(tolerance):
        raise ExportError(f"tolerance must lie between 0 and 1 standard deviations, not {tolerance!r}.")
    if precision not in PRECISIONS:
        raise ExportError(f"precision must be one of {', '.join(PRECISIONS)}, not {precision!r}.")
    if input not in INPUT_TYPES:
        raise ExportError(f"input must be one of {', '.join(INPUT_TYPES)}, not {input!r}.")
    if ties not in TIES:
        raise ExportError(f"ties must be one of {', '.join(TIES)}, not {ties!r}.")
    if isinstance(missing_strings, str) or not all(isinstance(text, str) for text in missing_strings):
        raise ExportError(f"missing_strings must be a sequence of strings, not {missing_strings!r}.")
    if isinstance(estimator, str | Path):
        raise ExportError(
            f"export takes a fitted estimator, not a path ({estimator}); read it first with "
            "triton_regressors.load_estimator, or use the command `triton-regressors export`."
        )
    check_instance(estimator)
    if columns is not None:
        columns = checked_columns(columns, estimator)
        sample, calibrate, profile = in_order(sample, calibrate, profile, columns, estimator)
    names = tuple(columns or feature_names(estimator) or ())

    def compiled(types: RowTypes, round_everywhere: bool = False) -> tuple[Compilation, Oracle, tuple[str, ...]]:
        # A module each, and sample.py twice: rows as they are given choose the types, and these say how rows are sent.
        lowered = lower(estimator, sample, missing_strings, ends, kept, types, round_everywhere)
        if columns is not None:
            check_count(columns, lowered.profile.n_features, estimator)
        outputs, interval = tuple(lowered.plan.outputs), None
        oracle = Oracle(estimator, lowered.profile, outputs, None, ends, types)
        if calibrate is not None:
            interval = find_interval(oracle, lowered.inputs, calibrate, level, rounded=input == "fp32")
            oracle = Oracle(estimator, lowered.profile, outputs, interval, ends, types)
        rows = take_rows(oracle, lowered, sample)
        choice = choose_inputs(oracle, lowered, rows, input, tolerance)
        sent = as_sent(rows, choice.inputs, oracle)
        try:
            limit = allowed_error(precision, tolerance)
            stages, choices = optimise(round_input(lowered.plan, choice.inputs), sent.X, limit)
        except PlanError as error:
            raise ExportError(f"Cannot export {type(estimator).__name__}: {error}") from error
        if interval is not None:
            stages.append((STAGE, interval.after(stages[-1][1])))
        runner = Runner(stages[-1][1], engine="auto", max_rows=min(len(sent.X), ROWS_AT_ONCE))
        seen, sums = find_profile(lowered, oracle, choice.inputs, sent, runner, profile), lowered.sums
        accept = ties == "accept"
        tied, found_ties = search_ties(runner, sent, choice.forced, tolerance)
        on_bits, found_bits = np.zeros_like(tied), None
        if accept:
            on_bits, found_bits = search_thresholds(runner, oracle, choice.inputs, sent, choice.forced, tolerance, tied)
            sent = without(sent, tied | on_bits)
        booleans = lowered.profile.booleans | (set() if sample is None else boolean_columns(oracle.table(sample[:1])))
        del lowered  # whose thresholds may be wider than those that are served
        nan, with_nan, closed = nan_columns(runner, oracle, choice.inputs, sent, tolerance, accept_ties=accept)
        if out_of_range:
            stages.append((COUNT_STAGE, add_count(stages[-1][1], seen, choice.inputs)))
            assert seen is not None
            sent, with_nan = (with_count(each, seen, choice.inputs) for each in (sent, with_nan))
            runner = Runner(stages[-1][1], engine="auto", max_rows=min(len(sent.X), ROWS_AT_ONCE))
        report = verify(runner, sent, choice, tolerance)
        said = ties_in_words(found_ties, accepted=accept, closed=closed, some=bool(nan))
        said = ". ".join(filter(None, [said, None if found_bits is None else f"Thresholds: {found_bits}{LEFT_OUT}"]))
        report = dataclasses.replace(report, ties=said or None)
        if not report.within and not types.float32:
            difference = Difference(oracle, runner, choice.inputs, names, tolerance, choice.forced)
            report = dataclasses.replace(report, cause=difference.in_words(sample, sent))
        lost, found = in_words(precision, limit, choices), None if interval is None else interval.report
        whole = Compilation(estimator, stages, choice.inputs, sent, report, lost, nan, with_nan, found, names, seen)
        whole = dataclasses.replace(whole, boolean_columns=tuple(sorted(booleans)))
        return dataclasses.replace(whole, answers_column=oracle.answers_column(sent.X)), oracle, sums

    types = row_types(sample, feature_names(estimator))
    single, oracle, sums = compiled(types)
    if not types.float32:
        return single
    if not single.report.within:  # of the numbers that only sums follow, rounding may matter too
        single, oracle, sums = compiled(types, round_everywhere=True)
    if single.report.within:
        return single.saying(compare_types(oracle, sample, tolerance, sums, answered=True)) if sums else single
    double, _, _ = compiled(DOUBLE)
    if not double.report.within:  # float32 is not the cause
        return double
    return double.saying(compare_types(oracle, sample, tolerance, sums, answered=False))


def export(
    estimator: Any,
    repository: str | Path = DEFAULT_REPOSITORY,
    *,
    name: str | None = None,
    sample: Any | None = None,
    calibrate: tuple[Any, Any] | None = None,
    level: float | None = None,
    quantiles: tuple[Any, Any] | None = None,
    profile: Any | None = None,
    out_of_range: bool = False,
    tolerance: float = DEFAULT_TOLERANCE,
    precision: str = DEFAULT_PRECISION,
    input: str = "auto",
    missing_strings: Sequence[str] = MISSING_STRINGS,
    columns: Sequence[str] | None = None,
    ties: str = "refuse",
    max_batch_size: int | None = None,
    dynamic_batching: bool | None = None,
    max_queue_delay_us: int | None = None,
    preferred_batch_sizes: tuple[int, ...] | None = None,
    instances: int | None = None,
    instance_kind: str | None = None,
    gpu_inputs: bool | None = None,
    engine: str | None = None,
    observe: str | None = None,
    versions: int | None = None,
    version: int | None = None,
    source: Source | None = None,
) -> Export:
    """Write a fitted estimator into a model repository as an entry, or as the next version of one.

    The arguments from `max_batch_size` on say how the server runs the entry; None leaves the default, or what an
    existing entry has.

    Args:
        estimator: a fitted regressor, or a Pipeline or search that ends in one.
        repository: the model repository, a directory; it is made where there is none.
        name: the model's name on the server; None: the estimator's class in snake case, a Pipeline's last step's.
        sample: rows to verify on, as `predict` takes them; None: rows drawn to the fitted scale.
        calibrate: a pair of rows as `predict` takes them, `[n, n_features]`, and their targets, `[n]` or
            `[n, targets]`, which the estimator must not have been fitted on (that cannot be checked). With q the
            ⌈(n + 1) · level⌉-th smallest of their scores the entry then also answers `lower` and `upper`, which are
            `y ± q` with the scores |target − y|, or, where the model answers `std`, `y ± q · std` with
            |target − y| / std: split conformal prediction, by Vovk, Gammerman and Shafer (2005) and Lei et al. (2018).
            Of a model whose `y` are quantiles (XGBoost's `quantile_alpha`, CatBoost's MultiQuantile) the scores are
            those of `quantiles`, of the two nearest to (1 ± level) / 2. n must be at least ⌈1 / (1 − level)⌉ − 1. None:
            there are no such outputs.
        level: the probability, between 0 and 1, with which at least a new row's target lies between `lower` and `upper`
            if rows and new row are exchangeable (default 0.9); each target by itself.
        quantiles: a pair of fitted models of a lower and an upper quantile, with as many targets, fitted on the same
            columns. With l and u the smaller and the larger of their answers a score is max(l − target, target − u),
            and `lower` and `upper` are l − q and u + q, or both the middle where these would cross: conformalised
            quantile regression, by Romano, Patterson and Candès (2019). `y` may lie outside. None: there are none.
        profile: rows as `predict` takes them, such as the training rows, whose range, quantiles and answers the entry
            keeps, for the server to count what lies outside; None: those of the sample, if there is one.
        out_of_range: whether the entry has an output of this name, FP32 `[rows, 1]`: in how many columns a row has a
            number below the smallest or above the largest of these rows, an unknown category, or NaN where they have
            none.
        tolerance: the largest difference from the estimator's own prediction, in its standard deviations. One unit in
            the answer's last float32 place is allowed in any case.
        precision: what kernels may lose by computing some of it in less than float64: "exact", which is half a
            millionth of that standard deviation, or "fast", a quarter of the tolerance.
        input: the type of numbers in requests: "fp32", "fp64", or "auto", which is FP32 where rounding to it moves no
            answer, and else FP64, or FP32 with columns of whole numbers as INT64. An entry that exists with FP64
            keeps it.
        missing_strings: strings that stand for a missing value, in each column of strings of which they are no
            category.
        columns: names for the columns, in the order that the estimator was fitted on, so that clients may send columns
            by name where it was fitted on columns without names. None: the estimator's own names.
        ties: what to do about rows to which the estimator has more than one answer: those with neighbours at equal
            distance, of which scikit-learn and the entry take different ones, and those on thresholds that last bits
            of a number decide. "refuse" (default) the export, or "accept" that such rows are answered differently.
            Parity is then that of the other rows, and the entry says how many were left out.
        max_batch_size: rows in one execution, at least 1 (default 4,096, fewer where rows are very wide); rows ×
            features at most 2²⁸.
        dynamic_batching: whether requests are gathered into batches (default yes).
        max_queue_delay_us: how long a request may wait for others, in microseconds (default 0).
        preferred_batch_sizes: batch sizes the server should try to make (default none).
        instances: how many copies run side by side in each instance group (default 1); on a GPU group, on each GPU.
        instance_kind: what they run on, "auto" (default: GPUs where there are any), "gpu" or "cpu".
        gpu_inputs: whether rows that a request has in a GPU's memory stay there (default no: the server copies them to
            the CPU's memory first).
        engine: "auto", "triton", "torch" or "interpret".
        observe: what the server's metrics count of the rows: "off", "sampled" (default) or "on".
        versions: how many of the newest versions are served (default 1).
        version: the number of the version, at least 1, which the entry must not have; None: the next one.
        source: where the estimator was fetched from, a `kernels.entry.Source`, which plan.json then holds.

    Raises:
        ExportError: the estimator, an option or the repository does not allow the export, or the plan's answers are
            not the estimator's. Nothing is written.
    """
    # Here, so that compiling alone does without the server's protobuf.
    from triton_regressors.exporter.publish import repository as repositories
    from triton_regressors.exporter.publish.config import ServingOptions

    serving = ServingOptions(
        max_batch_size=max_batch_size,
        dynamic_batching=dynamic_batching,
        max_queue_delay_us=max_queue_delay_us,
        preferred_batch_sizes=preferred_batch_sizes,
        instances=instances,
        instance_kind=instance_kind,
        gpu_inputs=gpu_inputs,
        engine=engine,
        observe=observe,
        versions=versions,
    )
    if source is not None and not isinstance(source, Source):
        raise ExportError(f"source must be a Source of triton_regressors.kernels.entry, not {source!r}.")
    name = default_name(estimator) if name is None else name
    repository = Path(repository)
    repositories.check_name(name)
    repositories.check_version(repository / name, version)
    existing = repositories.input_type(repository, name)
    if input == "auto" and existing == "fp64":
        input = "fp64"
    compilation = compile_estimator(
        estimator,
        sample=sample,
        calibrate=calibrate,
        level=level,
        quantiles=quantiles,
        profile=profile,
        out_of_range=out_of_range,
        tolerance=tolerance,
        precision=precision,
        input=input,
        missing_strings=missing_strings,
        columns=columns,
        kept=repositories.columns_taken(repository, name),
        ties=ties,
    )
    plan = compilation.plan
    if existing == "fp32" and input == "auto" and compilation.inputs.dtype == "float64":
        raise ExportError(
            f"The entry '{name}' exists with FP32, and this model needs {compilation.report.why}; choose another name, "
            "or --input fp32."
        )
    repositories.check_target(repository, name, compilation.inputs, plan.output_widths(), compilation.columns)
    _check(compilation.report, type(estimator).__name__)
    document = compilation.document()
    document = dataclasses.replace(document, provenance=dataclasses.replace(document.provenance, source=source))
    try:
        golden, profile = compilation.golden(), compilation.profile
        entry = repositories.publish(repository, name, plan, golden, document, serving, version, profile)
    except OSError as error:
        raise ExportError(f"Cannot write into the repository {repository}: {error}.") from error
    return Export(entry, compilation)


def default_name(estimator: Any) -> str:
    """Return the name of an entry whose user gives none."""
    last = estimator.steps[-1][1] if hasattr(estimator, "steps") else estimator
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", type(last).__name__).lower()


def _check(report: Report, subject: str) -> None:
    """Raise `ExportError` unless every output is within the tolerance, or one unit in float32's last place.

    If the user wants numbers in FP32 that this rounds, the answers must be those to the rounded rows.
    """
    for name, parity in report.judged.items():
        if not parity.within(report.tolerance):
            raise ExportError(
                f"Cannot export {subject}: output '{name}' differs from the estimator's own prediction by "
                f"{parity.max_error:.1e} standard deviations on {report.rows} rows; the tolerance is "
                f"{report.tolerance:.0e}, or one unit in the answer's last float32 place. {report.cause}"
            )


def _is_share(number: Any) -> bool:
    """Return whether this is a number between 0 and 1."""
    return isinstance(number, int | float | np.floating) and bool(0 < number < 1)
