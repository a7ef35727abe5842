"""Time of exact contributions beside the answers that they explain, and beside the libraries' own contributions.

    python -m benchmarks.gpu.contributions [--models depth-6 ...] [--rows 1 1024] [--quick] [--output DIR]
    python -m benchmarks.gpu.contributions --dry-run      tries the script out on a CPU
    python -m benchmarks.gpu.contributions --cpu          on a CPU in one thread, beside peers in one thread

It needs a CUDA GPU. "host to host" is a call of the runner with a matrix in host memory; "y" is the same plan asked for
its answer. "batch" is what an entry's `model.py` does with a batch: rows lie in shared memory, as a server's requests
do, and are searched for numbers that are not allowed; the answers stay where kernels write them and the server reads
them. "kernels" are the plan's launches, one after another. Peers are asked for the same game: XGBoost's `pred_contribs`
and LightGBM's `pred_contrib` on all cores, and shap's TreeExplainer, which has one core, if it is installed. Before
anything is timed, contributions of some rows are added up and compared with the answers.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightgbm import LGBMRegressor
from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, SplineTransformer, StandardScaler
from sklearn.svm import SVR
from threadpoolctl import threadpool_limits
from xgboost import DMatrix, XGBRegressor

from benchmarks.environment import busy, default_directory, device_name, save_models
from benchmarks.gpu.families import kernels
from benchmarks.timing import QUICK, Contender, Effort, time_on_device, time_on_host
from triton_regressors.contribution_game import BACKGROUND, OUTPUT, PATH
from triton_regressors.exporter.contributions.covers import covers_of
from triton_regressors.exporter.contributions.game import Game, add_contributions
from triton_regressors.exporter.contributions.players import players_of_inputs
from triton_regressors.exporter.lowering.lower import lower
from triton_regressors.exporter.passes.optimise import fuse
from triton_regressors.exporter.passes.specialise import specialise
from triton_regressors.kernels.engine.input_check import Allowed
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.plan.plan import Plan

ROWS, TOY_ROWS = (1, 64, 1024, 2**16), (1, 5)
INPUTS, FIT_ROWS, SEED = 2, 4000, 0
CONTRIBUTIONS, ANSWERS = "contributions", "y"
HOST, BATCH, KERNELS = "host to host", "batch", "kernels"


@dataclass(frozen=True)
class Case:
    """A model, the game, the number of background rows, and the batches that are timed."""

    title: str
    make: Callable[[], Any]
    features: int
    game: str = PATH
    background: int = 0
    most_rows: int = 2**16


def _boosting(depth: int, trees: int = 100) -> Callable[[], Any]:
    return lambda: GradientBoostingRegressor(n_estimators=trees, max_depth=depth, random_state=SEED)


def _in_libraries(model: type[Any], depth: int, trees: int, **options: Any) -> Callable[[], Any]:
    return lambda: model(n_estimators=trees, max_depth=depth, random_state=SEED, **options)


def _degree_2() -> Any:
    return make_pipeline(StandardScaler(), PolynomialFeatures(2), Ridge())


CASES: dict[str, Case] = {
    "depth-6": Case("GradientBoosting, 100 × depth 6, path", _boosting(6), 32),
    "depth-6-background": Case("the same, background", _boosting(6), 32, BACKGROUND, 10_000),
    "depth-8": Case("GradientBoosting, 100 × depth 8, path", _boosting(8), 32),
    "xgboost": Case("XGBoost, 100 × depth 6, path", _in_libraries(XGBRegressor, 6, 100), 32, most_rows=1024),
    "lightgbm": Case(
        "LightGBM, 100 × 31 leaves, path", _in_libraries(LGBMRegressor, -1, 100, verbose=-1), 32, most_rows=1024
    ),
    "many-trees": Case("XGBoost, 1,000 × depth 8, path", _in_libraries(XGBRegressor, 8, 1000), 32, most_rows=1024),
    "grown": Case(
        "forest of 100 grown out, path",
        lambda: RandomForestRegressor(100, random_state=SEED, n_jobs=-1),
        32,
        most_rows=1024,
    ),
    "ridge": Case("Ridge", lambda: make_pipeline(StandardScaler(), Ridge()), 64, BACKGROUND, 100),
    "degree-2": Case("degree 2", _degree_2, 32, BACKGROUND, 100),
    "splines": Case("splines", lambda: make_pipeline(SplineTransformer(), Ridge()), 32, BACKGROUND, 100),
    "svr": Case(
        "SVR, 2,500 vectors", lambda: make_pipeline(StandardScaler(), SVR(epsilon=0.0)), 32, BACKGROUND, 10, 1024
    ),
}


def drawn(case: Case, rows: int, seed: int) -> np.ndarray:
    """Return rows, float32 numbers as float64."""
    X = np.random.default_rng(seed).standard_normal((rows, case.features))
    return X.astype(np.float32).astype(np.float64)


def fitted(name: str, case: Case, rows: int) -> Any:
    """Return the fitted model."""
    count = 2500 if name == "svr" and rows > 2500 else 20_000 if name == "grown" and rows == FIT_ROWS else rows
    X = drawn(case, count, 1)
    y = X[:, 0] * X[:, 1] + np.sin(3 * X[:, 2]) + X @ np.random.default_rng(2).standard_normal(case.features) / 5
    return case.make().fit(X, y + 0.3 * np.random.default_rng(3).standard_normal(count))


def plan_of(model: Any, case: Case) -> Plan:
    """Return the plan with the answers and the contributions."""
    lowered = lower(model, covers=case.game == PATH)
    plan = specialise(lowered.plan, "float32")
    background = drawn(case, case.background, 4).astype(np.float32) if case.background else None
    game = Game(
        plan, players_of_inputs(lowered.inputs), case.features, background, lambda step: covers_of(step, lowered)
    )
    return add_contributions(fuse(plan), fuse(game.contributions()))


def batches(plan: Plan, given: Sequence[np.ndarray], device: torch.device) -> list[Contender]:
    """Return what a model does with batches that are asked for contributions, and with those asked for answers."""
    allowed, rows = Allowed(plan.n_features, ()), len(given[0])
    runner, lying = Runner(plan, device=device, max_rows=rows, gathered=allowed), [_shared(X) for X in given]

    def batch(i: int, outputs: tuple[str, ...]) -> None:
        runner.executor.launch((lying[i],), rows, outputs)
        if not runner.executor.allowed(rows, allowed.holds):
            raise SystemExit("The rows hold a number that is not allowed.")

    found = []
    for name, output in ((CONTRIBUTIONS, OUTPUT), (ANSWERS, ANSWERS)):
        runner.warm_up([(output,)])
        found.append(Contender(f"{name}, {BATCH}", functools.partial(batch, outputs=(output,))))
    return found


_SHARED: list[np.ndarray] = []
"""The shared memory that this process has made. It stays, since a driver may have registered it."""


def _shared(X: np.ndarray) -> np.ndarray:
    """Return a copy of rows in shared memory."""
    with tempfile.TemporaryFile(dir="/dev/shm") as file:
        file.truncate(X.nbytes)
        lying = np.memmap(file, X.dtype, "r+", shape=X.shape)
    _SHARED.append(lying)
    lying[:] = X
    return lying


def peers_of(model: Any, case: Case, given: Sequence[np.ndarray], threads: int | None) -> list[Contender]:
    """Return the libraries' own contributions of the same game."""
    found = []
    if isinstance(model, XGBRegressor):
        booster = model.get_booster()
        if threads is not None:
            booster.set_param({"nthread": threads})
        call = functools.partial(_xgboost, booster, given)
        found.append(Contender("XGBoost, pred_contribs", call))
    if isinstance(model, LGBMRegressor):
        options = {} if threads is None else {"num_threads": threads}
        found.append(
            Contender(
                "LightGBM, pred_contrib", lambda i: model.booster_.predict(given[i], pred_contrib=True, **options)
            )
        )
    if case.game == PATH and importlib.util.find_spec("shap") and hasattr(model, "n_estimators"):
        import shap

        explainer = shap.TreeExplainer(model)
        found.append(
            Contender("shap, TreeExplainer", lambda i: explainer.shap_values(given[i], check_additivity=False))
        )
    return found


