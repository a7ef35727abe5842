"""`--generator perf_analyzer`: NVIDIA's own load generator in place of ours, where it is installed.

The closed loop uses --concurrency-range, the open loop --request-rate-range with Poisson arrivals. Latencies come from
its profile export (the times of every request of the last windows), the server's times from the statistics extension as
with our generator, so that one table holds both. The differences: perf_analyzer does not check answers, counts latency
from the actual and not from the intended send time, and draws its arrivals from a seed of its own; the server's figures
are over its whole run.

perf_analyzer writes no report if its windows are not stable. Such a point is measured a second time, with a tolerance
that every run meets, and recorded as not stable. It writes no report either if a window held no answer: then longer
windows are tried.

Options, exit statuses and file formats follow the documentation and source of release 2.60; the wheel needs glibc 2.38.
The closed loop over gRPC has been run with the program itself, on a GPU machine, the second measurement included; the
open loop and HTTP are tested with a stand-in program alone.
"""

from __future__ import annotations

import base64
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from triton_regressors.clients.client.tensors import Tensors, row_count, wire
from triton_regressors.clients.compare.errors import ComparisonError
from triton_regressors.clients.compare.figures.results import Figures
from triton_regressors.clients.compare.figures.statistics import (
    STABLE_WINDOWS,
    Latencies,
    ServerCounters,
    ServerFigures,
)
from triton_regressors.clients.compare.load.generator import Load
from triton_regressors.clients.compare.load.payloads import CheckedRows

if TYPE_CHECKING:
    from triton_regressors.clients.compare.figures.measurement import Settings

PROGRAM = "perf_analyzer"
MAX_ROWS = 1024
SYNCHRONOUS_CLIENTS = 16
"""Up to this many clients have a blocking thread each, which has the lower latency; more clients share threads."""
NOT_STABLE = 2
"""The exit status if the windows differ too much and nothing else is wrong."""
NONE_IN_WINDOW = "No valid requests recorded within time interval"
LONGER, MOST_LONGER = 4, 16
"""The factor that lengthens a window without answers, and the largest total factor."""

ANY_PERCENTAGE = 1e6
LATENCY_DIFFERS = "Request latency is not stabilizing"
"""The message of an asynchronous run that agrees in throughput alone and that perf_analyzer takes for stable."""
NS_PER_S = 1e9


def find() -> Path:
    """Return the program on PATH or beside this interpreter; without one, raise ComparisonError with install advice."""
    found = shutil.which(PROGRAM) or shutil.which(PROGRAM, path=str(Path(sys.executable).parent))
    if found is None:
        raise ComparisonError(
            "perf_analyzer is not installed; get it with 'pip install perf-analyzer' (it needs glibc 2.38, as in "
            "Ubuntu 24.04) or use the Triton server SDK container, or leave out --generator."
        )
    return Path(found)


def command(
    program: Path,
    model: str,
    tensors: Tensors,
    load: Load,
    address: str,
    settings: Settings,
    directory: Path,
    any_result: bool = False,
) -> list[str]:
    """Return the command line for one point; its files lie in `directory`. any_result: take the first windows as is.

    perf_analyzer's stability is the ratio of the largest to the smallest of 3 windows. Ours is their distance to either
    side of the mean, which is half of that.
    """
    percentage = ANY_PERCENTAGE if any_result else 200 * settings.stability
    arguments = [
        str(program),
        *("-m", model, "-u", address, "-i", load.protocol, "-b", str(load.rows)),
        *(word for name, array in tensors.items() for word in ("--shape", f"{name}:{array.shape[1]}")),
        *("--input-data", str(directory / "rows.json")),
        *("--measurement-interval", str(round(settings.window_s * 1000))),
        *("--max-trials", str(max(STABLE_WINDOWS, settings.max_windows))),
        *("--stability-percentage", f"{percentage:.10g}"),
        *("-f", str(directory / "latency.csv"), "--profile-export-file", str(directory / "profile.json")),
    ]
    if load.rate is not None or (load.concurrency or 0) > SYNCHRONOUS_CLIENTS:
        arguments.append("--async")
    if load.rate is not None:
        return [*arguments, "--request-distribution", "poisson", "--request-rate-range", f"{load.rate:g}"]
    return [*arguments, "--concurrency-range", str(load.concurrency)]


