"""What bounds exact contributions on a GPU: its own counters, for all kernels of a batch together.

    python -m benchmarks.bounds.contribution_counters [--models depth-8 ...] [--output DIR]      needs a GPU, and ncu

A share is that of a unit's peak rate: with t the time of each kernel and s the unit's share during it, Σ t·s / Σ t.
Only fewer instructions, or fewer bytes, make kernels more than 1 / share times as fast. Instructions are those of
warps.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.bounds.ncu import parsed, profiled
from benchmarks.environment import busy, default_directory, device_name, save_models
from benchmarks.gpu.contributions import CASES, FIT_ROWS, drawn, fitted, plan_of
from benchmarks.gpu.families import kernels
from triton_regressors.contribution_game import OUTPUT

BATCHES = {"depth-6": (1024, 65_536), "depth-8": (1024, 65_536), "grown": (64, 4096), "svr": (1024,)}
TIME, INSTRUCTIONS = "gpu__time_duration.sum", "smsp__inst_executed.sum"
PEAK = ".avg.pct_of_peak_sustained_elapsed"
SHARES = {
    "issue": f"sm__inst_executed{PEAK}",
    "float64": f"sm__inst_executed_pipe_fp64{PEAK}",
    "integers": f"sm__inst_executed_pipe_alu{PEAK}",
    "loads": f"l1tex__throughput{PEAK}",
    "L2 cache": f"lts__throughput{PEAK}",
    "memory": f"dram__throughput{PEAK}",
}
UNITS = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}


def launch(name: str, rows: int) -> None:
    """Launch a batch's kernels once to compile them, and once for ncu."""
    case = CASES[name]
    plan = plan_of(fitted(name, case, FIT_ROWS), case)
    call = kernels(plan, [torch.from_numpy(drawn(case, rows, 10)).float().cuda()], (OUTPUT,))
    call(0)
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    call(0)
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def measure(name: str, rows: int) -> dict[str, Any]:
    """Return and print the time, the instructions and the shares of a batch."""
    launching = ["-m", "benchmarks.bounds.contribution_counters", "--launch", name, str(rows)]
    units, found = profiled(launching, [TIME, INSTRUCTIONS, *SHARES.values()])
    times = [UNITS[units[TIME]] * parsed(each[TIME]) for each in found]
    shares = {
        unit: sum(time * parsed(each[metric]) for time, each in zip(times, found, strict=True)) / sum(times) / 100
        for unit, metric in SHARES.items()
    }
    result = {
        "model": name,
        "title": CASES[name].title,
        "rows": rows,
        "kernels": len(found),
        "time_us": float(f"{sum(times):.4g}"),
        "instructions_per_row": float(f"{sum(parsed(each[INSTRUCTIONS]) for each in found) / rows:.4g}"),
        "shares": {unit: float(f"{share:.3g}") for unit, share in shares.items()},
    }
    print(result, flush=True)
    return result


def run(models: Sequence[str], directory: Path) -> Path | None:
    """Measure models and write contribution_counters.json."""
    if not torch.cuda.is_available():
        raise SystemExit("benchmarks.bounds.contribution_counters needs a CUDA GPU; torch finds none.")
    print(f"contributions' counters on {device_name()}")
    path = None
    for name in models:
        found = [{"busy_at_start": busy()} | measure(name, rows) for rows in BATCHES[name]]
        path = save_models(directory, "contribution_counters", {}, found, list(BATCHES), among="cases")
    return path


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=BATCHES, default=list(BATCHES), help="which models")
    parser.add_argument("--output", type=Path, default=None, help="directory of contribution_counters.json")
    parser.add_argument("--launch", nargs=2, metavar=("MODEL", "ROWS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.launch:
        launch(arguments.launch[0], int(arguments.launch[1]))
        return
    run(arguments.models, arguments.output or default_directory())


if __name__ == "__main__":
    main()
