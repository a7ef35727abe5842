"""`TritonServer`: a real Triton server on loopback, as a child of this process.

It needs no Docker: the server comes from the nvidia-pytriton wheel, from the directory that $TRITONSERVER_DIRECTORY
names (bin/tritonserver, backends/, libs/), or from /opt/tritonserver inside NVIDIA's container.
"""

import atexit
import contextlib
import math
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType

from triton_regressors.clients.client import admin_key as keys
from triton_regressors.clients.client.client import Client
from triton_regressors.clients.errors import ServerError
from triton_regressors.clients.server.entries import Selection, entry_directories, plain_paths, select
from triton_regressors.clients.server.guard import start_guard
from triton_regressors.clients.server.installation import Runtime, find_installation, prepare
from triton_regressors.clients.server.private_arguments import PrivacyError, launch
from triton_regressors.clients.server.process import exit_code, reap, wait_for
from triton_regressors.clients.server.server_log import Loads, LogLine, missing_model_file, own_line, readable_log_line
from triton_regressors.clients.server.startup import (
    HOST,
    PortTakenError,
    Progress,
    ending,
    not_loaded,
    pick_ports,
    wait_until_ready,
)
from triton_regressors.clients.server.watch import Watcher

__all__ = ["HOST", "LogLine", "ServerError", "TritonServer", "readable_log_line"]

SHARED_MEMORY = Path("/dev/shm")
_LOG_LINES = 20_000  # the newest are kept
_STARTS = 3  # attempts with other free ports, if a port is taken between our choice and the server's start
_RELEASES = 50  # checks, every 0.1 s, for the free ports of a server that ended, before it is started again
_DRAIN_S = 5  # the server's own limit for requests in flight when it is told to stop
_GRACE_S = 15.0  # then it is killed


