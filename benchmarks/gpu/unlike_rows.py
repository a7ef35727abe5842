"""Time of searches, trees, expansions and layers for rows unlike the data, over their time for rows like it.

    python -m benchmarks.unlike_rows [--only neighbors trees] [--quick] [--output DIR]      needs a CUDA GPU
    python -m benchmarks.unlike_rows --dry-run              tries the script out on a CPU, on toy sizes
    python -m benchmarks.unlike_rows --cpu                  times the references that a CPU computes instead

Rows are drawn like the data; drifted by 10 of its standard deviations; a million of them away, and so far that float64
distances to all points differ by rounding alone; random bits, as some load generators send; one row again and again;
and beside what a model compares with: halfway between two stored points, at the radius from one, on thresholds of
trees, on stored points and at the kinks of layers. Answers are compared with the reference's, but for those that
rounding decides. Contenders are the kinds of rows, which take turns; torch's figure is for rows like the data.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.checking import demand
from benchmarks.environment import default_directory, device_name, save_models
from benchmarks.gpu.families import kernels, layers, trees
from benchmarks.gpu.neighbor_workloads import graphs, imputers
from benchmarks.gpu.point_workloads import expansions
from benchmarks.gpu.workloads import Work, alone
from benchmarks.timing import QUICK, Contender, Effort, time_on_device, time_on_host
from triton_regressors.kernels.engine.program import bind_parameters
from triton_regressors.kernels.ops.neighbors.neighbors import Neighbors
from triton_regressors.kernels.ops.neighbors.radius_neighbors import RadiusNeighbors
from triton_regressors.kernels.ops.networks.dense_layers import DenseLayers
from triton_regressors.kernels.ops.trees.symmetric_trees import SymmetricTrees
from triton_regressors.kernels.plan.plan import INPUT, Plan, Step

LIKE, TORCH = "like", "torch"
ROUNDED = "lost in rounding"
KINDS = (LIKE, "drifted", "far", ROUNDED, "random bits", "equal", "beside")
FAMILIES = ("neighbors", "expansions", "trees", "layers")
DRIFT, FAR, FURTHEST = 10.0, 1e6, 1e15
INPUTS = 4
CHECKED_ROWS = 16
CPU_ROWS = 1024

Rows = np.ndarray


def works(device: torch.device, chosen: Sequence[str], named: str, toy: bool) -> Iterator[Work]:
    """Yield the works of the chosen families whose titles hold the name."""
    for work in all_works(device, chosen, toy):
        if named in work.title:
            yield work


def all_works(device: torch.device, chosen: Sequence[str], toy: bool) -> Iterator[Work]:
    """Yield the works of the chosen families."""
    if "neighbors" in chosen:
        yield from searches(device, toy)
        for maker in (graphs, imputers):
            for work in maker(device, toy):
                yield dataclasses.replace(work, rows=(1, 1024 if work.missing else 4096))
    if "expansions" in chosen:
        for work in expansions(device, toy):
            if "fast" not in work.title and "× 128" not in work.title:
                yield dataclasses.replace(work, rows=(1, 4096))
    if "trees" in chosen:
        for work in (*trees(device, toy), symmetric(toy)):
            yield dataclasses.replace(work, rows=(1, 4096, 65536), beside=None)
    if "layers" in chosen:
        for work in layers(device, toy):
            yield dataclasses.replace(work, rows=(64, 4096))


def searches(device: torch.device, toy: bool) -> Iterator[Work]:
    """Yield searches for the 5 nearest points by several metrics, and within a radius."""
    for count, metric, p in [
        (6_000, "euclidean", 2.0),
        (100_000, "euclidean", 2.0),
        (6_000, "manhattan", 1.0),
        (6_000, "chebyshev", 2.0),
        (6_000, "minkowski", 3.0),
    ]:
        points, targets = stored(1100 if toy else count, 4 if toy else 32)
        operation = Neighbors(points, targets, np.ones(points.shape[1]), 5, metric, p)
        single, known = torch.from_numpy(points).float().to(device), torch.from_numpy(targets).float().to(device)[:, 0]
        norms = (single * single).sum(1)

        def by_product(
            x: torch.Tensor, s: torch.Tensor = single, y: torch.Tensor = known, n: torch.Tensor = norms
        ) -> torch.Tensor:
            return y[torch.topk(n - 2 * x @ s.T, 5, largest=False).indices].mean(1)

        title = f"5 of {len(points):,} × {points.shape[1]}, {metric}"
        rows = (1, 64, 4096) if metric == "euclidean" else (1, 1024)
        yield Work("neighbors", title, alone(operation), rows, by_product if metric == "euclidean" else None)
    points, targets = stored(1100 if toy else 100_000, 4 if toy else 32)
    distances = torch.cdist(torch.from_numpy(stored(200, points.shape[1])[0]), torch.from_numpy(points)).numpy()
    for weights, share in (("uniform", 0.02), ("distance", 1e-4)):
        radius = float(np.quantile(distances, share))
        operation = RadiusNeighbors(points, targets, np.ones(points.shape[1]), np.zeros(1), radius, weights=weights)
        title = f"{share:.2%} of {len(points):,} × {points.shape[1]} within a radius, {weights} weights"
        yield Work("neighbors", title, alone(operation), (1, 4096))


def symmetric(toy: bool) -> Work:
    """Return CatBoost's trees as `export` writes them: one question a level, of a feature's 254 borders."""
    rng, features, borders, depth = np.random.default_rng(6), 4 if toy else 64, 254, 6
    count = 5 if toy else 1000
    asked = rng.integers(0, features * borders, count * depth)
    used, asked = np.unique(asked, return_inverse=True)
    operation = SymmetricTrees(
        feature=(used // borders).astype(np.int32),
        threshold=np.sort(rng.standard_normal((features, borders)).astype(np.float32), axis=1).reshape(-1)[used],
        missing=np.zeros(len(used), np.uint8),
        asked=asked.astype(np.int32),
        depth=np.full(count, depth, np.int32),
        values=rng.standard_normal((count << depth, 1)),
        baseline=np.zeros(1),
    )
    plan = Plan(features, (Step(operation, (INPUT,), "y"),), {"y": "y"})
    return Work("trees", f"symmetric trees, {count:,} of depth {depth}", plan, (1,))


def stored(count: int, features: int) -> tuple[np.ndarray, np.ndarray]:
    """Return normal points and targets."""
    rng = np.random.default_rng(features)
    return rng.standard_normal((count, features)), rng.standard_normal((count, 1))


def rows_of(work: Work, kind: str, count: int, seed: int) -> Rows:
    """Return rows of a kind for a work, float32."""
    rng = np.random.default_rng((seed, len(kind)))
    features = work.plan.n_features
    x = rng.standard_normal((count, features))
    if kind == "drifted":
        x += DRIFT
    elif kind == "far":
        x *= FAR
    elif kind == ROUNDED:
        x *= FURTHEST
    elif kind == "random bits":
        bits = rng.integers(0, 2**32, (count, features), dtype=np.uint32).view(np.float32)
        x = np.where(np.isfinite(bits), bits, np.float32(1.0)).astype(np.float64)
    elif kind == "equal":
        x[:] = x[0]
    elif kind == "beside":
        x = beside(work.plan, x, rng)
    if work.positive:
        x = np.abs(x)
    if work.missing:
        gaps = rng.random(x.shape) < work.missing
        x[gaps[:1].repeat(count, 0) if kind == "equal" else gaps] = np.nan
    return x.astype(np.float32)


def beside(plan: Plan, x: Rows, rng: np.random.Generator) -> Rows:
    """Return rows beside what the plan's first operation with such numbers compares with."""
    for step in plan.steps:
        operation: Any = step.operation
        if isinstance(operation, RadiusNeighbors):
            away = x / np.linalg.norm(x, axis=1, keepdims=True) * operation.radius
            return some(operation.points, x, rng) + away
        if hasattr(operation, "points") and hasattr(operation, "n_neighbors"):
            return np.nan_to_num(some(operation.points, x, rng) + some(operation.points, x, rng)) / 2
        if hasattr(operation, "points"):
            return some(operation.points, x, rng)
        if hasattr(operation, "threshold"):
            return on_thresholds(operation, x, rng)
        if isinstance(operation, DenseLayers):
            features, units = operation.widths[:2]
            weight = operation.weights[: features * units].reshape(features, units)
            unit = rng.integers(0, units, len(x))
            w, z = weight[:, unit].T, x - operation.shift
            return x - w * ((z * w).sum(1) + operation.intercepts[unit])[:, None] / np.square(w).sum(1)[:, None]
    return x


