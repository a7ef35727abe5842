"""Time of neighbours, expansions, trees and layers by the number of rows, beside torch or nvForest in the same run.

    python -m benchmarks.gpu.families [--only neighbors layers] [--quick] [--output DIR]      needs a CUDA GPU
    python -m benchmarks.gpu.families --dry-run              tries the script out on a CPU, on toy sizes

A work is a plan's kernels, one launch after the other, and torch's way to the same in float32: its answers need not be
as exact, nor the same in every batch. For expansions, torch's way is what `torch.compile` makes for the number of rows.
All of these are timed on the device. Trees stand beside nvForest if it is installed. It cannot be captured into a
graph: its time is the host's from a call until the answers are there, and ours is then a graph's replay on the same
clock. Trees that are added up in order stand beside the same trees summed as integers.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.neural_network import MLPRegressor

from benchmarks.checking import demand
from benchmarks.environment import default_directory, device_name, save_models
from benchmarks.gpu.neighbor_workloads import neighborhoods
from benchmarks.gpu.nvforest_peer import nvforest, there_is_nvforest
from benchmarks.gpu.point_workloads import expansions
from benchmarks.gpu.workloads import Work, compiled, with_ordered_sums
from benchmarks.timing import QUICK, Contender, Effort, capture, time_on_device, time_on_host
from triton_regressors.kernels.engine.program import bind_parameters
from triton_regressors.kernels.plan.plan import INPUT, Plan

INPUTS = 4
OURS, TORCH, INTEGERS = "triton_regressors", "torch", "integer sum"
CHECKED_ROWS = 16
FAMILIES = ("neighbors", "expansions", "trees", "layers")

Tensor = torch.Tensor


def works(device: torch.device, chosen: Sequence[str], toy: bool) -> Iterator[Work]:
    """Yield the works of the chosen families, made one after the other."""
    makers = {"neighbors": neighborhoods, "expansions": expansions, "trees": trees, "layers": layers}
    for family in chosen:
        yield from makers[family](device, toy)


def trees(device: torch.device, toy: bool) -> Iterator[Work]:
    """Yield ensembles of trees, which torch does not have, beside nvForest."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300 if toy else 20_000, 64)).astype(np.float32)
    y = X[:, 0] * X[:, 1] + np.sin(3 * X[:, 2]) + rng.standard_normal(len(X))
    count, jobs = (5, None) if toy else (100, -1)
    for title, estimator in (
        (f"forest of {count}, depth 10", RandomForestRegressor(count, max_depth=10, n_jobs=jobs, random_state=0)),
        (f"forest of {count}, grown out", RandomForestRegressor(count, n_jobs=jobs, random_state=0)),
        (
            f"HistGradientBoosting, {3 * count} × 31 leaves",
            HistGradientBoostingRegressor(max_iter=3 * count, early_stopping=False, random_state=0),
        ),
        (
            f"GradientBoosting, {2 * count}, depth 5",
            GradientBoostingRegressor(n_estimators=2 * count, max_depth=5, max_features=8, random_state=0),
        ),
    ):
        rows = (1, 128, 4096, 65536, 2**20)
        yield Work("trees", title, compiled(estimator.fit(X, y)), rows, ensemble=estimator)
    deep = HistGradientBoostingRegressor(
        max_iter=3 * count, max_depth=6, max_leaf_nodes=64, early_stopping=False, random_state=0
    )
    plan = compiled(deep.fit(X, y))
    title = f"ordered sum of {3 * count}, depth 6"
    yield Work("trees", title, with_ordered_sums(plan), rows, ensemble=deep, beside=plan)


def layers(device: torch.device, toy: bool) -> Iterator[Work]:
    """Yield neural networks, beside torch's own layers in float32."""
    for widths in [(4, 8, 1)] if toy else [(32, 128, 128, 1), (64, 256, 256, 256, 4)]:
        rng = np.random.default_rng(widths[0])
        X = rng.standard_normal((512, widths[0]))
        y = X @ rng.standard_normal((widths[0], widths[-1]))
        estimator = MLPRegressor(hidden_layer_sizes=widths[1:-1], max_iter=5, random_state=0)
        estimator.fit(X, y[:, 0] if widths[-1] == 1 else y)
        matrices = [torch.from_numpy(w).float().to(device) for w in estimator.coefs_]
        shifts = [torch.from_numpy(b).float().to(device) for b in estimator.intercepts_]

        def peer(x: Tensor, w: Sequence[Tensor] = matrices, b: Sequence[Tensor] = shifts) -> Tensor:
            for matrix, shift in zip(w[:-1], b[:-1], strict=True):
                x = torch.addmm(shift, x, matrix).relu_()
            return torch.addmm(b[-1], x, w[-1])

        title = f"layers {'-'.join(map(str, widths))}"
        yield Work("layers", title, compiled(estimator), (1, 64, 4096, 8192, 16384, 262144), peer)


