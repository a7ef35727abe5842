"""From a fitted estimator to a verified plan: lower → ask the estimator → optimise → compare → verify.

The estimator is asked about rows before the passes, because the rows decide what a pass may do. They decide whether the
input is FP32, and which sums are.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from triton_regressors.contribution_game import PATH
from triton_regressors.defaults import DEFAULT_PRECISION, DEFAULT_TOLERANCE, MISSING_STRINGS
from triton_regressors.exporter.compilation import Compilation
from triton_regressors.exporter.contributions.contributions import STAGE as EXPLAIN_STAGE
from triton_regressors.exporter.contributions.contributions import THE_BACKGROUND, Question, find_contributions
from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.evidence.evidence import Terms, ask, compare, profile_of, report
from triton_regressors.exporter.evidence.intervals import STAGE
from triton_regressors.exporter.evidence.oracle import Oracle
from triton_regressors.exporter.evidence.out_of_range import STAGE as COUNT_STAGE
from triton_regressors.exporter.evidence.out_of_range import add_count
from triton_regressors.exporter.evidence.verify import compare_types
from triton_regressors.exporter.lowering.column_names import check_count, checked_columns, in_order
from triton_regressors.exporter.lowering.estimator import table_names
from triton_regressors.exporter.lowering.lower import lower
from triton_regressors.exporter.lowering.registry import check_instance
from triton_regressors.exporter.lowering.rounding import round_input
from triton_regressors.exporter.lowering.row_types import DOUBLE, RowTypes, row_types
from triton_regressors.exporter.lowering.soundness import in_one_sentence
from triton_regressors.exporter.passes.optimise import optimise
from triton_regressors.exporter.passes.precision import PRECISIONS, allowed_error, in_words
from triton_regressors.kernels.engine.runner import Runner
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
    contributions: str | None = None,
    background: Any | None = None,
    permutations: int | None = None,
    tolerance: float = DEFAULT_TOLERANCE,
    precision: str = DEFAULT_PRECISION,
    input: str = "auto",
    missing_strings: Sequence[str] = MISSING_STRINGS,
    columns: Sequence[str] | None = None,
    kept: Collection[str] = (),
    ties: str = "refuse",
) -> Compilation:
    """Lower a fitted estimator, fuse its plan and measure it against the estimator's own `predict`.

    Parity is measured here and judged by the caller.

    Args:
        estimator: a fitted regressor, or a Pipeline or search that ends in one.
        sample: rows like those to be served, as `predict` takes them: a DataFrame or a matrix `[rows, n_features]`;
            None: rows drawn to the fitted scale.
        calibrate: rows that the estimator was not fitted on and their targets `(X, y)`, for the outputs `lower` and
            `upper`; None: there are no such outputs.
        level: the share of new rows whose target the interval is to cover (default 0.9).
        quantiles: fitted models of a lower and of an upper quantile, from which `lower` and `upper` are then made.
        profile: rows as `predict` takes them, whose profile served rows are compared with; None: the sample; False:
            there is no profile.
        out_of_range: whether there is an output that counts the columns in which a row is unlike these rows.
        contributions: "background" or "path": whether there is an output with the Shapley values of the columns, and by
            which game; None: there is none.
        background: rows as `predict` takes them, which stand for columns that do not take part; None: the sample.
        permutations: the number of orders of the columns from which contributions are estimated that have no exact
            form; None: as many as have 4,096 coalitions.
        tolerance: the largest error of the whole export, in standard deviations of the predictions; the passes are
            given a part of it.
        precision: the error that kernels may add by computing parts in less than float64: "exact", which is half a
            millionth of that standard deviation, or "fast", a quarter of the tolerance.
        input: the type of numbers in requests: "fp32", "fp64", or "auto". "auto" is FP32 if rounding to it moves no
            answer, otherwise FP64, or FP32 with columns of whole numbers as INT64.
        missing_strings: strings that stand for a missing value in columns of strings.
        columns: names for the columns, for an estimator that was fitted on columns without names; None: its own names.
        kept: names of columns of numbers that are inputs even if the model drops them.
        ties: "accept" leaves rows out of the parity that have neighbours at equal distance or lie on thresholds behind
            sums; "refuse" does not.

    Raises:
        ExportError: the estimator cannot be lowered, or an argument is not one of those above.
    """
    terms = Terms.checked(
        estimator,
        sample=sample,
        calibrate=calibrate,
        level=level,
        quantiles=quantiles,
        profile=profile,
        tolerance=tolerance,
        input=input,
        ties=ties,
    )
    if precision not in PRECISIONS:
        raise ExportError(f"precision must be one of {', '.join(PRECISIONS)}, not {precision!r}.")
    if isinstance(missing_strings, str) or not all(isinstance(text, str) for text in missing_strings):
        raise ExportError(f"missing_strings must be a sequence of strings, not {missing_strings!r}.")
    if isinstance(estimator, str | Path):
        raise ExportError(
            f"export takes a fitted estimator, not a path ({estimator}); read it first with "
            "triton_regressors.load_estimator, or use the command `triton-regressors export`."
        )
    check_instance(estimator)
    columns = None if columns is None else checked_columns(columns, estimator)
    terms = terms.in_order(columns, estimator)
    background = in_order(background, columns, estimator, THE_BACKGROUND)
    question = Question.checked(contributions, background, permutations, terms.sample)
    names = tuple(columns or table_names(estimator, terms.sample) or ())

    def compiled(types: RowTypes, round_everywhere: bool = False) -> tuple[Compilation, Oracle, tuple[str, ...]]:
        lowered = lower(
            estimator,
            terms.sample,
            missing_strings,
            terms.ends,
            kept,
            types,
            round_everywhere,
            terms.polars,
            covers=contributions == PATH,
        )
        if columns is not None:
            check_count(columns, lowered.profile.n_features, estimator)
        asked = ask(estimator, lowered, terms, types)
        oracle, inputs, interval = asked.oracle, asked.choice.inputs, asked.interval
        try:
            limit = allowed_error(precision, tolerance)
            stages, choices = optimise(round_input(lowered.plan, inputs), asked.sample.X, limit)
        except PlanError as error:
            raise ExportError(f"Cannot export {type(estimator).__name__}: {error}") from error
        if interval is not None:
            stages.append((STAGE, interval.after(stages[-1][1])))
        at_once = min(len(asked.sample.X), ROWS_AT_ONCE)
        runner = Runner(stages[-1][1], engine="auto", max_rows=at_once)
        seen, sums = profile_of(asked, lowered, runner, terms), lowered.sums
        explained = None if question is None else find_contributions(question, stages[0][1], lowered, asked)
        evidence = None
        del lowered  # its thresholds may be wider than the served ones
        compared = compare(runner, asked, terms)
        if out_of_range:
            stages.append((COUNT_STAGE, add_count(stages[-1][1], seen, inputs)))
            assert seen is not None
            compared = compared.counted(seen, inputs)
        if explained is not None:
            stages.append((EXPLAIN_STAGE, explained.add(stages[-1][1])))
            compared, evidence = explained.answer(compared)
        if out_of_range or explained is not None:
            runner = Runner(stages[-1][1], engine="auto", max_rows=at_once)
        whole = Compilation(
            estimator,
            stages,
            inputs,
            compared.sample,
            report(runner, asked, compared, terms, names, explain=not types.float32),
            precision=in_words(precision, limit, choices),
            nan_columns=compared.nan_columns,
            nan_sample=compared.nan_sample,
            interval=None if interval is None else interval.report,
            contributions=evidence,
            columns=names,
            profile=seen,
            answers_column=oracle.answers_column(compared.sample.X),
            boolean_columns=asked.booleans,
        )
        return whole, oracle, sums

    types = row_types(terms.sample, table_names(estimator, terms.sample))
    single, oracle, sums = compiled(types)
    if not types.float32:
        return single
    if not single.report.within:  # rounding may matter also for numbers that only feed sums
        single, oracle, sums = compiled(types, round_everywhere=True)
    if single.report.within:
        found = compare_types(oracle, terms.sample, tolerance, sums, answered=True) if sums else None
        return single if found is None else single.saying(found)
    double, _, _ = compiled(DOUBLE)
    if not double.report.within:  # float32 is not the cause
        return double
    return double.saying(compare_types(oracle, terms.sample, tolerance, sums, answered=False))
