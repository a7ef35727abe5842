"""Time of an exported entry by the number of rows: from tensors in host memory to answers there, and its kernels.

    python -m benchmarks.gpu.entry --entry DIR ... --rows FILE.npz ... [--sizes 1 65536] [--quick] [--output DIR]
    python -m benchmarks.gpu.entry --entry DIR --rows FILE.npz --dry-run      tries the script out on a CPU

It needs a CUDA GPU, and no library that the entry's model comes from: `benchmarks/entry_rows.py` describes the file of
rows, and `python -m benchmarks.cpu.autogluon --keep DIR` writes both. "host to host" is a call of `tr.load`'s model
with the tensors that a server would receive, strings included. "kernels" are the plan's launches one after another,
without the numbering of strings before them and without the branches that a served batch runs side by side.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import triton_regressors as tr
from benchmarks.checking import demand, error_of_arrays
from benchmarks.entry_rows import drawn, read_rows
from benchmarks.environment import busy, default_directory, device_name, save
from benchmarks.gpu.families import kernels
from benchmarks.timing import QUICK, Contender, Effort, time_on_device, time_on_host
from triton_regressors.kernels.entry import read_document
from triton_regressors.kernels.plan.plan import load_plan

HOST, KERNELS, RESIDENT = "host to host", "kernels", "rows on the GPU"
SIZES, TOY_SIZES = (1, 2**16), (1, 5)
INPUTS = 4
LIMIT = 1e-5
"""The largest difference from the answers in the file, in their standard deviations."""


def measure(directory: Path, file: Path, sizes: Sequence[int], effort: Effort, device: torch.device) -> dict[str, Any]:
    """Check, time and print an entry for each number of rows; return the figures."""
    model = tr.load(directory, device=str(device))
    version = model.entry.version_directory
    plan, inputs = load_plan(version), read_document(version).inputs
    launches = sum(step.launches() for step in plan.steps_for(("y",)))
    tensors, answers = read_rows(file)
    error = demand(directory.name, error_of_arrays(model.infer(tensors, outputs=("y",))["y"], answers), LIMIT)
    cases = []
    for rows in sizes:
        given = [drawn(tensors, rows, seed) for seed in range(INPUTS)]
        there = [torch.from_numpy(inputs.encode(each)).to(device) for each in given]
        contenders = [Contender(HOST, lambda i, given=given: model.infer(given[i], outputs=("y",)))]
        if inputs.plain_matrix and device.type == "cuda":
            contenders.append(Contender(RESIDENT, lambda i, there=there: model.predict(there[i])))
        times = time_on_host(contenders, INPUTS, effort)
        alone = [Contender(KERNELS, kernels(plan, there, ("y",)))]
        times |= time_on_device(alone, INPUTS, device, rounds=effort.rounds)
        said = ", ".join(f"{name} {timing.median_us:,.1f} µs" for name, timing in times.items())
        print(f"{directory.name}: {rows:,} rows, {launches} launches: {said}, error {error:.0e}", flush=True)
        cases.append({"rows": rows, "contenders": {name: timing.to_json() for name, timing in times.items()}})
    return {
        "entry": directory.name,
        "where": model.where,
        "dtype": plan.dtype,
        "steps": len(plan.steps),
        "launches": launches,
        "parameter_bytes": plan.parameter_bytes(),
        "max_error": float(f"{error:.2g}"),
        "cases": cases,
    }


def run(
    entries: Sequence[Path],
    files: Sequence[Path],
    sizes: Sequence[int] = SIZES,
    directory: Path | None = None,
    *,
    quick: bool = False,
    dry_run: bool = False,
) -> Path | None:
    """Measure entries with their files of rows and write entry.json; a dry run measures on the CPU, writes nothing."""
    if not dry_run and not torch.cuda.is_available():
        raise SystemExit("benchmarks.gpu.entry needs a CUDA GPU, and torch finds none; --dry-run tries it on a CPU.")
    if len(entries) != len(files):
        raise SystemExit(f"There are {len(entries)} entries and {len(files)} files of rows; each entry has one.")
    device = torch.device("cpu" if dry_run else "cuda:0")
    print(f"entries on {'the CPU (a dry run: these are no figures)' if dry_run else device_name()}")
    effort = QUICK if quick or dry_run else Effort(rounds=15)
    settings = {"quick": quick, "inputs": INPUTS, "busy_at_start": busy()}
    found = [measure(entry, file, sizes, effort, device) for entry, file in zip(entries, files, strict=True)]
    if dry_run:
        return None
    return save(directory or default_directory(), "entry", settings, {"entries": found})


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--entry", nargs="+", type=Path, required=True, help="directories of entries")
    parser.add_argument("--rows", nargs="+", type=Path, required=True, help="a .npz file of rows for each entry")
    parser.add_argument("--sizes", nargs="+", type=int, default=None, help="how many rows")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--dry-run", action="store_true", help="few rows on a CPU, to try the script out")
    parser.add_argument("--output", type=Path, default=None, help="directory of entry.json")
    arguments = parser.parse_args()
    sizes = arguments.sizes or (TOY_SIZES if arguments.dry_run else SIZES)
    run(arguments.entry, arguments.rows, sizes, arguments.output, quick=arguments.quick, dry_run=arguments.dry_run)


if __name__ == "__main__":
    main()
