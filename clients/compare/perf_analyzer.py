"""`--generator perf_analyzer`: NVIDIA's own load generator in place of ours, where it is installed.

The closed loop uses --concurrency-range, the open loop --request-rate-range with Poisson arrivals. Latencies come from
its profile export (every request's times), the server's times from the statistics extension as with our generator, so
that one table holds both. What differs: perf_analyzer does not check answers, counts latency from when it sent a
request and not from when it meant to, decides stability by its own rule, draws its arrivals from a seed of its own,
and the server's figures are over its whole run.

The wheel needs glibc 2.38. Options and file formats follow the documentation and source of release 2.60. The parsing is
tested on samples in that format; the program itself is not run by the tests.
"""

from __future__ import annotations

import base64
import csv
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from triton_regressors.clients.compare.errors import ComparisonError
from triton_regressors.clients.compare.load import Load
from triton_regressors.clients.compare.payloads import Rows, Signature
from triton_regressors.clients.compare.results import Figures
from triton_regressors.clients.compare.statistics import Latencies, ServerCounters, ServerFigures

if TYPE_CHECKING:
    from triton_regressors.clients.compare.measure import Settings

PROGRAM = "perf_analyzer"
MAX_ROWS = 1024
NS_PER_S = 1e9


def find() -> Path:
    """The program on PATH or beside this interpreter; ComparisonError that says how to get it."""
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
    signature: Signature,
    n_features: int,
    load: Load,
    address: str,
    settings: Settings,
    directory: Path,
) -> list[str]:
    """The command line for one point; its files lie in `directory`."""
    arguments = [
        str(program),
        *("-m", model, "-u", address, "-i", load.protocol, "-b", str(load.rows), "--async"),
        *("--shape", f"{signature.input}:{n_features}", "--input-data", str(directory / "rows.json")),
        *("--measurement-interval", str(round(settings.window_s * 1000))),
        *("--max-trials", str(settings.max_windows)),
        *("--stability-percentage", f"{settings.stability * 100:g}"),
        *("-f", str(directory / "latency.csv"), "--profile-export-file", str(directory / "profile.json")),
    ]
    if load.rate is not None:
        return [*arguments, "--request-distribution", "poisson", "--request-rate-range", f"{load.rate:g}"]
    return [*arguments, "--concurrency-range", str(load.concurrency)]


def input_data(signature: Signature, X: npt.NDArray[np.float32]) -> dict[str, Any]:
    """The rows as perf_analyzer's input data: one object per row, little-endian bytes in base64."""
    return {
        "data": [
            {
                signature.input: {
                    "content": {"b64": base64.b64encode(row.astype("<f4").tobytes()).decode()},
                    "shape": [len(row)],
                }
            }
            for row in X[:MAX_ROWS]
        ]
    }


def latencies_s(profile: Mapping[str, Any]) -> npt.NDArray[np.float64]:
    """Latency of every answered request of the last experiment of a profile export, in seconds."""
    experiments = profile.get("experiments") or [{}]
    requests: Sequence[Mapping[str, Any]] = experiments[-1].get("requests", ())
    times = [
        request["response_timestamps"][-1] - request["timestamp"]
        for request in requests
        if request.get("response_timestamps")
    ]
    return np.array(times, np.float64) / NS_PER_S


def rows_per_s(report: str) -> float:
    """Rows per second ("Inferences/Second" counts each row of a batch) of the last line of the latency report."""
    lines = list(csv.DictReader(report.splitlines()))
    if not lines or "Inferences/Second" not in lines[-1]:
        raise ComparisonError("perf_analyzer wrote a latency report without the column 'Inferences/Second'.")
    return float(lines[-1]["Inferences/Second"])


def measure(
    program: Path,
    model: str,
    signature: Signature,
    rows: Rows,
    load: Load,
    address: str,
    read_counters: Callable[[], ServerCounters],
    settings: Settings,
) -> Figures:
    """Run perf_analyzer for one point. Raises ComparisonError with its last words if it fails."""
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        (directory / "rows.json").write_text(json.dumps(input_data(signature, rows.X)), encoding="utf-8")
        before, began, cpu = read_counters(), time.monotonic(), _children_cpu_s()
        done = subprocess.run(
            command(program, model, signature, rows.X.shape[1], load, address, settings, directory),
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
        share = (_children_cpu_s() - cpu) / (time.monotonic() - began)
        report, profile = directory / "latency.csv", directory / "profile.json"
        if not report.is_file() or not profile.is_file():
            said = [line for line in (done.stdout + "\n" + done.stderr).splitlines() if line.strip()]
            raise ComparisonError(
                f"perf_analyzer ended with status {done.returncode} and no report: {said[-1] if said else 'no output'}"
            )
        throughput = rows_per_s(report.read_text(encoding="utf-8"))
        times = latencies_s(json.loads(profile.read_text(encoding="utf-8")))
    stable = done.returncode == 0 and "Failed to obtain stable measurement" not in done.stdout + done.stderr
    return Figures(
        requests_per_s=throughput / load.rows,
        rows_per_s=throughput,
        requests=int(times.size),
        latency=Latencies.of(times),
        errors={},
        answers_checked=0,
        server=ServerFigures.between(before, read_counters()),
        client_cpu_share=share,
        client_processes=1,
        stable=stable,
        windows=(),
    )


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
