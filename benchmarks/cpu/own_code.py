"""Time of models with code of the user's own through `tr.load`, beside their own `predict`, by the number of rows.

    python -m benchmarks.cpu.own_code [--quick] [--models rows ...] [--rows 1 65536] [--output DIR]

Both are given the same array or DataFrame and are timed on the host from the call to its return, so that the time to
read a table is in ours too. A GPU computes if there is one, and the estimator then uses the host's cores as it does by
default. On a CPU both compute in one thread.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from threadpoolctl import threadpool_limits

import triton_regressors as tr
from benchmarks.checking import demand, error_of_arrays
from benchmarks.cpu.libraries import OURS_LIMIT
from benchmarks.environment import busy, default_directory, device_name, save_models
from benchmarks.timing import QUICK, Contender, Effort, time_on_host

OURS, THEIRS = "triton_regressors", "predict"
ROWS = (1, 1024, 2**16)
TRAINING_ROWS = 2000
CHECKED_ROWS = 1024


def houses(rows: int, seed: int = 0) -> pd.DataFrame:
    """Return a table of houses for sale: numbers, some of them missing, strings and dates."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "rooms": rng.integers(1, 9, rows).astype(float),
            "area": np.where(rng.random(rows) < 0.05, np.nan, rng.gamma(9.0, 12.0, rows)),
            "built": rng.integers(1900, 2020, rows).astype(float),
            "latitude": rng.uniform(47, 55, rows),
            "longitude": rng.uniform(6, 15, rows),
            "quality": rng.choice(["Ex", "Gd", "TA", "Fa", "Po"], rows),
            "district": rng.choice(["Nord", " süd", "OST ", "West"], rows),
            "sold": pd.Timestamp("2021-01-01") + pd.to_timedelta(rng.integers(0, 3 * 365 * 86_400, rows), unit="s"),
        }
    )


def numbers(rows: int, seed: int = 0) -> np.ndarray:
    """Return an array of twenty columns of numbers."""
    return np.random.default_rng(seed).normal(2, 1, (rows, 20))


def ratios(X: np.ndarray) -> np.ndarray:
    """Return an array with logarithms and ratios of its columns."""
    size = np.log1p(np.abs(X[:, :10]))
    return np.column_stack([X, size, X[:, :5] / (1 + X[:, 5:10] ** 2), X.mean(axis=1)])


def features(table: pd.DataFrame) -> pd.DataFrame:
    """Return ratios, ages and parts of dates."""
    sold = table["sold"].dt
    return pd.DataFrame(
        {
            "area": table["area"].fillna(100),
            "per_room": (table["area"] / table["rooms"]).clip(5, 60),
            "age": sold.year - table["built"],
            "month": sold.month,
            "weekend": sold.day_of_week >= 5,
            "quarter_end": sold.is_quarter_end,
        }
    ).fillna(0)


def of_a_row(row: pd.Series) -> float:
    """Return a mark by rules that a person wrote."""
    if row["built"] < 1950:
        return 1.0 if row["rooms"] > 5 else 0.5
    return float(row["area"] / row["rooms"]) if row["area"] > 60 else 10.0


