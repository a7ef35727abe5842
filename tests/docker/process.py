"""A Triton server as a container starts it: a process of its own with given options, and no watcher beside it."""

from __future__ import annotations

import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.waiting import PATIENCE_S, wait_for
from triton_regressors.clients.server.installation import find_installation, prepare


@dataclass(frozen=True)
class Process:
    """A running Triton server: its process, and its addresses as 'host:port'."""

    process: subprocess.Popen[bytes]
    http: str
    grpc: str
    log: Path

    @property
    def url(self) -> str:
        return f"http://{self.http}"

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/v2/health/ready", timeout=30) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.HTTPError):
            return False


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


@contextmanager
def started(models: Path, scratch: Path, *options: str) -> Iterator[Process]:
    """Start a server on a repository and wait until it is ready; `scratch` is a new folder of its own."""
    scratch.mkdir(parents=True)
    (scratch / "runtime").mkdir()
    runtime = prepare(find_installation(scratch), None, {}, scratch / "runtime")
    http, grpc = free_ports(2)
    shared_memory = f"test-docker-{http}-"  # a killed process leaves its own behind
    command = [str(runtime.executable), f"--model-repository={models}", f"--backend-directory={runtime.backends}"]
    command += ["--http-address=127.0.0.1", "--grpc-address=127.0.0.1", "--allow-metrics=false", *options]
    command += [f"--http-port={http}", f"--grpc-port={grpc}"]
    command += [f"--backend-config=python,shm-region-prefix-name={shared_memory}"]
    log = scratch / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=runtime.environment)
    running = Process(process, f"127.0.0.1:{http}", f"127.0.0.1:{grpc}", log)

    def ready() -> bool:
        assert process.poll() is None, log.read_text()
        return running.ready()

    try:
        wait_for(ready)
        yield running
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for leftover in Path("/dev/shm").glob(f"{shared_memory}*"):
            leftover.unlink()
