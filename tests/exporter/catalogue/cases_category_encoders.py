"""Cases of category_encoders' encoders, with their options: strings, pandas' categories and numbers as categories.

Half of the numbers asked are moved by noise and are then unknown categories. Unknown and missing strings are asked in
test_category_encoders.py.
"""

import functools
from typing import Any

import category_encoders as ce
import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tests.exporter.catalogue.case import add
from tests.exporter.catalogue.cases_encoding import categories, categories_binary_target
from tests.exporter.catalogue.cases_text import NUMERIC, TEXT, people
from tests.exporter.data import Data

ENCODERS = (
    ce.BackwardDifferenceEncoder,
    ce.BaseNEncoder,
    ce.BinaryEncoder,
    ce.CatBoostEncoder,
    ce.CountEncoder,
    ce.GLMMEncoder,
    ce.GrayEncoder,
    ce.HelmertEncoder,
    ce.JamesSteinEncoder,
    ce.LeaveOneOutEncoder,
    ce.MEstimateEncoder,
    ce.OneHotEncoder,
    ce.OrdinalEncoder,
    ce.PolynomialEncoder,
    ce.QuantileEncoder,
    ce.RankHotEncoder,
    ce.SumEncoder,
    ce.SummaryEncoder,
    ce.TargetEncoder,
)


@functools.cache
def read_people() -> Data:
    """The rows of `people` with some cities missing, without the column that no model reads."""
    X, y = people(np.nan)
    return X.drop(columns="id"), y


def pandas_people() -> Data:
    """The same rows with pandas' categories."""
    X, y = read_people()
    return X.astype({"city": "category", "job": pd.CategoricalDtype(["nurse", "judge", "cook", "smith"], True)}), y


def complete_people() -> Data:
    X, y = people()
    return X.drop(columns="id"), y


def sparse_people() -> Data:
    """The rows with a column of one job alone."""
    X, y = read_people()
    return X.assign(country="Italy"), y


def likely_people() -> Data:
    X, y = read_people()
    return X, (y > np.median(y)).astype(int)


def named_categories() -> Data:
    X, y = categories()
    return pd.DataFrame(X, columns=["kind", "size", "number", "flag"]), y


def boosted() -> HistGradientBoostingRegressor:
    """Return a regressor that takes missing numbers."""
    return HistGradientBoostingRegressor(max_iter=20, random_state=0)


for encoder in ENCODERS:
    name = encoder.__name__.removesuffix("Encoder").lower()
    add(f"ce-{name}", "steps", make_pipeline(encoder(), Ridge()), read_people)
for encoder in (ce.WOEEncoder, ce.CountTargetEncoder):
    name = encoder.__name__.removesuffix("Encoder").lower()
    add(f"ce-{name}", "steps", make_pipeline(encoder(), Ridge()), likely_people)

