"""Ask every loaded entry of a Triton server for its first golden row: exit code 0 if all answer, else 1.

    python3 probe.py [URL [REPOSITORY]]        by default http://127.0.0.1:8000 and /models

The server goes on calling a model ready whose process has died; only a request shows it. Needs numpy and safetensors,
and no key. A model that is not loaded, or that holds no code of this project's to read golden rows with, is not asked.
"""

from __future__ import annotations

import http.client
import importlib
import json
import struct
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np

TYPES = {"FP32": np.float32, "FP64": np.float64, "INT64": np.int64}
TIMEOUT_S = 5


def main(url: str = "http://127.0.0.1:8000", repository: str = "/models") -> int:
    """Return the exit code."""
    try:
        get(f"{url}/v2/health/ready")
    except (OSError, http.client.HTTPException) as error:
        print(f"The Triton server is not ready: {reason(error)}")
        return 1
    failures = 0
    for entry in sorted(path for path in Path(repository).iterdir() if path.is_dir()):
        model = f"{url}/v2/models/{urllib.parse.quote(entry.name)}"
        try:
            metadata = json.loads(get(model))
        except (OSError, http.client.HTTPException, ValueError):
            continue  # not loaded
        version = entry / max(metadata["versions"], key=int)
        if not (version / "kernels" / "entry.py").is_file():
            continue
        try:
            ask(f"{model}/infer", metadata["inputs"], golden_row(version))
        except Exception as error:  # whatever it is, this entry did not answer
            failures += 1
            print(f"{entry.name} does not answer its golden row: {reason(error)}")
    return 1 if failures else 0


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


def ask(url: str, inputs: list[dict[str, Any]], tensors: dict[str, np.ndarray]) -> None:
    """Send the tensors as binary data; raise what goes wrong."""
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
    get(urllib.request.Request(url, header + data, {"Inference-Header-Content-Length": str(len(header))}))


def get(request: str | urllib.request.Request) -> bytes:
    """Return the answer's body, asked for without a proxy."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=TIMEOUT_S) as answer:
        body: bytes = answer.read()
    return body


def reason(error: Exception) -> str:
    """Return what the server said, or what went wrong on the way to it."""
    return error.read().decode(errors="replace") if isinstance(error, urllib.error.HTTPError) else repr(error)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
