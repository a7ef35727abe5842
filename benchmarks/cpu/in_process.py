"""Time of `tr.load`'s model from a tensor to a tensor on the same device, beside torch, by the number of rows.

    python -m benchmarks.in_process [--quick] [--models linear_medium ...] [--rows 1 1024 ...] [--output DIR]

Both are given the same float32 tensors, on the GPU where there is one, and are timed on the host from the call until
the answers are there. torch computes the same mathematics in float32 without TF32, as one would write it: a product;
trees level by level, all rows and trees at once; squared distances by a product, then the kernel and its sum; layers.
Its answers need not be as exact, nor the same in every batch, and it does not search its rows for NaN. "torch, graph"
is the same captured as a CUDA graph, with its rows copied into the graph's own; it is timed up to 65,536 rows. Its
answers lie in the graph's memory until the next call overwrites them, where ours are new tensors.

On a CPU both compute in one thread.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

import triton_regressors as tr
from benchmarks.checking import demand, error_of_arrays
from benchmarks.cpu.libraries import OURS_LIMIT, PEERS_LIMIT
from benchmarks.environment import busy, default_directory, device_name, save_models
from benchmarks.models import Model, model
from benchmarks.timing import QUICK, Contender, Effort, capture, time_on_host

OURS, TORCH, GRAPH = "triton_regressors", "torch", "torch, graph"
MODELS = ("linear_medium", "forest_medium", "boosting_medium", "svr_medium", "network_medium")
ROWS = (1, 1024, 2**20)
QUICK_ROWS_ON_CPU = (1, 1024, 2**14)
CHECKED_ROWS = 1024
INPUTS = 4
TORCH_ROWS = 2**16
"""torch is given so many rows at once: what it makes of more on the way takes gigabytes."""

Tensor = torch.Tensor
Predict = Callable[[Tensor], Tensor]


def peer(estimator: Any, device: torch.device) -> Predict:
    """Return what computes an estimator's `predict` in torch on a device: float32 [rows, features] → [rows]."""
    kind = type(estimator).__name__
    return {
        "Ridge": _product,
        "RandomForestRegressor": _forest,
        "HistGradientBoostingRegressor": _boosting,
        "SVR": _kernel_sum,
        "MLPRegressor": _layers,
    }[kind](estimator, lambda array: torch.from_numpy(np.array(array)).to(device))


def in_parts(predict: Predict) -> Predict:
    """Return what gives `predict` so many rows at once as it has memory for."""

    def call(x: Tensor) -> Tensor:
        if len(x) <= TORCH_ROWS:
            return predict(x)
        return torch.cat([predict(part) for part in x.split(TORCH_ROWS)])

    return call


def _product(estimator: Any, there: Callable[[Any], Tensor]) -> Predict:
    weight, intercept = there(estimator.coef_.astype(np.float32)), float(estimator.intercept_)
    return lambda x: torch.mv(x, weight).add_(intercept)


def _layers(estimator: Any, there: Callable[[Any], Tensor]) -> Predict:
    weights = [there(weight.astype(np.float32)) for weight in estimator.coefs_]
    shifts = [there(shift.astype(np.float32)) for shift in estimator.intercepts_]

    def call(x: Tensor) -> Tensor:
        for weight, shift in zip(weights[:-1], shifts[:-1], strict=True):
            x = torch.addmm(shift, x, weight).relu_()
        return torch.addmm(shifts[-1], x, weights[-1])[:, 0]

    return in_parts(call)


def _kernel_sum(estimator: Any, there: Callable[[Any], Tensor]) -> Predict:
    vectors = estimator.support_vectors_
    centre = vectors.mean(axis=0)
    points, middle = there((vectors - centre).T.astype(np.float32)), there(centre.astype(np.float32))
    norms, weights = points.square().sum(0), there(estimator.dual_coef_[0].astype(np.float32))
    gamma, intercept = float(estimator._gamma), float(estimator.intercept_[0])

    def call(x: Tensor) -> Tensor:
        x = x - middle
        squares = torch.addmm(norms, x, points, alpha=-2).add_(x.square().sum(1, keepdim=True)).clamp_(min=0)
        return torch.mv(squares.mul_(-gamma).exp_(), weights).add_(intercept)

    return in_parts(call)


def _forest(estimator: Any, there: Callable[[Any], Tensor]) -> Predict:
    trees = [each.tree_ for each in estimator.estimators_]
    found = [
        (tree.feature, tree.threshold, tree.children_left, tree.children_right, tree.value[:, 0, 0]) for tree in trees
    ]
    total = _trees(found, max(tree.max_depth for tree in trees), there)
    return in_parts(lambda x: total(x) / len(trees))


def _boosting(estimator: Any, there: Callable[[Any], Tensor]) -> Predict:
    trees = [each.nodes for (each,) in estimator._predictors]
    found = []
    for nodes in trees:
        left, right = (np.where(nodes["is_leaf"], -1, nodes[side].astype(np.int64)) for side in ("left", "right"))
        found.append((nodes["feature_idx"], nodes["num_threshold"], left, right, nodes["value"]))
    baseline = float(np.ravel(estimator._baseline_prediction)[0])
    total = _trees(found, max(int(nodes["depth"].max()) for nodes in trees), there)
    return in_parts(lambda x: total(x) + baseline)


