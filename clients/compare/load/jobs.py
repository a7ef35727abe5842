"""Messages between the load generator and its worker processes: pickled dataclasses over the workers' pipes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

OK = 0
NO_ANSWER = -1
"""Code of a request that timed out or was unanswered at the end: its latency is a lower bound, and is counted."""
MAX_OUTSTANDING = 256
"""Outstanding requests of one worker at most. In an open loop further ones leave late, and their wait counts."""


@dataclass(frozen=True)
class Job:
    """The load that one worker offers.

    protocol: "grpc" or "http". address: host:port.
    requests: ready to send: serialised ModelInferRequest messages, or whole HTTP/1.1 requests. They are sent in turn,
    beginning with number `first`.
    concurrency: closed loop, the number of requests outstanding at any time; 0 for an open loop.
    rate: open loop, requests per second on average, Poisson arrivals drawn from `seed`; 0 for a closed loop.
    timeout_s: how long one request may take. drain_s: how long unanswered requests are waited for at the end.
    """

    protocol: str
    address: str
    requests: tuple[bytes, ...]
    first: int
    concurrency: int
    rate: float
    seed: tuple[int, ...]
    warmup_s: float
    window_s: float
    timeout_s: float
    drain_s: float


@dataclass(frozen=True)
class Go:
    """Begin at `start_at` on the system-wide monotonic clock, in seconds."""

    start_at: float


@dataclass(frozen=True)
class Stop:
    """Send no more, wait for what is outstanding, and report the rest."""


@dataclass(frozen=True)
class Armed:
    """The worker is connected and ready to begin; `problem` says why it is not."""

    problem: str = ""


@dataclass(frozen=True)
class Records:
    """One worker's observations since its last report.

    window: -1 for the warm-up, then counted from 0; None for what came after Stop.
    start, end: float64 bytes, monotonic seconds; start is the intended send time in an open loop.
    code: int16 bytes; OK, NO_ANSWER, or a number from 1 whose message is `messages[code - 1]`.
    samples: (number of the request, HTTP header length of the tensor description or -1, the answer's bytes).
    busy: seconds of CPU per second that passed, of the worker's own process.
    """

    window: int | None
    start: bytes
    end: bytes
    code: bytes
    messages: tuple[str, ...]
    samples: tuple[tuple[int, int, bytes], ...]
    busy: float


def poisson_arrivals(rate: float, seed: int | tuple[int, ...]) -> Iterator[float]:
    """Yield the intended send times of an endless Poisson process, in seconds from its start.

    The same seed gives the same times. Together, n processes of rate r/n with different seeds form one of rate r.
    """
    generator = np.random.default_rng(seed)
    now = 0.0
    while True:
        for gap in generator.exponential(1 / rate, size=1024).tolist():
            now += gap
            yield now
