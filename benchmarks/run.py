"""Runs every benchmark that this machine can run, each in a process of its own, and makes the tables anew.

python -m benchmarks.run [--quick] [--only cpu.predict gpu.families served.batching ...] [--output DIR] [--no-tables]
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
from pathlib import Path

import torch

from benchmarks.environment import RESULTS, default_directory

BENCHMARKS = (
    "cpu.predict",
    "cpu.gpu_or_cpu",
    "gpu.kernels",
    "gpu.families",
    "gpu.unlike_rows",
    "gpu.host_to_host",
    "gpu.fleets",
    "gpu.contributions",
    "cpu.in_process",
    "cpu.own_code",
    "cpu.scoring",
    "served.batching",
    "served.requests",
    "served.fleets",
    "served.explained",
    "served.several_gpus",
    "served.startup",
    "cpu.observer",
    "served.large_exports",
)
WITH_A_GENERATOR = ("served.batching", "served.requests", "served.several_gpus")


def missing(benchmark: str) -> str:
    """Return why this machine cannot run a benchmark, or nothing."""
    room = benchmark.partition(".")[0]
    if (room == "gpu" or benchmark == "served.startup") and not torch.cuda.is_available():
        return "torch finds no CUDA GPU"
    if benchmark == "served.several_gpus" and torch.cuda.device_count() < 2:
        return "torch finds fewer than two CUDA GPUs"
    if benchmark == "cpu.scoring" and importlib.util.find_spec("pyarrow") is None:
        return "pyarrow is not installed"
    if (room == "served" or benchmark == "cpu.scoring") and importlib.util.find_spec("tritonclient") is None:
        return "tritonclient is not installed"
    return ""


def run(chosen: list[str], directory: Path, *, quick: bool, generator: str) -> list[str]:
    """Run the chosen benchmarks and return those that failed."""
    failed = []
    for benchmark in chosen:
        reason = missing(benchmark)
        if reason:
            print(f"without {benchmark}: {reason}", flush=True)
            continue
        command = [sys.executable, "-u", "-m", f"benchmarks.{benchmark}", "--output", str(directory)]
        command += ["--quick"] * quick
        command += ["--generator", generator] * (benchmark in WITH_A_GENERATOR)
        if subprocess.run(command, check=False).returncode:
            failed.append(benchmark)
    return failed


def main() -> None:
    """Read the command line and run; exit with 1 if a benchmark failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="short measurements, to see that all is well")
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, default=list(BENCHMARKS), help="which benchmarks")
    parser.add_argument("--generator", default="builtin", help="what sends requests: builtin, perf_analyzer")
    parser.add_argument("--output", type=Path, default=None, help="directory of the JSON files, default by device")
    parser.add_argument("--no-tables", action="store_true", help="leave docs/benchmarks.md and the plots as they are")
    arguments = parser.parse_args()
    directory = arguments.output or default_directory()
    failed = run(arguments.only, directory, quick=arguments.quick, generator=arguments.generator)
    if not arguments.no_tables and directory.resolve().parent == RESULTS.resolve():
        command = [sys.executable, "-m", "benchmarks.figures.tables"]
        failed += ["figures.tables"] * bool(subprocess.run(command, check=False).returncode)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