def by_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Return the mark of each row beside its numbers."""
    return table[["rooms", "built", "latitude"]].assign(mark=table.apply(of_a_row, axis=1).fillna(0))


def strings(table: pd.DataFrame) -> pd.DataFrame:
    """Return marks of strings, and strings that are tidied."""
    return pd.DataFrame(
        {
            "quality": table["quality"].map({"Ex": 5, "Gd": 4, "TA": 3, "Fa": 2, "Po": 1}),
            "district": table["district"].str.strip().str.lower(),
            "rooms": table["rooms"],
        }
    )


class Blend(RegressorMixin, BaseEstimator):
    """The weighted mean of a forest and a linear model."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> Blend:
        """Fit both."""
        self.forest_ = RandomForestRegressor(100, max_depth=8, random_state=0).fit(X, y)
        self.linear_ = make_pipeline(StandardScaler(), Ridge()).fit(X, y)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return the blend."""
        return np.maximum(0.7 * self.forest_.predict(X) + 0.3 * self.linear_.predict(X), 0)


@dataclass(frozen=True)
class Work:
    """A model with own code, and the function that draws its rows."""

    title: str
    model: Callable[[], Any]
    rows: Callable[[int, int], Any]

    def fitted(self) -> Any:
        """Return the model, fitted."""
        table = self.rows(TRAINING_ROWS, 0)
        if isinstance(table, np.ndarray):
            y = 10 + table[:, 0] * 3 + np.abs(table[:, 1])
        else:
            y = 3 * table["area"].fillna(100) + 20 * table["rooms"] - 0.2 * (2021 - table["built"])
        return self.model().fit(table, y)


def _strings_model() -> Any:
    encode = make_column_transformer((OneHotEncoder(), ["district"]), remainder="passthrough")
    return make_pipeline(FunctionTransformer(strings), encode, Ridge())


WORKS = {
    "arrays": Work(
        "NumPy: logarithms, ratios, a mean; Ridge",
        lambda: make_pipeline(FunctionTransformer(ratios), StandardScaler(), Ridge()),
        numbers,
    ),
    "regressor": Work("own regressor: blend of a forest of 100 trees and Ridge", Blend, numbers),
    "dates": Work(
        "pandas: ratios and dates; HistGradientBoosting of 100 trees",
        lambda: make_pipeline(FunctionTransformer(features), HistGradientBoostingRegressor(random_state=0)),
        houses,
    ),
    "rows": Work(
        "pandas: `apply` of rows; forest of 100 trees",
        lambda: make_pipeline(FunctionTransformer(by_rows), RandomForestRegressor(100, max_depth=8, random_state=0)),
        houses,
    ),
    "strings": Work("pandas: strings tidied and mapped, one-hot; Ridge", _strings_model, houses),
}


def measure(name: str, sizes: Sequence[int], effort: Effort, folder: Path) -> list[dict[str, Any]]:
    """Check, time and print a model for each number of rows; return the figures."""
    work = WORKS[name]
    estimator = work.fitted()
    entry = tr.export(estimator, folder, name=name, sample=work.rows(TRAINING_ROWS, 0), ties="accept").entry
    ours = tr.load(entry.directory)
    found = []
    for rows in sizes:
        table = work.rows(rows, 1)
        some = table[:CHECKED_ROWS]
        error = error_of_arrays(np.asarray(ours.predict(some)), estimator.predict(some))
        demand(f"{work.title}, {rows:,} rows,", error, OURS_LIMIT)
        contenders = [
            Contender(OURS, lambda _, given=table: ours.predict(given)),
            Contender(THEIRS, lambda _, given=table: estimator.predict(given)),
        ]
        times = time_on_host(contenders, 1, effort)
        ratio = times[THEIRS].median_us / times[OURS].median_us
        said = ", ".join(f"{way} {timing.median_us:,.1f} µs" for way, timing in times.items())
        print(f"{work.title}: {rows:,} rows: {said}, {ratio:.2f} ×, error {error:.2g}", flush=True)
        found.append(
            {
                "model": name,
                "title": work.title,
                "where": ours.where,
                "rows": rows,
                "contenders": {way: timing.to_json() for way, timing in times.items()},
                "peer_over_ours": float(f"{ratio:.3g}"),
                "max_error": float(f"{error:.2g}"),
            }
        )
    return found


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--models", nargs="+", choices=WORKS, default=list(WORKS), help="which models")
    parser.add_argument("--rows", nargs="+", type=int, default=ROWS, help="how many rows")
    parser.add_argument("--output", type=Path, default=None, help="directory of own_code.json")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        torch.set_num_threads(1)
    print(f"Own code in process on {device_name()}")
    settings = {"quick": arguments.quick, "busy_at_start": busy()}
    effort = QUICK if arguments.quick else Effort()
    cases = []
    threads = None if torch.cuda.is_available() else 1
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(threads):
        for name in arguments.models:
            cases += measure(name, arguments.rows, effort, Path(folder))
    save_models(arguments.output or default_directory(), "own_code", settings, cases, list(WORKS), among="cases")


if __name__ == "__main__":
    main()
