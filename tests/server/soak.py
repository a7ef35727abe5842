"""Hundreds of concurrent clients on a real Triton server, some of them sending bad rows; each checks its own answers.

    python -m tests.server.soak [--clients 300] [--seconds 60] [--bad-share 0.1]

Every client has a connection of its own, half of them gRPC and half HTTP, and rows of its own, whose answers
scikit-learn has computed beforehand. It sends one request after another, of 1 to 32 rows and sometimes 200, to a model
drawn at random. The exit code is 1 unless no answer was wrong, none was lost and nothing was restarted.
"""

import argparse
import asyncio
import dataclasses
import multiprocessing
import os
import re
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from triton_regressors.clients.client.client import AsyncClient, Client
from triton_regressors.clients.errors import (
    InferenceError,
    InvalidRequest,
    RequestCancelled,
    RequestTimeout,
    ServerUnavailable,
)
from triton_regressors.clients.server.triton_server import TritonServer
from triton_regressors.kernels.format.parity import measure

MODELS = ("ridge", "bayes", "poly")
ROWS_PER_CLIENT = 256
MOST_ROWS = 200
TIMEOUT_S = 30.0
EXAMPLES = 5
RESTARTED = re.compile(r"unhealthy|not healthy|restart", re.IGNORECASE)


@dataclass(frozen=True)
class Target:
    """A model, rows to send it, the answers to them, their units, and the excess that `parity.measure` may find."""

    model: str
    X: np.ndarray
    expected: Mapping[str, np.ndarray]
    units: Mapping[str, np.ndarray]
    excess: Mapping[str, float]

    def part(self, client: int) -> "Target":
        """Return the target with one client's own rows alone."""
        own = slice(client * ROWS_PER_CLIENT, (client + 1) * ROWS_PER_CLIENT)
        return dataclasses.replace(self, X=self.X[own], expected={k: v[own] for k, v in self.expected.items()})


@dataclass
class Counts:
    """The outcomes of requests: sent = right + refused + wrong + lost."""

    sent: int = 0
    right: int = 0
    refused: int = 0
    wrong: int = 0
    lost: int = 0
    rows: int = 0
    latencies_ms: list[float] = field(default_factory=list)
    examples: list[str] = field(default_factory=list)

    def add(self, other: "Counts") -> None:
        """Add another's counts to these."""
        for item in dataclasses.fields(self):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))
        del self.examples[EXAMPLES:]

    def miss(self, kind: str, text: str) -> None:
        """Count a request as wrong or lost and keep the first few with their reasons."""
        setattr(self, kind, getattr(self, kind) + 1)
        if len(self.examples) < EXAMPLES:
            self.examples.append(f"{kind}: {text}")


@dataclass(frozen=True)
class Report:
    """The outcome of a soak."""

    clients: int
    seconds: float
    counts: Counts
    restarts: int
    executed: int
    """Requests that the models themselves answered or refused, by the server's statistics."""
    executions: int

    def passed(self) -> bool:
        """Return whether requests of both kinds were sent, and each got its right answer."""
        counts = self.counts
        return counts.right > 0 and counts.wrong == counts.lost == self.restarts == 0 and self.executed == counts.sent


class Watch:
    """Notices a restart or an end of the server or of one of its models' processes."""

    def __init__(self, server: TritonServer) -> None:
        self._server = server
        self._pid = server.pid
        self._models = model_processes(server.pid)
        self._lines = len(server.log.splitlines())

    def restarts(self) -> int:
        """Return how many processes were restarted or have ended since the watch began."""
        if not self._server.running or self._server.pid != self._pid:
            return 1
        said = [line for line in self._server.log.splitlines()[self._lines :] if RESTARTED.search(line)]
        return len(self._models - model_processes(self._pid)) + len(said)


