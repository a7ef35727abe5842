"""Ask a Triton server whether it and its entries are alive, or ready to answer: exit code 0 if they are, else 1.

    python3 probe.py [URL [REPOSITORY [live|ready]]]        by default http://127.0.0.1:8000, /models and live

`live` finds the problems that a restart solves: a server that does not answer, an entry whose process has died, and a
stuck entry. An entry is stuck if it finishes no request for a minute while one waits, or if one of its processes has
computed the same batch for five minutes although others answer. A slow entry finishes requests and is alive, and an
entry that is not loaded is skipped. `ready` also requires every entry of the repository to be loaded, and waits 10
seconds.

The script sends each entry its first golden row. An entry passes as soon as it answers that row or any other request.
The server's statistics, which wait in no queue, report the other requests. The server itself still calls a model ready
after its process has died.

The script runs beside the server and reads /proc. It needs numpy and safetensors, and no key. It skips a model without
this project's code for reading golden rows.
"""

from __future__ import annotations

import http.client
import importlib
import json
import struct
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

TYPES = {"FP32": np.float32, "FP64": np.float64, "INT64": np.int64}
PATIENCE_S = {"live": 60.0, "ready": 10.0}
"""The time to wait for the server, and for an entry that finishes no request."""
FIRST_S = 2.0
"""The time to wait for the first golden row before reading the statistics; each further wait is twice as long.

The server takes a second to report that an entry's process has died.
"""
STATISTICS_S = 5.0
"""The time to wait for the server's statistics, even after `PATIENCE_S` has passed."""
STUCK_S = 300.0
"""A process that computes one batch for longer counts as stuck."""
WORKING = "/memfd:triton_regressors_working"
"""The name in /proc of the memory in which an entry's process notes when its current batch began."""
SILENCE = (OSError, http.client.HTTPException, ValueError)
"""The errors of reading an answer: no connection, a refusal, half an answer, or an answer that is not JSON."""


@dataclass(frozen=True)
class Entry:
    """A loaded entry: its name, its URL with the version, and its golden row as a request that infers.

    instances: the number of processes that the server started for it. running: the number of them that run, by /proc.
    computing_s: the longest time that one of them has computed its current batch.
    """

    name: str
    url: str
    row: urllib.request.Request
    instances: int
    running: int
    computing_s: float = 0.0


def main(
    url: str = "http://127.0.0.1:8000",
    repository: str = "/models",
    question: str = "live",
    patience_s: float | None = None,
) -> int:
    """Print the problems and return the exit code."""
    end = time.monotonic() + (PATIENCE_S[question] if patience_s is None else patience_s)
    try:
        get(f"{url}/v2/health/{question}", end)
    except SILENCE as error:
        print(f"The Triton server is not {question}: {reason(error)}")
        return 1
    entries, problems = [], []
    for folder in sorted(path.parent for path in Path(repository).glob("*/config.pbtxt")):
        try:
            metadata = json.loads(get(f"{url}/v2/models/{urllib.parse.quote(folder.name)}", end))
        except urllib.error.HTTPError as error:
            if question == "ready":
                problems.append(f"{folder.name} is not loaded: {reason(error)}")
            continue
        except SILENCE as error:
            problems.append(f"The Triton server reports nothing about {folder.name}: {reason(error)}")
            continue
        version = folder / max(metadata["versions"], key=int)
        if not (version / "kernels" / "entry.py").is_file():
            continue
        try:
            entries.append(read(url, version, metadata["inputs"], end))
        except Exception as error:  # after any error this entry cannot be asked
            problems.append(f"{folder.name} cannot be queried: {reason(error)}")
    if entries:
        with ThreadPoolExecutor(len(entries)) as pool:
            problems += filter(None, pool.map(lambda entry: problem(entry, end), entries))
    for each in problems:
        print(each)
    return 1 if problems else 0


def read(url: str, version: Path, inputs: list[dict[str, Any]], end: float) -> Entry:
    """Return the entry of a version's folder, which the server has loaded."""
    name = version.parent.name
    of_version = f"{url}/v2/models/{urllib.parse.quote(name)}/versions/{version.name}"
    groups = json.loads(get(f"{of_version}/config", end)).get("instance_group", [])
    found = processes(version)
    return Entry(
        name=name,
        url=of_version,
        row=request(f"{of_version}/infer", inputs, golden_row(version)),
        instances=sum(int(group.get("count", 1)) * max(len(group.get("gpus", [])), 1) for group in groups),
        running=len(found),
        computing_s=max(map(computing_s, found), default=0.0),
    )


