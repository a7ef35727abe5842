"""The command `serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    repository: Annotated[
        Path, typer.Option(metavar="DIR", help="The model repository that the entries are written into.")
    ] = Path("build/gallery"),
    only: Annotated[list[str] | None, typer.Option(metavar="NAME", help="This exhibit; by default all.")] = None,
    grpc_port: Annotated[int, typer.Option(metavar="PORT", help="Port for gRPC; 0: a free port.")] = 8001,
    http_port: Annotated[int, typer.Option(metavar="PORT", help="Port for HTTP; 0: a free port.")] = 8000,
    metrics_port: Annotated[int, typer.Option(metavar="PORT", help="Port for metrics; 0: a free port.")] = 8002,
) -> None:
    """Write exhibits as entries of a model repository, and serve it on this machine's loopback address, until Ctrl-C.

    Entries are self-contained: the repository can be copied to any Triton server with torch and triton. On a GPU the
    first request of a new size waits for kernels to be compiled and tuned; without one the interpreter of the Triton
    language runs them. `python -m gallery query` queries the served exhibits.

    Examples:
        python -m gallery serve
        python -m gallery serve --only softmax --only attention --repository /tmp/models
    """
    from gallery.serving.entries import write
    from gallery.serving.services import SERVICES
    from triton_regressors.commands.serve import serve

    write(repository, only or SERVICES)
    serve(repository, grpc_port=grpc_port, http_port=http_port, metrics_port=metrics_port)
