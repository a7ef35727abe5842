"""A load worker process: `python -m triton_regressors.clients.compare.worker`, jobs on stdin, records on stdout.

It is started by LoadGenerator, offers one Job after another, and ends when its stdin closes. Ctrl-C reaches the
parent alone.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import queue
import selectors
import sys
import threading
import time
from array import array
from collections.abc import Coroutine, Iterator
from itertools import count
from typing import Any, BinaryIO

from triton_regressors.clients.compare.load.blocking import BlockingGrpcTransport, BlockingHttpTransport
from triton_regressors.clients.compare.load.jobs import (
    MAX_OUTSTANDING,
    NO_ANSWER,
    OK,
    Armed,
    Go,
    Job,
    Records,
    poisson_arrivals,
)
from triton_regressors.clients.compare.load.transports import (
    GrpcTransport,
    HttpTransport,
    RequestFailed,
    RequestTimedOut,
    Transport,
)

SAMPLES_PER_WINDOW = 32
SAMPLE_BYTES_PER_WINDOW = 8 << 20
MAX_MESSAGES = 20
PAUSE_AFTER_FAILURE_S = 0.01
"""The pause that keeps a closed loop from spinning against a server that refuses everything."""
SENDS_BEFORE_READING = 16
"""Sends after which an open loop that is behind its schedule looks for answers."""


class Recorder:
    """Collects start, end and outcome of every request between two reports, which may come from another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.messages: list[str] = []
        self.answer_bytes = 0  # of the first good answer; all others must be as long
        self._window_count = 0
        self._stride = 1
        self._reset()
        self._since = (time.monotonic(), time.process_time())

    def _reset(self) -> None:
        self._start, self._end, self._code = array("d"), array("d"), array("h")
        self._samples: list[tuple[int, int, bytes]] = []
        self._sampled_bytes = 0

    def add(self, start: float, end: float, code: int) -> None:
        """Record one request: monotonic seconds and its code."""
        with self._lock:
            self._add(start, end, code)

    def _add(self, start: float, end: float, code: int) -> None:
        self._start.append(start)
        self._end.append(end)
        self._code.append(code)

    def answer(self, start: float, number: int, described: int, body: bytes) -> None:
        """Record a good answer; an answer whose length differs from the first one's counts as an error."""
        end = time.monotonic()
        with self._lock:
            if len(body) != self.answer_bytes:
                if self.answer_bytes:
                    wrong = f"wrong answer: {len(body)} bytes instead of {self.answer_bytes}"
                    self._add(start, end, self.code(wrong))
                    return
                self.answer_bytes = len(body)
            self._add(start, end, OK)
            if (
                len(self._end) % self._stride == 0
                and len(self._samples) < SAMPLES_PER_WINDOW
                and self._sampled_bytes < SAMPLE_BYTES_PER_WINDOW
            ):
                self._samples.append((number, described, body))
                self._sampled_bytes += len(body)

    def code(self, message: str) -> int:
        """Return the number of an error message; all messages after the first 20 different ones share a number."""
        message = " ".join(message.split())[:200]
        if message not in self.messages:
            if len(self.messages) >= MAX_MESSAGES:
                message = "other errors"
            if message not in self.messages:
                self.messages.append(message)
        return self.messages.index(message) + 1

    def report(self, window: int | None) -> Records:
        """Return the records since the last report."""
        with self._lock:
            now, cpu = time.monotonic(), time.process_time()
            busy = (cpu - self._since[1]) / max(now - self._since[0], 1e-9)
            self._since = (now, cpu)
            records = Records(
                window,
                self._start.tobytes(),
                self._end.tobytes(),
                self._code.tobytes(),
                tuple(self.messages),
                tuple(self._samples),
                busy,
            )
            self._stride = max(1, len(self._end) // SAMPLES_PER_WINDOW)
            self._reset()
            return records


class Worker:
    """Offers one job's load from one event loop."""

    def __init__(self, job: Job, send: queue.SimpleQueue[object]) -> None:
        self._job = job
        self._send = send
        self._recorder = Recorder()
        transports: dict[tuple[str, bool], type[Transport]] = {
            ("grpc", True): BlockingGrpcTransport,
            ("http", True): BlockingHttpTransport,
            ("grpc", False): GrpcTransport,
            ("http", False): HttpTransport,
        }
        self._alone = job.concurrency == 1
        self._transport = transports[job.protocol, self._alone](job.address, job.timeout_s)
        self._stopping = False
        self._number = job.first
        self._outstanding: dict[asyncio.Task[None], float] = {}
        self._room = asyncio.Semaphore(MAX_OUTSTANDING)

    async def run(self, inbox: asyncio.Queue[object]) -> None:
        """Connect, wait for Go, send until Stop, wait for what is outstanding, report."""
        try:
            await self._transport.open(self._job.concurrency or 16)
        except RequestFailed as error:
            self._send.put(Armed(str(error)))
            await self._transport.close()
            return
        self._send.put(Armed())
        go = await inbox.get()
        if isinstance(go, Go):
            await self._offer(go.start_at, inbox)
        await self._transport.close()

    async def _offer(self, start_at: float, inbox: asyncio.Queue[object]) -> None:
        await asyncio.sleep(max(0.0, start_at - time.monotonic()))
        schedule = poisson_arrivals(self._job.rate, self._job.seed) if self._job.rate else iter(())
        self._due = start_at + next(schedule, 0.0)
        if self._alone:  # in a thread and an event loop of its own, which it blocks
            clients = [asyncio.to_thread(asyncio.run, self._client())]
        else:
            clients = [self._client() for _ in range(self._job.concurrency)]
        load: list[asyncio.Task[None]] = [asyncio.create_task(client) for client in clients]
        if self._job.rate:
            load.append(asyncio.create_task(self._arrivals(start_at, schedule)))
        windows = asyncio.create_task(self._windows(start_at))
        await inbox.get()  # Stop
        stopped_at = time.monotonic()
        self._stopping = True
        windows.cancel()
        if self._job.rate:
            load[-1].cancel()
        await asyncio.wait(load, timeout=self._job.timeout_s + 1)
        if self._outstanding:
            await asyncio.wait(self._outstanding, timeout=self._job.drain_s)
        self._abandon(stopped_at, start_at, schedule)
        self._send.put(self._recorder.report(None))

    def _abandon(self, stopped_at: float, start_at: float, schedule: Iterator[float]) -> None:
        """Count an open loop's unanswered requests, and those that were due but could not be sent in time."""
        now = time.monotonic()
        for task, due in list(self._outstanding.items()):
            task.cancel()
            self._recorder.add(due, now, NO_ANSWER)
        self._outstanding.clear()
        while self._job.rate and self._due <= stopped_at:
            self._recorder.add(self._due, now, NO_ANSWER)
            self._due = start_at + next(schedule)

    async def _windows(self, start_at: float) -> None:
        window = -1
        while True:
            boundary = start_at + self._job.warmup_s + (window + 1) * self._job.window_s
            await asyncio.sleep(max(0.0, boundary - time.monotonic()))
            self._send.put(self._recorder.report(window))
            window += 1

    async def _client(self) -> None:
        """Closed loop: the next request leaves when the last one is answered."""
        while not self._stopping:
            if not await self._one(time.monotonic()):
                await asyncio.sleep(PAUSE_AFTER_FAILURE_S)

    async def _arrivals(self, start_at: float, schedule: Iterator[float]) -> None:
        """Open loop: requests leave at their times, whether or not earlier ones were answered, while there is room."""
        for sent in count():
            wait = self._due - time.monotonic()
            if wait > 0 or sent % SENDS_BEFORE_READING == 0:
                await asyncio.sleep(max(0.0, wait))
            await self._room.acquire()
            task = asyncio.create_task(self._arrived(self._due))
            self._outstanding[task] = self._due
            task.add_done_callback(self._forget)
            self._due = start_at + next(schedule)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._room.release()
        self._outstanding.pop(task, None)

    async def _arrived(self, due: float) -> None:
        await self._one(due)

    async def _one(self, start: float) -> bool:
        number = self._number % len(self._job.requests)
        self._number += 1
        try:
            described, body = await self._transport.send(self._job.requests[number])
        except RequestTimedOut:
            self._recorder.add(start, time.monotonic(), NO_ANSWER)
            return False
        except RequestFailed as error:
            self._recorder.add(start, time.monotonic(), self._recorder.code(str(error)))
            return False
        self._recorder.answer(start, number, described, body)
        return True


async def serve(incoming: BinaryIO, outgoing: queue.SimpleQueue[object]) -> None:
    """Take jobs until `incoming` ends."""
    loop = asyncio.get_running_loop()
    inbox: asyncio.Queue[object] = asyncio.Queue()

    def read() -> None:
        while True:
            try:
                message = pickle.load(incoming)
            except EOFError:
                os._exit(0)  # the parent is gone or done; nothing here is worth saving
            loop.call_soon_threadsafe(inbox.put_nowait, message)

    threading.Thread(target=read, daemon=True).start()
    while True:
        job = await inbox.get()
        if isinstance(job, Job):
            await Worker(job, outgoing).run(inbox)


def main() -> None:
    """Run until stdin closes."""
    # Records own the pipe; whatever a library prints goes to stderr.
    pipe = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    outgoing: queue.SimpleQueue[object] = queue.SimpleQueue()

    def write() -> None:
        while True:
            pickle.dump(outgoing.get(), pipe, protocol=pickle.HIGHEST_PROTOCOL)
            pipe.flush()

    threading.Thread(target=write, daemon=True).start()
    # select() waits to the microsecond where epoll rounds up to a millisecond, which an open loop would feel.
    run(serve(sys.stdin.buffer, outgoing))


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine on an event loop whose timers are exact to about 0.1 ms."""
    loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(work)
    finally:
        loop.close()


if __name__ == "__main__":
    main()
