"""The command `describe`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from triton_regressors.commands.lazy_imports import loading
from triton_regressors.commands.model_file import (
    ImportOption,
    InputOption,
    LargestMbOption,
    MissingOption,
    PrecisionOption,
    SampleOption,
    ToleranceOption,
    TrustPickleOption,
    TrustTypeOption,
    make_console,
    read_model,
    read_rows,
)
from triton_regressors.defaults import (
    DEFAULT_PRECISION,
    DEFAULT_REPOSITORY,
    DEFAULT_TOLERANCE,
    LARGEST_MB,
    MODEL_FILES,
    PREDICTOR_FILE,
)
from triton_regressors.extras import require

if TYPE_CHECKING:
    from triton_regressors.kernels.entry import Entry, StepSummary

ADVICE = "Whether a GPU makes sense"
WIDEST = 100
"""The most characters in a line of advice."""

GPU_MEMORY_ROWS = 4096
"""The default of an entry's largest batch."""

ModelOrEntry = Annotated[
    Path,
    typer.Argument(
        metavar="WHAT", help="An entry's name in the repository, its directory, or a fitted estimator's file."
    ),
]


def describe(
    what: ModelOrEntry,
    repository: Annotated[
        Path, typer.Option(metavar="DIR", help="Model repository of an entry that is given by name.")
    ] = DEFAULT_REPOSITORY,
    passes: Annotated[bool, typer.Option("--passes", help="Show the plan before and after each pass too.")] = False,
    advise: Annotated[
        bool,
        typer.Option(
            "--advise",
            help="Time the model on this machine instead, and suggest engine, instances and batch limit.",
            rich_help_panel=ADVICE,
        ),
    ] = False,
    gpu_price: Annotated[
        float | None,
        typer.Option(min=0, metavar="USD", help="Price of a host with the GPU, per hour.", rich_help_panel=ADVICE),
    ] = None,
    cpu_price: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="USD", help="Price of this machine without a GPU, per hour.", rich_help_panel=ADVICE
        ),
    ] = None,
    gpu_memory: Annotated[
        bool,
        typer.Option("--gpu-memory", help="Measure the memory that serving the entry takes on this machine's GPU too."),
    ] = False,
    version: Annotated[int | None, typer.Option(metavar="N", help="Version of the entry; default: the newest.")] = None,
    member: Annotated[
        str | None, typer.Option(metavar="ID", help="Show the parity of one model of a fleet too, by its id.")
    ] = None,
    sample: SampleOption = None,
    tolerance: ToleranceOption = DEFAULT_TOLERANCE,
    precision: PrecisionOption = DEFAULT_PRECISION,
    input: InputOption = "auto",
    trust_pickle: TrustPickleOption = False,
    trust_type: TrustTypeOption = None,
    import_: ImportOption = None,
    largest_mb: LargestMbOption = LARGEST_MB,
    missing: MissingOption = None,
) -> None:
    """Show a model's inputs, outputs and parity, and how to query it from Python and from a shell.

    Examples:
        triton-regressors describe diabetes
        triton-regressors describe diabetes --version 2 --passes
        triton-regressors describe demand --member shop-7
        triton-regressors describe diabetes.skops --sample rows.csv
        triton-regressors describe diabetes.skops --advise
    """
    with loading():
        from triton_regressors.describe.contract import contract_of
        from triton_regressors.describe.fleet_text import member_ids
        from triton_regressors.exporter.errors import ExportError
        from triton_regressors.kernels.entry import read_document, read_golden
        from triton_regressors.kernels.format.errors import PlanError
        from triton_regressors.kernels.format.member_table import read_members
        from triton_regressors.kernels.format.row_profile import read_profile
    if not advise and (gpu_price, cpu_price) != (None, None):
        raise ExportError("--gpu-price and --cpu-price go with --advise.")
    try:
        entry = _find(what, repository, version)
        if entry is not None and sample is not None:
            raise ExportError("--sample is for a model's file; an entry's parity was measured when it was exported.")
        if entry is None and gpu_memory:
            raise ExportError("--gpu-memory is for an entry; export the model first.")
        if entry is not None:
            name = entry.directory.resolve().name
            document = read_document(entry.version_directory)
            golden = read_golden(entry.version_directory, document)
            profile, members = read_profile(entry.version_directory), None
            if document.fleet is not None:
                members = read_members(entry.version_directory, document.inputs.n_features)
    except (PlanError, OSError) as error:
        raise ExportError(str(error)) from error
    if entry is None:
        require("export", "Describing a model")
        with loading():
            from triton_regressors.exporter.compile import compile_estimator
        estimator = read_model(
            what,
            trust_pickle=trust_pickle,
            trusted_types=trust_type,
            imported=import_,
            largest_mb=largest_mb,
            missing=missing,
        )
        rows = None if sample is None else read_rows(sample, estimator)
        compiled = compile_estimator(estimator, sample=rows, tolerance=tolerance, precision=precision, input=input)
        name, document, golden, profile = what.stem, compiled.document(), compiled.golden(), compiled.profile
        members = None
    if member is not None and members is None:
        raise ExportError("--member is for an entry of many models, which `export-fleet` writes.")
    if member is not None and member not in member_ids(document):
        raise ExportError(f"{name} has no model {member!r}.")
    console = make_console()
    if advise:
        require("serve", "Timing a model")
        with loading():
            from triton_regressors.advise.trial import advice_on_entry, advice_on_model
        prices = (gpu_price, cpu_price)
        try:
            advice = (
                advice_on_model(compiled, what, *prices)
                if entry is None
                else advice_on_entry(entry, document, golden, *prices)
            )
        except PlanError as error:
            raise ExportError(str(error)) from error
        estimator_class = document.provenance.class_.rpartition(".")[2]
        text = Text(f"{name} ({estimator_class})\n\n{advice.text(min(console.width, WIDEST))}")
        text.highlight_regex(r"(?m)^\S.*$", "bold")
        console.print(text, soft_wrap=True)
        return
    version = None if entry is None else entry.version
    text = Text(contract_of(name, version, document, golden, profile, members, member).text(console.width))
    text.highlight_regex(r"(?m)^\S.*$", "bold")
    console.print(text, soft_wrap=True)  # only code, to be copied, is too long for the terminal
    if entry is not None and gpu_memory:
        require("serve", "Measuring GPU memory")
        with loading():
            from triton_regressors.describe.gpu_memory import measure
        console.print(measure(entry.version_directory, GPU_MEMORY_ROWS).text(), soft_wrap=True)
    if passes:
        for place, stage in enumerate(document.stages):
            first = "as lowered" if document.fleet is None else "as stacked"
            console.print(_stage_table(f"after: {stage.stage}" if place else first, stage.steps))


def _find(what: Path, repository: Path, version: int | None) -> Entry | None:
    """Return the entry of a directory or of a name in the repository, or None for a model's file.

    Raises `PlanError` with the names of the existing entries if there is no such entry.
    """
    from triton_regressors.kernels.entry import find_entry, versions
    from triton_regressors.kernels.format.errors import PlanError

    if os.path.isfile(what) or os.path.isfile(what / PREDICTOR_FILE):  # False for a name that is too long
        return None
    for directory in (what, repository / what):
        if os.path.isdir(directory) and versions(directory):
            return find_entry(directory, version)
    if os.path.isdir(what):
        return find_entry(what, version)
    if what.suffix in MODEL_FILES:
        return None
    if not os.path.isdir(repository):
        raise PlanError(f"There is no file {what}, and no repository {repository} with an entry of that name.")
    known = sorted(path.name for path in repository.iterdir() if versions(path))
    raise PlanError(
        f"There is no file {what}, and no entry of that name in {repository}, which has {', '.join(known) or 'none'}."
    )


def _stage_table(title: str, steps: Sequence[StepSummary]) -> Table:
    """Return a plan as a table: its steps, with their launches and numbers."""
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
