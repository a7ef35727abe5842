"""The command `score`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from triton_regressors.commands.connection import entry_names, split_names
from triton_regressors.commands.lazy_imports import loading
from triton_regressors.defaults import DEFAULT_REPOSITORY
from triton_regressors.extras import require

if TYPE_CHECKING:
    from triton_regressors.scoring.file_scoring import Score

_WHAT, _HOW, _AGAIN = "What is written", "Where it runs", "An earlier run"
SHOWN = 3
"""The number of left-out files that are shown with the reason."""


class Errors(str, Enum):
    """The values of `--errors`."""

    stop = "stop"
    row = "row"
    file = "file"


def score(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="The entry, by name or by its directory.", autocompletion=entry_names),
    ],
    rows: Annotated[
        list[str], typer.Argument(metavar="ROWS...", help="Files, folders and globs of .parquet and .csv.")
    ],
    output: Annotated[
        Path,
        typer.Argument(
            metavar="OUTPUT", help="A .parquet or .csv for all rows, or a folder: a .parquet for each file."
        ),
    ],
    repository: Annotated[
        Path, typer.Option(metavar="DIR", help="Model repository of the entry.")
    ] = DEFAULT_REPOSITORY,
    version: Annotated[
        str | None, typer.Option(metavar="N", help="Version of the entry; default: the one that a server answers with.")
    ] = None,
    outputs: Annotated[
        str, typer.Option(metavar="NAMES", help="Outputs, separated by commas: y or y,std.", rich_help_panel=_WHAT)
    ] = "y",
    contributions: Annotated[
        bool,
        typer.Option(
            "--contributions",
            help="Write contributions too: contribution_age for a column age, ..., and contribution_base; also "
            "contribution_error_age, ... if they are estimated.",
            rich_help_panel=_WHAT,
        ),
    ] = False,
    where: Annotated[
        str | None,
        typer.Option(
            metavar="CONDITION",
            help="Compute contributions only for rows whose output fulfils it, such as 'y > 400'.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES", help="Columns of ROWS to copy into OUTPUT, such as an id.", rich_help_panel=_WHAT
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Feature columns of ROWS, in order, separated by commas. Default: the columns of training, by name; "
            "if these had no names, all columns that --keep does not name.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    errors: Annotated[
        Errors,
        typer.Option(
            metavar="WHAT",
            help="If the model refuses a row: stop ends the run; row leaves the row's outputs empty; file leaves out "
            "the file, and also files that cannot be read.",
            rich_help_panel=_WHAT,
        ),
    ] = Errors.stop,
    device: Annotated[
        str, typer.Option(metavar="NAME", help="auto, cpu, gpu or gpu:1.", rich_help_panel=_HOW)
    ] = "auto",
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Number of processes, or of Ray's actors; on a CPU each computes in one thread. Default: 1; on Ray "
            "one per GPU, or per core if there is no GPU.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Score on a Ray cluster: auto, local or HOST:PORT. Its machines find all files by the same paths.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an OUTPUT that exists.", rich_help_panel=_AGAIN)
    ] = False,
    restart: Annotated[
        bool,
        typer.Option("--restart", help="Discard an unfinished earlier run and start again.", rich_help_panel=_AGAIN),
    ] = False,
) -> None:
    """Write an entry's answers to files of rows, without a server.

    Files may be larger than memory. Columns are taken by the names of training, and answers have a server's bits. The
    entry's own code runs here: score only entries that you trust. Rows stay in order.

    Until OUTPUT is complete, its parts lie in OUTPUT.partial. After a crash or Ctrl-C the same command continues with
    the other parts, unless the model or a file has changed. A .csv beside OUTPUT lists refused rows and files.

    Examples:
        triton-regressors score diabetes rows.parquet answers.parquet
        triton-regressors score diabetes 'rows/*.parquet' answers.parquet --keep id --outputs y,std
        triton-regressors score diabetes rows.parquet why.parquet --contributions
        triton-regressors score diabetes rows/ answers/ --errors row --workers 8
        triton-regressors score diabetes rows/ answers/ --ray auto
    """
    require("score", "`score`")
    with loading():
        from triton_regressors.scoring.file_scoring import score as run
    notes = Console(stderr=True)
    places = (repository / name, Path(name))
    directory = next((place for place in places if place.is_dir()), places[0])
    with _kept_parts(notes), _bar(notes) as bar:
        task = bar.add_task("loading", total=None, rate="")

        def show(done: int, total: int | None) -> None:
            speed = bar.tasks[0].speed
            rate = f"{speed:,.0f} rows/s" if speed else ""
            bar.update(task, description=f"{done:,} rows", completed=done, total=total, rate=rate)

        done = run(
            directory,
            rows,
            output,
            version=version,
            outputs=split_names(outputs),
            contributions=contributions,
            where=where,
            keep=split_names(keep or ""),
            columns=split_names(columns) if columns else None,
            errors=errors.value,
            device=device,
            workers=workers,
            ray=ray,
            overwrite=overwrite,
            restart=restart,
            progress=show,
        )
    notes.print(_summary(done, output), soft_wrap=True)


@contextmanager
def _kept_parts(console: Console) -> Iterator[None]:
    """Print a note on the finished parts of a run that Ctrl-C ends."""
    try:
        yield
    except KeyboardInterrupt:
        console.print("Stopped. Finished parts are kept, and the same command continues with the others.")
        raise


def _bar(console: Console) -> Progress:
    """Return the progress bar, which is shown only on a terminal."""
    shown = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[rate]}"))
    times = (TimeElapsedColumn(), TimeRemainingColumn())
    return Progress(*shown, *times, console=console, transient=True, disable=not console.is_terminal)


def _summary(done: Score, output: Path) -> Text:
    files = f"{done.files:,} file{'s' * (done.files != 1)}"
    text = Text(f"Wrote {done.rows:,} rows of {files} to {output} with {done.model} version {done.version}")
    fresh = done.rows - done.before
    text.append(
        f": {fresh:,} rows in {done.seconds:,.1f} s, {done.rows_per_s:,.0f} rows/s with loading, reading, writing and "
        "joining"
    )
    if done.computing_s:
        each = "" if done.computing_s <= done.seconds else " in each process"
        text.append(f"; computing took {done.computing_s:,.2g} s, {done.computed_rows_per_s:,.0f} rows/s{each}")
    text.append(f" ({done.where}).")
    if done.before:
        text.append(f" {done.before:,} were done before.")
    if done.empty:
        text.append(f"\nRefused {done.empty:,} row{'s' * (done.empty != 1)}, whose outputs are empty", "yellow")
        text.append(f": {done.listed} has the reasons.")
    if done.left_out:
        text.append(f"\nLeft out {len(done.left_out):,} file{'s' * (len(done.left_out) != 1)}:", "yellow")
        for why in list(done.left_out.values())[:SHOWN]:
            text.append(f"\n  {why}")
        if len(done.left_out) > SHOWN:
            text.append(f"\n  and {len(done.left_out) - SHOWN:,} more")
        text.append(f"\n{done.listed} lists what was refused.")
    return text
