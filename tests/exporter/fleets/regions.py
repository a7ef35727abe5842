"""A fleet whose models are named by a region and a shop, with shops of the same name in two regions, and parents."""

from typing import Any

import pandas as pd
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

from tests.exporter.fleets.fleets import COLUMNS, rows, target

BY = ["region", "shop"]
IDS = [("north", 7), ("south", 7), ("north", 8), ("south", 9)]
PARENTS = [("north",), ("south",), ()]


def history(name: tuple[str, int]) -> pd.DataFrame:
    """Return rows of a shop with its id and its target, with the ids among the other columns."""
    place = IDS.index(name)
    X = rows(place)
    found = X.assign(region=name[0], shop=name[1], sold=target(X, place))
    return found[["x0", "shop", *COLUMNS[1:], "region", "sold"]]


HISTORY = pd.concat(map(history, IDS), ignore_index=True)


def belonging(name: tuple[Any, ...]) -> pd.DataFrame:
    """Return the rows that begin with the parts of an id."""
    found = HISTORY
    for column, part in zip(BY, name, strict=False):
        found = found[found[column] == part]
    return found


def fitted(name: tuple[Any, ...], *, tree: bool = False) -> Any:
    """Return a model of an id on all rows that begin with its parts."""
    mine = belonging(name)
    model = DecisionTreeRegressor(max_depth=3, random_state=0) if tree else make_pipeline(StandardScaler(), Ridge())
    return model.fit(mine[COLUMNS], mine["sold"])


def fleet(*, parents: bool = False) -> dict[tuple[Any, ...], Any]:
    """Return the models of shops, and those of regions and of all rows too if `parents`."""
    return {name: fitted(name, tree=name == ("south", 7)) for name in (*IDS, *(PARENTS if parents else ()))}


def unknown(count: int = 40) -> pd.DataFrame:
    """Return rows of known and unknown shops and regions in any order."""
    X = HISTORY.drop(columns="sold").sample(count, random_state=0, ignore_index=True)
    return X.assign(shop=X["shop"].where(X.index % 4 != 1, 99), region=X["region"].where(X.index % 5 != 2, "west"))


def answering(models: dict[tuple[Any, ...], Any], X: pd.DataFrame) -> list[tuple[Any, ...]]:
    """Return the id of the model that answers each row."""
    asked = X[BY].itertuples(index=False, name=None)
    return [next(row[:length] for length in (2, 1, 0) if row[:length] in models) for row in asked]
