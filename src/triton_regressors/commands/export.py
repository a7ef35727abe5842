"""The commands `export` and `describe`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from triton_regressors.commands.loading import loading
from triton_regressors.defaults import DEFAULT_REPOSITORY, DEFAULT_TOLERANCE, LARGEST_MB, MISSING_STRINGS
from triton_regressors.extras import require

_WHAT, _VERIFIED, _READING = "What is exported", "How it is verified", "Reading the file"
_RUN = "How the server runs it"

Model = Annotated[
    Path,
    typer.Argument(metavar="MODEL", help="A fitted estimator: .skops; .joblib and .pkl need --trust-pickle."),
]
ModelOrEntry = Annotated[
    Path, typer.Argument(metavar="WHAT", help="A fitted estimator's file, or an entry's directory.")
]
SampleOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Rows to verify on: .npy, .csv or .parquet. By default drawn to the fitted scale.",
        rich_help_panel=_VERIFIED,
    ),
]
ToleranceOption = Annotated[
    float,
    typer.Option(
        metavar="STD",
        help="Largest difference from the estimator's own prediction, in its standard deviations.",
        rich_help_panel=_VERIFIED,
    ),
]
InputOption = Annotated[
    str,
    typer.Option(
        "--input",
        metavar="TYPE",
        help="The type of numbers in requests: fp32, fp64, or auto, which is FP32 where rounding moves no answer.",
        rich_help_panel=_WHAT,
    ),
]
TrustPickle = Annotated[
    bool,
    typer.Option("--trust-pickle", help="Load a pickle, running whatever code it holds.", rich_help_panel=_READING),
]
TrustType = Annotated[
    list[str] | None,
    typer.Option(metavar="TYPE", help="A further type that skops may load; can be repeated.", rich_help_panel=_READING),
]
LargestMb = Annotated[
    int,
    typer.Option(min=1, metavar="MB", help="Megabytes that a .skops file may unpack to.", rich_help_panel=_READING),
]


def export(
    model: Model,
    repository: Annotated[
        Path, typer.Option(metavar="DIR", help="The model repository to write into.", rich_help_panel=_WHAT)
    ] = DEFAULT_REPOSITORY,
    name: Annotated[
        str | None,
        typer.Option(help="The model's name on the server; by default the file's.", rich_help_panel=_WHAT),
    ] = None,
    sample: SampleOption = None,
    tolerance: ToleranceOption = DEFAULT_TOLERANCE,
    input: InputOption = "auto",
    trust_pickle: TrustPickle = False,
    trust_type: TrustType = None,
    largest_mb: LargestMb = LARGEST_MB,
    max_batch_size: Annotated[
        int | None,
        typer.Option(metavar="ROWS", help="Rows in one execution at most; default 4096.", rich_help_panel=_RUN),
    ] = None,
    dynamic_batching: Annotated[
        bool | None,
        typer.Option(
            "--dynamic-batching/--no-dynamic-batching",
            help="Whether requests are gathered into batches; default: they are.",
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
    engine: Annotated[
        str | None, typer.Option(help="auto, triton, torch or interpret; default auto.", rich_help_panel=_RUN)
    ] = None,
    versions: Annotated[
        int | None,
        typer.Option(metavar="N", help="How many of the newest versions to serve; default 1.", rich_help_panel=_RUN),
    ] = None,
    missing_string: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="A string that stands for a missing value where it is no category, beside the empty one; can be "
            f"repeated. Default: {', '.join(MISSING_STRINGS)}; '' for none.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
) -> None:
    """Write a fitted estimator into a model repository, as a new entry or the next version of one.

    Examples:
        triton-regressors export diabetes.skops --sample rows.csv
        triton-regressors export houses.joblib --trust-pickle --name houses
        triton-regressors export diabetes.skops --max-queue-delay-us 500
    """
    require("export", "Exporting a model")
    with loading():
        from triton_regressors.exporter.compiler import export as export_estimator
        from triton_regressors.exporter.describe import parity_table
        from triton_regressors.exporter.loading import load_estimator
    estimator = load_estimator(model, trust_pickle=trust_pickle, trusted_types=trust_type or (), largest_mb=largest_mb)
    result = export_estimator(
        estimator,
        repository,
        name=model.stem if name is None else name,
        sample=_sample(sample, estimator),
        tolerance=tolerance,
        missing_strings=MISSING_STRINGS if missing_string is None else [text for text in missing_string if text],
        input=input,
        max_batch_size=max_batch_size,
        dynamic_batching=dynamic_batching,
        max_queue_delay_us=max_queue_delay_us,
        preferred_batch_sizes=tuple(preferred_batch_size) if preferred_batch_size else None,
        instances=instances,
        instance_kind=instance_kind,
        engine=engine,
        versions=versions,
    )
    entry, plan = result.entry, result.compilation.plan
    console = _console()
    operations = ", ".join(step.operation.kind() for step in plan.steps)
    console.print(
        Text.assemble(
            *("Wrote ", (entry.name, "bold"), f" version {entry.version} to {entry.version_directory}: "),
            f"{operations} ({plan.parameter_count():,} parameters, {plan.parameter_bytes():,} bytes).",
        ),
        soft_wrap=True,
    )
    console.print(parity_table(result.compilation.report.record()))
    console.print(Text(f"Serve it with: triton-regressors serve {repository}"), soft_wrap=True)


def describe(
    what: ModelOrEntry,
    version: Annotated[
        int | None, typer.Option(metavar="N", help="Which version of an entry; by default the newest.")
    ] = None,
    sample: SampleOption = None,
    tolerance: ToleranceOption = DEFAULT_TOLERANCE,
    input: InputOption = "auto",
    trust_pickle: TrustPickle = False,
    trust_type: TrustType = None,
    largest_mb: LargestMb = LARGEST_MB,
) -> None:
    """Show the plan before and after each pass, its parameters, bytes and launches, and its parity.

    Examples:
        triton-regressors describe diabetes.skops
        triton-regressors describe model_repository/diabetes
    """
    require("export", "Describing a model or an entry")
    with loading():
        from triton_regressors.exporter.compiler import compile_estimator
        from triton_regressors.exporter.describe import describe_compilation, describe_entry
        from triton_regressors.exporter.errors import ExportError
        from triton_regressors.exporter.loading import load_estimator
    console = _console()
    if os.path.isdir(what):  # which is False, and no error, for a name that is too long
        if sample is not None:
            raise ExportError("--sample is for a model's file; an entry's parity was measured when it was exported.")
        console.print(describe_entry(what, version), crop=False)  # its snippet is to be copied
        return
    estimator = load_estimator(what, trust_pickle=trust_pickle, trusted_types=trust_type or (), largest_mb=largest_mb)
    compilation = compile_estimator(estimator, sample=_sample(sample, estimator), tolerance=tolerance, input=input)
    console.print(describe_compilation(compilation))


def _console() -> Console:
    """Return a console that prints names and paths as they are, brackets and colons included."""
    return Console(markup=False, emoji=False)


def _sample(path: Path | None, estimator: Any) -> Any | None:
    """Return the rows of a file, strings as they are written there in the columns that the estimator reads as such."""
    with loading():
        from triton_regressors.clients.rows import read_table
        from triton_regressors.exporter.lower import string_columns
        from triton_regressors.exporter.oracle import feature_names
    names = feature_names(estimator)
    if path is None or names is None:
        return None if path is None else read_table(path)
    return read_table(path, string_columns(estimator) or None, names)
