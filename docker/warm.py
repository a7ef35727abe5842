"""Fill the kernel cache for a repository before the first replica starts: load it once, ask every entry, and stop.

    python3 warm.py [REPOSITORY]        by default /mnt/models

The script runs in the server's image on a GPU like those that will serve: kernels are compiled for its architecture.
$TRITON_CACHE_DIR and $CUDA_CACHE_PATH locate the cache, which is found again only under the same path. The script
prints a sentence and exits with code 1 if an entry does not load or answer, or if nothing was compiled.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
from collections.abc import Mapping, Sequence
from pathlib import Path

import probe  # type: ignore[import-not-found]  # it lies beside this file

LIMIT_S, ANSWER_S, END_S = 1800, 60, 60
FOLDERS = ("TRITON_CACHE_DIR", "CUDA_CACHE_PATH")


def main(
    repository: str = "/mnt/models",
    command: Sequence[str] = ("tritonserver",),
    environment: Mapping[str, str] = os.environ,
) -> int:
    """Return the exit code. `command` starts the Triton server, in `environment`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = [
        f"--model-repository={repository}",
        *("--http-address=127.0.0.1", f"--http-port={port}", "--allow-grpc=false", "--allow-metrics=false"),
        *("--model-control-mode=none", "--disable-auto-complete-config", "--log-info=false"),
    ]
    start = time.monotonic()
    server = subprocess.Popen([*command, *options], env=dict(environment))
    try:
        if not listens(server, f"http://127.0.0.1:{port}"):
            print(f"The Triton server did not load {repository}; its log says why.")
            return 1
        if probe.main(f"http://127.0.0.1:{port}", repository, "ready", ANSWER_S):
            return 1
    finally:
        server.terminate()
        try:
            server.wait(timeout=END_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
    folders = [Path(environment[name]) for name in FOLDERS if name in environment]
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    if not files:
        print(f"No kernel was compiled: no entry of {repository} computes on a GPU here.")
        return 1
    size = sum(path.stat().st_size for path in files)
    seconds = time.monotonic() - start
    where = " and ".join(map(str, folders))
    print(f"Every entry was loaded and asked in {seconds:.1f} s; {where} hold {len(files)} files, {size / 1e6:.1f} MB.")
    return 0


def listens(server: subprocess.Popen[bytes], url: str) -> bool:
    """Wait until the server answers, that is, has loaded everything; return False if it ended or took too long."""
    end = time.monotonic() + LIMIT_S
    while server.poll() is None and time.monotonic() < end:
        try:
            probe.get(f"{url}/v2/health/ready", time.monotonic() + 5)
        except (OSError, urllib.error.HTTPError):
            time.sleep(0.1)
        else:
            return True
    return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]) if len(sys.argv) > 1 else main())
