"""The command `serve`."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from triton_regressors.commands.lazy_imports import loading
from triton_regressors.defaults import DEFAULT_REPOSITORY
from triton_regressors.extras import require

if TYPE_CHECKING:
    from triton_regressors.clients.server.triton_server import TritonServer

_TICK_S = 0.2  # the interval between checks of the server
_RESTARTS = 5  # in succession
_STEADY_S = 60.0  # a server that ran longer resets the count of restarts
_LEVEL_STYLES = {"info": "dim", "warning": "yellow", "error": "red", "fatal": "bold red", "": ""}


def serve(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The model repository.")] = DEFAULT_REPOSITORY,
    grpc_port: Annotated[int, typer.Option(metavar="PORT", help="Port for gRPC; 0: a free port.")] = 8001,
    http_port: Annotated[int, typer.Option(metavar="PORT", help="Port for HTTP; 0: a free port.")] = 8000,
    metrics_port: Annotated[int, typer.Option(metavar="PORT", help="Port for metrics; 0: a free port.")] = 8002,
    poll: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Look for new and changed entries every so many seconds, 1 or more."),
    ] = None,
    python: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Python interpreter whose packages the models use; default: this one."),
    ] = None,
    complete_configs: Annotated[
        bool, typer.Option("--complete-configs", help="Accept models whose config.pbtxt leaves out inputs and outputs.")
    ] = False,
) -> None:
    """Serve a model repository on this machine's loopback address, until Ctrl-C.

    For development: nothing is encrypted, everybody on this machine may query it, and a crafted request can end it.
    docker/ is for production. Loading and unloading need a key, $TRITON_ADMIN_KEY or a random one that is shown. Models
    that do not load are listed and left out. A model whose process dies is loaded again, and a server that dies is
    started again with the same key. Loading may take long as long as it makes progress. The log goes to stderr; the
    models and addresses go to stdout.

    Examples:
        triton-regressors serve
        triton-regressors serve my_models --poll 5
        triton-regressors serve --grpc-port 0 --http-port 0 --metrics-port 0
    """
    if python is None:
        require("serve", "What `serve` runs")
    with loading():
        from triton_regressors.clients.errors import ServerError
        from triton_regressors.clients.server.server_log import gpu_is_visible, means_nothing
        from triton_regressors.clients.server.triton_server import TritonServer
    console, log = Console(), Console(stderr=True)
    has_gpu = gpu_is_visible()
    starting = log.status("")  # only on a terminal
    if directory.is_dir() and poll is None and not any(directory.glob("*/config.pbtxt")):
        raise ServerError(f"{directory} holds no entry to serve; `triton-regressors export` writes them.")

    def show(line: str) -> None:
        starting.update(_progress(server))
        if not means_nothing(line, has_gpu):
            try:
                log.print(_readable(line), soft_wrap=True)
            except (SystemExit, BrokenPipeError):  # the reader is gone, as after `serve | head`
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
    with _interrupted_by_signals(), suppress(KeyboardInterrupt), ExitStack() as running:
        if not has_gpu:
            log.print("No NVIDIA GPU is visible here: models run on the CPU.")
        with starting:
            running.enter_context(server)
        console.print(_endpoints(server, directory))
        console.print(_how_to_load(server), soft_wrap=True)
        _keep_running(server, log)
    log.print("The Triton server has stopped.")


def _keep_running(server: TritonServer, log: Console) -> None:
    """Start a server again whenever it ends by itself, which one crafted request can cause; it then answers as before.

    Before each start there is a wait of 1, 2, 4, ... seconds, so that repeated ends use little of the machine.

    Raises:
        ServerError: the server ended for the sixth time in succession, none of them later than 60 s after it was
            ready; or it does not start again.
    """
    with loading():
        from triton_regressors.clients.errors import ServerError
    in_succession = 0
    while True:
        ready_s = time.monotonic()
        while server.running:
            time.sleep(_TICK_S)
        in_succession = in_succession + 1 if time.monotonic() - ready_s < _STEADY_S else 1
        ended = f"The Triton server {server.ending()}"
        if in_succession > _RESTARTS:
            raise ServerError(f"{ended}, for the {in_succession}th time in succession.", log=server.log)
        wait_s = 2 ** (in_succession - 1)
        log.print(f"{ended}. It is started again in {wait_s} s.", style="bold red", markup=False, soft_wrap=True)
        time.sleep(wait_s)
        try:
            server.restart()
        except ServerError as error:
            raise ServerError(f"{ended} and did not start again: {error}", log=error.log) from None
        log.print("The Triton server answers again.", style="bold")


@contextmanager
def _interrupted_by_signals() -> Iterator[None]:
    """Let SIGTERM raise KeyboardInterrupt as Ctrl-C does. Only the first signal raises: stopping is not interrupted."""
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


def _progress(server: TritonServer) -> str:
    ready, models = server.progress
    return f"{ready} of {models} model{'' if models == 1 else 's'} ready"


def _readable(line: str) -> Text:
    from triton_regressors.clients.server.server_log import readable_log_line

    at, level, message = readable_log_line(line)
    if not level:
        return Text(message)
    return Text.assemble((at, "dim"), " ", (f"{level:<7}", _LEVEL_STYLES[level]), " ", message)


def _endpoints(server: TritonServer, directory: Path) -> Table:
    table = Table(title=Text(f"Serving {directory}"), caption="Ctrl-C stops the server.")
    for heading in ("model", "version", "state"):
        table.add_column(heading)
    with loading():
        from triton_regressors.clients.client.client import Client
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
    with loading():
        from triton_regressors.clients.client.admin_key import VARIABLE
    if server.closed:
        return Text(f"While this server runs, models cannot be loaded, unloaded or compared: {server.closed}.")
    if os.environ.get(VARIABLE):
        return Text(f"Loading, unloading and comparing models needs the key in ${VARIABLE}.")
    return Text("To load, unload or compare models from another terminal, first: ").append(
        f"export {VARIABLE}={server.admin_key}", "bold"
    )
