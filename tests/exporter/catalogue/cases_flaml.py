"""Cases of FLAML's AutoML, which makes codes of strings and fills missing numbers."""

import functools
from typing import Any

import numpy as np
from flaml import AutoML
from sklearn.base import BaseEstimator

from tests.exporter.catalogue.case import add
from tests.exporter.catalogue.cases_text import people
from tests.exporter.data import Data, as_frame, diabetes


class Searched(BaseEstimator):
    """An AutoML of one kind of estimator, which scikit-learn can copy."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def fit(self, X: Any, y: Any) -> "Searched":
        once = {"max_iter": 2, "time_budget": -1, "n_splits": 3, "n_jobs": 1, "seed": 0, "verbose": 0}
        self.automl_ = AutoML(task="regression", estimator_list=[self.kind], **once)
        self.automl_.fit(X, y)
        return self


def automl_of(searched: Searched) -> AutoML:
    return searched.automl_


def with_holes() -> Data:
    """`people` with missing cities and ages, and a column that does not vary, which AutoML drops."""
    X, y = people(None)
    X = X.drop(columns="id").assign(same=1.0)
    X.loc[::7, "age"] = np.nan
    return X, y


SEARCHED = {
    "matrix": ("kneighbor", diabetes),
    "frame": ("sgd", as_frame),
    "lgbm": ("lgbm", with_holes),
    "xgboost": ("xgboost", with_holes),
    "catboost": ("catboost", functools.partial(people)),
}
for name, (kind, data) in SEARCHED.items():
    add(f"flaml-{name}", "steps", Searched(kind), data, after_fit=automl_of)