def _xgboost(booster: Any, given: Sequence[np.ndarray], i: int) -> np.ndarray:
    contributions: np.ndarray = booster.predict(DMatrix(given[i]), pred_contribs=True)
    return contributions


def measure(
    name: str, sizes: Sequence[int], effort: Effort, device: torch.device, fit_rows: int, threads: int | None
) -> list[dict[str, Any]]:
    """Fit, check, time and print a model for each number of rows; return the figures."""
    case = CASES[name]
    model = fitted(name, case, fit_rows)
    plan = plan_of(model, case)
    sizes = [rows for rows in sizes if rows <= case.most_rows]
    runner = Runner(plan, device=device, max_rows=max(sizes))
    runner.warm_up([(ANSWERS,), (OUTPUT,)])
    checked = drawn(case, 16, 5).astype(np.float32)
    answers, contributions = runner.predict(checked)[ANSWERS], runner.predict(checked, (OUTPUT,))[OUTPUT]
    missed = float(np.abs(contributions.astype(np.float64).sum(axis=1) - answers[:, 0]).max() / answers.std())
    if not missed < 1e-5:
        raise SystemExit(f"{name}: the contributions miss the answers by {missed:.1e} standard deviations.")
    cases = []
    for rows in sizes:
        given = [drawn(case, rows, 10 + number).astype(np.float32) for number in range(INPUTS)]
        contenders = [
            Contender(f"{CONTRIBUTIONS}, {HOST}", lambda i, given=given: runner.predict(given[i], (OUTPUT,))),
            Contender(f"{ANSWERS}, {HOST}", lambda i, given=given: runner.predict(given[i], (ANSWERS,))),
        ]
        if device.type == "cuda":
            contenders += batches(plan, given, device)
        times = time_on_host([*contenders, *peers_of(model, case, given, threads)], INPUTS, effort)
        if device.type == "cuda":
            there = [torch.from_numpy(X).to(device) for X in given]
            on_device = [
                Contender(f"{CONTRIBUTIONS}, {KERNELS}", kernels(plan, there, (OUTPUT,))),
                Contender(f"{ANSWERS}, {KERNELS}", kernels(plan, there, (ANSWERS,))),
            ]
            times |= time_on_device(on_device, INPUTS, device, rounds=effort.rounds)
        said = ", ".join(f"{each} {timing.median_us:,.1f} µs" for each, timing in times.items())
        print(f"{case.title}, {rows:,} rows: {said}", flush=True)
        cases.append(
            {
                "model": name,
                "title": case.title,
                "features": case.features,
                "game": case.game,
                "background": case.background,
                "rows": rows,
                "additivity": float(f"{missed:.2g}"),
                "operations": [step.operation.kind() for step in plan.steps_for([OUTPUT])],
                "parameter_bytes": plan.parameter_bytes(),
                "contenders": {each: timing.to_json() for each, timing in times.items()},
            }
        )
    return cases


