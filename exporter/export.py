"""The user's function: a fitted estimator becomes an entry of a model repository."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from triton_regressors.contribution_game import OUTPUTS as CONTRIBUTIONS
from triton_regressors.defaults import DEFAULT_PRECISION, DEFAULT_REPOSITORY, DEFAULT_TOLERANCE, MISSING_STRINGS
from triton_regressors.exporter.compilation import Export
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.evidence.verify import Report
from triton_regressors.kernels.entry import Source


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
    contributions: str | None = None,
    background: Any | None = None,
    permutations: int | None = None,
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

    The arguments from `max_batch_size` on say how the server runs the entry; None leaves the default, or an existing
    entry's own setting.

    Args:
        estimator: a fitted regressor, or a Pipeline or search that ends in one.
        repository: the model repository, a directory; it is made if it does not exist.
        name: the model's name on the server; None: the estimator's class in snake case, a Pipeline's last step's.
        sample: rows to verify on, as `predict` takes them; None: rows drawn to the fitted scale.
        calibrate: a pair of rows as `predict` takes them, `[n, n_features]`, and their targets, `[n]` or
            `[n, targets]`, which the estimator must not have been fitted on (that cannot be checked). With q the
            ⌈(n + 1) · level⌉-th smallest of their scores the entry then also answers `lower` and `upper`, which are
            `y ± q` with the scores |target − y|, or, where the model answers `std`, `y ± q · std` with
            |target − y| / std: split conformal prediction, by Vovk, Gammerman and Shafer (2005) and Lei et al. (2018).
            If the model's `y` are quantiles (XGBoost's `quantile_alpha`, CatBoost's MultiQuantile), the scores are
            those of `quantiles` for the two quantiles nearest to (1 ± level) / 2. n must be at least
            ⌈1 / (1 − level)⌉ − 1. None: there are no such outputs.
        level: the least probability, between 0 and 1, that a new row's target lies between `lower` and `upper` if the
            rows and the new row are exchangeable (default 0.9). It holds for each target by itself.
        quantiles: a pair of fitted models of a lower and an upper quantile, with as many targets, fitted on the same
            columns. With l and u the smaller and the larger of their answers a score is max(l − target, target − u),
            and `lower` and `upper` are l − q and u + q, or both the middle if these would cross: conformalised
            quantile regression, by Romano, Patterson and Candès (2019). `y` may lie outside. None: there are none.
        profile: rows as `predict` takes them, such as the training rows. The entry keeps their ranges, quantiles and
            answers, and the server counts the rows that lie outside. None: the rows of the sample, if there is one.
        out_of_range: whether the entry has an output of this name, FP32 `[rows, 1]`. It counts the columns in which a
            row has a number below the smallest or above the largest of the profile's rows, an unknown category, or NaN
            if those rows have none there.
        contributions: whether the entry has an output of this name, FP32 `[rows, targets · (columns + 1)]`: for each
            target the Shapley values of the table's columns and, last, the base. They add up to the answer, or to what
            stands before a link or an inverse target transform. "background": a column that does not take part has the
            numbers of background rows (interventional Shapley values), exact for sums of functions of single columns,
            for their products, and for trees. "path": the values of trees by their training covers, as boosting
            libraries define them. None: there is no such output.
        background: rows as `predict` takes them, such as some hundred training rows. None: the sample.
        permutations: the number of orders of the columns, even and at least 4, from which contributions are estimated
            that have no closed form. The output `contributions_error` then holds their standard errors, 0 for the base.
            They are exact if all combinations of columns are no more than those that the orders go through. None: as
            many orders as go through 4,096 combinations, and at least 10, so that up to 12 columns are exact.
        tolerance: the largest difference from the estimator's own prediction, in its standard deviations. One unit in
            the answer's last float32 place is allowed in any case.
        precision: the error that kernels may add by computing parts in less than float64: "exact", which is half a
            millionth of that standard deviation, or "fast", a quarter of the tolerance.
        input: the type of numbers in requests: "fp32", "fp64", or "auto". "auto" is FP32 if rounding to it moves no
            answer, otherwise FP64, or FP32 with columns of whole numbers as INT64. An entry that exists with FP64
            keeps it.
        missing_strings: strings that stand for a missing value, in each column of strings that does not have them as
            categories.
        columns: names for the columns, in the order of the fit, so that clients may send columns by name although the
            estimator was fitted on columns without names. None: the estimator's own names.
        ties: the policy for rows to which the estimator has more than one answer: rows with neighbours at equal
            distance, among which scikit-learn and the entry choose differently, and rows on thresholds that the last
            bits of a number decide. "refuse" (default) the export, or "accept" that such rows are answered differently.
            Parity is then that of the other rows, and the entry says how many were left out.
        max_batch_size: rows in one execution, at least 1 (default 4,096, fewer if rows are very wide); rows ×
            features at most 2²⁸.
        dynamic_batching: whether requests are gathered into batches (default yes).
        max_queue_delay_us: how long a request may wait for others, in microseconds (default 0).
        preferred_batch_sizes: batch sizes the server should try to make (default none).
        instances: how many copies run side by side in each instance group (default 1); on a GPU group, on each GPU.
        instance_kind: the device that they run on: "auto" (default: GPUs if there are any), "gpu" or "cpu".
        gpu_inputs: whether rows that a request has in a GPU's memory stay there (default no: the server copies them to
            the CPU's memory first).
        engine: "auto", "triton", "torch" or "interpret".
        observe: the rows that the server's metrics count: "off", "sampled" (default) or "on".
        versions: how many of the newest versions are served (default 1).
        version: the number of the version, at least 1, which the entry must not have yet; None: the next one.
        source: the place the estimator was fetched from, a `kernels.entry.Source`, which plan.json then holds.

    Raises:
        ExportError: the estimator, an option or the repository does not allow the export, or the plan's answers are
            not the estimator's. Nothing is written.
    """
    # Imported here, so that compiling alone does not need the server's protobuf.
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
        contributions=contributions,
        background=background,
        permutations=permutations,
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
    check_parity(compilation.report, type(estimator).__name__)
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


def check_parity(report: Report, subject: str) -> None:
    """Raise `ExportError` unless every output is within the tolerance, or one unit in float32's last place.

    If the user asks for FP32 and this rounds numbers, the answers must be those to the rounded rows.
    """
    for name, parity in report.judged.items():
        if not parity.within(report.tolerance):
            error = f"{parity.max_error:.1e} standard deviations"
            differs = f"the estimator's own prediction by {error} on {report.rows} rows"
            if name in CONTRIBUTIONS:
                differs = f"its exact values by {error}"
            raise ExportError(
                f"Cannot export {subject}: output '{name}' differs from {differs}; the tolerance is "
                f"{report.tolerance:.0e}, or one unit in the answer's last float32 place. {report.cause}"
            )