def kernels(plan: Plan, inputs: Sequence[Tensor], outputs: Sequence[str] | None = None) -> Callable[[int], Tensor]:
    """Return a function that launches the kernels of a plan's outputs, by default of all, on one of the inputs."""
    plan = plan.on_device(inputs[0].device)
    device, rows, widths = inputs[0].device, len(inputs[0]), plan.widths()
    parameters = bind_parameters(plan, device, plain=device.type == "cpu")
    steps = plan.steps_for(tuple(outputs or plan.outputs))
    dtypes = {step.output: inputs[0].dtype if step.operation.keeps_dtype() else torch.float64 for step in steps}
    values = {name: torch.empty(rows, widths[name], dtype=dtype, device=device) for name, dtype in dtypes.items()}
    values[steps[-1].output] = torch.empty(rows, widths[steps[-1].output], device=device)

    def call(i: int) -> Tensor:
        found = {**values, INPUT: inputs[i]}
        for step in steps:
            given, out = [found[name] for name in step.inputs], found[step.output]
            if device.type == "cuda":
                step.operation.launch(parameters[step.output], given, out, rows)
            else:
                out.copy_(step.operation.compute_on_cpu(parameters[step.output], *given))
        return found[steps[-1].output]

    return call


def until_answered(contender: Contender, count: int) -> Contender:
    """Return a contender that replays a graph of each call and waits for the answers."""
    replays = [capture(lambda i=i: contender.call(i)) for i in range(count)]

    def replay(i: int) -> None:
        replays[i]()
        torch.cuda.synchronize()

    return Contender(contender.name, replay)


def measure(work: Work, device: torch.device, effort: Effort) -> list[dict[str, Any]]:
    """Check, time and print a work for each number of rows; return the figures."""
    parameters = bind_parameters(work.plan, torch.device("cpu"), plain=True)
    steps = work.plan.steps_for(tuple(work.plan.outputs))
    found = []
    for rows in work.rows:
        generator = torch.Generator(device).manual_seed(rows)
        dtype = getattr(torch, work.plan.dtype)
        count = INPUTS if rows <= 65536 else 1
        inputs = [
            torch.randn(rows, work.plan.n_features, generator=generator, device=device).to(dtype) for _ in range(count)
        ]
        if work.positive:
            inputs = [x.abs_() for x in inputs]
        for x in inputs if work.missing else ():
            x[torch.rand(x.shape, generator=generator, device=device) < work.missing] = torch.nan
        call = kernels(work.plan, inputs)
        values = {INPUT: inputs[0][:CHECKED_ROWS].cpu()}
        for step in steps:
            given = [values[name] for name in step.inputs]
            values[step.output] = step.operation.compute_on_cpu(parameters[step.output], *given)
        exact = values[steps[-1].output]
        answer = call(0)[:CHECKED_ROWS].cpu().double()
        error = float((answer - exact).abs().max() / max(float(exact.std()) if len(exact) > 1 else 0.0, 1.0))
        demand(f"{work.title}, {rows:,} rows,", error, work.limit)
        contenders = [Contender(OURS, call)]
        if work.peer is not None:
            peer, singles = work.peer, [x.float() for x in inputs]
            contenders.append(Contender(TORCH, lambda i, peer=peer, singles=singles: peer(singles[i])))
        if work.beside is not None:
            contenders.append(Contender(INTEGERS, kernels(work.beside, inputs)))
        if work.ensemble is not None and device.type == "cuda" and there_is_nvforest():
            ours, *beside = (until_answered(contender, count) for contender in contenders)
            contenders = [ours, nvforest(work.ensemble, inputs), *beside]
            times = time_on_host(contenders, count, effort)
        else:
            times = time_on_device(contenders, count, device, rounds=effort.rounds)
        other = next((contender.name for contender in contenders[1:]), None)
        ratio = times[other].median_us / times[OURS].median_us if other else None
        beside = "" if other is None else f", {other} {times[other].median_us:,.1f} µs, {ratio:.2f} ×"
        print(f"{work.title}: {rows:,} rows {times[OURS].median_us:,.1f} µs{beside}, error {error:.0e}", flush=True)
        found.append(
            {
                "family": work.family,
                "work": work.title,
                "rows": rows,
                "contenders": {name: timing.to_json() for name, timing in times.items()},
                "peer": other,
                "peer_over_ours": None if ratio is None else float(f"{ratio:.3g}"),
                "max_error": float(f"{error:.2g}"),
            }
        )
    return found


def run(directory: Path | None, chosen: Sequence[str], *, quick: bool = False, dry_run: bool = False) -> Path | None:
    """Measure the chosen families and write families.json; a dry run measures toys on the CPU and writes nothing."""
    if not dry_run and not torch.cuda.is_available():
        raise SystemExit("benchmarks.gpu.families needs a CUDA GPU, and torch finds none; --dry-run tries it on a CPU.")
    torch.set_float32_matmul_precision("highest")  # no TF32 for any contender
    device = torch.device("cpu" if dry_run else "cuda")
    print(f"kernels on {'the CPU (a dry run: these are no figures)' if dry_run else device_name()}")
    found: list[dict[str, Any]] = []
    for work in works(device, chosen, dry_run):
        if dry_run:
            work = dataclasses.replace(work, rows=(1, 5))
        found += measure(work, device, QUICK if quick or dry_run else Effort(rounds=15))
    if dry_run or directory is None:
        return None
    settings = {"quick": quick, "inputs": INPUTS}
    return save_models(directory, "families", settings, found, FAMILIES, among="cases", key="family")


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=FAMILIES, default=list(FAMILIES), help="which families")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--dry-run", action="store_true", help="toy sizes on a CPU, to try the script out")
    parser.add_argument("--output", type=Path, default=None, help="directory of families.json")
    arguments = parser.parse_args()
    directory = arguments.output or default_directory()
    run(directory, arguments.only, quick=arguments.quick, dry_run=arguments.dry_run)


if __name__ == "__main__":
    main()
