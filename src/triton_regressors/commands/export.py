"""The commands `export` and `describe`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from triton_regressors.commands.loading import import_modules, loading
from triton_regressors.defaults import DEFAULT_REPOSITORY, DEFAULT_TOLERANCE, LARGEST_MB, MISSING_STRINGS
from triton_regressors.extras import require

Model = Annotated[Path, typer.Argument(help="A fitted estimator: .skops; .joblib and .pkl need --trust-pickle.")]
ModelOrEntry = Annotated[Path, typer.Argument(help="A fitted estimator's file, or an entry's directory.")]
SampleOption = Annotated[
    Path | None,
    typer.Option(help="Rows to verify on: .npy, .csv or .parquet. By default drawn to the fitted scale."),
]
ToleranceOption = Annotated[
    float, typer.Option(help="Largest difference from the estimator's own prediction, in its standard deviations.")
]
InputOption = Annotated[
    str,
    typer.Option(
        "--input",
        help="The type of numbers in requests: fp32, fp64, or auto, which is FP32 where rounding moves no answer.",
    ),
]
TrustPickle = Annotated[bool, typer.Option("--trust-pickle", help="Load a pickle, running whatever code it holds.")]
TrustType = Annotated[list[str] | None, typer.Option(help="A further type that skops may load; can be repeated.")]
Import = Annotated[
    list[str] | None,
    typer.Option("--import", help="A module of yours to import first, with classes and lowerings; can be repeated."),
]
LargestMb = Annotated[int, typer.Option(min=1, help="Megabytes that a .skops file may unpack to.")]


def export(
    model: Model,
    repository: Annotated[Path, typer.Option(help="The model repository to write into.")] = DEFAULT_REPOSITORY,
    name: Annotated[str | None, typer.Option(help="The model's name on the server; by default the file's.")] = None,
    sample: SampleOption = None,
    tolerance: ToleranceOption = DEFAULT_TOLERANCE,
    input: InputOption = "auto",
    trust_pickle: TrustPickle = False,
    trust_type: TrustType = None,
    import_: Import = None,
    largest_mb: LargestMb = LARGEST_MB,
    max_batch_size: Annotated[int | None, typer.Option(help="Rows in one execution at most; default 4096.")] = None,
    dynamic_batching: Annotated[
        bool | None, typer.Option("--dynamic-batching/--no-dynamic-batching", help="Default: on.")
    ] = None,
    max_queue_delay_us: Annotated[
        int | None, typer.Option(help="Microseconds that a request may wait for others; default 0.")
    ] = None,
    preferred_batch_size: Annotated[
        list[int] | None, typer.Option(help="A batch size to aim at; can be repeated.")
    ] = None,
    instances: Annotated[int | None, typer.Option(help="Copies that run side by side; default 1.")] = None,
    instance_kind: Annotated[str | None, typer.Option(help="auto, gpu or cpu; default auto.")] = None,
    engine: Annotated[str | None, typer.Option(help="auto, triton, torch or interpret; default auto.")] = None,
    versions: Annotated[int | None, typer.Option(help="How many of the newest versions to serve; default 1.")] = None,
    missing_string: Annotated[
        list[str] | None,
        typer.Option(
            help="A string that stands for a missing value where it is no category, beside the empty one; can be "
            f"repeated. Default: {', '.join(MISSING_STRINGS)}; '' for none."
        ),
    ] = None,
) -> None:
    """Write a fitted estimator into a model repository, as a new entry or the next version of one."""
    require("export", "Exporting a model")
    with loading():
        from triton_regressors.exporter.compiler import export as export_estimator
        from triton_regressors.exporter.describe import parity_table
        from triton_regressors.exporter.loading import load_estimator
    import_modules(import_)
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
    version: Annotated[int | None, typer.Option(help="Which version of an entry; by default the newest.")] = None,
    sample: SampleOption = None,
    tolerance: ToleranceOption = DEFAULT_TOLERANCE,
    input: InputOption = "auto",
    trust_pickle: TrustPickle = False,
    trust_type: TrustType = None,
    import_: Import = None,
    largest_mb: LargestMb = LARGEST_MB,
) -> None:
    """Show the plan before and after each pass, its parameters, bytes and launches, and its parity."""
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
    import_modules(import_)
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
