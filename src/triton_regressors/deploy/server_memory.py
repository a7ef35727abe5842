"""The memory of a Triton server and of its models' processes on this machine, from Linux's own figures.

The processes' own memory (anonymous pages, Linux's RssAnon) is added up. Mapped files, mostly libraries, and shared
memory count once, with the amount of the process that maps most. Every model has answered its warm-up before the
measurement; as exported, the warm-up is a full batch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from triton_regressors.errors import TritonRegressorsError

PROC = Path("/proc")


@dataclass(frozen=True)
class Resident:
    """Bytes of a process in memory: its own, of files that it maps, and of shared memory."""

    own: int
    files: int
    shared: int


@dataclass(frozen=True)
class ServingMemory:
    """The memory of the server's process and of each model process, and whether there is a GPU that they use."""

    server: Resident
    instances: Sequence[Resident]
    gpu: bool

    def total(self, least: int = 0) -> int:
        """Return the bytes of all processes; each process of a model counts at least `least` bytes of its own."""
        everything = [self.server, *self.instances]
        own = self.server.own + sum(max(each.own, least) for each in self.instances)
        return own + max(each.files for each in everything) + max(each.shared for each in everything)


def measure(repository: Path) -> ServingMemory:
    """Start a Triton server on the whole repository, and return its memory when every model is ready.

    Raises:
        TritonRegressorsError: the server cannot be started here, or a model does not load; the message says why.
    """
    from triton_regressors.clients.server.server_log import gpu_is_visible
    from triton_regressors.clients.server.triton_server import TritonServer

    with TritonServer([repository]) as server:
        own, *rest = [resident(pid) for pid in family(server.pid)]
    return ServingMemory(own, rest, gpu_is_visible())


def family(pid: int, proc: Path = PROC) -> list[int]:
    """Return a process and all its descendants, the process itself first."""
    parents = {}
    for path in proc.glob("[0-9]*"):
        try:
            status = (path / "stat").read_text()
        except OSError:
            continue  # it has ended
        parents[int(path.name)] = int(status.rpartition(")")[2].split()[1])
    found = [pid]
    for each in found:
        found += sorted(child for child, parent in parents.items() if parent == each)
    return found


def resident(pid: int, proc: Path = PROC) -> Resident:
    """Return the memory of a process.

    Raises:
        TritonRegressorsError: the process has ended, or this system does not report its memory.
    """
    try:
        text = (proc / str(pid) / "status").read_text()
    except OSError as error:
        raise TritonRegressorsError(f"The memory of process {pid} cannot be read: {error.strerror}.") from error
    found = {name: int(kib) * 1024 for name, kib in re.findall(r"(?m)^Rss(Anon|File|Shmem):\s+(\d+) kB$", text)}
    if len(found) < 3:
        raise TritonRegressorsError(f"The memory of process {pid} cannot be read: this system does not report it.")
    return Resident(found["Anon"], found["File"], found["Shmem"])
