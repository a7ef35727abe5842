"""The command `profile`: the kernels of calls, what each uses of the GPU, and a trace of them.

torch.profiler writes a trace in the form of Chrome's, which https://ui.perfetto.dev opens. The tables are read from it:
a call's kernels are those that began while the span of its name lasted, at whose end the GPU is waited for.
"""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch.profiler import ProfilerActivity, profile, record_function

from gallery.catalogue import find, kernel_device
from gallery.errors import GalleryError, made
from gallery.exhibit import Exhibit
from gallery.occupancy import Multiprocessor, occupancy
from gallery.show import backward_calls, calls, draw, read_dtype
from gallery.sizes import read_size, refusals, written

LEVELS = "levels/"
WARM_CALLS, CALLS = 3, 5
SPAN = "call of "
"""The beginning of the names of spans in the trace."""

NCU = {
    "memory, % of peak": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "multiprocessors, % of peak": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "warps running, %": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "read, MB": "dram__bytes_read.sum",
    "written, MB": "dram__bytes_write.sum",
}
"""The counters of ncu that are shown, by the heading of their column."""

MEGABYTES = {"byte": 1e-6, "Kbyte": 1e-3, "Mbyte": 1.0, "Gbyte": 1e3}


@dataclass(frozen=True)
class Kernel:
    """A kernel of a call: its mean time over the calls, and one launch's shape and needs."""

    name: str
    launches: float
    """In one call."""

    microseconds: float
    """Of all its launches in one call."""

    grid: tuple[int, ...]
    threads: int
    registers: int
    shared_bytes: int


@dataclass(frozen=True)
class Job:
    """A call to profile, and what it must move and compute."""

    call: Callable[[], Any]
    bytes: int
    operations: int = 0


def profile_command(name: str, size: str | None, dtype: str | None, output: Path, *, launch: bool = False) -> None:
    """Profile an exhibit, or with `levels/` before its name a subject at its levels, and print.

    `launch` is for ncu, which starts this process: calls are made once, and nothing is printed.

    Raises:
        GalleryError: There is no GPU, no such name, size or type, or the output cannot be written.
    """
    if kernel_device().type != "cuda":
        raise GalleryError("profile needs a CUDA GPU, and torch finds none; `run` works without.")
    title, jobs = (
        jobs_of_level(name.removeprefix(LEVELS), size) if name.startswith(LEVELS) else jobs_of(name, size, dtype)
    )
    if launch:
        launched(jobs)
        return
    console = Console(markup=False, highlight=False, soft_wrap=True)
    path = made(output) / f"{name.replace('/', '_')}.json"
    trace = recorded(jobs, path)
    has = Multiprocessor.of(torch.device("cuda"))
    console.print(
        f"\n{title}\nMeans of {CALLS} calls, one after the other, as the profiler sees them: caches are warm."
    )
    for job_name, job in jobs.items():
        console.print(table(job_name, kernels(trace, job_name, CALLS), has))
        console.print(rates(kernels(trace, job_name, CALLS), job))
    console.print(f"Trace: {path}; https://ui.perfetto.dev opens it.")
    by_ncu(console, [name, *(["--size", size] if size else []), *(["--dtype", dtype] if dtype else [])])


def jobs_of(name: str, size: str | None, dtype: str | None) -> tuple[str, dict[str, Job]]:
    """Return a title and the calls of an exhibit and its peers, gradients included if they are timed."""
    exhibit = find(name)
    kind = read_dtype(exhibit, dtype)
    taken = read_size(exhibit, size) if size else exhibit.curve[-1]
    arguments = draw(exhibit, taken, kind, torch.device("cuda"))
    with refusals(exhibit, taken):
        forward = calls(exhibit, arguments)
        backward = backward_calls(exhibit, arguments) if timed_backward(exhibit) else {}
    jobs = {
        each: Job(call, exhibit.traffic(*arguments), _of(exhibit.work, arguments)) for each, call in forward.items()
    }
    for each, call in backward.items():
        moved, computed = _of(exhibit.backward_traffic, arguments), _of(exhibit.backward_work, arguments)
        jobs[f"{each}, gradients"] = Job(call, moved, computed)
    return f"{exhibit.name} of {written(taken)}, {str(kind).removeprefix('torch.')}", jobs


def jobs_of_level(name: str, size: str | None) -> tuple[str, dict[str, Job]]:
    """Return a title and the calls of a subject at every level that runs here."""
    from gallery.levels.parts import LEVELS as EVERY
    from gallery.levels.parts import missing
    from gallery.levels.subjects import SUBJECTS

    if name not in SUBJECTS:
        raise GalleryError(f"There is no level's subject {name}; subjects are {', '.join(SUBJECTS)}.")
    if size:
        raise GalleryError(f"--size is for exhibits; {LEVELS}{name} has one size.")
    subject, device = SUBJECTS[name], torch.device("cuda")
    moved = subject.numbers(subject.large) * subject.dtype.itemsize
    jobs = {}
    with torch.inference_mode():
        arguments = subject.arguments(subject.large, device)
        for level in (each for each in EVERY if not missing(each)):
            made = subject.at(level, subject.large, device)
            jobs[level] = Job(_in_inference(made, arguments), moved, subject.work(subject.large))
    return f"{name} of {written(subject.large)}, {str(subject.dtype).removeprefix('torch.')}", jobs


def timed_backward(exhibit: Exhibit) -> bool:
    """Return whether an exhibit's gradients are timed."""
    return bool(exhibit.backward_traffic or exhibit.backward_work)