hierarchy = {"job": {"hands": ("cook", "smith"), "heads": ("nurse", "judge")}}
OPTIONS: dict[str, Any] = {
    "base-3": ce.BaseNEncoder(base=3),
    "base-1": ce.BaseNEncoder(base=1, handle_missing="indicator", handle_unknown="indicator"),
    "binary-indicator": ce.BinaryEncoder(handle_unknown="indicator", handle_missing="value"),
    "catboost-a": ce.CatBoostEncoder(a=3.0, sigma=0.1, random_state=0),
    "catboost-nan": ce.CatBoostEncoder(handle_unknown="return_nan", handle_missing="return_nan"),
    "count-share": ce.CountEncoder(normalize=True, handle_unknown=-1, handle_missing="return_nan"),
    "count-grouped": ce.CountEncoder(min_group_size=20, min_group_name="few", combine_min_nan_groups=False),
    "count-grouped-share": ce.CountEncoder(normalize=True, min_group_size=0.2, combine_min_nan_groups="force"),
    "count-by-column": ce.CountEncoder(cols=["city", "job"], handle_unknown={"city": "return_nan"}),
    "helmert-indicator": ce.HelmertEncoder(handle_unknown="indicator", handle_missing="indicator"),
    "james-stein-pooled": ce.JamesSteinEncoder(model="pooled", handle_unknown="return_nan"),
    "james-stein-beta": ce.JamesSteinEncoder(model="independent", randomized=True, random_state=0),
    "leave-one-out-sigma": ce.LeaveOneOutEncoder(sigma=0.2, random_state=1, handle_missing="return_nan"),
    "m-estimate": ce.MEstimateEncoder(m=5.0, randomized=True, sigma=0.1, random_state=2),
    "one-hot-names": ce.OneHotEncoder(use_cat_names=True, handle_unknown="indicator", handle_missing="indicator"),
    "one-hot-nan": ce.OneHotEncoder(handle_unknown="return_nan", handle_missing="return_nan"),
    "ordinal-mapping": ce.OrdinalEncoder(
        cols=["job"], mapping=[{"col": "job", "mapping": {"judge": 4, "cook": 2, "nurse": 7}}]
    ),
    "ordinal-number": ce.OrdinalEncoder(handle_unknown=-7, handle_missing=-9),
    "ordinal-nan": ce.OrdinalEncoder(handle_unknown="return_nan", handle_missing="return_nan"),
    "polynomial-nan": ce.PolynomialEncoder(handle_missing="return_nan"),
    "quantile": ce.QuantileEncoder(quantile=0.8, m=3.0),
    "summary": ce.SummaryEncoder(quantiles=(0.1, 0.9), m=2.0),
    "target": ce.TargetEncoder(min_samples_leaf=5, smoothing=2.0, handle_missing="return_nan"),
    "target-hierarchy": ce.TargetEncoder(cols=["job"], hierarchy=hierarchy),
    "target-grouped": ce.TargetEncoder(min_group_size=0.1, handle_unknown=3.0),
    "target-matrix": ce.TargetEncoder(return_df=False),
}
for name, transformer in OPTIONS.items():
    few = {"target-hierarchy": ["job"], "ordinal-mapping": ["job"]}.get(name, TEXT)
    beside = ColumnTransformer([("num", StandardScaler(), NUMERIC), ("text", transformer, few)])
    add(f"ce-options-{name}", "steps", make_pipeline(beside, boosted()), read_people)

for name, transformer in {
    "ordinal": ce.OrdinalEncoder(handle_unknown="error", handle_missing="error"),
    "one-hot": ce.OneHotEncoder(handle_unknown="error", handle_missing="error"),
    "target": ce.TargetEncoder(handle_unknown="error", handle_missing="error"),
    "leave-one-out": ce.LeaveOneOutEncoder(handle_unknown="error", handle_missing="error"),
    "count": ce.CountEncoder(handle_unknown="error", handle_missing="error"),
}.items():
    add(f"ce-error-{name}", "steps", make_pipeline(transformer, Ridge()), complete_people)

for name, transformer in {
    "target": ce.TargetEncoder(),
    "catboost": ce.CatBoostEncoder(),
    "leave-one-out": ce.LeaveOneOutEncoder(),
    "ordinal": ce.OrdinalEncoder(),
    "one-hot": ce.OneHotEncoder(),
}.items():
    model = make_pipeline(transformer, RandomForestRegressor(5, random_state=0))
    add(f"ce-pandas-{name}", "steps", model, pandas_people)

add("ce-invariant", "steps", make_pipeline(ce.HelmertEncoder(drop_invariant=True), Ridge()), sparse_people)
add("ce-invariant-kept", "steps", make_pipeline(ce.OrdinalEncoder(), Ridge()), sparse_people)
add("ce-nothing", "steps", make_pipeline(ce.TargetEncoder(), Ridge()), named_categories)
for name, transformer in {
    "target": ce.TargetEncoder(cols=["number", "kind"]),
    "all": ce.JamesSteinEncoder(cols="all"),
    "count": ce.CountEncoder(cols=["size"]),
}.items():
    add(f"ce-numbers-{name}", "steps", make_pipeline(transformer, Ridge()), named_categories)
for name, transformer in {
    "leave-one-out": ce.LeaveOneOutEncoder(cols=[2, 0]),
    "binary": ce.BinaryEncoder(cols=[2], return_df=False),
}.items():
    add(f"ce-matrix-{name}", "steps", make_pipeline(transformer, Ridge()), categories)
add("ce-matrix-woe", "steps", make_pipeline(ce.WOEEncoder(cols=[0, 3]), Ridge()), categories_binary_target)
