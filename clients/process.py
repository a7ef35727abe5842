"""A child process that is looked at, waited for and reaped without a lock.

`Popen.poll` and `Popen.wait` hold a lock of the object's. An exception that a signal handler raises inside them, such
as Ctrl-C's KeyboardInterrupt, can leave it held, and the next `wait` then never returns.
"""

import contextlib
import os
import subprocess
import time

_TICK_S = 0.01


def exit_code(process: "subprocess.Popen[str]") -> int | None:
    """Return what a process ended with, less than 0 for a signal; None while it runs. It is not reaped.

    0 where the system does not tell, since the process is no child of this one, or reaped by somebody else.
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
    """Wait until a process has ended, so long at most."""
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
