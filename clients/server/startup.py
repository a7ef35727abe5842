"""The start of a launched Triton server until it is ready: free ports, waiting, and the reasons for a failure."""

import contextlib
import http.client
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from triton_regressors.clients.errors import ServerError, plain_reason
from triton_regressors.clients.server.server_log import Loads, last_error, load_failures, taken_service

HOST = "127.0.0.1"
_MOVES = 0.01  # the share of one core's time that counts as work; a server that waits for a model takes none
_BUSY = 10  # the factor on the patience for work alone as progress
_NAMED = 5  # the number of models named in the error about those that did not load in time


class PortTakenError(Exception):
    """Somebody else listens on this port; `service` is gRPC, HTTP or metrics."""

    def __init__(self, service: str, port: int) -> None:
        super().__init__(service, port)
        self.service = service
        self.port = port


def pick_ports(chosen: Mapping[str, int]) -> dict[str, int]:
    """Return service → port, with a free port for each 0. All are held until all are picked, so that they differ.

    Raises:
        PortTakenError: a chosen one is taken.
        ServerError: a chosen one needs privileges.
    """
    with contextlib.ExitStack() as held:
        ports = {}
        for service, port in sorted(chosen.items(), key=lambda item: item[1] == 0):  # the chosen ones first
            probe = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port in TIME_WAIT is free for a server
            try:
                probe.bind((HOST, port))
            except PermissionError:
                raise ServerError(f"The {service} port {port} needs privileges that this process lacks.") from None
            except OSError:
                raise PortTakenError(service, port) from None
            ports[service] = probe.getsockname()[1]
        return ports


class Progress:
    """Detects whether a launched server still makes progress.

    Progress is a step of a model's load in the log: a load begins, gets a process, succeeds or fails. Work, the CPU
    time of the server and its models' processes, is also progress, but for at most ten times as long: a model that
    computes forever is not waited for.

    Args:
        group: the process group of the server and its models.
        loads: the state of the loads, from its log.
        patience_s: the longest time without progress.
    """

    def __init__(self, group: int, loads: Loads, patience_s: float) -> None:
        self._group = group
        self._loads = loads
        self._patience_s = patience_s
        self._steps, self._cpu_s = 0, 0.0
        self._step_at = self._work_at = self._looked_at = time.monotonic()

    def stands_still(self) -> str:
        """Return in words how long there has been no progress if that is too long; else "". Call it often."""
        now = time.monotonic()
        if self._loads.steps > self._steps:
            self._steps = self._loads.steps
            self._step_at = self._work_at = now
        if now - self._looked_at >= min(1.0, self._patience_s / 4):
            self._looked_at = now
            cpu_s = cpu_seconds(self._group)
            if cpu_s - self._cpu_s >= _MOVES * self._patience_s:
                self._cpu_s, self._work_at = cpu_s, now
        if now - self._work_at > self._patience_s:
            return f"did nothing for {self._patience_s:g} s"
        if now - self._step_at > _BUSY * self._patience_s:
            return f"worked for {_BUSY * self._patience_s:g} s and got no further"
        return ""

    def still_loading(self) -> str:
        """Return the models that are not loaded, in words: "; still loading: 'a', 'b'", or "" if there are none."""
        names = self._loads.unfinished()
        if not names:
            return ""
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return f"; still loading: {', '.join(repr(name) for name in names[:_NAMED])}{more}"


