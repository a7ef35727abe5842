"""Cases of InterpretML's explainable boosting machines: bins, pairs, missing numbers, categories and links."""

import functools
from typing import Any

import numpy as np
import pandas as pd
from interpret.glassbox import ExplainableBoostingRegressor
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder, StandardScaler

from tests.exporter.catalogue.case import add
from tests.exporter.catalogue.cases_category_encoders import pandas_people, read_people
from tests.exporter.catalogue.cases_lightgbm import with_missing
from tests.exporter.catalogue.cases_text import NUMERIC, TEXT
from tests.exporter.data import Data, as_frame, counts, positive_counts, small


def machine(**options: Any) -> ExplainableBoostingRegressor:
    """Return a small machine."""
    few = {"max_rounds": 40, "outer_bags": 2, "interactions": 3, "n_jobs": 1, "random_state": 0}
    return ExplainableBoostingRegressor(**few | options)


@functools.cache
def with_codes() -> Data:
    """240 × 4: a number, codes, codes with fractions and some missing, zero or one."""
    rng = np.random.default_rng(8)
    kind, share = rng.integers(0, 12, 240), rng.integers(0, 7, 240) + rng.choice([0.0, 0.5], 240)
    share[::9] = np.nan
    X = np.column_stack([rng.standard_normal(240), kind, share, rng.integers(0, 2, 240)])
    return X, X[:, 0] + 2 * np.sin(3.0 * kind) + 2 * np.cos(9 * np.nan_to_num(share).astype(int)) + X[:, 3]


def with_country() -> Data:
    """Strings of which one column has a single one."""
    X, y = read_people()
    return X.assign(country=pd.Series(["Italy"] * len(X), dtype=object)), y


for name, (estimator, data) in {
    "plain": (machine(), small),
    "frame": (machine(interactions=0), as_frame),
    "many-pairs": (machine(interactions=0.9), small),
    "three": (machine(interactions=[(0, 1, 2), (3, 4)]), small),
    "chosen": (machine(interactions=[(0, 1), (1, 0, 2)], exclude=[(2,), (4,)]), small),
    "few-bins": (machine(max_bins=8, max_interaction_bins=4), small),
    "rounded": (machine(feature_types=["rounded_quantile", "uniform", "continuous", "quantile", "continuous"]), small),
    "missing": (machine(), with_missing),
    "missing-gain": (machine(missing="gain"), with_missing),
    "missing-low": (machine(missing="low"), with_missing),
    "strings": (machine(), read_people),
    "strings-pandas": (machine(), pandas_people),
    "strings-alike": (machine(interactions=6), with_country),
    "codes": (machine(feature_types=["continuous", "nominal", "nominal", "nominal"]), with_codes),
    "ordered-codes": (
        machine(feature_types=["continuous", "nominal", "continuous", ["0", "1"]], interactions=[(0, 3), (1, 3)]),
        with_codes,
    ),
    "poisson": (machine(objective="poisson_deviance"), counts),
    "tweedie": (machine(objective="tweedie_deviance:variance_power=1.5"), counts),
    "gamma": (machine(objective="gamma_deviance"), positive_counts),
    "log": (machine(objective="rmse_log"), positive_counts),
    "huber": (machine(objective="pseudo_huber"), small),
    "smooth": (machine(smoothing_rounds=20, interactions=1), small),
}.items():
    add(f"ebm-{name}", "steps", estimator, data)

encoded = ColumnTransformer([("num", StandardScaler(), NUMERIC), ("text", OrdinalEncoder(), TEXT)])
add("ebm-pipeline", "steps", make_pipeline(encoded, machine()), read_people)
add("ebm-target", "steps", TransformedTargetRegressor(machine(), func=np.arcsinh, inverse_func=np.sinh), small)
