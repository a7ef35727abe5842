"""Measure one model under one load: warm up, repeat windows until they agree, and sum up the last ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from triton_regressors.clients.compare.errors import ComparisonError, NoAnswers
from triton_regressors.clients.compare.figures.results import Figures
from triton_regressors.clients.compare.figures.statistics import (
    STABLE_WINDOWS,
    Latencies,
    ServerCounters,
    ServerFigures,
    Window,
    stable,
)
from triton_regressors.clients.compare.load.generator import Load, LoadGenerator, Observed
from triton_regressors.clients.compare.load.jobs import Job
from triton_regressors.clients.compare.load.payloads import Payloads


@dataclass(frozen=True)
class Settings:
    """Durations and tolerances of a measurement.

    warmup_s: load before the first window. window_s: length of a window. max_windows: after this many windows the
    point is recorded as not stable. stability: how far the last 3 windows may lie from their mean (0.1: 10 %; p99: 3
    times that). timeout_s: for one request. drain_s: how long an open loop waits for late answers at the end.
    """

    warmup_s: float = 1.0
    window_s: float = 1.0
    max_windows: int = 8
    stability: float = 0.10
    timeout_s: float = 10.0
    drain_s: float = 5.0

    def __post_init__(self) -> None:
        for name in ("window_s", "stability", "timeout_s"):
            if not getattr(self, name) > 0:
                raise ComparisonError(f"{name} is {getattr(self, name)}; accepted: a number above 0.")
        if self.warmup_s < 0:
            raise ComparisonError(f"warmup_s is {self.warmup_s}; accepted: 0 or more seconds.")
        if self.max_windows < 1:
            raise ComparisonError(f"max_windows is {self.max_windows}; accepted: 1 or more.")


def expected_time(points: int, settings: Settings, floor: bool) -> str:
    """Return how long measuring some points takes, in words, for example "3 to 7 minutes".

    A point takes the warm-up and 3 windows if these agree, up to `max_windows` otherwise. The do-nothing model doubles
    that. The time to load configurations is not included.
    """
    windows = (min(STABLE_WINDOWS, settings.max_windows), settings.max_windows)
    low, high = (points * (1 + floor) * (settings.warmup_s + count * settings.window_s) for count in windows)
    if high < 120:
        return _range(low, high, "second")
    return _range(low / 60, high / 60, "minute")


def _range(low: float, high: float, unit: str) -> str:
    first, last = max(round(low), 1), max(round(high), 1)
    count = f"{last}" if first == last else f"{first} to {last}"
    return f"{count} {unit}{'s' * (last != 1)}"


def measure_load(
    generator: LoadGenerator,
    load: Load,
    payloads: Payloads,
    address: str,
    read_counters: Callable[[], ServerCounters],
    settings: Settings,
    processes: int,
    seed: int,
    on_window: Callable[[Window], None] = lambda window: None,
) -> Figures:
    """Offer `load` with `processes` worker processes until stable or out of windows.

    Raises NoAnswers, with the most frequent error, for a model that no longer answers: every answer was an error,
    either in two consecutive windows that had answers (one may be the warm-up) or in the whole measurement.
    """
    jobs = _jobs(load, payloads, address, settings, processes, seed)
    windows: list[Window] = []
    busy: list[tuple[float, ...]] = []
    counters: list[ServerCounters] = []
    starts = [0.0]
    failing = 0

    def on_start(start_at: float) -> None:
        starts[0] = start_at + settings.warmup_s

    def finished(number: int, seen: Observed) -> bool:
        nonlocal failing
        if (seen.ok | seen.unanswered).any():
            failing = 0
        elif len(seen.code):
            failing += 1
        if failing > 1:
            raise NoAnswers(_most_common(seen))
        counters.append(read_counters())
        if number < 0:
            return False
        windows.append(_window(seen, settings.window_s))
        busy.append(seen.busy)
        on_window(windows[-1])
        return stable(windows, settings.stability) or len(windows) >= settings.max_windows

    seen = generator.offer(jobs, on_start, finished)
    if len(seen.code) and not (seen.ok | seen.unanswered).any():
        raise NoAnswers(_most_common(seen))
    kept = min(STABLE_WINDOWS, len(windows))
    begin = starts[0] + (len(windows) - kept) * settings.window_s
    end = starts[0] + len(windows) * settings.window_s
    latencies_s, completed, errors = summarise(seen, begin, end, open_loop=load.rate is not None)
    wrong = [problem for sample in seen.samples if (problem := payloads.wrong(sample))]
    for problem in wrong:
        errors[problem] = errors.get(problem, 0) + 1
    requests_per_s = completed / (end - begin)
    return Figures(
        requests_per_s=requests_per_s,
        rows_per_s=requests_per_s * load.rows,
        requests=int(latencies_s.size),
        latency=Latencies.of(latencies_s),
        errors=errors,
        answers_checked=len(seen.samples),
        server=ServerFigures.between(counters[-1 - kept], counters[-1]),
        client_cpu_share=max(float(np.mean(shares)) for shares in zip(*busy[-kept:], strict=True)),
        client_processes=processes,
        stable=stable(windows, settings.stability),
        windows=tuple(windows),
    )


def summarise(seen: Observed, begin: float, end: float, open_loop: bool) -> tuple[np.ndarray, int, dict[str, int]]:
    """Return latencies in seconds, good answers and errors of the time from `begin` to `end` (monotonic seconds).

    Closed loop: the requests that ended in that time. Open loop: the requests that were due in that time, even if their
    answer came late or never, so that a growing queue shows; the throughput counts the answers in that time.
    """
    ended = (seen.end_s >= begin) & (seen.end_s < end)
    chosen = (seen.start_s >= begin) & (seen.start_s < end) if open_loop else ended
    counted = chosen & (seen.ok | seen.unanswered) if open_loop else chosen & seen.ok
    return (seen.end_s - seen.start_s)[counted], int(np.count_nonzero(ended & seen.ok)), seen.errors(chosen)


def _most_common(seen: Observed) -> str:
    """Return the most frequent error, as a sentence."""
    errors = seen.errors(np.full(len(seen.code), True))
    return f"{max(errors, key=lambda message: errors[message]).rstrip('.')}."


def _window(seen: Observed, window_s: float) -> Window:
    latencies = Latencies.of((seen.end_s - seen.start_s)[seen.ok])
    answers = int(np.count_nonzero(seen.ok))
    return Window(answers / window_s, latencies.p50_ms, latencies.p99_ms, len(seen.code) - answers)


def _jobs(
    load: Load, payloads: Payloads, address: str, settings: Settings, processes: int, seed: int
) -> tuple[Job, ...]:
    """Split a load: clients as evenly as possible, rates evenly, each worker beginning at another request."""
    template = Job(
        protocol=load.protocol,
        address=address,
        requests=payloads.requests,
        first=0,
        concurrency=0,
        rate=0.0,
        seed=(),
        warmup_s=settings.warmup_s,
        window_s=settings.window_s,
        timeout_s=settings.timeout_s,
        drain_s=settings.drain_s,
    )
    clients = load.concurrency or 0
    return tuple(
        dataclasses.replace(
            template,
            first=index * len(payloads.requests) // processes,
            concurrency=0 if load.rate is not None else clients // processes + (index < clients % processes),
            rate=(load.rate or 0.0) / processes,
            seed=(seed, index),
        )
        for index in range(processes)
    )