def some(points: np.ndarray, x: Rows, rng: np.random.Generator) -> Rows:
    """Return points drawn at random, as many as rows."""
    return np.asarray(points[rng.integers(0, len(points), len(x))])


def on_thresholds(trees: Any, x: Rows, rng: np.random.Generator) -> Rows:
    """Return rows whose numbers are thresholds of trees for their features, or the next number of float32."""
    x = x.astype(np.float32)
    for feature in range(x.shape[1]):
        known = np.asarray(trees.threshold)[np.asarray(trees.feature) == feature].astype(np.float32)
        known = known[np.isfinite(known)]
        if len(known):
            x[:, feature] = known[rng.integers(0, len(known), len(x))]
    return np.where(rng.random(x.shape) < 0.5, x, np.nextafter(x, np.float32(np.inf))).astype(np.float64)


def reference(plan: Plan, x: torch.Tensor, parameters: Any) -> torch.Tensor:
    """Return what a CPU computes of rows."""
    values = {INPUT: x}
    steps = plan.steps_for(tuple(plan.outputs))
    for step in steps:
        given = [values[name] for name in step.inputs]
        values[step.output] = step.operation.reference(parameters[step.output], *given)
    return values[steps[-1].output]


def measure(work: Work, device: torch.device, effort: Effort, on_cpu: bool) -> list[dict[str, Any]]:
    """Check, time and print a work for each number of rows; return what was found."""
    parameters = bind_parameters(work.plan, torch.device("cpu"), plain=True)
    found = []
    for rows in (CPU_ROWS,) if on_cpu else work.rows:
        count = min(INPUTS, max(rows, 1)) if rows > 1 else INPUTS
        contenders, errors = [], {}
        for kind in KINDS:
            inputs = [torch.from_numpy(rows_of(work, kind, rows, seed)).to(device) for seed in range(count)]
            call: Callable[[int], Any]
            if on_cpu:
                call = lambda i, inputs=inputs: reference(work.plan, inputs[i], parameters)  # noqa: E731
            else:
                call = kernels(work.plan, inputs)
            contenders.append(Contender(kind, call))
            if kind == ROUNDED:
                continue
            exact = reference(work.plan, inputs[0][:CHECKED_ROWS].cpu(), parameters).double()
            answer = call(0)[:CHECKED_ROWS].cpu().double()
            spread = float(exact.std()) if len(exact) > 1 else 0.0
            unit = exact.abs().clamp(min=max(spread if np.isfinite(spread) else 0.0, 1.0))
            same = (answer == exact) | (answer.isnan() & exact.isnan()) | (exact.abs() > 3e38)
            errors[kind] = float(torch.where(same, 0.0, (answer - exact).abs() / unit).max())
            if kind == LIKE and work.peer is not None and not on_cpu and work.family == "neighbors":
                singles = [x.float() for x in inputs]
                contenders.append(Contender(TORCH, lambda i, singles=singles: work.peer(singles[i])))  # type: ignore[misc]
        worst = max(errors, key=lambda kind: errors[kind])
        print(f"{work.title}, {rows:,} rows: errors { ({k: f'{e:.0e}' for k, e in errors.items()}) }")
        if on_cpu:
            times = time_on_host(contenders, count, effort)
        else:
            times = time_on_device(contenders, count, device, rounds=effort.rounds)
        like = times[LIKE].median_us
        shown = ", ".join(
            f"{name} {timing.median_us:,.1f} ({timing.median_us / like:.2f})" for name, timing in times.items()
        )
        print(f"{work.title}: {rows:,} rows, µs (over like): {shown}", flush=True)
        found.append(
            {
                "family": work.family,
                "work": work.title,
                "rows": rows,
                "contenders": {name: timing.to_json() for name, timing in times.items()},
                "over_like": {kind: float(f"{times[kind].median_us / like:.3g}") for kind in KINDS},
                "max_error": float(f"{errors[worst]:.2g}"),
                "limit": work.limit,
            }
        )
    return found


