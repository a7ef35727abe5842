"""Cases of optbinning's BinningProcess: numbers, strings, special codes and missing values."""

import functools
from typing import Any

import numpy as np
from optbinning import BinningProcess
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tests.exporter.catalogue.case import add
from tests.exporter.catalogue.cases_text import TEXT, people
from tests.exporter.data import Data, small


@functools.cache
def with_holes() -> Data:
    """`people` with missing cities and ages, and incomes of −1."""
    X, y = people(None)
    X = X.drop(columns="id")
    X.loc[::7, "age"] = np.nan
    X.loc[::9, "income"] = -1.0
    return X, y


def process(**options: Any) -> BinningProcess:
    return BinningProcess(["city", "age", "job", "income"], categorical_variables=TEXT, **options)


CODES = {"binning_fit_params": {"income": {"special_codes": {"none": -1.0}}, "city": {"cat_cutoff": 0.1}}}
METRICS = {
    "binning_transform_params": {
        "income": {"metric": "mean", "metric_special": "empirical"},
        "age": {"metric": "indices"},
        "city": {"metric": "mean", "metric_missing": "empirical"},
    }
}
PROCESSES: dict[str, tuple[Any, Any]] = {
    "numbers": (BinningProcess([f"v{number}" for number in range(5)]), small),
    "strings": (process(), with_holes),
    "options-codes": (process(**CODES), with_holes),
    "options-metrics": (process(**CODES, **METRICS), with_holes),
}
for name, (binning, data) in PROCESSES.items():
    add(f"opt-{name}", "steps", make_pipeline(binning, StandardScaler(), Ridge()), data)
