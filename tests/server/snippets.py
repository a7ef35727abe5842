"""Runs what `describe` prints of an entry for its clients, against a real server."""

import io
import json
import shlex
import textwrap
import urllib.request
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from triton_regressors.clients.server import TritonServer
from triton_regressors.exporter.describe import describe_entry


def run_snippets(
    entry: Path, server: TritonServer, changes: Mapping[str, str] | None = None
) -> list[dict[str, np.ndarray]]:
    """Return the outputs, of one target each, of the Python over gRPC and over HTTP, and of the shell's command.

    `changes` are words of one or both and what a user puts in their place; Python's None is the shell's "".
    """
    console = Console(width=60, file=io.StringIO())
    console.print(describe_entry(entry), crop=False)
    python, _, shell = console.file.getvalue().rpartition("From a client:\n")[2].partition("\nFrom a shell:\n")
    for old, new in (changes or {}).items():
        assert old in python + shell
        shell = shell.replace(old, new.replace("None", '""'))
        python = python.replace(old, new)
    python = textwrap.dedent(python)
    over_grpc = python.replace("127.0.0.1:8001", server.grpc_url)
    over_http = python.replace("tritonclient.grpc", "tritonclient.http").replace("127.0.0.1:8001", server.http_url)
    found = []
    for code in (over_grpc, over_http):
        names: dict[str, Any] = {}
        with redirect_stdout(io.StringIO()) as printed:
            exec(compile(code, "snippet", "exec"), names)
        assert printed.getvalue().strip() == str(names["answer"].as_numpy("y"))
        found.append({"y": names["answer"].as_numpy("y")[:, 0]})
        names["client"].close()
    curl, silent, url, option, body = shlex.split(shell, comments=True)
    assert (curl, silent, option) == ("curl", "-s", "-d")
    with urllib.request.urlopen(f"http://{url.replace('127.0.0.1:8000', server.http_url)}", body.encode()) as answer:
        outputs = json.load(answer)["outputs"]
    found.append({output["name"]: np.array(output["data"]) for output in outputs})
    return found
