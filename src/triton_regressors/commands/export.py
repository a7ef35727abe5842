"""The command `export`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from triton_regressors.commands.lazy_imports import loading
from triton_regressors.commands.model_file import (
    INTERVAL,
    WHAT,
    ImportOption,
    InputOption,
    LargestMbOption,
    LevelOption,
    MissingOption,
    MissingStringOption,
    ModelArgument,
    PrecisionOption,
    RepositoryOption,
    SampleOption,
    TargetOption,
    TiesOption,
    ToleranceOption,
    TrackingUriOption,
    TrustPickleOption,
    TrustTypeOption,
    make_console,
    missing_strings,
    read_calibration,
    read_rows,
)
from triton_regressors.commands.model_source import (
    naming_optional_columns,
    optional_columns,
    read_named,
    read_quantiles,
)
from triton_regressors.commands.serving_options import (
    DynamicBatchingOption,
    EngineOption,
    GpuInputsOption,
    InstanceKindOption,
    InstancesOption,
    MaxBatchSizeOption,
    MaxQueueDelayOption,
    ObserveOption,
    PreferredBatchSizeOption,
    VersionsOption,
)
from triton_regressors.defaults import (
    DEFAULT_PRECISION,
    DEFAULT_REPOSITORY,
    DEFAULT_TOLERANCE,
    LARGEST_MB,
)
from triton_regressors.extras import require


def export(
    model: ModelArgument,
    repository: RepositoryOption = DEFAULT_REPOSITORY,
    name: Annotated[
        str | None,
        typer.Option(help="The model's name on the server; by default the file's.", rich_help_panel=WHAT),
    ] = None,
    sample: SampleOption = None,
    calibrate: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Rows that the model was not fitted on, with their target: .npy, .csv or .parquet. Adds the outputs "
            "lower and upper.",
            rich_help_panel=INTERVAL,
        ),
    ] = None,
    target: TargetOption = None,
    level: LevelOption = None,
    lower: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL",
            help="Fitted model of a lower quantile, for the output lower.",
            rich_help_panel=INTERVAL,
        ),
    ] = None,
    upper: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL",
            help="Fitted model of an upper quantile, for the output upper.",
            rich_help_panel=INTERVAL,
        ),
    ] = None,
    profile: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Rows that served rows are compared with, such as the training rows: .npy, .csv or .parquet. By "
            "default those of --sample.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    out_of_range: Annotated[
        bool,
        typer.Option(
            "--out-of-range",
            help="Add the output out_of_range: the number of columns in which a row is unlike the profile.",
            rich_help_panel=WHAT,
        ),
    ] = False,
    contributions: Annotated[
        str | None,
        typer.Option(
            metavar="GAME",
            help="Add the output contributions, the Shapley values of the columns: background or path.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    background: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Rows that --contributions background compares with; default: those of --sample.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    permutations: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Orders of the columns for contributions that have no closed form; even, at least 4.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    tolerance: ToleranceOption = DEFAULT_TOLERANCE,
    precision: PrecisionOption = DEFAULT_PRECISION,
    input: InputOption = "auto",
    ties: TiesOption = "refuse",
    trust_pickle: TrustPickleOption = False,
    trust_type: TrustTypeOption = None,
    import_: ImportOption = None,
    largest_mb: LargestMbOption = LARGEST_MB,
    missing: MissingOption = None,
    tracking_uri: TrackingUriOption = None,
    max_batch_size: MaxBatchSizeOption = None,
    dynamic_batching: DynamicBatchingOption = None,
    max_queue_delay_us: MaxQueueDelayOption = None,
    preferred_batch_size: PreferredBatchSizeOption = None,
    instances: InstancesOption = None,
    instance_kind: InstanceKindOption = None,
    gpu_inputs: GpuInputsOption = None,
    engine: EngineOption = None,
    observe: ObserveOption = None,
    versions: VersionsOption = None,
    missing_string: MissingStringOption = None,
) -> None:
    """Write a fitted estimator into a model repository, as a new entry or the next version of one.

    Examples:
        triton-regressors export diabetes.skops --sample rows.csv
        triton-regressors export houses.joblib --trust-pickle --name houses
        triton-regressors export diabetes.skops --max-queue-delay-us 500
        triton-regressors export diabetes.skops --calibrate held_out.csv --level 0.9
        triton-regressors export models:/demand/3 --tracking-uri http://localhost:5000
        triton-regressors export diabetes.skops --profile rows.csv --out-of-range
    """
    require("export", "Exporting a model")
    with loading():
        from triton_regressors.exporter.errors import ExportError
        from triton_regressors.exporter.export import export as export_estimator
        from triton_regressors.mlflow.model_registry import is_model_uri
    if target and calibrate is None:
        raise ExportError("--target goes with --calibrate.")
    if (lower is None) != (upper is None) or (lower is not None and calibrate is None):
        raise ExportError("--lower and --upper go together, and with --calibrate.")
    reading: dict[str, Any] = {
        "trust_pickle": trust_pickle,
        "trusted_types": trust_type,
        "imported": import_,
        "largest_mb": largest_mb,
        "missing": missing,
    }
    if tracking_uri is not None and not any(is_model_uri(str(path)) for path in (model, lower, upper)):
        raise ExportError("--tracking-uri goes with a model in MLflow, such as models:/demand/3.")
    with ExitStack() as kept:  # CatBoost reads its file again
        read = read_named(model, kept, tracking_uri, **reading)
        estimator, fetched = read.estimator, read.fetched
        found: dict[str, Any] = {"name": model.stem}
        if fetched is not None:
            found = {
                "name": fetched.name,
                "version": fetched.version,
                "source": fetched.source,
                "columns": fetched.model.names,
            }
        rows = read.rows(sample)
        with naming_optional_columns(read, rows):
            result = export_estimator(
                estimator,
                repository,
                **found | ({} if name is None else {"name": name}),
                sample=rows,
                calibrate=None if calibrate is None else read_calibration(calibrate, estimator, target),
                level=level,
                quantiles=read_quantiles(lower, upper, read, kept, tracking_uri, **reading),
                profile=None if profile is None else read_rows(profile, estimator),
                out_of_range=out_of_range,
                contributions=contributions,
                background=None if background is None else read_rows(background, estimator),
                permutations=permutations,
                tolerance=tolerance,
                precision=precision,
                missing_strings=missing_strings(missing_string),
                input=input,
                ties=ties,
                max_batch_size=max_batch_size,
                dynamic_batching=dynamic_batching,
                max_queue_delay_us=max_queue_delay_us,
                preferred_batch_sizes=tuple(preferred_batch_size) if preferred_batch_size else None,
                instances=instances,
                instance_kind=instance_kind,
                gpu_inputs=gpu_inputs,
                engine=engine,
                observe=observe,
                versions=versions,
            )
    optional = optional_columns(read, result.compilation)
    text = Text(result.text([] if optional is None else [optional]))
    text.stylize("bold", len("Wrote "), len("Wrote ") + len(result.entry.name))
    make_console().print(text, soft_wrap=True)
