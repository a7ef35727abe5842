"""Processes that tests start end with them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import MARK, running
from tests.waiting import wait_for

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
PYTEST = f"""
import os, subprocess, time
from tests.processes import guard_descendants

guard = guard_descendants(patience_s=0)
child = subprocess.Popen({SLEEP!r}, start_new_session=True)
print(guard.pid, child.pid, flush=True)
time.sleep(600)
"""


def alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_process_ends_with_its_block_though_the_block_fails() -> None:
    with pytest.raises(RuntimeError), running(SLEEP) as process:
        raise RuntimeError
    assert process.returncode == -9


def test_what_a_killed_pytest_started_ends_and_its_guard_too() -> None:
    root = Path(__file__).parents[1]
    command = [sys.executable, "-c", PYTEST]
    with running(command, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        assert process.stdout is not None
        guard, child = map(int, process.stdout.readline().split())
        assert alive(child)
        process.kill()
    wait_for(lambda: not alive(child) and not alive(guard))


def test_this_process_is_guarded() -> None:
    assert os.environ[MARK].partition("-")[0] == str(os.getpid())
