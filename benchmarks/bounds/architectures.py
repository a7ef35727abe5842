"""What bounds each family on GPUs that are not at hand, and what float64 costs there, from machine code and rates.

    python -m benchmarks.architectures [--only neighbors expansions] [--gpus T4 L4] [--output FILE]       needs no GPU

Each plan's launches are recorded as the GPU's own compute capability, processors and shared memory would have them,
compiled for it, and the instructions of some programs of each grid are counted by following their machine code
(`sass_execution.py`); where rows decide how often a loop runs, the interpreter counted it (`loop_passes.py`). Times
the number of programs, that is what a batch executes; `counters.py` compares it with an H200's own counters. Divided by
the published rates (`gpu_rates.py`) it is the least time that each pipe takes for a row; the largest, beside memory and
the bus, bounds the whole.

Memory is what has to move at least: rows, answers, all that kernels hand to each other, and the model once a batch. The
bus is the plan's input in one direction and its outputs in the other. Latency, caches' bandwidth and clocks below the
boost clock only make real times longer.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern

from benchmarks.bounds.gpu_rates import FLOAT64, GPUS, WARP, Gpu, float64_instructions, seconds
from benchmarks.bounds.loop_counts import chosen as chosen_neighbors
from benchmarks.bounds.loop_counts import counted
from benchmarks.bounds.recording import Recorded, compile_recorded, constant_bank, record, unique
from benchmarks.bounds.sass import SassError, disassemble
from benchmarks.bounds.sass_execution import Counts, Hints, execute
from benchmarks.bounds.sass_thread import Memory, Program
from benchmarks.environment import RESULTS
from benchmarks.gpu import families
from benchmarks.models import model
from triton_regressors.kernels.plan.plan import Plan, Step

FILE = RESULTS / "architectures.json"
CPU = torch.device("cpu")
MEMORY, BUS = "memory", "bus"
ROWS, NEIGHBOR_ROWS = 65536, 4096
FAMILIES = ("linear", "gaussian_process", *families.FAMILIES)
LINEAR = ("ridge", "polynomial_2", "polynomial_3")
FEW_PROGRAMS, SAMPLED = 4, 20
NOT_ENTERED = ("descend", "metric_by_features")
"""Functions that rows without missing numbers, and away from points, do not enter where there is another way."""


@dataclass(frozen=True)
class Work:
    """A plan and a number of rows."""

    family: str
    title: str
    plan: Plan
    rows: int


@dataclass(frozen=True)
class Load:
    """What a row costs: warp instructions by opcode, all that are issued, bytes of memory and of the bus."""

    executed: Mapping[str, float]
    issued: float
    memory_bytes: float
    bus_bytes: float


def works(chosen: Sequence[str], toy: bool = False) -> Iterator[Work]:
    """Yield the works of the chosen families, each also at the least precision that its operations have."""
    for work in _as_exported(chosen, toy):
        yield work
        steps = [step.operation for step in work.plan.steps if len(step.operation.precisions()) > 1]
        if any(getattr(operation, "precision", "") != operation.precisions()[-1] for operation in steps):
            least = {
                id(operation): operation.in_precision(operation.precisions()[-1])
                for operation in steps
            }  # fmt: skip
            plan = work.plan.with_steps(
                Step(least.get(id(step.operation), step.operation), step.inputs, step.output)
                for step in work.plan.steps
            )
            precisions = "/".join(dict.fromkeys(operation.precisions()[-1] for operation in steps))
            yield Work(work.family, f"{work.title}, in {precisions}", plan, work.rows)


def _as_exported(chosen: Sequence[str], toy: bool) -> Iterator[Work]:
    rows = 256 if toy else ROWS
    for family in chosen:
        if family == "linear":
            for name in LINEAR[:2] if toy else LINEAR:
                yield Work(family, model(name).title, model(name).plan(), rows)
        elif family == "gaussian_process":
            count, features = (60, 3) if toy else (2000, 16)
            X = np.random.default_rng(0).standard_normal((count, features))
            estimator = GaussianProcessRegressor(Matern(nu=1.5, length_scale=4.0), alpha=1e-3, optimizer=None)
            plan = families.compiled(estimator.fit(X, np.sin(X).sum(axis=1)))
            yield Work(family, f"Gaussian process with std, Matern, {count:,} × {features}", plan, rows)
        else:
            found_works = chosen_neighbors(toy) if family == "neighbors" else families.works(CPU, [family], toy)
            for found in found_works:
                if found.beside is not None:
                    continue  # it descends as others do, but in a loop that the program ends with, which none follows
                many = NEIGHBOR_ROWS if family == "neighbors" and not toy else rows
                yield Work(family, found.title, found.plan, many)


def load(work: Work, gpu: Gpu, passes: Mapping[str, float]) -> Load:
    """Return what a row of a work costs on a GPU."""
    launches, known = record(work.plan, work.rows, gpu)
    executed: Counter[str] = Counter()
    places = {tensor.data_ptr() for tensor in known}
    given = [tensor for launch in launches for tensor in launch.tensors()]
    moved = [tensor for tensor in unique(given) if tensor.data_ptr() in places]
    moved += [tensor for tensor in given if tensor.data_ptr() not in places]
    found = counts(launches, known, gpu, passes)
    for one in found:
        executed.update(one.executed)
    inputs = work.plan.n_features * np.dtype(work.plan.dtype).itemsize
    outputs = 4 * sum(work.plan.output_widths().values())
    return Load(
        {opcode: count / work.rows for opcode, count in executed.items()},
        sum(one.issued for one in found) / work.rows,
        sum(tensor.numel() * tensor.element_size() for tensor in moved) / work.rows,
        float(max(inputs, outputs)),
    )


def counts(
    launches: Sequence[Recorded], known: Sequence[torch.Tensor], gpu: Gpu, passes: Mapping[str, float]
) -> list[Counts]:
    """Return what all programs of each launch execute; launches that differ in their rows alone are counted once."""
    memory, seen, found = Memory(known), {}, []
    for launch in launches:
        scalars = {n: v for n, v in launch.arguments.items() if n != "rows" and not isinstance(v, torch.Tensor)}
        key = (launch.kernel.__name__, launch.grid[1:], str(scalars))
        if key not in seen:
            seen[key] = of_program(launch, gpu, memory, passes)
        found.append(seen[key].times(int(np.prod(launch.grid))))
    return found


def of_program(launch: Recorded, gpu: Gpu, memory: Memory, passes: Mapping[str, float]) -> Counts:
    """Return what a program of a launch executes in the mean, with loops that rows decide at their means.

    Of the first axis with many programs two are followed, and more where these differ, as those do that go through
    rows in turns; of another axis it is the one in the middle. Means lie between whole numbers: what is counted is
    linear in each, and weighted accordingly.
    """
    compiled = compile_recorded(launch, gpu.capability)
    code, bank = disassemble(compiled.asm["cubin"]), constant_bank(launch, gpu.capability)
    own = {name: mean for name, mean in passes.items() if any(i.function == name for i in code.instructions)}
    columns, *others = launch.grid
    rest = list(itertools.product(*(range(n) if n <= FEW_PROGRAMS else [n // 2] for n in others)))

    def mean_of(places: Sequence[int]) -> Counts:
        total = Counts()
        for x, (y, z) in itertools.product(places, rest):
            program = Program(bank, (x, y, z), compiled.metadata.num_warps, memory)
            for corner in itertools.product((0, 1), repeat=len(own)):
                weight, whole = 1.0 / (len(places) * len(rest)), {}
                for (name, mean), upper in zip(own.items(), corner, strict=True):
                    whole[name] = int(mean) + upper
                    weight *= mean - int(mean) if upper else 1 - mean + int(mean)
                if weight:
                    total.add(execute(code, program, Hints(whole, NOT_ENTERED)).times(weight))
        return total

    if columns <= FEW_PROGRAMS:
        return mean_of(range(columns))
    early, late = (mean_of([columns * place // SAMPLED]) for place in (1, SAMPLED - 1))
    if early == late:
        return early
    return mean_of([columns * (2 * place + 1) // (2 * SAMPLED) for place in range(SAMPLED)])


def bounds(found: Load, gpu: Gpu) -> dict[str, float]:
    """Return the least time of a row in nanoseconds, by what takes it."""
    times = seconds(found.executed, found.issued, gpu)
    times[MEMORY] = found.memory_bytes / (gpu.memory_gb_s * 1e9)
    times[BUS] = found.bus_bytes / (gpu.pcie_gb_s * 1e9)
    return {name: float(f"{1e9 * value:.4g}") for name, value in times.items()}


def measure(work: Work, gpus: Sequence[Gpu], passes: Mapping[str, float]) -> dict[str, Any]:
    """Return a work's bounds on each GPU, and print them; a GPU whose machine code cannot be followed is left out."""
    results: dict[str, Any] = {}
    for gpu in gpus:
        try:
            found = load(work, gpu, passes)
        except SassError as error:
            print(f"{work.title}, {gpu.name}: without, {error}", flush=True)
            continue
        times = bounds(found, gpu)
        float64 = {kind: round(WARP * count, 2) for kind, count in float64_instructions(found.executed).items()}
        results[gpu.name] = {"float64_per_row": float64, "ns_per_row": times}
        on_gpu, served = ratio(times, bus=False), ratio(times, bus=True)
        text = ", ".join(f"{name} {value:.3g}" for name, value in sorted(times.items(), key=lambda pair: -pair[1])[:4])
        print(
            f"{work.title}, {gpu.name}: {text} ns a row; float64 {on_gpu:.1f} ×, with the bus {served:.1f} ×",
            flush=True,
        )
    return {"family": work.family, "work": work.title, "rows": work.rows, "gpus": results}