def recorded(jobs: Mapping[str, Job], path: Path) -> dict[str, Any]:
    """Make the calls under torch.profiler, write its trace to a file, and return it; a CPU has no kernels."""
    for job in jobs.values():
        for _ in range(WARM_CALLS):
            job.call()
    _wait()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    with profile(activities=activities) as profiler:
        for name, job in jobs.items():
            with record_function(SPAN + name):
                for _ in range(CALLS):
                    job.call()
                _wait()
    profiler.export_chrome_trace(str(path))
    return json.loads(path.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def launched(jobs: Mapping[str, Job]) -> None:
    """Make each call once while ncu watches; it is tuned and warm before."""
    for job in jobs.values():
        for _ in range(WARM_CALLS):
            job.call()
        _wait()
        torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
        job.call()
        _wait()
        torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]


def kernels(trace: Mapping[str, Any], name: str, count: int) -> list[Kernel]:
    """Return the kernels of one of `count` calls from a trace, the longest first."""
    events = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    spans = [event for event in events if event["name"] == SPAN + name and "gpu" not in event.get("cat", "")]
    if not spans:
        return []
    begins, ends = spans[0]["ts"], spans[0]["ts"] + spans[0]["dur"]
    found: dict[str, list[Mapping[str, Any]]] = {}
    for event in events:
        if event.get("cat") == "kernel" and begins <= event["ts"] <= ends:
            found.setdefault(event["name"], []).append(event)
    made = [
        Kernel(
            kernel,
            len(launches) / count,
            sum(launch["dur"] for launch in launches) / count,
            tuple(launches[-1]["args"].get("grid", ())),
            _product(launches[-1]["args"].get("block", ())),
            int(launches[-1]["args"].get("registers per thread", 0)),
            int(launches[-1]["args"].get("shared memory", 0)),
        )
        for kernel, launches in found.items()
    ]
    return sorted(made, key=lambda kernel: -kernel.microseconds)


def table(name: str, found: Sequence[Kernel], has: Multiprocessor) -> Table:
    """Return the table of a call's kernels."""
    made = Table(title=name, title_justify="left")
    made.add_column("kernel", overflow="fold")
    for heading in ("launches", "µs", "programs", "threads", "registers", "shared, kB", "occupancy", "bound by"):
        made.add_column(heading, justify="right")
    for kernel in found:
        known = occupancy(kernel.registers, kernel.shared_bytes, kernel.threads, has) if kernel.threads else None
        made.add_row(
            kernel.name,
            f"{kernel.launches:g}",
            f"{kernel.microseconds:,.1f}",
            f"{_product(kernel.grid):,}",
            str(kernel.threads),
            str(kernel.registers),
            f"{kernel.shared_bytes / 1000:,.1f}",
            f"{known.share:.0%}, {known.programs} programs" if known else "",
            known.bound_by if known else "",
        )
    return made


def rates(found: Iterable[Kernel], job: Job) -> str:
    """Return the time of a call's kernels together, with the rates at which they move and compute what they must."""
    microseconds = sum(kernel.microseconds for kernel in found)
    if not microseconds:
        return "No kernel was seen."
    parts = [f"Kernels take {microseconds:,.1f} µs"]
    if job.bytes:
        parts.append(f"{job.bytes / 1e6:,.1f} MB must move: {job.bytes / microseconds / 1e3:,.0f} GB/s")
    if job.operations:
        rate = job.operations / microseconds / 1e6
        parts.append(f"{job.operations / 1e9:,.1f} GFLOP must be computed: {rate:,.1f} TFLOP/s")
    return "; ".join(parts) + "."


def by_ncu(console: Console, arguments: Sequence[str]) -> None:
    """Print ncu's counters of the same calls, or why there are none."""
    if shutil.which("ncu") is None:
        console.print("ncu is not installed; it would add counters of the memory and the multiprocessors.")
        return
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "ncu.csv"
        command = ["ncu", "--profile-from-start", "off", "--clock-control", "none", "--csv", "--page", "raw"]
        command += ["--log-file", str(log), "--metrics", ",".join(NCU.values())]
        command += [sys.executable, "-m", "gallery", "profile", *arguments, "--launch"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        text = log.read_text(encoding="utf-8") if log.exists() else ""
    rows = counters(text)
    if done.returncode or not rows:
        reasons = [line for line in text.splitlines() if line.startswith("==ERROR==")]
        console.print(f"ncu counted nothing: {(reasons or [f'it ended with {done.returncode}'])[0]}")
        return
    made = Table("kernel", *NCU, title="Counters of ncu, a launch in each line", title_justify="left")
    for row in rows:
        made.add_row(*row)
    console.print(made)


def counters(text: str) -> list[list[str]]:
    """Return the lines of ncu's CSV text: the kernel's name, and the counters of `NCU`, bytes in MB."""
    lines = [line for line in text.splitlines() if line and not line.startswith("==")]
    rows = list(csv.DictReader(lines))
    if not rows:
        return []
    units, *launches = rows
    found = []
    for launch in launches:
        values = []
        for metric in NCU.values():
            value = float(launch[metric].replace(",", "")) * MEGABYTES.get(units[metric], 1.0)
            values.append(f"{value:,.1f}")
        found.append([launch["Kernel Name"], *values])
    return found


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _in_inference(call: Callable[..., Any], arguments: tuple[Any, ...]) -> Callable[[], Any]:
    def called() -> Any:
        with torch.inference_mode():
            return call(*arguments)

    return called


def _of(amount: Callable[..., int] | None, arguments: tuple[Any, ...]) -> int:
    return amount(*arguments) if amount else 0


def _product(numbers: Iterable[int]) -> int:
    result = 1
    for number in numbers:
        result *= number
    return result
