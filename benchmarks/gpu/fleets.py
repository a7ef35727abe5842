"""Time of a fleet's plan beside the plan of one of its models, for rows that name members at random.

    python -m benchmarks.gpu.fleets [--fleets ridge ...] [--members 1000 ...] [--rows 1 65536] [--quick] [--output DIR]
    python -m benchmarks.gpu.fleets --dry-run      tries the script out on a CPU

It needs a CUDA GPU. "host to host" is a call of the runner with a matrix in host memory, whose last column is the
number of each row's model for the fleet. "kernels" are the plan's launches on the GPU, one after another. Members of
the fleet "mixed" are of ten kinds, and one model of each kind is timed. Before anything is timed, answers of drawn
members are compared bit by bit with those of their own plans.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR
from xgboost import XGBRegressor

from benchmarks.environment import busy, default_directory, device_name, save_models
from benchmarks.gpu.families import kernels
from benchmarks.models import TEN_KINDS
from benchmarks.timing import QUICK, Contender, Effort, time_on_device, time_on_host
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.exporter.fleets.classes import classes_of, fleet_plan
from triton_regressors.exporter.fleets.member import Member
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.format.fleet import MemberOrigin
from triton_regressors.kernels.ops.linear.affine import Affine
from triton_regressors.kernels.ops.neighbors.neighbors import Neighbors
from triton_regressors.kernels.ops.networks.dense_layers import DenseLayers
from triton_regressors.kernels.ops.trees.tree_ensemble import TreeEnsemble
from triton_regressors.kernels.plan.plan import INPUT, Plan, Step

FLEET, ONE = "fleet", "one model"
HOST, KERNELS = "host to host", "kernels"
ROWS, TOY_ROWS = (1, 4096, 2**16), (1, 50)
INPUTS, CHECKED = 4, 5
FEATURES, FITS = 32, 10


def ridge(seed: int) -> Plan:
    """Return the plan of a scaler and a Ridge on 32 columns."""
    rng = np.random.default_rng(seed)
    operation = Affine(rng.standard_normal((FEATURES, 1)), rng.standard_normal(1))
    return Plan(FEATURES, (Step(operation, (INPUT,), "y"),), {"y": "y"})


ESTIMATORS: dict[str, Callable[[], Any]] = {
    "boosted": lambda: HistGradientBoostingRegressor(max_iter=100, early_stopping=False, random_state=0),
    "xgboost": lambda: XGBRegressor(n_estimators=100, random_state=0),
    "svr": lambda: make_pipeline(StandardScaler(), SVR()),
}
FIT_ROWS = {"boosted": 2000, "xgboost": 2000, "svr": 200}


@functools.cache
def _fitted(name: str, seed: int) -> Plan:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((FIT_ROWS[name], FEATURES))
    y = X[:, 0] * X[:, 1] + np.sin(3 * X[:, 2]) + rng.standard_normal(len(X))
    return compile_estimator(ESTIMATORS[name]().fit(X, y), input="fp64", profile=False).plan


def scaled(name: str, number: int) -> Plan:
    """Return the plan of one of a few fits, with leaves or weights of points of its own scale."""
    plan = _fitted(name, number % FITS)
    (step,) = plan.steps
    field = "values" if isinstance(step.operation, TreeEnsemble) else "weight"
    own = getattr(step.operation, field)
    mine = (own * (1 + number / 1000)).astype(own.dtype)
    return plan.with_steps([dataclasses.replace(step, operation=dataclasses.replace(step.operation, **{field: mine}))])


def network(seed: int) -> Plan:
    """Return the plan of a network of two narrow hidden layers, in digits of eight bits."""
    rng, widths = np.random.default_rng(seed), (FEATURES, 32, 16, 1)
    weights = [rng.standard_normal(inputs * units) / inputs for inputs, units in itertools.pairwise(widths)]
    intercepts = rng.standard_normal(sum(widths[1:]))
    operation = DenseLayers(np.concatenate(weights), intercepts, np.zeros(FEATURES), widths, "relu", precision="int8")
    return Plan(FEATURES, (Step(operation, (INPUT,), "y"),), {"y": "y"})


def nearest(seed: int) -> Plan:
    """Return the plan of the 5 nearest neighbours among some hundred points, weighted by distance."""
    rng, points = np.random.default_rng(seed), 300 + seed % 100
    places, targets = rng.standard_normal((points, FEATURES)), rng.standard_normal((points, 1))
    operation = Neighbors(places, targets, np.ones(FEATURES), 5, weights="distance")
    return Plan(FEATURES, (Step(operation, (INPUT,), "y"),), {"y": "y"})


def mixed(number: int) -> Plan:
    """Return the plan of a scaler and one of ten estimators, fitted on rows of its own."""
    rng = np.random.default_rng(number)
    X = rng.standard_normal((200, FEATURES)) * rng.uniform(0.5, 20, FEATURES)
    y = X[:, 0] + np.abs(X[:, 1]) + rng.standard_normal(len(X))
    model = make_pipeline(StandardScaler(), TEN_KINDS[number % len(TEN_KINDS)]())
    return compile_estimator(model.fit(X, y), input="fp64", profile=False).plan


FLEETS: dict[str, tuple[Callable[[int], Plan], tuple[int, ...]]] = {
    "ridge": (ridge, (1000, 100_000)),
    **{name: (functools.partial(scaled, name), (1000,)) for name in ESTIMATORS},
    "network": (network, (1000,)),
    "nearest": (nearest, (1000,)),
    "mixed": (mixed, (500,)),
}
"""For each fleet the plan of a member by its number, and how many members there are."""


def stacked(plans: Sequence[Plan]) -> tuple[Plan, list[Plan]]:
    """Return the plan of a fleet whose members have these plans, and these in the order of the fleet's numbers."""
    origin = MemberOrigin("", "", "")
    members = [Member(number, origin, plan, *(None,) * 8) for number, plan in enumerate(plans)]  # type: ignore[arg-type]
    classes = classes_of(members)
    return fleet_plan(classes)[0], [member.plan for each in classes for member in each.members]


