"""Functions that poll, wait for and reap a child process without a lock.

`Popen.poll` and `Popen.wait` hold a lock of the object. An exception that a signal handler raises inside them, such
as Ctrl-C's KeyboardInterrupt, can leave it held, and the next `wait` then never returns.
"""

import contextlib
import os
import subprocess
import time

_TICK_S = 0.01


def exit_code(process: "subprocess.Popen[str]") -> int | None:
    """Return a process's exit code, less than 0 for a signal; None while it runs. The process is not reaped.

    The code is 0 if the system does not report it, because the process is not a child of this one or is reaped already.
    """
    if process.returncode is not None:
        return process.returncode
    try:
        ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return 0
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def wait_for(process: "subprocess.Popen[str]", seconds: float) -> None:
    """Wait until a process has ended, at most this many seconds."""
    until = time.monotonic() + seconds
    while exit_code(process) is None and time.monotonic() < until:
        time.sleep(_TICK_S)


def reap(process: "subprocess.Popen[str]") -> None:
    """Wait until a process has ended, and let the system forget it."""
    if process.returncode is None:
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        process.returncode = exit_code(process)
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, process.pid, os.WEXITED)
