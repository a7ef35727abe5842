"""The command `explain`, which asks a running server what each column adds to its answers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from triton_regressors.commands.connection import ProtocolName, ProtocolOption, UrlOption, connect, entry_names
from triton_regressors.commands.lazy_imports import loading


def explain(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the entry.", autocompletion=entry_names)],
    rows: Annotated[Path, typer.Argument(metavar="ROWS", help="A file of rows: .npy, .csv or .parquet.")],
    url: UrlOption = None,
    protocol: ProtocolOption = ProtocolName.grpc,
    where: Annotated[
        str | None,
        typer.Option(
            metavar="CONDITION",
            help="Explain only rows whose output fulfils it: 'y > 400', with <, <=, >, >= or ==; of several targets "
            "y_0 is the first.",
        ),
    ] = None,
    show: Annotated[
        int, typer.Option("--rows", min=0, metavar="N", help="Show the columns of each of the first N rows.")
    ] = 1,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write a page with the waterfall of the first row, and a beeswarm and a bar chart of all rows.",
        ),
    ] = None,
    version: Annotated[str, typer.Option(metavar="N", help="Version of the entry; default: the server's choice.")] = "",
    columns: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Feature columns of ROWS, as in `predict`."),
    ] = None,
) -> None:
    """Ask a running server what each column of a file's rows adds to its answers.

    The entry needs the output contributions, which `export --contributions` adds. The columns of a row are sorted by
    the size of their contributions. After several rows comes the mean size of each column's contributions. `score
    --contributions` writes all of them to a file.

    Examples:
        triton-regressors explain diabetes rows.csv
        triton-regressors explain diabetes rows.csv --where 'y >= 200' --rows 3
        triton-regressors explain diabetes rows.parquet --html explained.html
    """
    with loading():
        from triton_regressors.clients.contributions.page import write_page
        from triton_regressors.clients.contributions.text import DOWN, UP, mean_lines, row_lines
        from triton_regressors.clients.rows import read_tensors
    with connect(url, protocol) as client:
        given = read_tensors(rows, client.config(name), columns.split(",") if columns else None)
        found = client.explain(name, given, where=where, version=version)
    lines = []
    for target in found.targets():
        for row in range(min(show, len(found))):
            lines += row_lines(target, row)
        lines += mean_lines(target) if len(found) > 1 else []
    text = Text("\n".join(lines or ["", f"The condition {where} holds for no row."]).removeprefix("\n"))
    text.highlight_regex(r"(?m)^\S.*$", "bold")
    text.highlight_regex(f"{UP}+", "dark_orange3")
    text.highlight_regex(f"{DOWN}+", "dodger_blue2")
    text.append(f"\n\n{found.meaning}", "dim")
    Console().print(text, soft_wrap=True)
    if html is not None and len(found):
        write_page(html, found.model, found.version, found.meaning, found.targets(), where)
        Console(stderr=True).print(Text(f"Wrote {html}."), soft_wrap=True)
