"""Fleets whose columns are in the tensor `integers`, for tests: categories that are large whole numbers, and dates."""

from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from tests.exporter.dated import DayNumber

ARTICLE, TICKET = 2**60, 10**9
"""Numbers from which on float64 rounds those of articles, and float32 those of tickets."""

COLUMNS = ["article", "price", "ticket", "ordered"]
SHOPS = 6


def shop_id(shop: int) -> int:
    """Return a shop's id, which may be less than zero, and which float32 does not hold."""
    return shop * 10**12 - 3


def rows(shop: int, count: int = 60) -> pd.DataFrame:
    """Return rows of a shop, which has some articles."""
    rng = np.random.default_rng(shop)
    articles = rng.choice(7, 2 + shop % 4, replace=False)
    return pd.DataFrame(
        {
            "article": rng.choice(articles, count) + ARTICLE,
            "price": rng.integers(0, 4000, count) / 4,
            "ticket": rng.integers(0, 100, count) + TICKET,
            "ordered": pd.Series(rng.integers(10**9, 2 * 10**9, count).astype("datetime64[s]")),
        }
    )


def fitted(shop: int, unknown: str, *, trees: bool = False) -> Any:
    """Return a shop's pipeline. `unknown` is what its encoder does with such articles."""
    encoded = make_column_transformer(
        (OneHotEncoder(handle_unknown=unknown), ["article"]),
        (make_pipeline(DayNumber(), StandardScaler()), ["ordered"]),
        (StandardScaler(), ["price", "ticket"]),
        sparse_threshold=0,
    )
    X = rows(shop)
    target = X["price"] / 100 + shop + X["article"] % 7 + (X["ticket"] - TICKET) / 10
    model = GradientBoostingRegressor(n_estimators=4) if trees else Ridge()
    return make_pipeline(encoded, model).fit(X, target + X["ordered"].dt.month)


def fleet(unknown: str = "ignore", *, trees: bool = False) -> dict[int, Any]:
    """Return models of some shops by their ids; with `trees`, two of them have trees."""
    return {shop_id(shop): fitted(shop, unknown, trees=trees and shop % 3 == 2) for shop in range(SHOPS)}


def samples() -> dict[int, pd.DataFrame]:
    """Return the rows of each model."""
    return {shop_id(shop): rows(shop) for shop in range(SHOPS)}


def asked(count: int = 60) -> pd.DataFrame:
    """Return rows with articles of all shops, and with some that nobody knows."""
    rng = np.random.default_rng(99)
    parts = pd.concat([rows(shop) for shop in range(SHOPS)], ignore_index=True)
    found = pd.DataFrame({column: rng.choice(parts[column], count) for column in COLUMNS})
    found.loc[::7, "article"] = ARTICLE + 99
    return found
