"""One thread of the engine `torch` against one thread of scikit-learn's own `predict`, family by family.

    python -m benchmarks.cpu.one_thread [--quick] [--models mlp gaussian_process ...] [--output DIR]

Both get the same rows in one process and take turns. scikit-learn searches float64 rows for NaN and infinity, as it
does by default. Ours is timed on float32 rows with that search, like an entry on the server, and without, like
`Runner.predict`. The printed ratio is scikit-learn's median time over ours: below 1 we are slower.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor, StackingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, Kernel, Matern
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.svm import SVR
from threadpoolctl import threadpool_limits

from benchmarks.checking import demand, error_of_arrays
from benchmarks.environment import busy, default_directory, save_models
from benchmarks.timing import QUICK, Contender, Effort, input_count, time_on_host
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.kernels.engine.input_check import Allowed
from triton_regressors.kernels.engine.runner import Runner

SIZES = (1, 64, 4096)
LIMIT = 1e-6
"""The largest difference of our answers from scikit-learn's, in standard deviations."""

ANCHOR_ROWS = 1024
PEER, OURS, UNCHECKED = "scikit-learn", "torch, checked", "torch"


@dataclass(frozen=True)
class Case:
    """A model: `make` returns an unfitted estimator, with the numbers of its features and of rows to fit on."""

    name: str
    title: str
    features: int
    rows: int
    make: Callable[[], Any]
    with_std: bool = False

    def draw(self, count: int, seed: int) -> np.ndarray:
        """Return float32 rows `[count, features]`."""
        return np.random.default_rng(seed).standard_normal((count, self.features), dtype=np.float32)

    def fitted(self) -> Any:
        """Return the estimator, fitted on made-up data."""
        X = self.draw(self.rows, 1).astype(np.float64)
        noise = np.random.default_rng(2).standard_normal(self.rows)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the network is not trained to the end
            return self.make().fit(X, np.sin(X[:, 0]) + 0.3 * X[:, 1:4].sum(axis=1) + 0.1 * noise)


def process(kernel: Kernel) -> Callable[[], Any]:
    """Return a maker of a Gaussian process with that kernel, whose parameters stay as they are."""
    return lambda: GaussianProcessRegressor(kernel, alpha=1e-2, optimizer=None)


def network() -> Any:
    """Return an MLP of two hidden layers."""
    return MLPRegressor(hidden_layer_sizes=(128, 128), max_iter=30, random_state=0)


def stacking() -> Any:
    """Return three regressors under a Ridge."""
    trees = RandomForestRegressor(20, max_depth=10, random_state=0)
    return StackingRegressor([("ridge", Ridge()), ("trees", trees), ("neighbors", KNeighborsRegressor())])


CASES = (
    Case("ridge", "Ridge, 64 features", 64, 4000, Ridge),
    Case(
        "polynomial_2",
        "StandardScaler + PolynomialFeatures(2) + Ridge, 32 features",
        32,
        4000,
        lambda: make_pipeline(StandardScaler(), PolynomialFeatures(2), Ridge()),
    ),
    Case("svr", "SVR, rbf, 2,000 rows of 16 features", 16, 2000, SVR),
    Case("kernel_ridge", "KernelRidge, rbf, 2,000 points of 16 features", 16, 2000, partial(KernelRidge, kernel="rbf")),
    Case("gaussian_process", "GaussianProcess, RBF, 1,500 points of 16 features", 16, 1500, process(RBF(3.0))),
    Case("gaussian_process_std", "the same with std", 16, 1500, process(RBF(3.0)), with_std=True),
    *(
        Case(f"matern_{nu:g}", f"GaussianProcess, Matern {nu:g}, 1,500 points", 16, 1500, process(Matern(3.0, nu=nu)))
        for nu in (0.5, 1.5, 2.5, 0.7)
    ),
    Case("neighbors", "KNeighbors, 5 of 5,000 points of 20 features", 20, 5000, KNeighborsRegressor),
    Case("mlp", "MLP, 32-128-128-1", 32, 2000, network),
    Case(
        "forest",
        "RandomForest of 100, depth 10, 32 features",
        32,
        4000,
        partial(RandomForestRegressor, max_depth=10, random_state=0),
    ),
    Case(
        "boosting",
        "HistGradientBoosting of 200, 32 features",
        32,
        4000,
        partial(HistGradientBoostingRegressor, max_iter=200),
    ),
    Case("stacking", "Stacking of Ridge, 20 trees and 5 neighbours, 16 features", 16, 2000, stacking),
)


