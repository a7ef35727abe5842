"""The command `query`."""

from __future__ import annotations

from typing import Annotated

import typer


def command(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Exhibits; by default all served.")] = None,
    grpc: Annotated[str, typer.Option(metavar="HOST:PORT", help="The server's endpoint for gRPC.")] = "127.0.0.1:8001",
    http: Annotated[str, typer.Option(metavar="HOST:PORT", help="The server's endpoint for HTTP.")] = "127.0.0.1:8000",
) -> None:
    """Ask the exhibits that `serve` serves over gRPC and HTTP, and compare each answer with the reference in float64.

    Examples:
        python -m gallery query
        python -m gallery query softmax --grpc 127.0.0.1:9001 --http 127.0.0.1:9000
    """
    from rich.console import Console
    from rich.table import Table

    from gallery.serving.client import NAMES, Connection, check, served

    table = Table("exhibit", "over", "size", "largest error", "allowed", "ms", title="Served exhibits")
    agree = True
    for protocol, url in (("grpc", grpc), ("http", http)):
        with Connection(protocol, url) as connection:
            for name in names or served(connection):
                for row in check(connection, name):
                    agree &= row.agrees
                    error = f"{row.error:.1e}" if row.agrees else f"[red]{row.error:.1e}[/red]"
                    size = " × ".join(map(str, row.size))
                    table.add_row(name, NAMES[protocol], size, error, f"{row.allowed:.0e}", f"{row.milliseconds:.1f}")
    Console().print(table)
    raise typer.Exit(0 if agree else 1)
