"""The commands `predict` and `verify`, which ask a running server."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from triton_regressors.commands.connection import ProtocolName, ProtocolOption, UrlOption, connect, entry_names
from triton_regressors.commands.lazy_imports import loading
from triton_regressors.defaults import DEFAULT_REPOSITORY
from triton_regressors.extras import require

if TYPE_CHECKING:
    import numpy as np


class Errors(str, Enum):
    """The values of `--errors`."""

    stop = "stop"
    row = "row"


_SHOWN_ROWS = 10
_STDOUT = Path("-")


def predict(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the entry.", autocompletion=entry_names)],
    rows: Annotated[Path, typer.Argument(metavar="ROWS", help="A file of rows: .npy, .csv or .parquet.")],
    url: UrlOption = None,
    protocol: ProtocolOption = ProtocolName.grpc,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the predictions to this .npy (in the shape of the estimator's predict), .csv or .parquet; "
            "-: as CSV to stdout.",
        ),
    ] = None,
    outputs: Annotated[str, typer.Option(metavar="NAMES", help="Outputs, separated by commas: y or y,std.")] = "y",
    version: Annotated[str, typer.Option(metavar="N", help="Version of the entry; default: the server's choice.")] = "",
    errors: Annotated[
        Errors,
        typer.Option(help="If the model refuses a row: stop, or leave its answers empty (row) and print the reason."),
    ] = Errors.stop,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Feature columns of ROWS, in order, separated by commas; if the model has several inputs, those of "
            "one input after those of another. Default: the columns of training, by name; all columns if either "
            "side has no names.",
        ),
    ] = None,
) -> None:
    """Ask a running server for the predictions of the rows of a file.

    A terminal shows the first predictions. If the output is piped or redirected, all predictions are written as CSV,
    with a header and every digit of the float32 numbers.

    Examples:
        triton-regressors predict diabetes rows.csv
        triton-regressors predict diabetes rows.csv > answers.csv
        triton-regressors predict houses rows.parquet --outputs y,std -o out.parquet
        triton-regressors predict diabetes rows.npy --url gpu-server:8001
    """
    with loading():
        from triton_regressors.clients.rows import read_by_row, read_tensors
    to_file = None if output == _STDOUT else output
    if to_file is not None:
        _check_writable(to_file)
    named = columns.split(",") if columns else None
    wanted = tuple(name.strip() for name in outputs.split(",") if name.strip())
    with connect(url, protocol) as client:
        if errors is Errors.row:
            given, kept, refused = read_by_row(rows, client.config(name), named)
            answers = client.infer(name, given, outputs=wanted, version=version, errors="row").among(kept, refused)
        else:
            answers = client.infer(
                name, read_tensors(rows, client.config(name), named), outputs=wanted, version=version
            )
    table = _as_columns(answers)
    notes = Console(stderr=True)
    for reason in list(answers.refused.values())[:_SHOWN_ROWS]:
        notes.print(Text(f"Refused: {reason}"), soft_wrap=True)
    if answers.refused:
        notes.print(Text(f"{len(answers.refused):,} of {len(table):,} rows were refused; their answers are nan."))
    if output == _STDOUT or (output is None and not sys.stdout.isatty()):
        _write_csv(table, sys.stdout)
        sys.stdout.flush()  # flushed here, so that typer ends the command quietly if the reader is gone
    elif sys.stdout.isatty():
        Console().print(_preview(table))
        if output is None and len(table) > _SHOWN_ROWS:
            more = f"and {len(table) - _SHOWN_ROWS:,} more rows; `> FILE.csv` or --output FILE has all."
            notes.print(Text(more, "dim"), soft_wrap=True)
    if to_file is not None:
        _write(to_file, table, answers.column)
        notes.print(Text(f"Wrote {len(table):,} rows to {to_file}."), soft_wrap=True)


def verify(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The entry to verify, or its directory.", autocompletion=entry_names)
    ],
    repository: Annotated[
        Path, typer.Option(metavar="DIR", help="Model repository on this machine that holds the entry's golden rows.")
    ] = DEFAULT_REPOSITORY,
    url: UrlOption = None,
    protocol: ProtocolOption = ProtocolName.grpc,
    version: Annotated[
        str, typer.Option(metavar="N", help="Version of the entry; default: the newest in the repository.")
    ] = "",
) -> None:
    """Send an entry's golden rows to a running server and compare with the estimator's own predictions.

    Examples:
        triton-regressors verify diabetes
        triton-regressors verify diabetes --url gpu-server:8001 --version 2
    """
    with loading():
        from triton_regressors.clients.verify import verify as verify_entry
    with connect(url, protocol) as client:
        result = verify_entry(client, name, repository=repository, version=version or None)
    console = Console()
    table = Table(title=Text(f"{result.model}, version {result.version}: {result.rows} golden rows"))
    for heading in ("output", "max |error| in std of the predictions", "tolerance", ""):
        table.add_column(heading)
    for check in result.outputs:
        mark = Text("ok", "green") if check.within else Text("beyond tolerance", "red")
        table.add_row(Text(check.name), f"{check.max_error:.2e}", f"{check.tolerance:.0e}", mark)
    console.print(table)
    bits = Text("the same bits", "green") if result.bit_identical else Text("different bits", "red")
    console.print(Text("Sent ") + Text("; ".join(result.batchings)) + ": " + bits + " in every batching.")
    if not result.passed:
        raise typer.Exit(1)


def _as_columns(answers: dict[str, np.ndarray]) -> Any:
    """Return a DataFrame with a column y, or y_0, y_1, ... for an output with several columns."""
    import pandas as pd

    columns = {}
    for name, array in answers.items():  # array: [rows, width]
        for column in range(array.shape[1]):
            columns[name if array.shape[1] == 1 else f"{name}_{column}"] = array[:, column]
    return pd.DataFrame(columns)


def _preview(table: Any) -> Table:
    preview = Table("row")
    for name in table.columns:
        preview.add_column(Text(name))
    for row, values in enumerate(table.head(_SHOWN_ROWS).itertuples(index=False)):
        preview.add_row(str(row), *(f"{value:.7g}" for value in values))
    return preview


def _check_writable(output: Path) -> None:
    from triton_regressors.clients.errors import RowsError
    from triton_regressors.clients.rows import SUFFIXES

    if output.suffix.lower() not in SUFFIXES:
        raise RowsError(f"Cannot write predictions to {output}: the suffix must be {', '.join(SUFFIXES)}; - is stdout.")
    if output.suffix.lower() == ".parquet":
        require("parquet", f"Writing {output}")
    if not output.parent.is_dir():
        raise RowsError(f"Cannot write predictions to {output}: there is no directory {output.parent}.")


def _write_csv(table: Any, to: Path | TextIO) -> None:
    """Write each number with the fewest digits that read back to the same float32."""
    table.to_csv(to, index=False, na_rep="nan", lineterminator="\n")


def _write(output: Path, table: Any, column: bool) -> None:
    """Write predictions to a file; `column` says that a single column is `[rows, 1]` in .npy."""
    import numpy as np

    from triton_regressors.clients.client.parts import as_predicted
    from triton_regressors.clients.errors import RowsError

    try:
        if output.suffix.lower() == ".npy":
            with output.open("wb") as file:  # np.save would add a second suffix to .NPY
                np.save(file, as_predicted(table.to_numpy(), column))
        elif output.suffix.lower() == ".csv":
            _write_csv(table, output)
        else:
            table.to_parquet(output, index=False)
    except OSError as error:
        raise RowsError(f"Cannot write predictions to {output}: {error}.") from None
