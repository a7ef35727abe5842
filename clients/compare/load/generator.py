"""The load generator: worker processes that offer a prepared load, started once and used for every point."""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import IO

import numpy as np

from triton_regressors.clients.compare.errors import ComparisonError
from triton_regressors.clients.compare.load.jobs import MAX_OUTSTANDING, NO_ANSWER, OK, Armed, Go, Job, Records, Stop

WORKER = "triton_regressors.clients.compare.worker"
CLIENTS_PER_PROCESS = 8
REQUESTS_PER_S_PER_PROCESS = 1500
START_TIMEOUT_S = 60.0
NO_ANSWER_MESSAGE = "not answered in time"


@dataclass(frozen=True)
class Load:
    """One way to send requests: protocol "grpc" or "http", rows per request, and either concurrency or a rate.

    concurrency: closed loop, requests outstanding at any time. rate: open loop, requests per second on average.
    """

    protocol: str
    rows: int
    concurrency: int | None = None
    rate: float | None = None

    def __str__(self) -> str:
        return f"{self.concurrency} client{'s' if self.concurrency != 1 else ''}" if self.rate is None else self.offered

    @property
    def offered(self) -> str:
        """The open loop's rate as text."""
        return f"{self.rate:,.6g} requests/s"

    def processes(self, limit: int | None) -> int:
        """Return the number of worker processes for this load: `limit` if given, else from its size and the cores."""
        if self.rate is not None:
            wanted = -(-self.rate // REQUESTS_PER_S_PER_PROCESS)
        else:
            wanted = -(-(self.concurrency or 1) // CLIENTS_PER_PROCESS)
        if limit is None:
            chosen = min(int(wanted), max(1, (os.cpu_count() or 2) // 2))
        else:
            chosen = limit if self.rate is not None else min(limit, self.concurrency or 1)
        return max(chosen, -(-(self.concurrency or 0) // MAX_OUTSTANDING), 1)


@dataclass(frozen=True)
class Sample:
    """One answer kept for checking: the number of its request, the HTTP header length (or -1) and the bytes."""

    number: int
    described: int
    body: bytes


@dataclass(frozen=True)
class Observed:
    """Requests seen by all workers together.

    start_s, end_s: monotonic seconds (start is the intended send time in an open loop). ok: answered well.
    unanswered: no answer at all, so that end - start is a lower bound of the latency.
    code: 0 for ok, NO_ANSWER, or the number of an entry in `messages` plus one. busy: CPU share per worker.
    """

    start_s: np.ndarray
    end_s: np.ndarray
    code: np.ndarray
    messages: tuple[str, ...]
    samples: tuple[Sample, ...]
    busy: tuple[float, ...]

    @property
    def ok(self) -> np.ndarray:
        """Mask of the requests with a good answer."""
        ok: np.ndarray = self.code == OK
        return ok

    @property
    def unanswered(self) -> np.ndarray:
        """Mask of the requests without an answer."""
        unanswered: np.ndarray = self.code == NO_ANSWER
        return unanswered

    def errors(self, chosen: np.ndarray) -> dict[str, int]:
        """Return how often each error occurred among the chosen requests."""
        counted: dict[str, int] = {}
        for code, count in zip(*np.unique(self.code[chosen & (self.code != OK)], return_counts=True), strict=True):
            message = NO_ANSWER_MESSAGE if code == NO_ANSWER else self.messages[code - 1]
            counted[message] = counted.get(message, 0) + int(count)
        return counted


def merge(records: Sequence[Records]) -> Observed:
    """Put the raw records of several workers together; equal messages of different workers become one."""
    messages: list[str] = []
    codes = []
    for record in records:
        numbers = {OK: OK, NO_ANSWER: NO_ANSWER}
        for number, message in enumerate(record.messages, start=1):
            if message not in messages:
                messages.append(message)
            numbers[number] = messages.index(message) + 1
        codes.append(np.array([numbers[code] for code in np.frombuffer(record.code, np.int16).tolist()], np.int64))
    return Observed(
        np.concatenate([np.frombuffer(record.start, np.float64) for record in records]),
        np.concatenate([np.frombuffer(record.end, np.float64) for record in records]),
        np.concatenate(codes),
        tuple(messages),
        tuple(Sample(*sample) for record in records for sample in record.samples),
        tuple(record.busy for record in records),
    )


class LoadGenerator:
    """A context manager that holds up to `processes` worker processes.

        with LoadGenerator(2) as generator:
            observed = generator.offer(jobs, on_window)

    Workers are plain `python -m` processes with pipes, so that a caller's script needs no `__main__` guard.
    """

    def __init__(self, processes: int) -> None:
        self._count = processes
        self._workers: list[subprocess.Popen[bytes]] = []
        self._logs: list[IO[bytes]] = []
        self._inbox: queue.SimpleQueue[tuple[int, object]] = queue.SimpleQueue()
        self._early: defaultdict[int, deque[object]] = defaultdict(deque)

    def __enter__(self) -> LoadGenerator:
        try:
            for index in range(self._count):
                self._start(index)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self, index: int) -> None:
        log = tempfile.TemporaryFile()  # noqa: SIM115  # closed in close()
        self._logs.append(log)
        worker = subprocess.Popen(
            [sys.executable, "-m", WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,  # a terminal's signals reach the parent alone
        )
        self._workers.append(worker)

        def read() -> None:
            assert worker.stdout is not None
            while True:
                try:
                    message: object = pickle.load(worker.stdout)
                except (EOFError, pickle.UnpicklingError, ValueError, OSError):
                    self._inbox.put((index, None))
                    return
                self._inbox.put((index, message))

        threading.Thread(target=read, daemon=True).start()

    def close(self) -> None:
        """Stop every worker; they hold nothing worth waiting for."""
        for worker in self._workers:
            worker.kill()
        for worker in self._workers:
            worker.wait()
            assert worker.stdin is not None
            with contextlib.suppress(OSError):  # data that was still to be written to a worker that is gone
                worker.stdin.close()
        for log in self._logs:
            log.close()
        self._workers, self._logs = [], []

    def offer(
        self, jobs: Sequence[Job], on_start: Callable[[float], None], on_window: Callable[[int, Observed], bool]
    ) -> Observed:
        """Run one job per worker until `on_window` returns True; return every request from the start.

        on_start: called with the start time (monotonic seconds) when all workers are connected.
        on_window: called with the number of the window (-1: the warm-up) and its requests; True ends the load.
        """
        used = range(len(jobs))
        for index, job in enumerate(jobs):
            self._tell(index, job)
        for message in self._gather(used, START_TIMEOUT_S):
            if isinstance(message, Armed) and message.problem:
                raise ComparisonError(f"The load generator cannot connect: {message.problem}.")
        start_at = time.monotonic() + 0.05
        for index in used:
            self._tell(index, Go(start_at))
        on_start(start_at)
        job = jobs[0]
        everything: list[Records] = []
        window = -1
        while True:
            wait_s = job.timeout_s + job.warmup_s + job.window_s + START_TIMEOUT_S
            records = [message for message in self._gather(used, wait_s) if isinstance(message, Records)]
            everything += records
            if on_window(window, merge(records)):
                break
            window += 1
        for index in used:
            self._tell(index, Stop())
        for index in used:
            window_or_rest: object = None
            while not (isinstance(window_or_rest, Records) and window_or_rest.window is None):
                (window_or_rest,) = self._gather(range(index, index + 1), job.timeout_s + job.drain_s + START_TIMEOUT_S)
                if isinstance(window_or_rest, Records):
                    everything.append(window_or_rest)
        return merge(everything)

    def _tell(self, index: int, message: object) -> None:
        stdin = self._workers[index].stdin
        assert stdin is not None
        try:
            pickle.dump(message, stdin, protocol=pickle.HIGHEST_PROTOCOL)
            stdin.flush()
        except OSError:
            raise self._died(index) from None

    def _next(self, timeout_s: float) -> tuple[int, object]:
        try:
            index, message = self._inbox.get(timeout=timeout_s)
        except queue.Empty:
            raise ComparisonError(f"A load worker did not report for {timeout_s:.0f} s.") from None
        if message is None:
            raise self._died(index)
        return index, message

    def _gather(self, used: range, timeout_s: float) -> list[object]:
        """Return the next message of every worker used; a faster worker's later messages wait their turn."""
        while not all(self._early[index] for index in used):
            index, message = self._next(timeout_s)
            self._early[index].append(message)
        return [self._early[index].popleft() for index in used]

    def _died(self, index: int) -> ComparisonError:
        self._logs[index].seek(0)
        lines = self._logs[index].read().decode(errors="replace").strip().splitlines()
        return ComparisonError(f"A load worker ended unexpectedly: {lines[-1] if lines else 'it said nothing'}.")
