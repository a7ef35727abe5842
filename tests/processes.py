"""Processes that tests start, and that end with the test's block or with a killed pytest."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

MARK = "TRITON_REGRESSORS_TESTED_BY"
"""A variable of the environment of each process that the tests start: which pytest process started it."""
PATIENCE_S = 20
"""The guard's wait for processes that end by themselves, as the guard of a Triton server does after at most 10 s."""

_GUARD = """
import os, signal, sys, time

def marked():
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if sys.argv[1].encode() in file.read().split(b"\\0"):
                        found.append(int(name))
            except OSError:
                pass
    return found

for each in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
    signal.signal(each, signal.SIG_IGN)
sys.stdin.read()
until = time.monotonic() + float(sys.argv[2])
while marked() and time.monotonic() < until:
    time.sleep(0.2)
for _ in range(50):
    left = marked()
    for pid in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    if not left:
        break
    time.sleep(0.1)
"""


@contextmanager
def running(command: Sequence[str], **options: Any) -> Iterator["subprocess.Popen[Any]"]:
    """Start a process, and kill it where it still runs at the end of the block, however the block ends.

    `with subprocess.Popen(...)` waits instead: a test that fails or exceeds its time would wait for ever.
    """
    with subprocess.Popen(command, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def processes_with(argument: str) -> list[int]:
    """Return the processes that have an argument in their command line; others may end while they are looked at."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if argument.encode() in (path / "cmdline").read_bytes().split(b"\0"):
                found.append(int(path.name))
    return found


def guard_descendants(patience_s: float = PATIENCE_S) -> "subprocess.Popen[bytes]":
    """Start a process that outlives this one and then kills whatever this one started and left behind.

    Processes are told by a variable of the environment, which they hand on to those that they start. The guard waits
    for the end of its standard input, which this process alone holds, so that it notices a SIGKILL too.
    """
    mark = f"{os.getpid()}-{os.urandom(4).hex()}"
    environment = {name: value for name, value in os.environ.items() if name != MARK}
    guard = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _GUARD, f"{MARK}={mark}", str(patience_s)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )
    os.environ[MARK] = mark
    return guard
