"""Runs the client snippets that `describe` prints for an entry, against a real server."""

import json
import re
import shlex
import textwrap
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from triton_regressors.clients.contributions.contributions import Contributions
from triton_regressors.clients.server.triton_server import TritonServer
from triton_regressors.contribution_game import ERROR, OUTPUT
from triton_regressors.describe.contract import contract_of
from triton_regressors.kernels.entry import find_entry, read_document, read_golden


def run_snippets(
    directory: Path, server: TritonServer, changes: Mapping[str, str] | None = None
) -> tuple[Any, list[dict[str, np.ndarray]]]:
    """Return the rows, and the outputs of the Python over gRPC and over HTTP and of the shell's command.

    `changes` maps patterns in the snippets to the Python text that a user puts in their place.
    """
    entry = find_entry(directory)
    document = read_document(entry.version_directory)
    golden = read_golden(entry.version_directory, document)
    text = contract_of(entry.name, entry.version, document, golden).text(width=60)
    python, _, shell = text.rpartition("Ask it from Python\n")[2].partition("\nAsk it from a shell\n")
    for old, new in (changes or {}).items():
        assert re.search(old, python)
        assert re.search(old, shell)
        python = re.sub(old, new, python)
        shell = re.sub(old, {"None": '""', 'float("nan")': "NaN"}[new], shell)
    address = '"127.0.0.1:8001"'
    assert address in python
    found, outputs = [], tuple(document.parity.outputs)
    for there in (f'"{server.grpc_url}"', f'"{server.http_url}", protocol="http"'):
        printed: list[Any] = []
        names: dict[str, Any] = {"print": printed.append}
        exec(compile(textwrap.dedent(python).replace(address, there), "snippet", "exec"), names)
        answer, *explained = printed
        found.append(answer if isinstance(answer, dict) else {outputs[0]: answer.reshape(len(answer), -1)})
        for each in explained:
            found[-1] |= _flat(each)
    curl, silent, url, option, body = shlex.split(shell, comments=True)
    assert (curl, silent, option) == ("curl", "-s", "-d")
    with urllib.request.urlopen(f"http://{url.replace('127.0.0.1:8000', server.http_url)}", body.encode()) as answer:
        found.append(
            {
                output["name"]: np.array(output["data"]).reshape(output["shape"])
                for output in json.load(answer)["outputs"]
            }
        )
    assert all(each.keys() == set(outputs) for each in found)  # the server sends them in any order
    return names["rows"], found


def _flat(found: Contributions) -> dict[str, np.ndarray]:
    """Return contributions as the outputs that a server answers."""
    rows, columns = found.values.shape[:2]

    def whole(values: np.ndarray, base: np.ndarray) -> np.ndarray:
        parts = [values.reshape(rows, columns, -1), base.reshape(rows, 1, -1)]
        return np.concatenate(parts, axis=1).transpose(0, 2, 1).reshape(rows, -1)

    outputs = {OUTPUT: whole(found.values, found.base_values)}
    return outputs if found.errors is None else outputs | {ERROR: whole(found.errors, 0 * found.base_values)}
