"""The command `verify`, which asks a running server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from triton_regressors.commands.connection import ProtocolName, ProtocolOption, UrlOption, connect, entry_names
from triton_regressors.commands.lazy_imports import loading
from triton_regressors.defaults import DEFAULT_REPOSITORY


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
    members: Annotated[
        int | None, typer.Option(metavar="N", help="Ask N models of a fleet, drawn at random; default: all.")
    ] = None,
) -> None:
    """Send an entry's golden rows to a running server and compare with the estimator's own predictions.

    Examples:
        triton-regressors verify diabetes
        triton-regressors verify diabetes --url gpu-server:8001 --version 2
        triton-regressors verify demand --members 100
    """
    with loading():
        from triton_regressors.clients.verify import verify as verify_entry
    with connect(url, protocol) as client:
        result = verify_entry(client, name, repository=repository, version=version or None, members=members)
    console = Console()
    of_models = ""
    if result.members is not None:
        asked, models = result.members
        of_models = f" of {models:,} models" if asked == models else f" of {asked:,} of {models:,} models"
    table = Table(title=Text(f"{result.model}, version {result.version}: {result.rows:,} golden rows{of_models}"))
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