def problem(entry: Entry, end: float) -> str | None:
    """Return an entry's problem, or None if it answers its golden row or finishes other requests."""
    if 0 < entry.running < entry.instances:
        return f"{entry.name} has {entry.running} of its {entry.instances} processes; the others have ended"
    if entry.computing_s > STUCK_S:
        return f"{entry.name} has a stuck process, which has computed one batch for {entry.computing_s:.0f} s"
    wait_s, why = FIRST_S, "no request was finished"
    try:
        before = finished(entry)
        while True:
            try:
                get(entry.row, min(end, time.monotonic() + wait_s))
                return None
            except urllib.error.HTTPError as error:
                why = reason(error)
                if not entry.running:  # no process is left that could answer another time
                    break
                time.sleep(min(1.0, max(end - time.monotonic(), 0.0)))
            except SILENCE:
                pass
            if finished(entry) > before:
                return None
            if time.monotonic() >= end:
                break
            wait_s *= 2
    except SILENCE as error:
        why = reason(error)
    return f"{entry.name} does not answer its golden row: {why}"


def finished(entry: Entry) -> int:
    """Return how many requests the entry has answered, by the server's statistics."""
    (statistics,) = json.loads(get(f"{entry.url}/stats", time.monotonic() + STATISTICS_S))["model_stats"]
    return int(statistics["inference_stats"]["success"]["count"])


def processes(version: Path) -> list[Path]:
    """Return the /proc folders of the Python backend's processes that run a version's model.py.

    A process that has ended shows no file.
    """
    model, found = str(version / "model.py").encode(), []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if model in path.read_bytes().split(b"\0"):
                found.append(path.parent)
        except OSError:
            continue  # it has just ended, or is another user's
    return found


def computing_s(process: Path) -> float:
    """Return the seconds that a process has computed its batch; 0 between batches and for an entry without the note."""
    try:
        for link in (process / "fd").iterdir():
            if str(link.readlink()).startswith(WORKING):
                (began_ns,) = struct.unpack("<q", link.read_bytes())
                return (time.monotonic_ns() - began_ns) / 1e9 if began_ns else 0.0
    except (OSError, struct.error):  # it has just ended, or is another user's
        pass
    return 0.0


def golden_row(version: Path) -> dict[str, np.ndarray]:
    """Return the input tensors of the first golden row, [1, width], by the entry's own code."""
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(version))
    try:
        module: Any = importlib.import_module("kernels.entry")
        document = module.read_document(version, check_files=False)  # a gigabyte of weights takes a second
        tensors: dict[str, np.ndarray] = document.inputs.decode(module.read_golden(version, document).X[:1])
        return tensors
    finally:
        sys.path.remove(str(version))
        for name in [name for name in sys.modules if name.partition(".")[0] == "kernels"]:
            del sys.modules[name]  # the next entry has its own


def request(url: str, inputs: list[dict[str, Any]], tensors: dict[str, np.ndarray]) -> urllib.request.Request:
    """Return the request that sends the tensors as binary data."""
    described, data = [], b""
    for tensor in inputs:
        name, datatype, array = tensor["name"], tensor["datatype"], tensors[tensor["name"]]
        if datatype == "BYTES":
            raw = b"".join(struct.pack("<I", len(text)) + text for text in array.ravel().tolist())
        else:
            raw = array.astype(TYPES[datatype]).tobytes()
        parameters = {"binary_data_size": len(raw)}
        described.append({"name": name, "datatype": datatype, "shape": list(array.shape), "parameters": parameters})
        data += raw
    header = json.dumps({"inputs": described}).encode()
    return urllib.request.Request(url, header + data, {"Inference-Header-Content-Length": str(len(header))})


def get(request: str | urllib.request.Request, end: float) -> bytes:
    """Return the answer's body; use no proxy and wait until `end` on the monotonic clock."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=max(end - time.monotonic(), 0.01)) as answer:
        body: bytes = answer.read()
    return body


def reason(error: Exception) -> str:
    """Return the server's message, or the error on the way to it."""
    return error.read().decode(errors="replace") if isinstance(error, urllib.error.HTTPError) else repr(error)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))  # type: ignore[arg-type]
