"""The command `serve`: what it prints, and how it ends."""

import importlib
import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from tests.clients.conftest import MODEL
from tests.processes import running
from triton_regressors.clients.client.client import Client
from triton_regressors.clients.errors import InvalidRequest, ServerError
from triton_regressors.clients.server.server_log import gpu_is_visible

pytestmark = pytest.mark.server
WriteModel = Callable[..., Path]
X = np.ones((1, 3), np.float32)
command = importlib.import_module("triton_regressors.commands.serve")


@contextmanager
def serving(repository: Path, stderr: int = subprocess.STDOUT) -> Iterator["subprocess.Popen[str]"]:
    code = "import sys, typer; from triton_regressors.commands.serve import serve; typer.run(serve)"
    command = [sys.executable, "-c", code, str(repository), "--grpc-port=0", "--http-port=0", "--metrics-port=0"]
    environment = {**os.environ, "COLUMNS": "200", "PYTHONUNBUFFERED": "1"}
    environment.pop("TRITON_ADMIN_KEY", None)
    pipes = {"stdout": subprocess.PIPE, "stderr": stderr}
    with running(command, text=True, env=environment, **pipes) as process:
        yield process


def test_one_that_nobody_reads_ends(tmp_path: Path, write_model: WriteModel) -> None:
    """The case is `serve 2>&1 | head -1`, during the start."""
    write_model(tmp_path, "sums")
    with serving(tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait() in (0, 1)
    assert list(Path("/dev/shm").glob(f"triton-regressors-{process.pid}-*")) == []


def test_the_log_goes_to_stderr_without_what_frightens(tmp_path: Path, write_model: WriteModel) -> None:
    write_model(tmp_path / "repository", "sums")
    with (tmp_path / "log").open("w") as log, serving(tmp_path / "repository", stderr=log.fileno()) as process:
        assert process.stdout is not None
        shown = [process.stdout.readline()]
        while "export TRITON_ADMIN_KEY=" not in shown[-1]:
            shown.append(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == ""
        assert process.wait() == 0
    said = (tmp_path / "log").read_text()
    assert shown[0].strip().startswith("Serving")
    assert not re.search(r"\d\d:\d\d:\d\d (info|warning|error)", "".join(shown))
    assert "successfully loaded 'sums'" in said
    assert said.endswith("The Triton server has stopped.\n")
    if not gpu_is_visible():
        assert said.startswith("No NVIDIA GPU is visible here: models run on the CPU.\n")
        assert not re.search("warning|error|CUDA|NVML|DCGM", said, re.IGNORECASE)


def test_a_terminal_shows_how_many_are_ready(tmp_path: Path, write_model: WriteModel) -> None:
    for name in "ab":
        write_model(tmp_path, name)
    terminal, stderr = os.openpty()
    with serving(tmp_path, stderr=stderr):
        os.close(stderr)
        shown = b""
        while b"2 of 2 models ready" not in shown:
            shown += os.read(terminal, 4096)
        os.close(terminal)
    assert b"0 of 2 models ready" in shown


def server_of(process: "subprocess.Popen[str]") -> int:
    """The process id of the Triton server that `serve` runs now."""
    for pid in Path(f"/proc/{process.pid}/task").glob("*/children"):
        for child in pid.read_text().split():
            if "tritonserver\0" in Path(f"/proc/{child}/cmdline").read_text():
                return int(child)
    raise AssertionError("no Triton server runs")


def read_until(process: "subprocess.Popen[str]", words: str) -> str:
    """Return a process's output up to the line that holds the words."""
    assert process.stdout is not None
    shown = ""
    for line in process.stdout:
        shown += line
        if words in line:
            return shown
    raise AssertionError(f"it ended without {words!r}:\n{shown}")


def test_a_server_that_dies_is_started_again_with_its_addresses_and_its_key(
    tmp_path: Path, write_model: WriteModel
) -> None:
    write_model(tmp_path, "sums")
    with serving(tmp_path) as process:
        shown = read_until(process, "export TRITON_ADMIN_KEY=")
        url = re.findall(r"gRPC\s+│\s+(127\.0\.0\.1:\d+)", shown)[0]
        key = shown.rpartition("=")[2].strip()
        died = server_of(process)
        os.kill(died, signal.SIGSEGV)
        shown = read_until(process, "The Triton server answers again.")
        assert "The Triton server was ended by SIGSEGV. It is started again in 1 s.\n" in shown
        assert server_of(process) != died
        with Client(url, admin_key=key) as client:
            assert client.predict("sums", X).shape == (1,)
            client.load("sums")
        process.terminate()
        assert process.stdout is not None
        assert process.stdout.read().endswith("The Triton server has stopped.\n")
        assert process.wait() == 0
    assert list(Path("/dev/shm").glob(f"triton-regressors-{process.pid}-*")) == []


def test_it_stops_while_it_waits_to_start_again(tmp_path: Path, write_model: WriteModel) -> None:
    write_model(tmp_path, "sums")
    with serving(tmp_path) as process:
        read_until(process, "export TRITON_ADMIN_KEY=")
        os.kill(server_of(process), signal.SIGSEGV)
        read_until(process, "It is started again in 1 s.")
        process.terminate()
        assert process.stdout is not None
        assert process.stdout.read().endswith("The Triton server has stopped.\n")
        assert process.wait() == 0
    assert list(Path("/dev/shm").glob(f"triton-regressors-{process.pid}-*")) == []


class Dying:
    """A server that ends whenever it is looked at, and starts again so often."""

    running, log = False, "last words"

    def __init__(self, starts: int) -> None:
        self.starts = starts

    def ending(self) -> str:
        return "was ended by SIGSEGV"

    def restart(self) -> None:
        if not self.starts:
            raise ServerError("No model loads.", log="of the start")
        self.starts -= 1


@pytest.mark.parametrize(
    ("starts", "waits", "says", "log"),
    [
        (99, [1, 2, 4, 8, 16], "was ended by SIGSEGV, for the 6th time in succession.", "last words"),
        (2, [1, 2, 4], "was ended by SIGSEGV and did not start again: No model loads.", "of the start"),
    ],
)
def test_a_server_that_dies_again_and_again_is_given_up(
    monkeypatch: pytest.MonkeyPatch, starts: int, waits: list[int], says: str, log: str
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(command, "time", SimpleNamespace(sleep=slept.append, monotonic=lambda: 0.0))
    with pytest.raises(ServerError, match=f"^The Triton server {says}$") as caught:
        command._keep_running(Dying(starts), Console(quiet=True))
    assert (slept, caught.value.log) == (waits, log)


def test_one_that_ran_long_is_not_counted_with_those_before(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    now = itertools.count(step=100.0)
    monkeypatch.setattr(command, "time", SimpleNamespace(sleep=slept.append, monotonic=lambda: next(now)))
    with pytest.raises(ServerError, match="did not start again"):
        command._keep_running(Dying(9), Console(quiet=True))
    assert slept == [1] * 10


def test_a_server_without_model_control_says_so_in_place_of_a_key() -> None:
    server: Any = SimpleNamespace(closed="ptrace is not allowed here")
    says = "While this server runs, models cannot be loaded, unloaded or compared: ptrace is not allowed here."
    assert str(command._how_to_load(server)) == says


def test_until_a_signal(tmp_path: Path, write_model: WriteModel) -> None:
    repository = tmp_path / "[bold] [/x]"
    write_model(repository, "sums")
    write_model(repository, "loud", code='print("[/x] [red]literally", flush=True)\n' + MODEL)
    write_model(repository, "broken", code="import no_such_package")
    (repository / "stray").mkdir()
    with serving(repository) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "export TRITON_ADMIN_KEY=" in line:
                break
        shown = "".join(lines)
        url = re.search(r"gRPC\s+│\s+(127\.0\.0\.1:\d+)", shown)
        assert url, shown
        assert re.search(r"sums\s+│\s+1\s+│\s+READY", shown)
        assert re.search(r"broken +│ +│ not loaded: ModuleNotFoundError: No module named 'no_such_package'", shown)
        assert re.search(r"stray +│ +│ not loaded: failed to open text file", shown)
        assert re.search(r"Serving .*\[bold\] \[/x\]", shown)
        assert "[/x] [red]literally" in shown
        assert re.search(r"\d\d:\d\d:\d\d info +successfully loaded 'sums'", shown)
        assert "+--" not in shown
        with Client(url[1]) as client:
            assert client.predict("sums", X).shape == (1,)
            with pytest.raises(InvalidRequest, match="holders of its key"):
                client.load("sums")
        with Client(url[1], admin_key=lines[-1].rpartition("=")[2].strip()) as client:
            client.load("sums")
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)  # which no result depends on: the second signal comes while it stops, or after it has
        process.send_signal(signal.SIGTERM)  # one who cannot wait does not interrupt the stopping
        rest = process.stdout.read()
        assert process.wait() == 0, rest
    assert rest.splitlines()[-1] == "The Triton server has stopped."
    assert "Traceback" not in rest
    assert list(Path("/dev/shm").glob(f"triton-regressors-{process.pid}-*")) == []
