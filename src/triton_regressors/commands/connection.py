"""The options of commands that ask a running server, and the client that they make."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from triton_regressors.commands.lazy_imports import loading
from triton_regressors.defaults import DEFAULT_REPOSITORY

if TYPE_CHECKING:
    from triton_regressors.clients.client.client import Client


class ProtocolName(str, Enum):
    """The values of `--protocol`."""

    grpc = "grpc"
    http = "http"


_DEFAULT_URLS = {ProtocolName.grpc: "127.0.0.1:8001", ProtocolName.http: "127.0.0.1:8000"}

UrlOption = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Address of the server; default: 127.0.0.1:8001 for grpc, :8000 for http."),
]
ProtocolOption = Annotated[ProtocolName, typer.Option(metavar="NAME", help="Protocol: grpc or http.")]


def entry_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the entries of the model repository whose names begin with `incomplete`, for shell completion."""
    repository = Path(ctx.params.get("repository") or DEFAULT_REPOSITORY)
    found = (path.parent.name for path in repository.glob("*/config.pbtxt"))
    return sorted(name for name in found if name.startswith(incomplete))


def connect(url: str | None, protocol: ProtocolName) -> Client:
    """Return a client of the server at `url`, by default at the protocol's usual port on this machine."""
    with loading():
        from triton_regressors.clients.client.client import Client
    return Client(url or _DEFAULT_URLS[protocol], "grpc" if protocol is ProtocolName.grpc else "http")
