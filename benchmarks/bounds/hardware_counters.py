"""Compares the instructions that `architectures` counts without a GPU with an H200's own counters, kernel by kernel.

    python -m benchmarks.bounds.hardware_counters [--output FILE]                   needs an H100 or H200, and ncu
    python -m benchmarks.bounds.hardware_counters --dry-run                         counts only

Small models of each family are compiled by what is installed here, counted, and launched under ncu.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.ensemble import RandomForestRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

from benchmarks.bounds.architectures import counts
from benchmarks.bounds.gpu_rates import GPUS, WARP
from benchmarks.bounds.ncu import parsed, profiled
from benchmarks.bounds.recording import Recorded, record
from benchmarks.gpu.families import compiled, kernels
from triton_regressors.kernels.plan.plan import Plan

ROWS = 4096
H200 = next(gpu for gpu in GPUS if gpu.name == "H200")
ISSUED = "smsp__inst_executed.sum"
OPERATIONS = ("dadd", "dmul", "dfma", "fadd", "fmul", "ffma")
ROWS_DECIDE = ("neighbors_kernel",)
METRICS = {name: f"smsp__sass_thread_inst_executed_op_{name}_pred_on.sum" for name in OPERATIONS}


def plans() -> list[tuple[str, Plan]]:
    """Return a small plan of each family."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2048, 32)).astype(np.float32)
    y = np.sin(X).sum(axis=1) + X[:, 0] * X[:, 1]
    estimators: dict[str, BaseEstimator] = {
        "linear": Ridge(),
        "degree 2": make_pipeline(PolynomialFeatures(2), Ridge()),
        "expansion": KernelRidge(kernel="rbf", gamma=0.01),
        "expansion of three features": KernelRidge(kernel="rbf", gamma=0.1),
        "laplacian": KernelRidge(kernel="laplacian", gamma=0.01),
        "trees": RandomForestRegressor(20, max_depth=8, random_state=0),
        "layers": MLPRegressor(hidden_layer_sizes=(128,), max_iter=5, random_state=0),
        "neighbours": KNeighborsRegressor(5),
    }
    found = []
    for title, estimator in estimators.items():
        columns = 3 if "three" in title else X.shape[1]
        found.append((title, compiled(estimator.fit(X[:, :columns], y))))
    return found


def launch() -> None:
    """Launch the plans' kernels once; launches of the parity check before are not profiled."""
    models = plans()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    for number, (_, plan) in enumerate(models):
        generator = torch.Generator("cuda").manual_seed(number)
        rows = torch.randn(ROWS, plan.n_features, generator=generator, device="cuda").to(getattr(torch, plan.dtype))
        kernels(plan, [rows])(0)
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def launches(models: Sequence[tuple[str, Plan]]) -> Iterator[tuple[list[Recorded], list[torch.Tensor]]]:
    """Yield each plan's launches, except those that only rows decide, and the tensors that hold the model."""
    for _, plan in models:
        found, known = record(plan, ROWS, H200)
        yield [one for one in found if one.kernel.__name__ not in ROWS_DECIDE], known


def counted(models: Sequence[tuple[str, Plan]]) -> dict[str, dict[str, float]]:
    """Return the counts of each kernel, summed over its launches."""
    found: dict[str, Counter[str]] = {}
    for recorded, known in launches(models):
        for launched, total in zip(recorded, counts(recorded, known, H200, {}), strict=True):
            one = found.setdefault(launched.kernel.__name__, Counter())
            one["issued"] += round(total.issued)
            for opcode, count in total.executed.items():
                kind = opcode.split(".")[0].lower()
                if kind in OPERATIONS:
                    one[kind] += round(WARP * count)
    return {name: dict(one) for name, one in found.items()}


def measured(names: Iterable[str]) -> dict[str, dict[str, float]]:
    """Return the GPU's own counts of the kernels of these names."""
    chosen = ("--kernel-name", f"regex:^({'|'.join(names)})$")
    launching = ["-m", "benchmarks.bounds.hardware_counters", "--launch"]
    _, rows = profiled(launching, [ISSUED, *METRICS.values()], chosen)
    found: dict[str, Counter[str]] = {}
    for row in rows:
        one = found.setdefault(row["Kernel Name"].split("(")[0], Counter())
        for name, metric in {"issued": ISSUED, **METRICS}.items():
            one[name] += round(parsed(row[metric]))
    print(json.dumps(found))
    return {name: dict(one) for name, one in found.items()}


def compared(
    mine: Mapping[str, Mapping[str, float]], theirs: Mapping[str, Mapping[str, float]]
) -> list[dict[str, Any]]:
    """Return both figures of each kernel side by side, and print them."""
    found = []
    for kernel, one in mine.items():
        for name, count in sorted(one.items()):
            real = theirs.get(kernel, {}).get(name)
            if count or real:
                share = None if not real else round(count / real, 4)
                print(f"{kernel:32} {name:8} counted {count:16,.0f}  measured {real or 0:16,.0f}  {share}")
                found.append({"kernel": kernel, "what": name, "counted": count, "measured": real, "ratio": share})
    return found


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--launch", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--dry-run", action="store_true", help="count, and measure nothing")
    parser.add_argument("--output", type=Path, help="a JSON file")
    arguments = parser.parse_args()
    if arguments.launch:
        launch()
        return
    models = plans()
    names = {launched.kernel.__name__ for recorded, _ in launches(models) for launched in recorded}
    theirs = {} if arguments.dry_run else measured(names)
    found = compared(counted(models), theirs)
    if arguments.output:
        arguments.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
