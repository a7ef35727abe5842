"""A shell that outlives this process if this process is killed, and then ends the server that the process started."""

import subprocess
from pathlib import Path

# Its standard input ends with our process.
# $1: the server's process id, $2: its directory, $3: the beginning of its shared memory files' names.
_SCRIPT = """
trap '' HUP INT QUIT TERM
read -r line && exit 0
kill -TERM "$1" 2>/dev/null
for _ in 1 2 3 4 5 6 7 8 9 10; do kill -0 "$1" 2>/dev/null || break; sleep 1; done
kill -KILL "-$1" 2>/dev/null
rm -rf "$2"; rm -f "$3"*
"""


def start_guard(pid: int, directory: Path, shared_memory: Path) -> "subprocess.Popen[str]":
    """Guard a server and its process group; a line on the guard's standard input lets it go.

    Args:
        pid: the server's, which leads its group.
        directory: removed with the server.
        shared_memory: the beginning of the paths of the files that are removed too.
    """
    return subprocess.Popen(
        ["/bin/sh", "-c", _SCRIPT, "guard", str(pid), str(directory), str(shared_memory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
