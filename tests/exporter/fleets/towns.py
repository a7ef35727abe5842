"""Fleets of models that know different categories, for tests: each is fitted on rows of its own shop."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler, TargetEncoder

TOWNS, KINDS, NUMBERS = ["Bonn", "Ulm", "Rom", "Oslo", "Bern", "Wien", "Graz"], ["a", "b", "c", "d"], ["x", "z"]
COLUMNS = ["town", "kind", *NUMBERS]

ENCODERS: dict[str, Callable[[], Any]] = {
    "ignore": lambda: OneHotEncoder(handle_unknown="ignore"),
    "error": lambda: OneHotEncoder(drop="first"),
    "infrequent": lambda: OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=5),
    "ordinal": lambda: OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
    "target": lambda: TargetEncoder(),
    "imputed": lambda: make_pipeline(
        SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    ),
}
REGRESSORS: dict[str, Callable[[], Any]] = {
    "ridge": Ridge,
    "forest": lambda: RandomForestRegressor(3, max_depth=4, random_state=0),
    "boosting": lambda: HistGradientBoostingRegressor(max_iter=4),
}


def rows(shop: int, count: int = 40) -> pd.DataFrame:
    """Return rows of a shop, which has some towns and some kinds."""
    rng = np.random.default_rng(shop)
    towns, kinds = rng.choice(TOWNS, 2 + shop % 4, replace=False), rng.choice(KINDS, 2 + shop % 2, replace=False)
    numbers = rng.standard_normal((count, 2))
    return pd.DataFrame({"town": rng.choice(towns, count), "kind": rng.choice(kinds, count)}).assign(
        x=numbers[:, 0], z=3 * numbers[:, 1]
    )


def fitted(shop: int, encoder: str, regressor: str) -> Any:
    """Return a shop's pipeline."""
    encoded = make_column_transformer(
        (ENCODERS[encoder](), ["town", "kind"]), (StandardScaler(), NUMBERS), sparse_threshold=0
    )
    X = rows(shop)
    return make_pipeline(encoded, REGRESSORS[regressor]()).fit(X, target(X, shop))


def target(X: pd.DataFrame, shop: int) -> np.ndarray:
    """Return a target, which depends on the shop, the town and the kind."""
    found: np.ndarray = X["x"].to_numpy() + shop + X["town"].str.len() * X["kind"].map({"a": 0, "b": 1, "c": 2, "d": 3})
    return np.asarray(found)


def fleet(encoder: str, regressor: str, count: int = 4) -> dict[str, Any]:
    """Return models of some shops by their names."""
    return {f"shop-{shop}": fitted(shop, encoder, regressor) for shop in range(count)}


def samples(models: dict[str, Any]) -> dict[str, pd.DataFrame]:
    """Return the rows of each model."""
    return {name: rows(int(name.removeprefix("shop-"))) for name in models}


def asked(count: int = 60) -> pd.DataFrame:
    """Return rows with towns and kinds of all shops, with some that nobody knows, and some that are missing."""
    rng = np.random.default_rng(99)
    texts = {"town": rng.choice([*TOWNS, "nowhere"], count), "kind": rng.choice(KINDS, count)}
    found = pd.DataFrame({**texts, "x": rng.standard_normal(count), "z": rng.standard_normal(count)})
    found.loc[::11, "kind"] = None
    return found