def run(
    models: Sequence[str],
    sizes: Sequence[int],
    directory: Path | None = None,
    *,
    quick: bool = False,
    dry_run: bool = False,
    cpu: bool = False,
) -> Path | None:
    """Measure models and write contributions.json; a dry run measures toys on the CPU and writes nothing."""
    if not (dry_run or cpu or torch.cuda.is_available()):
        raise SystemExit("benchmarks.gpu.contributions needs a CUDA GPU, or --cpu or --dry-run; torch finds none.")
    device = torch.device("cpu" if dry_run or cpu else "cuda:0")
    print(f"contributions on {'the CPU' if device.type == 'cpu' else device_name()}")
    effort = QUICK if quick or dry_run else Effort(rounds=9)
    settings, path = {"quick": quick, "inputs": INPUTS, "one_thread": cpu}, None
    for name in models:
        at_start = {"busy_at_start": busy()}
        threads = 1 if cpu else None
        with threadpool_limits(threads):  # shap asks LightGBM for its own, which would take all cores
            found = measure(name, sizes, effort, device, 60 if dry_run else FIT_ROWS, threads)
        if not dry_run:
            results, place = [at_start | each for each in found], directory or default_directory()
            path = save_models(place, "contributions", settings, results, list(CASES), among="cases")
    return path


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=CASES, default=list(CASES), help="which models")
    parser.add_argument("--rows", nargs="+", type=int, default=None, help="how many rows")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--dry-run", action="store_true", help="toys on a CPU, to try the script out")
    parser.add_argument("--cpu", action="store_true", help="on a CPU, all in one thread")
    parser.add_argument("--output", type=Path, default=None, help="directory of contributions.json")
    arguments = parser.parse_args()
    rows = arguments.rows or (TOY_ROWS if arguments.dry_run else ROWS)
    run(
        arguments.models,
        rows,
        arguments.output,
        quick=arguments.quick,
        dry_run=arguments.dry_run,
        cpu=arguments.cpu,
    )


if __name__ == "__main__":
    main()
