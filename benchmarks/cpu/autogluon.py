"""Time of an AutoGluon predictor's entry in one process, beside AutoGluon's own `predict`, by the number of rows.

    python -m benchmarks.cpu.autogluon [--works medium stack] [--rows 1 65536] [--keep DIR] [--output DIR]
    python -m benchmarks.cpu.autogluon --predictor DIR --sample rows.csv

It needs the environment of `make autogluon`. Predictors are trained on two real tables, unless one is given with rows
of its own. All contenders are given the same DataFrame, whose rows are drawn from the table, and are timed from the
call to its return: AutoGluon with `persist()`, the same after `compile()` (forests and networks by ONNX Runtime), and
the entry through `tr.load`, on a GPU if there is one. The entry is also given the rows as tensors, as a server has
them. `--keep` writes each entry and its rows for `benchmarks.gpu.entry`, to be measured on another machine.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import plotly.data
import torch
from autogluon.tabular import TabularPredictor
from sklearn.datasets import load_diabetes

import triton_regressors as tr
from benchmarks.checking import demand, error_of_arrays
from benchmarks.cpu.libraries import OURS_LIMIT, PEERS_LIMIT
from benchmarks.entry_rows import drawn, write_rows
from benchmarks.environment import busy, default_directory, device_name, save
from benchmarks.timing import QUICK, Contender, Effort, time_on_host
from triton_regressors.commands.model_file import read_rows
from triton_regressors.kernels.plan.plan import load_plan
from triton_regressors.scoring.columns import Columns

OURS, TENSORS, PERSISTED, COMPILED = "triton_regressors", "triton_regressors, tensors", "persist()", "compile()"
ROWS = (1, 2**16)
CHECKED_ROWS = 1024


def diabetes() -> pd.DataFrame:
    """Return scikit-learn's table of 442 patients: ten numbers."""
    return load_diabetes(as_frame=True).frame


def countries() -> pd.DataFrame:
    """Return plotly's table of life expectancies, 1,704 rows: two columns of strings, a date and two numbers."""
    table = plotly.data.gapminder(return_type="pandas")
    table["year"] = pd.to_datetime(table["year"], format="%Y")
    table = table.rename(columns={"lifeExp": "target"})
    return table[["country", "continent", "year", "pop", "gdpPercap", "target"]]


FORESTS = {kind: {"n_estimators": 50} for kind in ("RF", "XT")}
STACKED = {"GBM": {}, "CAT": {}, "XGB": {}, **FORESTS, "NN_TORCH": {}}
WORKS: dict[str, tuple[str, Callable[[], pd.DataFrame], dict[str, Any]]] = {
    "medium": ("diabetes, medium_quality", diabetes, {"presets": "medium_quality"}),
    "stack": (
        "countries, two layers of six models, three folds each",
        countries,
        {"hyperparameters": STACKED, "num_bag_folds": 3, "num_stack_levels": 1},
    ),
}
"""Each work's title, its table and the options of its training."""


@dataclass(frozen=True)
class Trained:
    """A predictor, its rows and its names."""

    name: str
    title: str
    predictor: Any
    sample: pd.DataFrame


def trained(name: str, folder: Path, minutes: float) -> Trained:
    """Return the trained predictor of a work, and its table."""
    title, table, options = WORKS[name]
    inside = {"fold_fitting_strategy": "sequential_local"}
    predictor = TabularPredictor("target", problem_type="regression", path=str(folder / name), verbosity=1)
    limits = {"time_limit": 60 * minutes, "dynamic_stacking": False, "num_gpus": 0}
    predictor.fit(table(), ag_args_ensemble=inside, **limits, **options)
    return Trained(name, title, predictor, table().drop(columns="target"))


def compiled(work: Trained, folder: Path) -> dict[str, Callable[[pd.DataFrame], Any]]:
    """Return the `predict` of a copy that AutoGluon has compiled as far as it can; nothing if that does not answer."""
    shutil.copytree(work.predictor.path, folder)
    predictor = TabularPredictor.load(str(folder), verbosity=0)
    predictor.persist(max_memory=None)
    try:
        predictor.compile()
        predictor.predict(work.sample)
        predictor.predict(work.sample[:1])
    except Exception as error:  # a compiled forest in a stack answers a single row in another shape
        print(f"{work.title}: without {COMPILED}, whose predict ends in {type(error).__name__}: {error}")
        return {}
    return {COMPILED: predictor.predict}


