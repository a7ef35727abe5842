"""Functions of whole tables that decide row by row, such as loops over rows, and those that only seem to."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.exporter.tracing.plans import Traced
from triton_regressors.exporter.tracing.trace import NotTraced


def matrix() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(200, 3))


def branches(X: np.ndarray) -> np.ndarray:
    return np.array([[a if a > b else c, 1.0 if c > 0 and a < 1 else 0.0, max(a, b)] for a, b, c in X])


def halved(X: np.ndarray) -> np.ndarray:
    out = []
    for a, b, _ in X:
        steps = 0
        while a > 0.5 and steps < 4:
            a, steps = a / 2, steps + 1
        out.append([a, steps, min(a, b)])
    return np.array(out)


def clipped_in_place(X: np.ndarray) -> np.ndarray:
    X = X.copy()
    for row in range(len(X)):
        if X[row, 0] < 0:
            X[row, 0] = 0.0
    return X


def in_a_table(X: np.ndarray) -> pd.DataFrame:
    table = pd.DataFrame(X, columns=["a", "b", "c"])
    table["grade"] = [2 if a > 1 else 1 if a > 0 else 0 for a in table["a"]]
    marks = []
    for _, row in table.iterrows():
        marks.append(row["a"] * 2 if row["b"] > 0 else -1.0)
    return table.assign(mark=marks)


def carried(X: np.ndarray) -> np.ndarray:
    out, last = [], 0.0
    for row in X:
        if row[0] > 0:
            last = row[1]
        out.append([last, row[0]])
    return np.array(out)


def runs(X: np.ndarray) -> np.ndarray:
    out, count = [], 0
    for row in X:
        count = count + 1 if row[0] > 0 else 0
        out.append([count, row[0]])
    return np.array(out)


MARKS = {1: 10.0, 2: 2.5, 3: -1.0}
PAIRS = {("Bonn", 1): 1.0, ("Bonn", 2): 2.0, ("Ulm", 1): 3.0, ("Ulm", 2): 4.0}


def cities() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    table = pd.DataFrame({"k": rng.integers(0, 5, 200), "j": rng.integers(1, 3, 200), "a": rng.normal(size=200)})
    return table.assign(city=rng.choice(["Bonn", "Ulm"], 200))


LOOKED_UP: dict[str, Callable[[pd.DataFrame], Any]] = {
    "default": lambda t: t[["a"]].assign(x=t.k.map(lambda k: MARKS.get(k, 0)), y=[MARKS.get(k, k) for k in t.k]),
    "literal": lambda t: t[["a"]].assign(x=[{0: 5, 4: 6}.get(k, -1) for k in t.k], y=[k in {1, 2} for k in t.k]),
    "pairs": lambda t: t[["a"]].assign(x=[PAIRS[city, j] for city, j in zip(t.city, t.j, strict=True)]),
    "rows": lambda t: t[["a"]].assign(x=t.apply(lambda r: PAIRS.get((r["city"], r["k"]), r["a"]), axis=1)),
    "merged": lambda t: t[["a", "k"]].merge(pd.DataFrame({"k": [1, 2, 4], "w": [0.5, 2.0, 7.0]}), how="left", on="k"),
}

BY_ROW: dict[str, Callable[[np.ndarray], Any]] = {
    "branches": branches,
    "while": halved,
    "in place": clipped_in_place,
    "table": in_a_table,
}

OVER_ROWS: dict[str, Callable[[np.ndarray], Any]] = {
    "count": lambda X: X * sum(1 for x in X[:, 0] if x > 0),
    "all": lambda X: X * (1 if all(x > 0 for x in X[:, 0]) else 2),
    "any": lambda X: X * (1 if any(x > 0 for x in X[:, 0]) else 2),
    "filter": lambda X: np.array([row for row in X if row[0] > 0]),
    "carried": carried,
    "runs": runs,
    "different values": lambda X: X / len(set((X[:, 0] > 0).tolist())),
    "first row": lambda X: X if X[0, 0] > 0 else -X,
}


@pytest.mark.parametrize("name", BY_ROW)
def test_each_row_takes_its_own_way(name: str) -> None:
    X = matrix()
    np.testing.assert_array_equal(Traced(BY_ROW[name], X).transform(X), np.asarray(BY_ROW[name](X)))


@pytest.mark.parametrize("name", LOOKED_UP)
def test_dictionaries_and_sets_are_looked_up(name: str) -> None:
    t = cities()
    expected = np.asarray(LOOKED_UP[name](t), dtype=np.float64)
    np.testing.assert_array_equal(Traced(LOOKED_UP[name], t).transform(t), expected)


def test_a_key_that_a_dictionary_lacks_is_missing() -> None:
    t = cities()
    found = Traced(lambda t: t[["a"]].assign(x=[MARKS[k] for k in t.k]), t).transform(t)
    np.testing.assert_array_equal(found[:, 1], t.k.map(MARKS).to_numpy())


@pytest.mark.parametrize("name", OVER_ROWS)
def test_a_way_that_depends_on_other_rows_is_refused(name: str) -> None:
    with pytest.raises(
        NotTraced,
        match=r"line \d+ of test_row_loops.py.*it (decides by the value of a cell|looks values of a column up)",
    ):
        Traced(OVER_ROWS[name], matrix())
