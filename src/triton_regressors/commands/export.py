"""The command `export`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from triton_regressors.commands.lazy_imports import loading
from triton_regressors.commands.model_file import (
    READING,
    VERIFIED,
    WHAT,
    Import,
    InputOption,
    LargestMb,
    Missing,
    Model,
    PrecisionOption,
    SampleOption,
    ToleranceOption,
    TrustPickle,
    TrustType,
    make_console,
    read_calibration,
    read_rows,
)
from triton_regressors.commands.model_source import (
    naming_optional_columns,
    optional_columns,
    read_named,
    read_quantiles,
)
from triton_regressors.defaults import (
    DEFAULT_LEVEL,
    DEFAULT_PRECISION,
    DEFAULT_REPOSITORY,
    DEFAULT_TOLERANCE,
    LARGEST_MB,
    MISSING_STRINGS,
)
from triton_regressors.extras import require

_RUN = "How the server runs it"
_INTERVAL = "Prediction intervals"


def export(
    model: Model,
    repository: Annotated[
        Path, typer.Option(metavar="DIR", help="The model repository to write into.", rich_help_panel=WHAT)
    ] = DEFAULT_REPOSITORY,
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
            rich_help_panel=_INTERVAL,
        ),
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Target column of the --calibrate file; default: the column that is not a feature, or the "
            "last one if columns have no names. Can be repeated.",
            rich_help_panel=_INTERVAL,
        ),
    ] = None,
    level: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help=f"Share of new rows between lower and upper; default {DEFAULT_LEVEL}.",
            rich_help_panel=_INTERVAL,
        ),
    ] = None,
    lower: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL",
            help="Fitted model of a lower quantile, for the output lower.",
            rich_help_panel=_INTERVAL,
        ),
    ] = None,
    upper: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL",
            help="Fitted model of an upper quantile, for the output upper.",
            rich_help_panel=_INTERVAL,
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
    tolerance: ToleranceOption = DEFAULT_TOLERANCE,
    precision: PrecisionOption = DEFAULT_PRECISION,
    input: InputOption = "auto",
    ties: Annotated[
        str,
        typer.Option(
            metavar="HOW",
            help="Rows with neighbours at equal distance or on thresholds behind sums: refuse to export, or accept "
            "other answers than scikit-learn's.",
            rich_help_panel=VERIFIED,
        ),
    ] = "refuse",
    trust_pickle: TrustPickle = False,
    trust_type: TrustType = None,
    import_: Import = None,
    largest_mb: LargestMb = LARGEST_MB,
    missing: Missing = None,
    tracking_uri: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help="Address of MLflow; default: $MLFLOW_TRACKING_URI.",
            rich_help_panel=READING,
        ),
    ] = None,
    max_batch_size: Annotated[
        int | None,
        typer.Option(metavar="ROWS", help="Most rows in one execution; default 4096.", rich_help_panel=_RUN),
    ] = None,
    dynamic_batching: Annotated[
        bool | None,
        typer.Option(
            "--dynamic-batching/--no-dynamic-batching",
            help="Whether requests are gathered into batches; default: yes.",
            rich_help_panel=_RUN,
        ),
    ] = None,
    max_queue_delay_us: Annotated[
        int | None,
        typer.Option(
            metavar="US", help="Microseconds that a request may wait for others; default 0.", rich_help_panel=_RUN
        ),
    ] = None,
    preferred_batch_size: Annotated[
        list[int] | None,
        typer.Option(metavar="ROWS", help="A batch size to aim at; can be repeated.", rich_help_panel=_RUN),
    ] = None,
    instances: Annotated[
        int | None,
        typer.Option(metavar="N", help="Copies that run side by side; default 1.", rich_help_panel=_RUN),
    ] = None,
    instance_kind: Annotated[
        str | None, typer.Option(metavar="KIND", help="auto, gpu or cpu; default auto.", rich_help_panel=_RUN)
    ] = None,
    gpu_inputs: Annotated[
        bool | None,
        typer.Option(
            "--gpu-inputs/--no-gpu-inputs",
            help="Whether rows that a request has in a GPU's memory stay there; default no.",
            rich_help_panel=_RUN,
        ),
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help="auto, triton, torch or interpret; default auto.", rich_help_panel=_RUN)
    ] = None,
    observe: Annotated[
        str | None,
        typer.Option(
            metavar="MODE",
            help="Whether the server's metrics describe the rows: off, sampled or on; default sampled.",
            rich_help_panel=_RUN,
        ),
    ] = None,
    versions: Annotated[
        int | None,
        typer.Option(metavar="N", help="How many newest versions to serve; default 1.", rich_help_panel=_RUN),
    ] = None,
    missing_string: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="A string that means a missing value unless it is a category; repeatable. Default: "
            f"{', '.join(MISSING_STRINGS)}; '' for none.",
            rich_help_panel=WHAT,
        ),
    ] = None,
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
        from triton_regressors.exporter.compile import export as export_estimator
        from triton_regressors.exporter.errors import ExportError
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
                tolerance=tolerance,
                precision=precision,
                missing_strings=MISSING_STRINGS
                if missing_string is None
                else [text for text in missing_string if text],
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