def measure(work: Trained, sizes: Sequence[int], effort: Effort, folder: Path, keep: Path | None) -> dict[str, Any]:
    """Check, time and print each number of rows; return the figures."""
    predictor, sample = work.predictor, work.sample
    peers = {PERSISTED: predictor.predict, **compiled(work, folder / f"{work.name} compiled")}
    entry = tr.export(predictor, folder / "repository", name=work.name, sample=sample, ties="accept").entry
    model, plan = tr.load(entry.directory), load_plan(entry.version_directory)
    predictor.persist(max_memory=None)
    truth = predictor.predict(sample, as_pandas=False)
    tensors = {name: np.array(X) for name, X in model.tensors(Columns(sample)).items()}
    if keep is not None:
        shutil.copytree(entry.directory, keep / work.name, dirs_exist_ok=True)
        write_rows(keep / f"{work.name}.npz", tensors, truth)
    cases = []
    for rows in sizes:
        table = sample.sample(rows, replace=True, random_state=0, ignore_index=True)
        some = table.iloc[:CHECKED_ROWS]
        exact = np.concatenate([predictor.predict(some, as_pandas=False), truth])
        ways = {OURS: model.predict, **peers}
        errors = {}
        for name, predict in ways.items():
            found = np.concatenate([np.asarray(predict(some)).ravel(), np.asarray(predict(sample)).ravel()])
            limit = OURS_LIMIT if name == OURS else PEERS_LIMIT
            errors[name] = demand(f"{name}, {rows:,} rows,", error_of_arrays(found, exact), limit)
        contenders = [Contender(name, lambda _, call=predict, x=table: call(x)) for name, predict in ways.items()]
        given = drawn(tensors, rows, 0)
        contenders.append(Contender(TENSORS, lambda _, x=given: model.infer(x, outputs=("y",))))
        times = time_on_host(contenders, 1, effort)
        said = ", ".join(f"{name} {timing.median_us:,.0f} µs" for name, timing in times.items())
        ratios = {name: times[name].median_us / times[OURS].median_us for name in peers}
        ratio = ", ".join(f"{name} {ratio:.1f} ×" for name, ratio in ratios.items())
        print(f"{work.title}, {rows:,} rows: {said}; {ratio}", flush=True)
        cases.append(
            {
                "rows": rows,
                "contenders": {name: timing.to_json() for name, timing in times.items()},
                "peers_over_ours": {name: float(f"{ratio:.3g}") for name, ratio in ratios.items()},
                "max_errors": {name: float(f"{error:.2g}") for name, error in errors.items()},
            }
        )
    return {
        "work": work.title,
        "best": predictor.model_best,
        "models": predictor.model_names(),
        "where": model.where,
        "steps": len(plan.steps),
        "launches": sum(step.launches() for step in plan.steps),
        "cases": cases,
    }


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument(
        "--works", nargs="+", choices=list(WORKS), default=list(WORKS), help="which predictors to train"
    )
    parser.add_argument("--minutes", type=float, default=5.0, help="the longest training")
    parser.add_argument("--predictor", type=Path, default=None, help="a trained predictor's directory, and no work")
    parser.add_argument("--sample", type=Path, default=None, help="rows for that predictor: .csv or .parquet")
    parser.add_argument("--rows", nargs="+", type=int, default=ROWS, help="how many rows")
    parser.add_argument("--keep", type=Path, default=None, help="a directory for the entries and their rows")
    parser.add_argument("--output", type=Path, default=None, help="directory of autogluon.json")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    if not torch.cuda.is_available():
        torch.set_num_threads(1)
    print(f"AutoGluon in process on {device_name()}")
    effort = QUICK if arguments.quick else Effort()
    settings = {"quick": arguments.quick, "minutes": arguments.minutes, "busy_at_start": busy()}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if arguments.predictor is None:
            works = [trained(work, folder, arguments.minutes) for work in arguments.works]
        else:
            predictor = TabularPredictor.load(str(arguments.predictor), verbosity=0)
            works = [Trained("own", str(arguments.predictor), predictor, read_rows(arguments.sample, predictor))]
        found = [measure(work, arguments.rows, effort, folder, arguments.keep) for work in works]
    save(arguments.output or default_directory(), "autogluon", settings, {"works": found})


if __name__ == "__main__":
    main()
