"""Cases of models fitted on columns of strings, beside numbers or alone, by what reads the strings."""

import functools
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor, make_column_selector
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor, StackingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import BayesianRidge, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, PolynomialFeatures, StandardScaler, TargetEncoder

from tests.exporter.catalogue.case import add
from tests.exporter.data import Data

CITIES = ("Paris", "Rome", "Zürich", "São Paulo", "東京")
JOBS = ("cook", "smith", "nurse", "judge")
COMPLETE = object()
"""Stands for what stands for a missing city where none is missing."""

NUMERIC = ["age", "income"]
TEXT = ["city", "job"]


@functools.cache
def people(missing: Any = COMPLETE) -> Data:
    """240 rows of strings and numbers in turn, and a column that no model reads; `missing` in some cities."""
    rng, rows = np.random.default_rng(0), 240
    X = pd.DataFrame(
        {
            "city": pd.Series(rng.choice(CITIES, rows, p=(0.4, 0.3, 0.2, 0.07, 0.03)), dtype=object),
            "age": rng.normal(40, 10, rows),
            "id": pd.Series([f"row {number}" for number in range(rows)], dtype=object),
            "job": pd.Series(rng.choice(JOBS, rows), dtype=object),
            "income": rng.normal(3e4, 8e3, rows),
        }
    )
    if missing is not COMPLETE:
        X.loc[::6, "city"] = missing
    place = X["city"].map({city: float(number) for number, city in enumerate(CITIES)}).fillna(9.0)
    noise = rng.normal(0, 0.5, rows)
    return X, 0.1 * X["age"] + 1e-4 * X["income"] + place + X["job"].str.len() + noise


def beside(text: Any, number: Any = "passthrough", columns: list[str] = TEXT) -> ColumnTransformer:
    """Return a transformer of the strings beside one of the numbers."""
    return ColumnTransformer([("num", number, NUMERIC), ("cat", text, columns)])


MODELS: dict[str, tuple[Any, Any]] = {  # the estimator, and what stands for a missing city
    "one-hot": (make_pipeline(beside(OneHotEncoder(), StandardScaler()), Ridge()), COMPLETE),
    "one-hot-ignore": (make_pipeline(beside(OneHotEncoder(handle_unknown="ignore")), Ridge()), COMPLETE),
    "one-hot-drop": (make_pipeline(beside(OneHotEncoder(drop="first", handle_unknown="ignore")), Ridge()), COMPLETE),
    "one-hot-infrequent": (
        make_pipeline(beside(OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=30)), Ridge()),
        COMPLETE,
    ),
    "one-hot-missing": (make_pipeline(beside(OneHotEncoder(handle_unknown="ignore")), BayesianRidge()), np.nan),
    "one-hot-none": (make_pipeline(beside(OneHotEncoder(handle_unknown="ignore")), Ridge()), None),
    "ordinal": (make_pipeline(beside(OrdinalEncoder()), RandomForestRegressor(10, random_state=0)), COMPLETE),
    "ordinal-unknown": (
        make_pipeline(
            beside(OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)),
            HistGradientBoostingRegressor(max_iter=20),
        ),
        np.nan,
    ),
    "ordinal-none": (make_pipeline(beside(OrdinalEncoder()), Ridge()), None),
    "target": (make_pipeline(beside(TargetEncoder(random_state=0)), Ridge()), np.nan),
    "imputed": (
        make_pipeline(beside(make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder())), Ridge()),
        np.nan,
    ),
    "imputed-constant": (
        make_pipeline(
            beside(make_pipeline(SimpleImputer(strategy="constant", fill_value="?"), TargetEncoder(random_state=0))),
            KNeighborsRegressor(),
        ),
        np.nan,
    ),
    "alone": (
        make_pipeline(ColumnTransformer([("cat", OneHotEncoder(), TEXT)]), TransformedTargetRegressor(Ridge())),
        COMPLETE,
    ),
    "two-groups": (
        make_pipeline(
            ColumnTransformer(
                [
                    ("num", StandardScaler(), NUMERIC),
                    ("city", TargetEncoder(random_state=0), ["city"]),
                    ("job", OrdinalEncoder(categories=[list(JOBS)]), ["job"]),
                    ("city-again", OneHotEncoder(handle_unknown="ignore"), ["city"]),
                ]
            ),
            PolynomialFeatures(2),
            Ridge(),
        ),
        COMPLETE,
    ),
    "boosted-categories": (
        make_pipeline(
            ColumnTransformer([("keep", "passthrough", [*NUMERIC, *TEXT])]).set_output(transform="pandas"),
            HistGradientBoostingRegressor(max_iter=20, categorical_features=["keep__city", "keep__job"]),
        ),
        np.nan,
    ),
    "selected-by-type": (
        make_pipeline(
            ColumnTransformer(
                [
                    ("num", "passthrough", make_column_selector(dtype_include=np.number)),
                    (
                        "cat",
                        OneHotEncoder(handle_unknown="ignore", max_categories=4),
                        make_column_selector("city|job", dtype_include=object),
                    ),
                ]
            ),
            Ridge(),
        ),
        COMPLETE,
    ),
    "searched": (
        GridSearchCV(
            TransformedTargetRegressor(
                make_pipeline(beside(OneHotEncoder(handle_unknown="ignore")), Ridge()), func=np.log, inverse_func=np.exp
            ),
            {"regressor__ridge__alpha": [0.1, 1.0]},
            cv=2,
        ),
        COMPLETE,
    ),
    "stacked": (
        StackingRegressor(
            [
                ("linear", make_pipeline(beside(OneHotEncoder(handle_unknown="ignore")), Ridge())),
                ("forest", make_pipeline(beside(OrdinalEncoder()), RandomForestRegressor(5, random_state=0))),
            ],
            Ridge(),
        ),
        COMPLETE,
    ),
    "union": (
        make_pipeline(
            beside(
                FeatureUnion(
                    [("one", OneHotEncoder(handle_unknown="ignore")), ("target", TargetEncoder(random_state=0))]
                )
            ),
            Ridge(),
        ),
        COMPLETE,
    ),
}


for _name, (_model, _missing) in MODELS.items():
    _family = "std" if _name == "one-hot-missing" else "steps"
    add(f"strings-{_name}", _family, _model, functools.partial(people, _missing))
