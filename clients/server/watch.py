"""A thread beside a running Triton server that reloads dead models and, on request, entries that changed on disk."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from triton_regressors.clients.client.client import Client
from triton_regressors.clients.errors import InferenceError
from triton_regressors.clients.server.entries import Signature, entry_directories, signature, unfinished

TICK_S = 1.0

Process = tuple[int, bool, list[str]]
"""Process id, whether the process is a zombie, and its arguments while it was running."""


class Watcher:
    """Looks after the models of one running Triton server, once a second.

    If a model's process ends by itself, for example killed for lack of memory, the Triton server does not start it
    again: every request to the model fails, while the server reports the model as ready. The process stays a zombie of
    the server, which is how the watcher recognises it. The model is then unloaded and loaded.

    With `poll_s`, new, changed and removed entries are loaded and unloaded, as the server does in its own mode `poll`.
    Unlike there, an entry is loaded only when its files are complete and did not change between two looks: a load
    without model.py hangs the server.

    Args:
        pid: the server's process id.
        repositories: its model repositories, by the paths that the server received.
        connect: makes a client that may load models.
        loading: the names of the models that are being loaded.
        say: tells the user one sentence.
        loaded: name → signature of each entry as it was when the server loaded it; used with `poll_s`.
        poll_s: seconds between looks at the repositories; None: none.
    """

    def __init__(
        self,
        pid: int,
        repositories: Sequence[Path],
        connect: Callable[[], Client],
        loading: Callable[[], list[str]],
        say: Callable[[str], None],
        loaded: dict[str, Signature],
        poll_s: float | None,
    ) -> None:
        self._pid = pid
        self._repositories = list(repositories)
        self._connect = connect
        self._loading = loading
        self._say = say
        self._loaded = loaded
        self._seen = dict(loaded)
        self._said: dict[str, str] = {}
        self._poll_s = poll_s
        self._next_poll_s = 0.0
        self._models: dict[int, tuple[str, str]] = {}  # process → the name and version that it runs
        self._ended: set[int] = set()  # processes that were dealt with
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tritonserver-watcher", daemon=True)

    def start(self) -> None:
        """Start watching; the server is ready."""
        self._note(children(self._pid))
        self._thread.start()

    def stop(self) -> None:
        """Stop watching; a load in progress ends when the server does."""
        self._stop.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout=0.5)

    def _run(self) -> None:
        while not self._stop.wait(TICK_S):
            try:
                self._mend()
                if self._poll_s is not None and time.monotonic() >= self._next_poll_s:
                    self._next_poll_s = time.monotonic() + self._poll_s - TICK_S / 2
                    self._poll()
            except InferenceError as error:  # the server is being stopped, or busy: the next look decides
                if not self._stop.is_set():
                    self._say_once("", f"The server cannot be asked about its models: {error}")
            except OSError as error:
                self._say_once("", f"The model repository cannot be read: {error}.")

    def _say_once(self, about: str, sentence: str) -> None:
        """Say a sentence unless it equals the last one about this entry, or about the server ("")."""
        if self._said.get(about) != sentence:
            self._said[about] = sentence
            self._say(sentence)

    def _note(self, processes: Iterable[Process]) -> list[int]:
        """Remember which model each process runs; return those that have ended."""
        ended = []
        for pid, has_ended, arguments in processes:
            if has_ended:
                ended.append(pid)
            elif len(arguments) > 1:
                for repository in self._repositories:
                    with contextlib.suppress(ValueError):
                        name, version, *_ = Path(arguments[1]).relative_to(repository).parts
                        self._models[pid] = (name, version)
        return ended

    def _mend(self) -> None:
        """Reload models with processes that had ended at the last look too, unless they are loading now."""
        ended = set(self._note(children(self._pid)))
        lasting, self._ended = ended & self._ended, ended
        broken = {self._models.pop(pid) for pid in lasting if pid in self._models}
        if not broken:
            return
        loading = self._loading()  # the server itself handles a process that dies during a load
        with self._connect() as client:
            ready = {(row["name"], row["version"]) for row in client.index() if row["state"] == "READY"}
            for name, version in sorted(broken & ready):
                if name not in loading:
                    self._reload(client, name, version)

    def _reload(self, client: Client, name: str, version: str) -> None:
        self._say(f"A process of '{name}', version {version}, has ended; the model is loaded again.")
        try:
            client.load(name, restart=True)
        except InferenceError as error:
            if not self._stop.is_set():
                self._say(f"'{name}' could not be loaded again: {error}")
        else:
            self._say(f"'{name}' answers again.")

    def _poll(self) -> None:
        before, self._seen = self._seen, {}
        directories = entry_directories(self._repositories)
        for name, directory in directories.items():
            with contextlib.suppress(FileNotFoundError):  # it changes during this look: the next one decides
                self._seen[name] = signature(directory)
        changed = [n for n, now in self._seen.items() if now and now != self._loaded.get(n) and now == before.get(n)]
        gone = [name for name in self._loaded if name not in self._seen]
        if not changed and not gone:
            return
        with self._connect() as client:
            for name in gone:
                del self._loaded[name]
                client.unload(name)
            for name in changed:
                if reason := unfinished(directories[name]):
                    self._say_once(name, f"'{name}' is not loaded: {reason}; it is loaded when it is complete.")
                    continue
                self._said.pop(name, None)
                self._loaded[name] = self._seen[name]
                try:
                    client.load(name)
                except InferenceError as error:
                    if not self._stop.is_set():
                        self._say(f"'{name}' did not load: {error}")


def children(pid: int) -> list[Process]:
    """Return the child processes of a process, as /proc tells."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (directory / "stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == pid:
                arguments = (directory / "cmdline").read_text(errors="surrogateescape").split("\0")
                found.append((int(directory.name), fields[0] == "Z", arguments))
    return found