def limit(times: Mapping[str, float], *, bus: bool, float64: bool = True) -> tuple[float, str]:
    """Return the longest of the times and what takes it, without the bus or without float64 if so asked."""
    left_out = {*([] if bus else [BUS]), *([] if float64 else [FLOAT64])}
    return max((value, name) for name, value in times.items() if name not in left_out)


def ratio(times: Mapping[str, float], *, bus: bool) -> float:
    """Return how many times longer the bound is than without the float64 instructions."""
    return limit(times, bus=bus)[0] / limit(times, bus=bus, float64=False)[0]


def main() -> None:
    """Read the command line, count and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=FAMILIES, default=list(FAMILIES), help="which families")
    parser.add_argument("--gpus", nargs="+", choices=[g.name for g in GPUS], default=[g.name for g in GPUS])
    parser.add_argument("--toy", action="store_true", help="tiny models, to try the script out; writes nothing")
    parser.add_argument("--output", type=Path, default=FILE, help="the JSON file")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    passes = counted(arguments.toy) if "neighbors" in arguments.only else {}
    gpus = [gpu for gpu in GPUS if gpu.name in arguments.gpus]
    with tempfile.TemporaryDirectory() as cache:  # what was compiled elsewhere names files that may be gone
        triton.knobs.cache.dir = cache
        found = [measure(work, gpus, passes.get(work.title, {})) for work in works(arguments.only, arguments.toy)]
    if arguments.toy:
        return
    before = json.loads(arguments.output.read_text(encoding="utf-8")) if arguments.output.exists() else {"cases": []}
    kept = [case for case in before["cases"] if case["family"] not in arguments.only]
    cases = sorted([*kept, *found], key=lambda case: FAMILIES.index(case["family"]))
    document = {"benchmark": "architectures", "triton": triton.__version__, "cases": cases}
    arguments.output.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"wrote {arguments.output}")


if __name__ == "__main__":
    main()