def input_data(tensors: Tensors) -> dict[str, Any]:
    """Return the rows as perf_analyzer's input data: one object per row, the bytes of its tensors in base64.

    Rows with NaN are left out if there are others: perf_analyzer repeats the sent rows in its profile export, and
    writes an empty export if JSON cannot hold them.
    """
    count = row_count(tensors)
    numbers = [array for array in tensors.values() if array.dtype.kind == "f"]
    complete = [row for row in range(count) if not any(np.isnan(array[row]).any() for array in numbers)]
    return {
        "data": [
            {
                name: {
                    "content": {"b64": base64.b64encode(wire(array[row])).decode()},
                    "shape": [array.shape[1]],
                }
                for name, array in tensors.items()
            }
            for row in (complete or range(count))[:MAX_ROWS]
        ]
    }


def latencies_s(profile: Mapping[str, Any]) -> np.ndarray:
    """Return the latency in seconds of every request answered in the windows of the report: the last 3."""
    experiments = profile.get("experiments") or [{}]
    requests: Sequence[Mapping[str, Any]] = experiments[-1].get("requests", ())
    boundaries: Sequence[int] = experiments[-1].get("window_boundaries", ())[-1 - STABLE_WINDOWS :]
    begin = boundaries[0] if boundaries else 0
    times = [
        request["response_timestamps"][-1] - request["timestamp"]
        for request in requests
        if request.get("response_timestamps") and request["response_timestamps"][-1] >= begin
    ]
    return np.array(times, np.float64) / NS_PER_S


def rows_per_s(report: str) -> float:
    """Return rows per second from the last line of the latency report ("Inferences/Second" counts rows)."""
    lines = list(csv.DictReader(report.splitlines()))
    if not lines or "Inferences/Second" not in lines[-1]:
        raise ComparisonError("perf_analyzer wrote a latency report without the column 'Inferences/Second'.")
    return float(lines[-1]["Inferences/Second"])


@dataclass(frozen=True)
class _Run:
    """One run of the program: its exit status, its output, its two files if it wrote both, and its CPU share."""

    status: int
    said: str
    report: str
    profile: Mapping[str, Any] | None
    cpu_share: float

    @property
    def stable(self) -> bool:
        return self.status == 0 and LATENCY_DIFFERS not in self.said


def measure_load(
    program: Path,
    model: str,
    rows: CheckedRows,
    load: Load,
    address: str,
    read_counters: Callable[[], ServerCounters],
    settings: Settings,
) -> Figures:
    """Run perf_analyzer for one point, once more if it was not stable, and with longer windows if these were empty.

    Raises:
        ComparisonError: perf_analyzer fails in another way; the message holds the last line of its output.
    """

    def once(any_result: bool, settings: Settings = settings) -> _Run:
        with tempfile.TemporaryDirectory() as temporary:  # a new one: perf_analyzer refuses to overwrite its files
            directory = Path(temporary)
            (directory / "rows.json").write_text(json.dumps(input_data(rows.tensors)), encoding="utf-8")
            return _run(
                command(program, model, rows.tensors, load, address, settings, directory, any_result), directory
            )

    before = read_counters()
    run = once(any_result=False)
    longer = LONGER
    while run.profile is None and NONE_IN_WINDOW in run.said and longer <= MOST_LONGER:
        before = read_counters()
        run = once(any_result=False, settings=replace(settings, window_s=longer * settings.window_s))
        longer *= LONGER
    stable = run.stable
    if run.status == NOT_STABLE and run.profile is None:
        before = read_counters()
        run = once(any_result=True)
    if run.profile is None:
        said = [line for line in run.said.splitlines() if line.strip()]
        raise ComparisonError(
            f"perf_analyzer ended with status {run.status} and no report: {said[-1] if said else 'no output'}"
        )
    throughput, times = rows_per_s(run.report), latencies_s(run.profile)
    return Figures(
        requests_per_s=throughput / load.rows,
        rows_per_s=throughput,
        requests=int(times.size),
        latency=Latencies.of(times),
        errors={},
        answers_checked=0,
        server=ServerFigures.between(before, read_counters()),
        client_cpu_share=run.cpu_share,
        client_processes=1,
        stable=stable,
        windows=(),
    )


def _run(arguments: Sequence[str], directory: Path) -> _Run:
    began, cpu = time.monotonic(), _children_cpu_s()
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    share = (_children_cpu_s() - cpu) / (time.monotonic() - began)
    report, profile = directory / "latency.csv", directory / "profile.json"
    complete = report.is_file() and profile.is_file() and profile.stat().st_size > 0  # see `input_data`
    return _Run(
        done.returncode,
        f"{done.stdout}\n{done.stderr}",
        report.read_text(encoding="utf-8") if complete else "",
        json.loads(profile.read_text(encoding="utf-8")) if complete else None,
        share,
    )


def _children_cpu_s() -> float:
    times = os.times()
    return times.children_user + times.children_system
