"""The commands `serve`, `predict` and `verify`."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from triton_regressors.clients.admin_key import VARIABLE
from triton_regressors.clients.errors import RowsError, ServerError
from triton_regressors.clients.infer import Client, Protocol, infer_in_batches
from triton_regressors.clients.rows import SUFFIXES, read_tensors
from triton_regressors.clients.server import TritonServer, readable_log_line
from triton_regressors.clients.server_log import is_table
from triton_regressors.clients.verify import DEFAULT_REPOSITORY
from triton_regressors.clients.verify import verify as verify_entry

_DEFAULT_URLS: dict[Protocol, str] = {"grpc": "127.0.0.1:8001", "http": "127.0.0.1:8000"}
_LEVEL_STYLES = {"info": "dim", "warning": "yellow", "error": "red", "fatal": "bold red", "": ""}
_SHOWN_ROWS = 10


class ProtocolName(str, Enum):
    """What `--protocol` accepts, here and in `compare`."""

    grpc = "grpc"
    http = "http"


UrlOption = Annotated[
    str | None, typer.Option(help="HOST:PORT of the server; by default 127.0.0.1:8001 for grpc, :8000 for http.")
]
ProtocolOption = Annotated[ProtocolName, typer.Option(help="How to speak to the server.")]


def serve(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The model repository.")] = DEFAULT_REPOSITORY,
    grpc_port: Annotated[int, typer.Option(help="0: a free one.")] = 8001,
    http_port: Annotated[int, typer.Option(help="0: a free one.")] = 8000,
    metrics_port: Annotated[int, typer.Option(help="0: a free one.")] = 8002,
    poll: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Look for new and changed entries that often, 1 or more.")
    ] = None,
    python: Annotated[
        Path | None, typer.Option(help="The interpreter whose packages the models see; by default this one.")
    ] = None,
    complete_configs: Annotated[
        bool, typer.Option("--complete-configs", help="Accept models whose config.pbtxt leaves out inputs and outputs.")
    ] = False,
) -> None:
    """Serve a model repository on this machine's loopback address, until Ctrl-C.

    For development: nothing is encrypted, everybody on this machine may query it, and a crafted request can end it.
    docker/ is for production. Loading and unloading need a key, $TRITON_ADMIN_KEY or a random one that is shown. What
    does not load is listed and left out; a model whose process dies is loaded again.
    """
    console = Console()
    if directory.is_dir() and poll is None and not any(directory.glob("*/config.pbtxt")):
        raise ServerError(f"{directory} holds no entry to serve; `triton-regressors export` writes them.")

    def show(line: str) -> None:
        if line.strip() and not is_table(line):
            try:
                console.print(_readable(line))
            except (SystemExit, BrokenPipeError):  # nobody reads any more, as after `serve | head`
                signal.raise_signal(signal.SIGTERM)  # this is a thread of the server's: the main one is to end

    server = TritonServer(
        [directory],
        grpc_port=grpc_port,
        http_port=http_port,
        metrics_port=metrics_port,
        poll_s=poll,
        python=python,
        complete_configs=complete_configs,
        on_log=show,
        lenient=True,
    )
    with _interrupted_by_signals(), suppress(KeyboardInterrupt), server:
        console.print(_endpoints(server, directory))
        console.print(_how_to_load(server), soft_wrap=True)
        while server.running:
            time.sleep(0.2)
        raise ServerError(f"The Triton server {server.ending()}.", log=server.log)
    console.print("The Triton server has stopped.")


def predict(
    name: Annotated[str, typer.Argument(help="The entry to ask.")],
    rows: Annotated[Path, typer.Argument(help="The rows: .npy, .csv or .parquet.")],
    url: UrlOption = None,
    protocol: ProtocolOption = ProtocolName.grpc,
    output: Annotated[
        Path | None, typer.Option(help="Write the predictions to this .npy (columns side by side), .csv or .parquet.")
    ] = None,
    outputs: Annotated[str, typer.Option(help="Which outputs, with commas between them: y or y,std.")] = "y",
    version: Annotated[str, typer.Option(help="Which version; by default the server's choice.")] = "",
    columns: Annotated[
        str | None,
        typer.Option(
            help="The columns of ROWS that are the features, in order, with commas between them: of a model that takes "
            "strings, those of one input after those of another. Default: those that it was trained with, which the "
            "server names, if they and those of ROWS have names; else all."
        ),
    ] = None,
) -> None:
    """Ask a running server for the predictions of the rows of a file."""
    if output is not None:
        _check_writable(output)
    named = columns.split(",") if columns else None
    wanted = tuple(name.strip() for name in outputs.split(",") if name.strip())
    with _client(url, protocol) as client:
        tensors = read_tensors(rows, client.config(name), named)
        answers = infer_in_batches(client, name, tensors, outputs=wanted, version=version)
    table = _as_columns(answers)
    console = Console()
    console.print(_preview(table))
    if output is not None:
        _write(output, table)
        console.print(Text(f"Wrote {len(table)} rows to {output}."), soft_wrap=True)


def verify(
    name: Annotated[str, typer.Argument(help="The entry to verify.")],
    repository: Annotated[Path, typer.Option(help="Where its golden rows are on this machine.")] = DEFAULT_REPOSITORY,
    url: UrlOption = None,
    protocol: ProtocolOption = ProtocolName.grpc,
    version: Annotated[str, typer.Option(help="Which version; by default the newest in the repository.")] = "",
) -> None:
    """Send an entry's golden rows to a running server and compare with the estimator's own predictions."""
    with _client(url, protocol) as client:
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


@contextmanager
def _interrupted_by_signals() -> Iterator[None]:
    """SIGTERM raises KeyboardInterrupt as Ctrl-C does. Only the first of them counts: stopping is not interrupted."""
    stopping = False

    def on_signal(number: int, frame: Any) -> None:
        nonlocal stopping
        if not stopping:
            stopping = True
            raise KeyboardInterrupt

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _readable(line: str) -> Text:
    at, level, message = readable_log_line(line)
    if not level:
        return Text(message)
    return Text.assemble((at, "dim"), " ", (f"{level:<7}", _LEVEL_STYLES[level]), " ", message)


def _endpoints(server: TritonServer, directory: Path) -> Table:
    table = Table(title=Text(f"Serving {directory}"), caption="Ctrl-C stops the server.")
    for heading in ("model", "version", "state"):
        table.add_column(heading)
    with Client(server.grpc_url) as client:
        models = client.index()
    for model in models:
        if model["state"] == "READY":
            table.add_row(Text(model["name"]), model["version"], Text("READY", "green"))
    for name, reason in server.failures.items():
        table.add_row(Text(name), "", Text(f"not loaded: {reason}", "red"))
    table.add_section()
    table.add_row("gRPC", server.grpc_url, "")
    table.add_row("HTTP", f"http://{server.http_url}", "")
    table.add_row("metrics", f"http://{server.metrics_url}/metrics", "")
    return table


def _how_to_load(server: TritonServer) -> Text:
    if os.environ.get(VARIABLE):
        return Text(f"Models are loaded, unloaded and compared with the key in ${VARIABLE}.")
    return Text("To load, unload or compare models from another terminal, first: ").append(
        f"export {VARIABLE}={server.admin_key}", "bold"
    )


def _client(url: str | None, protocol: ProtocolName) -> Client:
    name: Protocol = "grpc" if protocol is ProtocolName.grpc else "http"
    return Client(url or _DEFAULT_URLS[name], name)


def _as_columns(answers: dict[str, npt.NDArray[Any]]) -> Any:
    """A DataFrame with a column y, or y_0, y_1, ... where an output has several."""
    columns = {}
    for name, array in answers.items():  # array: [rows, width]
        for column in range(array.shape[1]):
            columns[name if array.shape[1] == 1 else f"{name}_{column}"] = array[:, column]
    return pd.DataFrame(columns)


def _preview(table: Any) -> Table:
    more = len(table) - _SHOWN_ROWS
    preview = Table("row", caption=f"and {more} more rows" if more > 0 else None)
    for name in table.columns:
        preview.add_column(Text(name))
    for row, values in enumerate(table.head(_SHOWN_ROWS).itertuples(index=False)):
        preview.add_row(str(row), *(f"{value:.7g}" for value in values))
    return preview


def _check_writable(output: Path) -> None:
    if output.suffix.lower() not in SUFFIXES:
        raise RowsError(f"Cannot write predictions to {output}: the suffix must be {', '.join(SUFFIXES)}.")
    if not output.parent.is_dir():
        raise RowsError(f"Cannot write predictions to {output}: there is no directory {output.parent}.")


def _write(output: Path, table: Any) -> None:
    try:
        if output.suffix.lower() == ".npy":
            with output.open("wb") as file:  # np.save would add a second suffix to .NPY
                np.save(file, table.to_numpy())
        elif output.suffix.lower() == ".csv":
            table.to_csv(output, index=False)
        else:
            table.to_parquet(output, index=False)
    except OSError as error:
        raise RowsError(f"Cannot write predictions to {output}: {error}.") from None