def _one_of_each(name: str, plans: Sequence[Plan]) -> dict[str, Plan]:
    """Return the plan of a first model, or of one of each kind, by what stands for it in the figures."""
    if name != "mixed":
        return {ONE: plans[0]}
    return {f"{ONE}, {kind().__class__.__name__}": plan for kind, plan in zip(TEN_KINDS, plans, strict=False)}


def measure(
    name: str, members: int, sizes: Sequence[int], effort: Effort, device: torch.device
) -> list[dict[str, Any]]:
    """Check, time and print a fleet for each number of rows; return the figures."""
    make, _ = FLEETS[name]
    given_plans = [make(number) for number in range(members)]
    whole, plans = stacked(given_plans)
    ones, largest = _one_of_each(name, given_plans), max(sizes)
    fleet = Runner(whole, device=device, max_rows=largest)
    alone = {kind: Runner(plan, device=device, max_rows=largest) for kind, plan in ones.items()}
    for runner in (fleet, *alone.values()):
        runner.warm_up([("y",)])
    rng, cases = np.random.default_rng(0), []
    for rows in sizes:
        given = [_drawn(rng, plans[0], members, rows) for _ in range(INPUTS)]
        own = [np.ascontiguousarray(X[:, :-1]) for X in given]
        _check(plans, fleet, given[0], device)
        there, own_there = ([torch.from_numpy(X).to(device) for X in each] for each in (given, own))
        times = time_on_host(
            [
                Contender(f"{FLEET}, {HOST}", lambda i, given=given: fleet.predict(given[i])),
                *[
                    Contender(f"{kind}, {HOST}", lambda i, own=own, each=each: each.predict(own[i]))
                    for kind, each in alone.items()
                ],
            ],
            INPUTS,
            effort,
        )
        on_device = [
            Contender(f"{FLEET}, {KERNELS}", kernels(whole, there, ("y",))),
            *[Contender(f"{kind}, {KERNELS}", kernels(one, own_there, ("y",))) for kind, one in ones.items()],
        ]
        times |= time_on_device(on_device, INPUTS, device, rounds=effort.rounds)
        said = ", ".join(f"{each} {timing.median_us:,.1f} µs" for each, timing in times.items())
        print(f"{name}, {members:,} members, {rows:,} rows: {said}", flush=True)
        cases.append(
            {
                "fleet": name,
                "members": members,
                "rows": rows,
                "parameter_bytes": whole.parameter_bytes(),
                "contenders": {each: timing.to_json() for each, timing in times.items()},
            }
        )
    return cases


def _drawn(rng: np.random.Generator, plan: Plan, members: int, rows: int) -> np.ndarray:
    """Return rows of drawn members."""
    numbers = rng.integers(0, members, (rows, 1))
    return np.hstack([rng.standard_normal((rows, plan.n_features)), numbers]).astype(plan.dtype)


def _check(plans: Sequence[Plan], fleet: Runner, X: np.ndarray, device: torch.device) -> None:
    """Demand the bits of members' own plans."""
    answers = fleet.predict(X)["y"]
    for number in np.unique(X[:, -1]).astype(int)[:CHECKED]:
        mine = X[:, -1] == number
        own = np.ascontiguousarray(X[mine, :-1])
        alone = Runner(plans[number], device=device, max_rows=len(own)).predict(own)["y"]
        if answers[mine].tobytes() != alone.tobytes():
            raise SystemExit(f"Member {number} answers otherwise in the fleet than alone.")


def run(
    fleets: Sequence[str],
    members: Sequence[int] | None,
    sizes: Sequence[int],
    directory: Path | None = None,
    *,
    quick: bool = False,
    dry_run: bool = False,
) -> Path | None:
    """Measure fleets and write fleets.json, in which others' figures stay; a dry run measures on the CPU alone."""
    if not dry_run and not torch.cuda.is_available():
        raise SystemExit("benchmarks.gpu.fleets needs a CUDA GPU, and torch finds none; --dry-run tries it on a CPU.")
    device = torch.device("cpu" if dry_run else "cuda:0")
    print(f"fleets on {'the CPU (a dry run: these are no figures)' if dry_run else device_name()}")
    effort = QUICK if quick or dry_run else Effort(rounds=15)
    settings, at_start = {"quick": quick, "inputs": INPUTS}, {"busy_at_start": busy()}
    path = None
    for name in fleets:
        cases = []
        for count in members or FLEETS[name][1]:
            cases += [at_start | each for each in measure(name, count, sizes, effort, device)]
        if not dry_run:
            place = directory or default_directory()
            path = save_models(place, "fleets", settings, cases, list(FLEETS), among="cases", key="fleet")
    return path


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--fleets", nargs="+", choices=FLEETS, default=list(FLEETS), help="these; others' figures stay")
    parser.add_argument("--members", nargs="+", type=int, default=None, help="how many members")
    parser.add_argument("--rows", nargs="+", type=int, default=None, help="how many rows")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--dry-run", action="store_true", help="few members and rows on a CPU, to try the script out")
    parser.add_argument("--output", type=Path, default=None, help="directory of fleets.json")
    arguments = parser.parse_args()
    rows = arguments.rows or (TOY_ROWS if arguments.dry_run else ROWS)
    members = arguments.members or ((3,) if arguments.dry_run else None)
    run(arguments.fleets, members, rows, arguments.output, quick=arguments.quick, dry_run=arguments.dry_run)


if __name__ == "__main__":
    main()