def model_processes(server_pid: int) -> set[tuple[int, str]]:
    """Return (process id, start time) of the processes that run the server's Python models."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:  # ended meanwhile
            continue
        fields = text.rpartition(")")[2].split()
        if int(fields[1]) == server_pid and fields[0] != "Z":
            found.add((int(stat.parent.name), fields[19]))
    return found


def targets(clients: int, names: Sequence[str] = MODELS) -> list[Target]:
    """Return the models to ask, with rows and answers for a number of clients."""
    from tests.server.models import models, rows  # here, because the client processes do without scikit-learn

    found = []
    for number, name in enumerate(names):
        model, X = models()[name], rows(clients * ROWS_PER_CLIENT, seed=100 + number)
        found.append(Target(name, X, model.expected(X), model.units, model.excess))
    return found


def soak(
    server: TritonServer, asked: Sequence[Target], *, clients: int, seconds: float, bad_share: float, processes: int = 2
) -> Report:
    """Send requests from a number of clients at a time, for a number of seconds, and count the outcomes."""
    watch, before = Watch(server), _executed(server, asked)
    urls = {"grpc": server.grpc_url, "http": server.http_url}
    jobs = [
        (urls, {client: [target.part(client) for target in asked] for client in range(clients)[first::processes]})
        for first in range(min(processes, clients))
    ]
    total = Counts()
    with ProcessPoolExecutor(len(jobs), mp_context=multiprocessing.get_context("spawn")) as pool:
        for counts in pool.map(run_clients, *zip(*jobs, strict=True), *_constants(len(jobs), seconds, bad_share)):
            total.add(counts)
    restarts = watch.restarts()
    after = _executed(server, asked) if server.running else before
    return Report(clients, seconds, total, restarts, after[0] - before[0], after[1] - before[1])


def _constants(count: int, *values: float) -> list[list[float]]:
    return [[value] * count for value in values]


def _executed(server: TritonServer, asked: Sequence[Target]) -> tuple[int, int]:
    """Return how many requests and batches the models have executed."""
    with Client(server.grpc_url) as client:
        stats = [client.statistics(target.model)["model_stats"][0] for target in asked]
    # A refused request counts as a success on some servers, as a failure on others.
    requests = sum(s["inference_stats"]["success"]["count"] + s["inference_stats"]["fail"]["count"] for s in stats)
    return requests, sum(s["execution_count"] for s in stats)


def run_clients(
    urls: Mapping[str, str], clients: Mapping[int, list[Target]], seconds: float, bad_share: float
) -> Counts:
    """Run some of the clients, each with its own targets, in this process."""

    async def run() -> Counts:
        total = Counts()
        async with AsyncExitStack() as stack:
            opened = {}
            for number in clients:
                protocol = "grpc" if number % 2 else "http"
                client = AsyncClient(urls[protocol], protocol, timeout_s=TIMEOUT_S)
                opened[number] = await stack.enter_async_context(client)
            end = time.monotonic() + seconds
            tasks = [_run_client(number, opened[number], own, end, bad_share) for number, own in clients.items()]
            for counts in await asyncio.gather(*tasks):
                total.add(counts)
        return total

    return asyncio.run(run())


async def _run_client(number: int, client: AsyncClient, own: Sequence[Target], end: float, bad_share: float) -> Counts:
    """Send one request after another until the end."""
    random, counts = np.random.default_rng(number), Counts()
    while time.monotonic() < end:
        target = own[random.integers(len(own))]
        size = MOST_ROWS if random.random() < 0.02 else int(random.integers(1, 33))
        first = int(random.integers(len(target.X) - size + 1))
        X = target.X[first : first + size]
        fault = ""
        if random.random() < bad_share:
            row, column = int(random.integers(size)), int(random.integers(X.shape[1]))
            X = X.copy()
            X[row, column] = np.nan
            fault = f"X must be finite: row {row}, column {column} is nan."
        names = list(target.expected)
        outputs = tuple(names[: int(random.integers(1, len(names) + 1))])
        await _send(client, target, X, slice(first, first + size), outputs, fault, counts)
    return counts


async def _send(
    client: AsyncClient, target: Target, X: np.ndarray, own: slice, outputs: Sequence[str], fault: str, counts: Counts
) -> None:
    """Send one request and count its outcome; `fault` is the error that it should get."""
    counts.sent += 1
    counts.rows += len(X)
    began = time.perf_counter()
    where = f"{target.model} over {client.protocol}, {len(X)} rows"
    try:
        found = await asyncio.wait_for(client.infer(target.model, X, outputs=outputs), TIMEOUT_S + 5)
    except InvalidRequest as error:
        if str(error) == fault:
            counts.refused += 1
        else:
            counts.miss("wrong", f"{where}: refused with {str(error)!r}, expected {fault!r}")
    except (RequestTimeout, RequestCancelled, ServerUnavailable, asyncio.TimeoutError) as error:
        counts.miss("lost", f"{where}: {type(error).__name__}: {error}")
    except InferenceError as error:
        counts.miss("wrong", f"{where}: {type(error).__name__}: {error}")
    else:
        errors = {
            name: measure(found[name], target.expected[name][own], target.units[name]).excess
            if found[name].shape == target.expected[name][own].shape
            else np.inf
            for name in outputs
        }
        if fault:
            counts.miss("wrong", f"{where}: answered a bad request")
        elif all(errors[name] <= target.excess[name] for name in outputs):
            counts.right += 1
        else:
            counts.miss("wrong", f"{where}: off by {errors} standard deviations beyond one ulp")
    counts.latencies_ms.append((time.perf_counter() - began) * 1e3)


def table(report: Report) -> Table:
    """Return the report as a table."""
    counts = report.counts
    shown = Table(title=f"{report.clients} clients for {report.seconds:g} s", title_justify="left", show_header=False)
    shown.add_column(justify="left")
    shown.add_column(justify="right")
    p50, p99 = np.percentile(counts.latencies_ms or [np.nan], [50, 99])
    for name, value in (
        ("requests sent", counts.sent),
        ("answered right", counts.right),
        ("refused, as they should be", counts.refused),
        ("wrong", counts.wrong),
        ("lost", counts.lost),
        ("restarts", report.restarts),
        ("executed, by the server's count", report.executed),
    ):
        colour = "red" if name in ("wrong", "lost", "restarts") and value else "default"
        shown.add_row(name, f"[{colour}]{value:,}[/]")
    shown.add_section()
    shown.add_row("requests per second", f"{counts.sent / report.seconds:,.0f}")
    shown.add_row("rows per second", f"{counts.rows / report.seconds:,.0f}")
    shown.add_row("requests per execution", f"{report.executed / max(report.executions, 1):.1f}")
    shown.add_row("latency p50, p99", f"{p50:.0f} ms, {p99:.0f} ms")
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.server.soak", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--clients", type=int, default=300, help="how many at a time (default 300)")
    parser.add_argument("--seconds", type=float, default=60.0, help="for how long (default 60)")
    parser.add_argument("--bad-share", type=float, default=0.1, help="share of requests with a NaN (default 0.1)")
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1), help="of the clients")
    chosen = parser.parse_args()
    if chosen.clients < 1 or chosen.processes < 1 or not chosen.seconds > 0 or not 0 <= chosen.bad_share <= 1:
        parser.error("--clients, --processes and --seconds must be above 0, and --bad-share from 0 to 1")

    from tests.server.models import models  # as in targets()

    console = Console(width=None if sys.stdout.isatty() else 120)
    with tempfile.TemporaryDirectory(prefix="soak-") as directory:
        for name in MODELS:
            models()[name].export(Path(directory))
        asked = targets(chosen.clients)
        with TritonServer([Path(directory)]) as server:
            report = soak(
                server,
                asked,
                clients=chosen.clients,
                seconds=chosen.seconds,
                bad_share=chosen.bad_share,
                processes=chosen.processes,
            )
    console.print(table(report))
    for example in report.counts.examples:
        console.print(f"[red]{example}[/]", highlight=False)
    console.print("[green]passed[/]" if report.passed() else "[red]failed[/]")
    sys.exit(0 if report.passed() else 1)


if __name__ == "__main__":
    main()