def _trees(trees: Sequence[tuple[Any, ...]], depth: int, there: Callable[[Any], Tensor]) -> Predict:
    """Return the sum of trees.

    A tree is its nodes' features, thresholds, left and right children, which are negative in leaves, and values.
    """
    first = np.cumsum([0, *(len(tree[0]) for tree in trees)])
    columns: list[list[np.ndarray]] = [[] for _ in range(5)]
    for begin, (feature, threshold, left, right, value) in zip(first, trees, strict=False):
        own = np.arange(len(feature))
        down = np.asarray(threshold, dtype=np.float32)  # a float32 x is compared with the float32 below a threshold
        down = np.where(down > threshold, np.nextafter(down, np.float32(-np.inf)), down)
        sides = [np.where(np.asarray(side) < 0, own, side) + begin for side in (left, right)]
        leaf = np.asarray(left) < 0
        for held, one in zip(columns, (np.where(leaf, 0, feature), down, *sides, value), strict=True):
            held.append(one)
    features, lefts, rights = (there(np.concatenate(columns[place]).astype(np.int64)) for place in (0, 2, 3))
    thresholds, values = (there(np.concatenate(columns[place]).astype(np.float32)) for place in (1, 4))
    roots = there(first[:-1].astype(np.int64))

    def call(x: Tensor) -> Tensor:
        at = roots.expand(len(x), -1)
        for _ in range(depth):
            at = torch.where(x.gather(1, features[at]) <= thresholds[at], lefts[at], rights[at])
        return values[at].sum(1)

    return call


def measure(source: Model, sizes: Sequence[int], effort: Effort, folder: Path) -> list[dict[str, Any]]:
    """Check, time and print a model for each number of rows; return what was found."""
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda:0" if on_gpu else "cpu")
    with threadpool_limits(1):
        entry = tr.export(source.estimator, folder, name=source.name, sample=source.sample(), input="fp32").entry
    ours, theirs = tr.load(entry.directory, device=device), peer(source.estimator, device)
    found = []
    for rows in sizes:
        count = INPUTS if rows <= TORCH_ROWS else 1
        inputs = [torch.from_numpy(source.rows(rows, seed).astype(np.float32)).to(device) for seed in range(count)]
        some = inputs[0][:CHECKED_ROWS]
        exact = source.estimator.predict(some.cpu().double().numpy())
        errors = {
            name: error_of_arrays(predict(inputs[0])[:CHECKED_ROWS].cpu().numpy(), exact)
            for name, predict in ((OURS, ours.predict), (TORCH, theirs))
        }
        demand(f"{source.title}, {rows:,} rows,", errors[OURS], OURS_LIMIT)
        demand(f"{source.title}, {rows:,} rows by torch", errors[TORCH], PEERS_LIMIT)
        contenders = [
            Contender(OURS, lambda i, given=inputs: ours.predict(given[i])),
            Contender(TORCH, lambda i, given=inputs: _answered(theirs(given[i]))),
        ]
        if on_gpu and rows <= TORCH_ROWS:
            contenders.append(Contender(GRAPH, _captured(theirs, inputs)))
        times = time_on_host(contenders, count, effort)
        fastest = min(timing.median_us for name, timing in times.items() if name != OURS)
        ratio = fastest / times[OURS].median_us
        said = ", ".join(f"{name} {timing.median_us:,.1f} µs" for name, timing in times.items())
        print(f"{source.title}: {rows:,} rows: {said}, {ratio:.2f} ×, errors {errors}", flush=True)
        found.append(
            {
                "model": source.name,
                "title": source.title,
                "where": ours.where,
                "rows": rows,
                "contenders": {name: timing.to_json() for name, timing in times.items()},
                "peer_over_ours": float(f"{ratio:.3g}"),
                "max_errors": {name: float(f"{error:.2g}") for name, error in errors.items()},
            }
        )
    return found


def _answered(answer: Tensor) -> Tensor:
    """Return answers once they are there."""
    if answer.is_cuda:
        torch.cuda.synchronize()
    return answer


def _captured(predict: Predict, inputs: Sequence[Tensor]) -> Callable[[int], None]:
    """Return what copies an input into a captured graph's own, replays the graph and waits."""
    own = inputs[0].clone()
    replay = capture(lambda: predict(own))

    def call(i: int) -> None:
        own.copy_(inputs[i])
        replay()
        torch.cuda.synchronize()

    return call


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds, and on a CPU fewer rows")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS, help="these alone")
    parser.add_argument("--rows", nargs="+", type=int, default=None, help="how many rows")
    parser.add_argument("--output", type=Path, default=None, help="directory of in_process.json")
    arguments = parser.parse_args()
    on_gpu = torch.cuda.is_available()
    sizes = arguments.rows or (ROWS if on_gpu or not arguments.quick else QUICK_ROWS_ON_CPU)
    effort = QUICK if arguments.quick else Effort(rounds=15)
    torch.set_float32_matmul_precision("highest")
    if not on_gpu:
        torch.set_num_threads(1)
    print(f"in process on {device_name()}")
    settings = {"quick": arguments.quick, "rows": list(sizes), "busy_at_start": busy()}
    directory = arguments.output or default_directory()
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.models:
            found = measure(model(name), sizes, effort, Path(folder))
            save_models(directory, "in_process", settings, found, MODELS, among="cases")


if __name__ == "__main__":
    main()
