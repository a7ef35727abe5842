"""A child process is polled, waited for and reaped, whatever the state of its `Popen`'s lock."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from triton_regressors.clients.server.process import exit_code, reap, wait_for


def child(code: str) -> "subprocess.Popen[str]":
    """A Python process whose `Popen` was left by an exception inside `poll`, its lock held."""
    process = subprocess.Popen([sys.executable, "-c", code], text=True)
    process._waitpid_lock.acquire()  # type: ignore[attr-defined]
    return process


@pytest.mark.parametrize(
    ("code", "expected"),
    [("raise SystemExit(3)", 3), ("", 0), ("import os; os.kill(os.getpid(), 11)", -signal.SIGSEGV)],
)
def test_one_that_ends(code: str, expected: int) -> None:
    process = child(code)
    wait_for(process, 30)
    assert exit_code(process) == exit_code(process) == expected
    assert process.returncode is None, "it is reaped where it should only be looked at"
    reap(process)
    assert process.returncode == exit_code(process) == expected
    with pytest.raises(ChildProcessError):
        os.waitpid(process.pid, 0)
    reap(process)


def test_one_that_runs() -> None:
    process = child("import time; time.sleep(60)")
    began = time.monotonic()
    wait_for(process, 0.05)
    assert time.monotonic() - began >= 0.05
    assert exit_code(process) is None
    process.kill()
    reap(process)
    assert exit_code(process) == -signal.SIGKILL


@pytest.mark.parametrize("look", [exit_code, reap])
def test_one_that_somebody_else_reaped(look: "Callable[[subprocess.Popen[str]], object]") -> None:
    process = child("")
    os.waitpid(process.pid, 0)
    look(process)
    assert exit_code(process) == 0
    process.returncode = 0
