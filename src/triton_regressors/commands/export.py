"""The commands `export` and `describe`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from triton_regressors.commands.loading import loading
from triton_regressors.defaults import DEFAULT_REPOSITORY, DEFAULT_TOLERANCE, LARGEST_MB, MISSING_STRINGS
from triton_regressors.extras import require

if TYPE_CHECKING:
    from triton_regressors.kernels.entry import Entry, StepSummary

SUFFIXES = (".skops", ".joblib", ".pkl", ".pickle")
"""What a fitted estimator's file ends in."""

_WHAT, _VERIFIED, _READING = "What is exported", "How it is verified", "Reading the file"
_RUN = "How the server runs it"

Model = Annotated[
    Path,
    typer.Argument(metavar="MODEL", help="A fitted estimator: .skops; .joblib and .pkl need --trust-pickle."),
]
ModelOrEntry = Annotated[
    Path,
    typer.Argument(
        metavar="WHAT", help="An entry's name in the repository, its directory, or a fitted estimator's file."
    ),
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
    entry, plan, contract = result.entry, result.compilation.plan, result.contract
    count = len(plan.steps)
    at = quote(str(repository))
    console = _console()
    console.print(
        Text.assemble(
            *("Wrote ", (entry.name, "bold"), f" version {entry.version} to {entry.version_directory}: "),
            f"{count} operation{'s' * (count != 1)}, {plan.parameter_count():,} parameters, "
            f"{plan.parameter_bytes():,} bytes.",
        ),
        soft_wrap=True,
    )
    of_it = entry.name if repository == DEFAULT_REPOSITORY else f"{entry.name} --repository {at}"
    for line in (
        contract.brief(),
        *contract.notes(),
        f"Serve it with: triton-regressors serve {at}",
        f"Its columns, and how to ask it: triton-regressors describe {of_it}",
    ):
        console.print(Text(line), soft_wrap=True)


def describe(
    what: ModelOrEntry,
    repository: Annotated[
        Path, typer.Option(metavar="DIR", help="Where an entry given by name lies.")
    ] = DEFAULT_REPOSITORY,
    passes: Annotated[bool, typer.Option("--passes", help="Show the plan before and after each pass too.")] = False,
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
    """Show what a model is asked and what it answers, its parity, and how to ask it from Python and from a shell.

    Examples:
        triton-regressors describe diabetes
        triton-regressors describe diabetes --version 2 --passes
        triton-regressors describe diabetes.skops --sample rows.csv
    """
    with loading():
        from triton_regressors.contract import contract_of
        from triton_regressors.exporter.errors import ExportError
        from triton_regressors.kernels.entry import read_document, read_golden
        from triton_regressors.kernels.errors import PlanError
    try:
        entry = _find(what, repository, version)
        if entry is not None and sample is not None:
            raise ExportError("--sample is for a model's file; an entry's parity was measured when it was exported.")
        if entry is not None:
            name = entry.directory.resolve().name
            document = read_document(entry.version_directory)
            golden = read_golden(entry.version_directory, document)
    except (PlanError, OSError) as error:
        raise ExportError(str(error)) from error
    if entry is None:
        require("export", "Describing a model")
        with loading():
            from triton_regressors.exporter.compiler import compile_estimator
            from triton_regressors.exporter.loading import load_estimator
        loaded = load_estimator(what, trust_pickle=trust_pickle, trusted_types=trust_type or (), largest_mb=largest_mb)
        compiled = compile_estimator(loaded, sample=_sample(sample, loaded), tolerance=tolerance, input=input)
        name, document, golden = what.stem, compiled.document(), compiled.golden()
    console = _console()
    text = Text(contract_of(name, None if entry is None else entry.version, document, golden).text(console.width))
    text.highlight_regex(r"(?m)^\S.*$", "bold")
    console.print(text, soft_wrap=True)  # what is too long for the terminal is code, to be copied
    if passes:
        for place, stage in enumerate(document.stages):
            console.print(_stage_table(f"after: {stage.stage}" if place else "as lowered", stage.steps))


def _find(what: Path, repository: Path, version: int | None) -> Entry | None:
    """Return the entry that is meant by its directory or its name in the repository, or None for a model's file.

    Raises `PlanError` where there is none, with the names of those that there are.
    """
    from triton_regressors.kernels.entry import find_entry, versions
    from triton_regressors.kernels.errors import PlanError

    if os.path.isfile(what):  # which is False, and no error, for a name that is too long
        return None
    for directory in (what, repository / what):
        if os.path.isdir(directory) and versions(directory):
            return find_entry(directory, version)
    if os.path.isdir(what):
        return find_entry(what, version)
    if what.suffix in SUFFIXES:
        return None
    if not os.path.isdir(repository):
        raise PlanError(f"There is no file {what}, and no repository {repository} with an entry of that name.")
    known = sorted(path.name for path in repository.iterdir() if versions(path))
    raise PlanError(
        f"There is no file {what}, and no entry of that name in {repository}, which has {', '.join(known) or 'none'}."
    )


def _stage_table(title: str, steps: Sequence[StepSummary]) -> Table:
    """Return a plan as a table: its steps, and what they launch and hold."""
    table = Table(title=title, title_justify="left", show_footer=True)
    table.add_column("step", footer=f"{len(steps)} step{'s' * (len(steps) != 1)}")
    table.add_column("reads")
    table.add_column("operation")
    for heading, total in (
        ("launches", sum(step.launches for step in steps)),
        ("parameters", sum(step.parameters for step in steps)),
        ("bytes", sum(step.bytes for step in steps)),
    ):
        table.add_column(heading, justify="right", footer=f"{total:,}")
    for step in steps:
        numbers = (f"{number:,}" for number in (step.launches, step.parameters, step.bytes))
        table.add_row(step.output, ", ".join(step.inputs), Text(f"{step.op} {step.what}".strip()), *numbers)
    return table


def _console() -> Console:
    """Return a console that prints names and paths as they are, brackets and colons included."""
    return Console(markup=False, emoji=False, highlight=False)


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