class TritonServer:
    """Starts a Triton server that listens on 127.0.0.1 alone, and stops it without leaving anything behind.

        with TritonServer([Path("model_repository")]) as server:
            Client(server.grpc_url).predict("ridge", X)

    Several may run side by side. One object may be started and stopped repeatedly, by one thread at a time. It is for
    development: nothing is encrypted, everybody on this machine may query it, and a crafted request can end it.

    Loading, unloading and listing models, logging, tracing and shared memory need `admin_key`, as with
    docker/compose.yaml's server, because a model is code. Clients of the process that started the server have the key.
    No other user of the machine can read it, not even in the server's command line. If the system forbids ptrace, which
    this needs, the server loads and unloads nothing on request: `closed` then says why.

    A model whose process has died is loaded again, with a line in the log.

    Args:
        repositories: model repositories; each must exist, none need hold a model.
        models: the models to load at start; None: all of them.
        grpc_port, http_port, metrics_port: 0 is a free one.
        python: the interpreter whose packages the Python backend sees; None: the running one.
        poll_s: a number of seconds, 1 or more: the server looks for new, changed and removed entries at this interval,
            and loads or unloads them. None: only on request (`Client.load`), which works in either case.
        environment: variables for the server and its models, on top of this process's own.
        on_log: called with each line of the log, without its newline, in threads of the server's own.
        startup_timeout_s: the longest time without progress while the models are loaded; the whole start has no limit.
            Progress is a load that begins, gets a process, succeeds or fails, and CPU time of the server and its
            models; CPU time alone counts for at most ten times as long.
        complete_configs: let the server fill in configurations that leave out inputs or outputs. Entries that `export`
            writes leave out nothing, and it costs a second start of every Python model at each load.
        admin_key: None: $TRITON_ADMIN_KEY if it is set, else a random one.
        lenient: serve the models that load, if any does; `failures` has the others. Without it, one model that does not
            load is an error.
    """

    def __init__(
        self,
        repositories: Sequence[str | Path],
        *,
        models: Sequence[str] | None = None,
        grpc_port: int = 0,
        http_port: int = 0,
        metrics_port: int = 0,
        python: Path | None = None,
        poll_s: float | None = None,
        environment: Mapping[str, str] | None = None,
        on_log: Callable[[str], None] | None = None,
        startup_timeout_s: float = 120,
        complete_configs: bool = False,
        admin_key: str | None = None,
        lenient: bool = False,
    ) -> None:
        self.repositories = [Path(repository) for repository in repositories]
        self.models = None if models is None else list(models)
        self._chosen_ports = {"gRPC": grpc_port, "HTTP": http_port, "metrics": metrics_port}
        self._python = python
        self._poll_s = poll_s
        self._environment = dict(environment or {})
        self._on_log = self._listener = on_log
        self._startup_timeout_s = startup_timeout_s
        self._complete_configs = complete_configs
        self._lenient = lenient
        self.admin_key = keys.choose_key(admin_key)
        self.closed = ""  # why the running server loads and unloads nothing on request; empty: it does
        self.failures: dict[str, str] = {}  # name → reason, of the models that the last start did not load
        self._check_arguments()

        self._ports: dict[str, int] = {}
        self._lines: deque[str] = deque(maxlen=_LOG_LINES)
        self._loads = Loads()
        self._entries = Selection(None, {}, {}, strings=False)
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._watcher: Watcher | None = None
        self._guard: subprocess.Popen[str] | None = None
        self._scratch: Path | None = None
        self._shm_prefix = ""
        self._owner_pid = 0

    def __repr__(self) -> str:
        at = f"gRPC {self.grpc_url}, HTTP {self.http_url}" if self.running and self._ports else "not running"
        return f"<TritonServer of {', '.join(map(str, self.repositories))}: {at}>"

    @property
    def grpc_url(self) -> str:
        """`127.0.0.1:PORT`, once started."""
        return self._url("gRPC")

    @property
    def http_url(self) -> str:
        """`127.0.0.1:PORT`, once started."""
        return self._url("HTTP")

    @property
    def metrics_url(self) -> str:
        """`127.0.0.1:PORT`, once started; the metrics are at /metrics there."""
        return self._url("metrics")

    @property
    def pid(self) -> int:
        """The server's process id, which is its process group's too."""
        if self._process is None:
            raise ServerError("The Triton server is not running; call start() first.")
        return self._process.pid

    @property
    def running(self) -> bool:
        """True if the server's process is alive."""
        return self._process is not None and exit_code(self._process) is None

    @property
    def progress(self) -> tuple[int, int]:
        """The number of models loaded since this start, and the number to be loaded; for reading while it runs."""
        return len(self._loads.ready), len(self._entries.signatures)

    def ending(self) -> str:
        """Return how the server ended by itself: "was ended by SIGSEGV", or its exit code and last error."""
        code = None if self._process is None else exit_code(self._process)
        return "has not ended" if code is None else ending(code, tuple(self._lines))

    @property
    def log(self) -> str:
        """The output of the server and its models since the last start (the newest 20,000 lines)."""
        return "\n".join(tuple(self._lines))

    def __enter__(self) -> "TritonServer":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the server and wait until every wanted model is loaded, or has failed to.

        Raises:
            ServerError: a port is taken, something is missing on this machine, a model does not load (with its name
                and its reason; if `lenient`: none does), or there is no more progress. Nothing is left running then.
        """
        self._start(self._chosen_ports)

    def restart(self) -> None:
        """Start the server again after it ended by itself: at the same addresses, with the same key.

        Nothing is left of the ended server. The entries are those that the repositories hold now.

        Raises:
            ServerError: it has not ended, or does not start again. Nothing is left running then.
        """
        if self._process is None or self.running:
            raise ServerError("This Triton server has not ended by itself; call start(), or stop() first.")
        ports = dict(self._ports)
        self._stop(grace_s=0)
        for _ in range(_RELEASES):  # until the system has taken the ports from the processes that were ended
            with contextlib.suppress(PortTakenError):
                pick_ports(ports)
                break
            time.sleep(0.1)
        self._start(ports)

    def _start(self, chosen_ports: Mapping[str, int]) -> None:
        if self._process is not None:
            raise ServerError("This Triton server has been started already; call stop() first.")
        for repository in self.repositories:
            if not repository.is_dir():
                raise ServerError(f"The model repository {repository} is not a directory.")
        installation = find_installation(self.repositories[0])
        if not os.access(SHARED_MEMORY, os.W_OK):
            raise ServerError(
                f"The Triton server's Python backend needs {SHARED_MEMORY}, which cannot be written to here."
            )
        self._entries = select(self.repositories, self.models)
        self.failures = dict(self._entries.left_out)
        if self.failures and not self._lenient:
            raise not_loaded(self.failures, ())
        for attempt in range(1, _STARTS + 1):
            self._lines.clear()
            self._loads = Loads()
            self._listener = self._on_log
            # Not in /tmp: a cleaner of old files there would remove it while a server runs for weeks.
            self._scratch = Path(tempfile.mkdtemp(prefix="triton-regressors-server-", dir=SHARED_MEMORY))
            self._paths = plain_paths(self.repositories, self._scratch)
            self._shm_prefix = f"triton-regressors-{os.getpid()}-{secrets.token_hex(4)}-"
            try:
                self._ports = pick_ports(chosen_ports)
                runtime = prepare(installation, self._python, self._environment, self._scratch, self._entries.strings)
                self._launch(runtime)
                self._wait_until_ready()
                self._watch()
            except PortTakenError as taken:
                self._stop(grace_s=0)
                if chosen_ports[taken.service] or attempt == _STARTS:
                    raise ServerError(
                        f"The {taken.service} port {taken.port} on {HOST} is taken; "
                        "choose another, or 0 for a free one.",
                        log=self.log,
                    ) from None
            except BaseException:
                self._stop(grace_s=0)
                raise
            else:
                return

    def stop(self) -> None:
        """Stop the server, which first finishes requests in flight, for at most 5 s.

        Its models' processes, its temporary directory and its shared memory are removed too. The call is harmless if
        the server is not running.
        """
        self._stop(_GRACE_S)

    def _stop(self, grace_s: float) -> None:
        if self._owner_pid not in (0, os.getpid()):
            return  # a fork of the process that started it
        process, self._process = self._process, None
        if self._watcher is not None:
            self._watcher.stop()
            self._watcher = None
        try:
            if process is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGTERM)
                wait_for(process, grace_s)
        finally:
            if process is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # the server itself, or model processes that outlived it
                reap(process)
            self._clean_up()

    def _clean_up(self) -> None:
        atexit.unregister(self.stop)
        keys.forget(self._addresses())
        if self._reader is not None:
            self._reader.join(timeout=5)
            self._reader = None
        if self._shm_prefix:
            for leftover in SHARED_MEMORY.glob(f"{self._shm_prefix}*"):
                leftover.unlink(missing_ok=True)
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None
        if self._guard is not None:
            with contextlib.suppress(OSError):
                self._guard.communicate("stopped\n")
            self._guard = None

    def _check_arguments(self) -> None:
        if not self.repositories:
            raise ServerError("TritonServer needs at least one model repository.")
        for service, port in self._chosen_ports.items():
            if not 0 <= port <= 65535:
                raise ServerError(f"The {service} port is {port}; it must be 1 to 65535, or 0 for a free one.")
        chosen = [port for port in self._chosen_ports.values() if port]
        if len(set(chosen)) < len(chosen):
            raise ServerError(f"The gRPC, HTTP and metrics ports must differ; they are {', '.join(map(str, chosen))}.")
        if self._poll_s is not None and not (math.isfinite(self._poll_s) and self._poll_s >= 1):
            raise ServerError(f"poll_s is {self._poll_s}; it must be a number of seconds, 1 or more.")
        if self._poll_s is not None and self.models is not None:
            raise ServerError("models cannot be chosen when the Triton server polls: it loads all of them.")

    def _url(self, service: str) -> str:
        if not self._ports:
            raise ServerError("The Triton server has no address yet; call start() first.")
        return f"{HOST}:{self._ports[service]}"

    def _addresses(self) -> list[str]:
        return [self._url(service) for service in self._ports]

    def _command(self, runtime: Runtime, paths: Sequence[Path], control: Sequence[str]) -> list[str]:
        command = [str(runtime.executable), f"--backend-directory={runtime.backends}"]
        command += [f"--model-repository={path}" for path in paths]
        for service, port in self._ports.items():
            command += [f"--{service.lower()}-address={HOST}", f"--{service.lower()}-port={port}"]
        if not self._complete_configs:
            command.append("--disable-auto-complete-config")
        return [
            *command,
            *control,
            "--exit-on-error=false",  # keeps it alive until its reasons are read
            "--strict-readiness=false",  # one model that a client unloads must not make the whole server unready
            f"--exit-timeout-secs={_DRAIN_S}",
            f"--backend-config=python,shm-region-prefix-name={self._shm_prefix}",
            f"--backend-config=python,stub-timeout-seconds={math.ceil(self._startup_timeout_s) + 30}",
        ]

    def _loaded_at_start(self) -> list[str]:
        return [f"--load-model={name}" for name in (["*"] if self._entries.wanted is None else self._entries.wanted)]

    def _wanted_paths(self) -> list[Path]:
        """Return the repositories, or a repository of links to the wanted entries if not all are to be loaded."""
        if self._entries.wanted is None:
            return self._paths
        assert self._scratch is not None
        wanted = self._scratch / "wanted"
        wanted.mkdir()
        entries = entry_directories(self._paths)
        for name in self._entries.wanted:
            if name in entries:
                (wanted / name).symlink_to(entries[name])
        return [wanted]

    def _launch(self, runtime: Runtime) -> None:
        self._owner_pid = os.getpid()
        atexit.register(self.stop)
        private = keys.restrictions(self.admin_key)
        explicit = ["--model-control-mode=explicit", *self._loaded_at_start(), *private]
        # A session of its own: Ctrl-C in a terminal reaches us, and we stop the server in our own order.
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "start_new_session": True}
        try:
            command = self._command(runtime, self._paths, explicit)
            self._process = launch(command, private, runtime.environment, **options)
            self.closed = ""
        except PrivacyError as error:
            self.closed = f"its key cannot be kept from other users of this machine, since {error}"
            command = self._command(runtime, self._wanted_paths(), keys.closures())
            self._process = launch(command, {}, runtime.environment, **options)
        process = self._process
        self._reader = threading.Thread(target=self._read_log, args=(process,), name="tritonserver-log", daemon=True)
        self._reader.start()
        assert self._scratch is not None
        self._guard = start_guard(process.pid, self._scratch, SHARED_MEMORY / self._shm_prefix)

    def _read_log(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                self._tell(line.rstrip("\n"))
                if (missing := missing_model_file(line.rstrip("\n"))) is not None:
                    self._say(
                        f"'{missing.parent.parent.name}' has no {missing.parent.name}/{missing.name}: its load hangs "
                        "until the Triton server is stopped; complete the entry and start again."
                    )

    def _tell(self, line: str) -> None:
        self._lines.append(line)
        self._loads.note(line)
        if self._listener is not None:
            try:
                self._listener(line)
            except Exception as error:  # reading must go on, or the server would block
                self._lines.append(f"on_log failed and is not called again: {error!r}")
                self._listener = None

    def _say(self, message: str) -> None:
        """Add a line of our own to the server's log."""
        self._tell(own_line(message))

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        headers = {} if self.closed else keys.key_headers("http", self.admin_key)
        if self.closed:
            self._say(f"The Triton server loads and unloads no model on request: {self.closed}.")
        else:
            keys.remember(self._addresses(), self.admin_key)
        self.failures = self._entries.left_out | wait_until_ready(
            self._ports,
            self._entries.wanted,
            Progress(self.pid, self._loads, self._startup_timeout_s),
            partial(exit_code, self._process),
            lambda: tuple(self._lines),
            headers,
        )
        if self.failures and not (self._lenient and set(self._entries.signatures) - set(self.failures)):
            raise not_loaded(self.failures, tuple(self._lines))

    def _watch(self) -> None:
        if self.closed and self._poll_s is not None:
            raise ServerError(f"The Triton server cannot poll, since it loads no model later: {self.closed}.")
        if self.closed:
            return
        self._watcher = Watcher(
            self.pid,
            self._paths,
            lambda: Client(self.grpc_url, admin_key=self.admin_key),
            self._loads.unfinished,
            self._say,
            dict(self._entries.signatures),
            self._poll_s,
        )
        self._watcher.start()
