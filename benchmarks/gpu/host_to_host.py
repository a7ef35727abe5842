"""Time from rows in host memory to answers in host memory, beside its bounds: the kernels, and the bus.

    python -m benchmarks.gpu.host_to_host [--only ridge forest ...] [--quick] [--output DIR]      needs a CUDA GPU
    python -m benchmarks.gpu.host_to_host --dry-run              tries the script out on a CPU, on toy sizes

If copies and kernels overlap wholly, a large batch takes as long as the larger of two: the plan's kernels alone on
rows that lie on the device, and the rows' copy to the device from pinned memory. Pipelines are timed at small batches
too, with the number of kernels that they launch.
"""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor, StackingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Lasso, Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, PolynomialFeatures, StandardScaler
from sklearn.svm import SVR

from benchmarks.checking import demand, error_of_arrays
from benchmarks.environment import default_directory, device_name, save_models
from benchmarks.gpu.families import kernels
from benchmarks.timing import Contender, Effort, time_on_device, time_on_host
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.kernels.engine.runner import Runner

INPUTS = 4
FEATURES = 64
CATEGORIES = 8
LARGE, SIZES = (65536,), (1, 64, 4096, 65536)
HOST, KERNELS, BUS = "host to host", "kernels", "bus"
LIMIT = 1e-6
CHECKED_ROWS = 64
QUICK = Effort(rounds=5, block_s=0.05, contender_s=0.5, least_rounds=2, warm_up_s=0.05)
"""A short effort with blocks longer than threads spin for one another: meanwhile calls were seen to take 8 or 16 ms."""


@dataclass(frozen=True)
class Work:
    """An estimator, its training rows, and the batch sizes to time; the first `numbers` columns are numeric."""

    title: str
    make: Callable[[], BaseEstimator]
    fitted_rows: int
    sizes: Sequence[int] = LARGE
    numbers: int = FEATURES
    gaps: bool = False

    def rows(self, count: int, seed: int) -> np.ndarray:
        """Return rows like a user's: float32 `[count, FEATURES]`, categories as whole numbers."""
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((count, FEATURES), dtype=np.float32)
        X[:, self.numbers :] = rng.integers(CATEGORIES, size=(count, FEATURES - self.numbers))
        if self.gaps:
            X[rng.random(X.shape) < 0.02] = np.nan
        return X

    def fit(self, toy: bool) -> BaseEstimator:
        """Return the fitted estimator."""
        X = self.rows(min(self.fitted_rows, 200) if toy else self.fitted_rows, 0)
        known = np.nan_to_num(X)
        y = known[:, 0] * known[:, 1] + np.sin(3 * known[:, 2]) + known[:, -1] + np.random.default_rng(1).random(len(X))
        return self.make().fit(X, y)


def stacking() -> BaseEstimator:
    """Return five regressors under a sixth."""
    members = [
        ("ridge", Ridge()),
        ("lasso", Lasso(0.01)),
        ("forest", RandomForestRegressor(50, n_jobs=-1, random_state=0)),
        ("svr", SVR()),
        ("neighbors", KNeighborsRegressor()),
    ]
    return StackingRegressor(members, Ridge(), cv=2)


def one_hot_degree_2() -> BaseEstimator:
    """Return a pipeline of categories and products of numbers."""
    numbers, categories = slice(0, 32), slice(32, FEATURES)
    polynomial = make_pipeline(StandardScaler(), PolynomialFeatures(2, include_bias=False))
    parts = [("categories", OneHotEncoder(), categories), ("numbers", polynomial, numbers)]
    return make_pipeline(ColumnTransformer(parts), Ridge())


boosting = functools.partial(HistGradientBoostingRegressor, max_iter=300, early_stopping=False, random_state=0)
forest = functools.partial(RandomForestRegressor, 100, max_depth=10, n_jobs=-1, random_state=0)
process = functools.partial(GaussianProcessRegressor, RBF(8.0) + WhiteKernel(0.1), optimizer=None)
network = functools.partial(MLPRegressor, hidden_layer_sizes=(128, 128), max_iter=10, random_state=0)

WORKS = {
    "ridge": Work("Ridge", Ridge, 4000, SIZES),
    "degree_2": Work("degree 2 + Ridge", lambda: make_pipeline(PolynomialFeatures(2), Ridge()), 8000),
    "forest": Work("forest of 100, depth 10", forest, 20_000),
    "boosting": Work("HistGradientBoosting, 300 × 31 leaves", boosting, 20_000),
    "svr": Work("SVR, 2,500 vectors", SVR, 2600),
    "neighbors": Work("5 of 4,000 neighbours", KNeighborsRegressor, 4000),
    "process": Work("Gaussian process of 2,000", process, 2000),
    "network": Work("layers 64-128-128-1", network, 4000),
    "stacking": Work("stacking of Ridge, Lasso, 50 grown trees, SVR, 5-NN of 4,000", stacking, 4000, SIZES),
    "imputed_boosting": Work(
        "imputer + HistGradientBoosting", lambda: make_pipeline(SimpleImputer(), boosting()), 20_000, SIZES, gaps=True
    ),
    "one_hot": Work("one-hot + scaler + degree 2 + Ridge", one_hot_degree_2, 8000, SIZES, numbers=32),
}


