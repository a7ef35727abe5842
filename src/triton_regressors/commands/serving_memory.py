"""What a Triton server and the processes of its models take of this machine's memory, by Linux' own account.

What a process has for itself (anonymous pages, Linux' RssAnon) is added up. Files that are mapped, libraries above all,
and shared memory count once, as much as the process has that maps most. Every model has answered its warm-up by then,
which is a full batch as entries are exported.
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
    """What the server's process has in memory, and each process of a model; whether there is a GPU that they use."""

    server: Resident
    instances: Sequence[Resident]
    gpu: bool

    def total(self, least: int = 0) -> int:
        """Return the bytes of all, where each process of a model has `least` of its own at least."""
        everything = [self.server, *self.instances]
        own = self.server.own + sum(max(each.own, least) for each in self.instances)
        return own + max(each.files for each in everything) + max(each.shared for each in everything)


def measure(repository: Path) -> ServingMemory:
    """Start a Triton server on the whole repository, and return what it takes when every model is ready.

    Raises:
        TritonRegressorsError: the server cannot be started here, or a model does not load; it says why.
    """
    from triton_regressors.clients.server import TritonServer
    from triton_regressors.clients.server_log import gpu_is_visible

    with TritonServer([repository]) as server:
        own, *rest = [resident(pid) for pid in family(server.pid)]
    return ServingMemory(own, rest, gpu_is_visible())


def family(pid: int, proc: Path = PROC) -> list[int]:
    """Return a process and all that it or its children started, itself first."""
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
    """Return what a process has in memory.

    Raises:
        TritonRegressorsError: it has ended, or this system does not tell.
    """
    try:
        text = (proc / str(pid) / "status").read_text()
    except OSError as error:
        raise TritonRegressorsError(f"The memory of process {pid} cannot be read: {error.strerror}.") from error
    found = {name: int(kib) * 1024 for name, kib in re.findall(r"(?m)^Rss(Anon|File|Shmem):\s+(\d+) kB$", text)}
    if len(found) < 3:
        raise TritonRegressorsError(f"The memory of process {pid} cannot be read: this system does not report it.")
    return Resident(found["Anon"], found["File"], found["Shmem"])