def cpu_seconds(group: int) -> float:
    """Return the CPU time that a process group has taken so far, with that of its processes that have ended."""
    ticks = 0
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = status.read_text().rpartition(")")[2].split()
            if int(fields[2]) == group:
                ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def wait_until_ready(
    ports: Mapping[str, int],
    models: Sequence[str] | None,
    progress: Progress,
    exit_code: Callable[[], int | None],
    log_lines: Callable[[], Sequence[str]],
    headers: Mapping[str, str],
) -> dict[str, str]:
    """Wait until a server that was just launched answers on all its ports; return which models it could not load.

    Args:
        ports: of the services gRPC, HTTP and metrics.
        models: the models that it should load; None: all in its repositories.
        progress: tells when to wait no longer.
        exit_code: of the server's process; None while it runs.
        log_lines: what it has written so far.
        headers: of the request that lists its models.

    Returns:
        name → reason, of every wanted model that is not ready in each version that the server tried to load.

    Raises:
        PortTakenError: the server found a port taken.
        ServerError: it ended, gets no further, or does not list its models.
    """
    while not (why := progress.stands_still()):
        service = taken_service(log_lines())  # it says so half a minute before it ends
        if service is not None:
            raise PortTakenError(service, ports[service])
        code = exit_code()
        if code is not None:
            time.sleep(0.2)  # for its last words
            lines = log_lines()
            raise ServerError(f"The Triton server {ending(code, lines)} before it was ready.", log="\n".join(lines))
        if _live(ports):
            return _failures(ports["HTTP"], models, log_lines(), headers)
        time.sleep(0.05)
    raise ServerError(
        f"The Triton server was not ready and {why}{progress.still_loading()}.", log="\n".join(log_lines())
    )


def ending(code: int, lines: Sequence[str]) -> str:
    """Return how a server ended: the signal, which its log does not report, or its exit code and last error."""
    if code >= 0:
        return f"ended with exit code {code} ({last_error(lines)})"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = ", as the system does where memory runs out," if -code == signal.SIGKILL else ""
    return f"was ended by {name}{hint}"


def not_loaded(failures: Mapping[str, str], lines: Sequence[str]) -> ServerError:
    """Return the error that names the models that did not load, and their reasons."""
    sentences = "; ".join(f"'{name}': {reason}" for name, reason in failures.items())
    noun = "Model" if len(failures) == 1 else f"{len(failures)} models"
    return ServerError(f"{noun} did not load: {sentences}.", log="\n".join(lines))


def _live(ports: Mapping[str, int]) -> bool:
    """Return whether all three services answer; they open, in turn, after the models have been loaded."""
    try:
        with _response(ports["HTTP"], "GET", "/v2/health/live", timeout_s=1) as answer:
            if answer.status != 200:
                return False
        for service in ("gRPC", "metrics"):
            socket.create_connection((HOST, ports[service]), timeout=1).close()
    except (OSError, http.client.HTTPException):
        return False
    return True


def _failures(
    http_port: int, models: Sequence[str] | None, log_lines: Sequence[str], headers: Mapping[str, str]
) -> dict[str, str]:
    with _response(http_port, "POST", "/v2/repository/index", 30, headers) as answer:
        index: Any = _json(answer.read())
    if not isinstance(index, list):
        told = index.get("error") if isinstance(index, dict) else None
        reason = f": {plain_reason(str(told))}" if told else ""
        raise ServerError(f"The Triton server does not list its models{reason}.", log="\n".join(log_lines))
    in_log = load_failures(log_lines)
    wanted = sorted({row["name"] for row in index} | set(in_log)) if models is None else models
    failures: dict[str, str] = {}
    for name in wanted:
        rows = [row for row in index if row["name"] == name]
        broken = [row for row in rows if row.get("state") == "UNAVAILABLE" and row.get("reason")]
        if broken:
            failures[name] = "; ".join(dict.fromkeys(plain_reason(row["reason"]) for row in broken))
        elif models is None and name.startswith(".") and not any(row.get("state") for row in rows):
            continue  # .git and the like: to the Triton server every directory is a model, also a hidden one
        elif not any(row.get("state") == "READY" for row in rows):
            failures[name] = in_log.get(name, "the Triton server gives no reason")
    return failures


def _json(answer: bytes) -> Any:
    """Return the content of a JSON answer; None if it is not JSON."""
    try:
        return json.loads(answer)
    except ValueError:
        return None


@contextlib.contextmanager
def _response(
    port: int, method: str, path: str, timeout_s: float, headers: Mapping[str, str] = MappingProxyType({})
) -> Iterator[http.client.HTTPResponse]:
    connection = http.client.HTTPConnection(HOST, port, timeout=timeout_s)
    try:
        connection.request(method, path, headers=headers)
        yield connection.getresponse()
    finally:
        connection.close()
