"""The command `export-fleet`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from triton_regressors.commands.fleet_progress import fleet_progress
from triton_regressors.commands.fleet_source import (
    container_in,
    find_models,
    read_models,
    read_pairs,
    read_samples,
    signed_columns,
)
from triton_regressors.commands.lazy_imports import loading
from triton_regressors.commands.model_file import (
    INTERVAL,
    VERIFIED,
    WHAT,
    ImportOption,
    InputOption,
    LargestMbOption,
    LevelOption,
    MissingOption,
    MissingStringOption,
    PrecisionOption,
    RepositoryOption,
    TargetOption,
    TiesOption,
    ToleranceOption,
    TrackingUriOption,
    TrustPickleOption,
    TrustTypeOption,
    make_console,
    missing_strings,
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
from triton_regressors.defaults import DEFAULT_PRECISION, DEFAULT_REPOSITORY, DEFAULT_TOLERANCE, LARGEST_MB
from triton_regressors.extras import require


def export_fleet(
    models: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="MODEL...",
            help="Files of fitted estimators, of any kind that `export` takes. A model's id is its file's name without "
            "the suffix. Or one file of scikit-lego's GroupedPredictor, whose groups are the ids.",
        ),
    ] = None,
    *,
    name: Annotated[str, typer.Option(help="The entry's name on the server.", rich_help_panel=WHAT)],
    by: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Name of the input of ids, and of their column; repeatable. Default: id, or the columns of groups.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    repository: RepositoryOption = DEFAULT_REPOSITORY,
    manifest: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A .csv or .parquet that lists the models instead: the columns file, relative to it, and id or the "
            "name of --by.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    mlflow: Annotated[
        str | None,
        typer.Option(
            metavar="PATTERN",
            help="Registered models in MLflow instead, such as 'demand-*' or 'demand-*@ALIAS'; * is the id. Without an "
            "alias: the newest version of each.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    samples: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Rows to verify on, with ids in the column --by: .csv or .parquet. Default: drawn to each model's "
            "fitted scale.",
            rich_help_panel=VERIFIED,
        ),
    ] = None,
    calibrate: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Held-out rows with targets and ids; adds lower and upper.",
            rich_help_panel=INTERVAL,
        ),
    ] = None,
    target: TargetOption = None,
    level: LevelOption = None,
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
    """Write many fitted estimators into a model repository as one entry, whose rows name the model that answers them.

    The models take the same columns, and may be of different kinds. Each is verified as `export` does it.

    Examples:
        triton-regressors export-fleet models/*.skops --name demand --by shop
        triton-regressors export-fleet models/*.skops --name demand --samples rows.csv
        triton-regressors export-fleet --manifest models.csv --name demand --by shop
        triton-regressors export-fleet --mlflow 'demand-*' --name demand --by shop
        triton-regressors export-fleet grouped.skops --name demand
    """
    require("export", "Exporting models")
    with loading():
        from triton_regressors.exporter.errors import ExportError
        from triton_regressors.exporter.fleets.containers import BY
        from triton_regressors.exporter.fleets.fleet import export_fleet as export_models
    if target and calibrate is None:
        raise ExportError("--target goes with --calibrate.")
    with ExitStack() as kept:  # CatBoost reads its files again
        places = find_models(models, manifest, mlflow, tracking_uri, by or (BY,))
        with fleet_progress(len(places)) as (reading, compiling):
            read = read_models(
                places,
                kept,
                tracking_uri,
                reading,
                trust_pickle=trust_pickle,
                trusted_types=trust_type,
                imported=import_,
                largest_mb=largest_mb,
                missing=missing,
            )
            container, estimators = container_in(read, by), {key: each.estimator for key, each in read.items()}
            ids = (by or (BY,)) if container is None else container.by
            result = export_models(
                estimators if container is None else next(iter(estimators.values())),
                repository,
                name=name,
                by=None if not by else by[0] if len(by) == 1 else by,
                samples=read_samples(samples, read, ids, container),
                calibrate=None if calibrate is None else read_pairs(calibrate, read, ids, target, container),
                level=level,
                tolerance=tolerance,
                precision=precision,
                input=input,
                missing_strings=missing_strings(missing_string),
                columns=signed_columns(read) if container is None else None,
                ties=ties,
                progress=compiling,
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
    text = Text(result.text())
    text.stylize("bold", len("Wrote "), len("Wrote ") + len(result.entry.name))
    make_console().print(text, soft_wrap=True)
