"""Strings that the sample does not hold: those that own code mentions, and those that an encoder behind it knows."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder

import triton_regressors as tr

CITIES = ["Bonn", "Ulm", "Rom", "Oslo", "none", "Other", "Roma", None]


def table() -> pd.DataFrame:
    rng = np.random.default_rng(4)
    return pd.DataFrame(
        {"a": rng.normal(size=400), "city": rng.choice(CITIES, 400), "b": rng.choice(["x", "y", "z", "Rom"], 400)}
    )


def filled(t: pd.DataFrame) -> pd.DataFrame:
    return t.assign(city=t.city.fillna("none"))


def others(t: pd.DataFrame) -> pd.DataFrame:
    return t.assign(city=t.city.where(t.city != "Ulm", "Other"))


def either(t: pd.DataFrame) -> pd.DataFrame:
    return t.assign(city=np.where(t.a > 0, t.city.fillna("q"), t.b))


def renamed(t: pd.DataFrame) -> pd.DataFrame:
    return t.assign(city=t.city.replace({"Rom": "Roma", "Ulm": "Neu-Ulm"}).fillna("-"))


def compared(t: pd.DataFrame) -> pd.DataFrame:
    return t.assign(
        rome=(t.city == "Rom") | np.isin(t.b, ["z"]),
        north=t.city.isin(["Oslo"]),
        mark=t.b.map({"z": 1, "y": 2}).fillna(9),
    )


def marked(t: pd.DataFrame) -> pd.DataFrame:
    return t.assign(b=t.b.replace({"x": 1.5, "y": 0, "z": 4, "Rom": -1}).astype(float))


FUNCTIONS: dict[str, list[Callable[[pd.DataFrame], Any]]] = {
    "filled": [filled],
    "replaced": [others, filled],
    "either": [either],
    "renamed": [renamed],
    "renamed twice": [renamed, others, renamed],
    "compared": [compared, filled],
    "numbers": [filled, marked],
}


IN_POLARS: dict[str, Callable[[Any], Any]] = {
    "filled": lambda t: t.with_columns(
        rome=(pl.col("city") == "Rom").fill_null(False),
        north=pl.col("city").is_in(["Oslo"]).fill_null(False),
        mark=pl.col("b").replace_strict({"z": 1.0, "y": 2.0}, default=9.0),
        city=pl.col("city").fill_null("none"),
    ),
    "renamed": lambda t: t.with_columns(city=pl.col("city").replace({"Rom": "Roma", "Ulm": "Neu-Ulm"}).fill_null("-")),
    "replaced": lambda t: t.with_columns(
        city=pl.when(pl.col("city") != "Ulm").then(pl.col("city")).otherwise(pl.lit("Other")).fill_null("q")
    ),
}


@pytest.mark.parametrize("name", IN_POLARS)
def test_the_same_holds_in_polars(name: str, tmp_path: Path) -> None:
    t = pl.from_pandas(table())
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    encode = make_column_transformer((encoder, ["city", "b"]), remainder="passthrough")
    y = np.random.default_rng(1).normal(size=len(t))
    model = make_pipeline(FunctionTransformer(IN_POLARS[name]), encode, Ridge(1e-3)).fit(t, y)
    few = t.filter(pl.col("city").is_in(["Bonn", "Ulm"]) & (pl.col("b") != "Rom")).head(20)
    loaded = tr.load(tr.export(model, tmp_path, name="few", sample=few).entry.directory)
    np.testing.assert_allclose(np.ravel(loaded.predict(t)), model.predict(t), atol=1e-6)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_strings_that_no_row_of_the_sample_holds_have_their_answer(name: str, tmp_path: Path) -> None:
    t = table()
    strings = ["city"] if name == "numbers" else ["city", "b"]
    encode = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), strings), remainder="passthrough")
    y = np.random.default_rng(1).normal(size=len(t))
    model = make_pipeline(*map(FunctionTransformer, FUNCTIONS[name]), encode, Ridge(1e-3)).fit(t, y)
    few = t[t.city.isin(["Bonn", "Ulm"]) & (t.b != "Rom")].iloc[:20]
    loaded = tr.load(tr.export(model, tmp_path, name="few", sample=few).entry.directory)
    asked = t.assign(city=[*["Neu-Ulm", "q", "-", "nowhere"] * 5, *t.city[20:]])
    np.testing.assert_allclose(np.ravel(loaded.predict(asked)), model.predict(asked), atol=1e-6)
