"""Time of an AutoGluon predictor's entry in one process, beside AutoGluon's own `predict`, by the number of rows.

    python -m benchmarks.cpu.autogluon [--preset medium_quality] [--rows 1 65536] [--minutes 5] [--output DIR]
    python -m benchmarks.cpu.autogluon --predictor DIR --sample rows.csv

It needs the environment of `make autogluon`. A predictor is trained on scikit-learn's diabetes table, unless one is
given with rows of its own. All contenders are given the same DataFrame, whose rows are drawn from the table, and are
timed from the call to its return: AutoGluon with `persist()`, the same after `compile()` (forests and networks by ONNX
Runtime), and the entry through `tr.load`, on a GPU if there is one. The entry is also given the rows as tensors, as a
server has them.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from autogluon.tabular import TabularPredictor
from sklearn.datasets import load_diabetes

import triton_regressors as tr
from benchmarks.checking import demand, error_of_arrays
from benchmarks.cpu.libraries import OURS_LIMIT, PEERS_LIMIT
from benchmarks.environment import busy, default_directory, device_name, save
from benchmarks.timing import QUICK, Contender, Effort, time_on_host
from triton_regressors.commands.model_file import read_rows

OURS, TENSORS, PERSISTED, COMPILED = "triton_regressors", "triton_regressors, tensors", "persist()", "compile()"
ROWS = (1, 2**16)
CHECKED_ROWS = 1024


def trained(folder: Path, preset: str, minutes: float) -> tuple[Any, pd.DataFrame]:
    """Return a predictor of the diabetes table, and the table."""
    table = load_diabetes(as_frame=True).frame
    inside = {"fold_fitting_strategy": "sequential_local"}
    predictor = TabularPredictor("target", problem_type="regression", path=str(folder), verbosity=1)
    predictor.fit(
        table, presets=preset, time_limit=60 * minutes, dynamic_stacking=False, ag_args_ensemble=inside, num_gpus=0
    )
    return predictor, table.drop(columns="target")


def compiled(path: str, folder: Path) -> Any:
    """Return a copy of a predictor whose models are compiled as far as AutoGluon can."""
    shutil.copytree(path, folder)
    predictor = TabularPredictor.load(str(folder), verbosity=0)
    predictor.persist(max_memory=None)
    predictor.compile()
    return predictor


def measure(predictor: Any, sample: pd.DataFrame, sizes: Sequence[int], effort: Effort, folder: Path) -> list[Any]:
    """Check, time and print each number of rows; return the figures."""
    entry = tr.export(predictor, folder / "repository", name="predictor", sample=sample, ties="accept").entry
    model = tr.load(entry.directory)
    predictor.persist(max_memory=None)
    peers = {PERSISTED: predictor.predict, COMPILED: compiled(predictor.path, folder / "compiled").predict}
    plain = all(dtype.kind == "f" for dtype in sample.dtypes if isinstance(dtype, np.dtype))
    cases = []
    for rows in sizes:
        table = sample.sample(rows, replace=True, random_state=0, ignore_index=True)
        some = table.iloc[:CHECKED_ROWS]
        exact = np.concatenate([predictor.predict(some, as_pandas=False), predictor.predict(sample, as_pandas=False)])
        ways = {OURS: model.predict, **peers}
        errors = {}
        for name, predict in ways.items():
            found = np.concatenate([np.asarray(predict(some)).ravel(), np.asarray(predict(sample)).ravel()])
            limit = OURS_LIMIT if name == OURS else PEERS_LIMIT
            errors[name] = demand(f"{name}, {rows:,} rows,", error_of_arrays(found, exact), limit)
        contenders = [Contender(name, lambda _, call=predict, x=table: call(x)) for name, predict in ways.items()]
        if plain:
            tensor = torch.from_numpy(table.to_numpy(dtype=np.float64))
            contenders.append(Contender(TENSORS, lambda _, x=tensor: model.predict(x)))
        times = time_on_host(contenders, 1, effort)
        said = ", ".join(f"{name} {timing.median_us:,.0f} µs" for name, timing in times.items())
        ratios = {name: times[name].median_us / times[OURS].median_us for name in peers}
        print(f"{rows:,} rows: {said}; {', '.join(f'{name} {ratio:.1f} ×' for name, ratio in ratios.items())}")
        cases.append(
            {
                "rows": rows,
                "where": model.where,
                "contenders": {name: timing.to_json() for name, timing in times.items()},
                "peers_over_ours": {name: float(f"{ratio:.3g}") for name, ratio in ratios.items()},
                "max_errors": {name: float(f"{error:.2g}") for name, error in errors.items()},
            }
        )
    return cases


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--preset", default="medium_quality", help="AutoGluon's preset")
    parser.add_argument("--minutes", type=float, default=5.0, help="the longest training")
    parser.add_argument("--predictor", type=Path, default=None, help="a trained predictor's directory")
    parser.add_argument("--sample", type=Path, default=None, help="rows for that predictor: .csv or .parquet")
    parser.add_argument("--rows", nargs="+", type=int, default=ROWS, help="how many rows")
    parser.add_argument("--output", type=Path, default=None, help="directory of autogluon.json")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    if not torch.cuda.is_available():
        torch.set_num_threads(1)
    print(f"AutoGluon in process on {device_name()}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if arguments.predictor is None:
            predictor, sample = trained(folder / "trained", arguments.preset, arguments.minutes)
        else:
            predictor = TabularPredictor.load(str(arguments.predictor), verbosity=0)
            sample = read_rows(arguments.sample, predictor)
        models = predictor.model_names()
        settings = {"quick": arguments.quick, "preset": arguments.preset, "busy_at_start": busy()}
        cases = measure(predictor, sample, arguments.rows, QUICK if arguments.quick else Effort(), folder)
    results = {"best": predictor.model_best, "models": models, "cases": cases}
    save(arguments.output or default_directory(), "autogluon", settings, results)


if __name__ == "__main__":
    main()