def measure(work: Work, device: torch.device, effort: Effort, toy: bool) -> list[dict[str, Any]]:
    """Check, time and print a work for each number of rows; return the figures."""
    estimator = work.fit(toy)
    plan = compile_estimator(estimator).plan
    sizes = (1, 5) if toy else work.sizes
    runner = Runner(plan, max_rows=max(sizes))
    runner.warm_up([("y",)])
    launches = sum(step.launches() for step in plan.steps_for(("y",)))
    found = []
    for rows in sizes:
        inputs = [work.rows(rows, 100 + i).astype(plan.dtype) for i in range(INPUTS)]
        anchor = work.rows(1024, 99)
        checked = inputs[0][:CHECKED_ROWS]
        answers = runner.predict(inputs[0])["y"][:CHECKED_ROWS, 0]
        spread = estimator.predict(anchor.astype(np.float64))
        truth = estimator.predict(checked.astype(np.float64))
        error = error_of_arrays(np.concatenate([answers, spread]), np.concatenate([truth, spread]))
        demand(f"{work.title}, {rows:,} rows,", error, LIMIT)

        def predict(i: int, given: Sequence[np.ndarray] = inputs) -> np.ndarray:
            return runner.predict(given[i])["y"]

        there = [torch.from_numpy(x).to(device) for x in inputs]
        pinned = [torch.from_numpy(x).pin_memory() if device.type == "cuda" else torch.from_numpy(x) for x in inputs]

        def copy(i: int, source: Sequence[torch.Tensor] = pinned, to: Sequence[torch.Tensor] = there) -> torch.Tensor:
            return to[i].copy_(source[i], non_blocking=True)

        times = time_on_host([Contender(HOST, predict)], INPUTS, effort)
        alone = [Contender(KERNELS, kernels(plan, there, ("y",))), Contender(BUS, copy)]
        times |= time_on_device(alone, INPUTS, device, rounds=effort.rounds)
        host, busy, bus = (times[name].median_us for name in (HOST, KERNELS, BUS))
        over = host / max(busy, bus)
        print(
            f"{work.title}: {rows:,} rows {host:,.1f} µs, {launches} launches; kernels {busy:,.1f}, bus {bus:,.1f}: "
            f"{over:.2f} × the larger, error {error:.0e}",
            flush=True,
        )
        found.append(
            {
                "work": work.title,
                "rows": rows,
                "dtype": plan.dtype,
                "launches": launches,
                "contenders": {name: timing.to_json() for name, timing in times.items()},
                "over_bound": float(f"{over:.3g}"),
                "max_error": float(f"{error:.2g}"),
            }
        )
    return found


def run(directory: Path | None, chosen: Sequence[str], *, quick: bool = False, dry_run: bool = False) -> Path | None:
    """Measure the chosen works and write host_to_host.json; a dry run measures toys on the CPU and writes nothing."""
    if not dry_run and not torch.cuda.is_available():
        raise SystemExit(
            "benchmarks.gpu.host_to_host needs a CUDA GPU, and torch finds none; --dry-run tries it on a CPU."
        )
    device = torch.device("cpu" if dry_run else "cuda")
    print(f"host to host on {'the CPU (a dry run: these are no figures)' if dry_run else device_name()}")
    effort = QUICK if quick or dry_run else Effort(rounds=15)
    found = [case for name in chosen for case in measure(WORKS[name], device, effort, dry_run)]
    if dry_run or directory is None:
        return None
    settings = {"quick": quick, "inputs": INPUTS, "host_cores": os.cpu_count()}
    order = [work.title for work in WORKS.values()]
    return save_models(directory, "host_to_host", settings, found, order, among="cases", key="work")


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=list(WORKS), default=list(WORKS), help="which works")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--dry-run", action="store_true", help="toy sizes on a CPU, to try the script out")
    parser.add_argument("--output", type=Path, default=None, help="directory of host_to_host.json")
    arguments = parser.parse_args()
    directory = arguments.output or default_directory()
    run(directory, arguments.only, quick=arguments.quick, dry_run=arguments.dry_run)


if __name__ == "__main__":
    main()