def measure(case: Case, sizes: Sequence[int], effort: Effort) -> dict[str, Any]:
    """Check and time one model at each number of rows, print the ratios, and return the figures as JSON."""
    estimator = case.fitted()
    plan = compile_estimator(estimator, sample=case.draw(ANCHOR_ROWS, 3), input="fp32").plan
    runner, allowed = Runner(plan, engine="torch", max_rows=max(sizes)), Allowed(case.features, ())
    outputs = ("y", "std") if case.with_std else ("y",)
    predict = partial(estimator.predict, return_std=True) if case.with_std else estimator.predict

    def checked(x: np.ndarray) -> dict[str, np.ndarray]:
        if not allowed.holds(x.reshape(-1)):
            raise ValueError("The rows hold NaN or infinity.")
        return runner.predict(x, outputs)

    points = []
    for rows in sizes:
        singles = [case.draw(rows, 100 + i) for i in range(input_count(rows * case.features * 4, most=16))]
        doubles = [x.astype(np.float64) for x in singles]
        errors = [error(checked, predict, x, case.draw(ANCHOR_ROWS, 99)) for x in (singles[0], singles[-1])]
        contenders = [
            Contender(PEER, lambda i, rows=doubles: predict(rows[i])),
            Contender(OURS, lambda i, rows=singles: checked(rows[i])),
            Contender(UNCHECKED, lambda i, rows=singles: runner.predict(rows[i], outputs)),
        ]
        found = time_on_host(contenders, len(singles), effort)
        timings = {name: timing.to_json() for name, timing in found.items()}
        points.append({"rows": rows, "max_error": float(f"{max(errors):.2g}"), "timings": timings})
    print(f"{case.title}: " + " | ".join(map(shown, points)), flush=True)
    return {"model": case.name, "title": case.title, "n_features": case.features, "points": points}


def error(ours: Callable[[np.ndarray], dict[str, np.ndarray]], peer: Any, x: np.ndarray, anchor: np.ndarray) -> float:
    """Return the largest difference from the peer's answers, in standard deviations of these and an anchor's."""
    rows = np.concatenate([x, anchor])
    answer, found = peer(rows.astype(np.float64)), ours(x)
    truths = answer if isinstance(answer, tuple) else (answer,)
    errors = []
    for truth, name in zip(truths, found, strict=True):
        mine = np.concatenate([found[name][:, 0], truth[len(x) :]])
        errors.append(demand(name, error_of_arrays(mine, truth), LIMIT))
    return max(errors)


def ratio(point: dict[str, Any], ours: str) -> float:
    """Return scikit-learn's median time over ours."""
    times = point["timings"]
    return float(times[PEER]["median_us"] / times[ours]["median_us"])


def shown(point: dict[str, Any]) -> str:
    """Return the figures of one number of rows in words."""
    time = point["timings"][OURS]["median_us"]
    return f"{point['rows']:,} rows {ratio(point, OURS):.2f} ({ratio(point, UNCHECKED):.2f} unsearched), {time:,.0f} µs"


def run(directory: Path, cases: Sequence[Case] = CASES, sizes: Sequence[int] = SIZES, *, quick: bool = False) -> Path:
    """Measure the models and write one_thread.json."""
    settings = {"quick": quick, "busy_at_start": busy()}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            results = [measure(case, sizes, QUICK if quick else Effort(rounds=21, contender_s=4.0)) for case in cases]
    finally:
        torch.set_num_threads(threads)
    return save_models(directory, "one_thread", settings, results, [case.name for case in CASES])


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="short measurements")
    names = [case.name for case in CASES]
    parser.add_argument("--models", nargs="+", choices=names, default=names, help="these alone; others' figures stay")
    parser.add_argument("--output", type=Path, default=None, help="directory of one_thread.json")
    arguments = parser.parse_args()
    cases = [case for case in CASES if case.name in arguments.models]
    run(arguments.output or default_directory(), cases, quick=arguments.quick)


if __name__ == "__main__":
    main()