def run(
    directory: Path | None,
    chosen: Sequence[str],
    named: str = "",
    *,
    quick: bool = False,
    dry_run: bool = False,
    on_cpu: bool = False,
) -> Path | None:
    """Measure the chosen families and write unlike_rows.json; a dry run measures toys on the CPU and writes nothing."""
    if not (dry_run or on_cpu) and not torch.cuda.is_available():
        raise SystemExit(
            "benchmarks.unlike_rows needs a CUDA GPU, and torch finds none; --cpu times a CPU's references."
        )
    torch.set_float32_matmul_precision("highest")  # no TF32 for anybody
    device = torch.device("cpu" if dry_run or on_cpu else "cuda")
    print(f"kernels on {'the CPU (a dry run: these are no figures)' if dry_run else device_name()}")
    found: list[dict[str, Any]] = []
    for work in works(device, chosen, named, dry_run):
        if dry_run:
            work = dataclasses.replace(work, rows=(1, 5))
        found += measure(work, device, QUICK if quick or dry_run else Effort(rounds=15), on_cpu)
    for case in found:
        demand(f"{case['work']}, {case['rows']:,} rows,", case["max_error"], case.pop("limit"))
    if dry_run or directory is None:
        return None
    settings = {"quick": quick, "inputs": INPUTS, "drift": DRIFT, "far": FAR, "furthest": FURTHEST}
    path = directory / "unlike_rows.json"
    before = json.loads(path.read_text(encoding="utf-8"))["cases"] if path.exists() else []
    order = list(dict.fromkeys(case["work"] for case in (*before, *found)))
    return save_models(directory, "unlike_rows", settings, found, order, among="cases", key="work")


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=FAMILIES, default=list(FAMILIES), help="which families")
    parser.add_argument("--work", default="", help="only works whose titles hold this text")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--dry-run", action="store_true", help="toy sizes on a CPU, to try the script out")
    parser.add_argument("--cpu", action="store_true", help="time what a CPU computes, of 1,024 rows")
    parser.add_argument("--output", type=Path, default=None, help="directory of unlike_rows.json")
    arguments = parser.parse_args()
    directory = arguments.output or default_directory()
    run(
        directory,
        arguments.only,
        arguments.work,
        quick=arguments.quick,
        dry_run=arguments.dry_run,
        on_cpu=arguments.cpu,
    )


if __name__ == "__main__":
    main()
