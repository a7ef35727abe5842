"""pandas in a traced function: bit for bit, missing values, strings and booleans included."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.exporter.tracing.plans import Traced

CITIES = ("Bonn", "Köln", " ulm ", "San-José")


def table(strings: str = "str") -> pd.DataFrame:
    rng = np.random.default_rng(0)
    n = 300
    found = pd.DataFrame(
        {
            "a": rng.normal(size=n),
            "b": np.round(rng.normal(size=n) * 4) / 2,
            "c": np.where(rng.random(n) < 0.2, np.nan, rng.gamma(2.0, 3.0, n)),
            "k": rng.integers(-2, 5, n),
            "flag": rng.random(n) < 0.4,
            "city": pd.Series(rng.choice(CITIES, n), dtype=strings),
            "grade": pd.Categorical(rng.choice(["low", "mid", "high"], n)),
        }
    )
    found.loc[::9, "city"] = None
    found.loc[::31, "grade"] = None
    return found


def assigned(t: pd.DataFrame) -> pd.DataFrame:
    t = t[["a", "b", "c"]].copy()
    t["ratio"] = t["a"] / t["b"]
    t.insert(0, "first", t.a - t.b)
    t.loc[t["a"] > 0, "b"] = 0.25
    t.loc[t["c"].isna(), ["a", "c"]] = -1
    t.loc[t["a"] < -1, "a"] = t["b"] * 2
    t[t < -2] = -2
    t["one"] = 1
    t = t.rename(columns={"a": "A"}).drop(columns=["c"])
    t.columns = [f"{name}_" for name in t.columns]
    return t


def by_row(row: pd.Series) -> Any:
    if row["k"] > 2 and not row["flag"]:
        return row["a"]
    if row["k"] < 0 or row["b"] == 0.5:
        return row["b"] * 2
    return min(row["a"], 1)


def with_category(t: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"code": t["grade"].map({"low": 1, "mid": 2, "high": 3}).astype(float).fillna(0), "a": t["a"]})


def masked(t: pd.DataFrame) -> pd.DataFrame:
    t = t[["a", "b", "c"]].copy()
    t.loc[t["a"] > 0, "b"] = t.loc[t["a"] > 0, "c"] * 2
    t.loc[t["b"] < 0, "c"] += 1
    t.loc[t["a"] > 1, "a"] = t.loc[t["a"] > 2, "b"]  # missing where the masks differ
    return t


EXACT: dict[str, Callable[[pd.DataFrame], Any]] = {
    "masked": masked,
    "arithmetic": lambda t: pd.DataFrame({"x": t.a + t.b * 2, "y": 1 - t["a"], "z": t.k // 2, "w": t.k % 3, "v": -t.a}),
    "flexible": lambda t: pd.DataFrame({"x": t.a.add(t.b), "y": t.a.rsub(1), "z": t.b.mul(2).div(3), "w": t.a.gt(0)}),
    "tables": lambda t: (t[["a", "b"]] * 2 + t[["a", "b"]] - [1, 2]).div(t["k"] + 3, axis=0),
    "comparisons": lambda t: pd.DataFrame({"x": t.a > t.b, "y": t.k == 2, "z": (t.a > 0) & ~t.flag, "w": t.c <= 3}),
    "assigned": assigned,
    "assign": lambda t: t[["a", "b"]].assign(c=lambda u: u.a - u.b, d=lambda u: u.c * 2, e=3.5),
    "missing": lambda t: pd.DataFrame({"x": t.c.isna(), "y": t.c.fillna(0), "z": t.c.notnull(), "w": t.c.fillna(t.a)}),
    "filled by columns": lambda t: t[["a", "c"]].fillna({"c": 7.5}),
    "filled table": lambda t: t[["a", "c"]].fillna(-1).isna().astype(int) + t[["a", "c"]].isna(),
    "functions": lambda t: pd.DataFrame(
        {"x": t.a.abs(), "y": np.sqrt(t.a.abs()), "z": t.a.round(1), "w": np.floor(t.a)}
    ),
    "clip": lambda t: t[["a", "b", "c"]].clip(-0.5, 0.5).assign(lower=t.c.clip(lower=1), upper=t.c.clip(upper=2)),
    "where": lambda t: pd.DataFrame(
        {"x": t.a.where(t.a > 0), "y": t.a.mask(t.b > 0, 5), "z": np.where(t.flag, t.a, t.b)}
    ),
    "between": lambda t: t[["a"]].assign(x=t.a.between(-0.5, 0.5), y=t.k.isin([1, 2]), z=t.c.isin([np.nan])),
    "map numbers": lambda t: t[["a"]].assign(x=t.k.map({0: 10, 1: 11.5, 2: None}), y=t.k.map(pd.Series([1.0, 2.0]))),
    "map function": lambda t: t[["a"]].assign(x=t.k.map(lambda v: v * 2 if v > 0 else 0), y=t.b.apply(lambda v: v**2)),
    "replace": lambda t: t[["k"]].replace({0: 100, 1: -5}).assign(x=t.b.replace(0.5, 9.0), y=t.c.replace(np.nan, 0)),
    "astype": lambda t: (
        t[["k", "flag"]].astype(float).assign(x=t.a.astype(int), y=t.flag.astype("int64"), z=t.k.astype(bool))
    ),
    "cut": lambda t: pd.DataFrame(
        {
            "x": pd.cut(t.b, [-3, -1, 0, 0.5, 3], labels=False),
            "y": pd.cut(t.b, [-3, -1, 0, 3], labels=[10, 20, 30], right=False).astype(float),
            "z": pd.cut(t.c, [0, 1, 5, np.inf], labels=False, include_lowest=True),
        }
    ),
    "sums": lambda t: pd.DataFrame({"x": t[["a", "c"]].sum(axis=1), "y": t[["a", "b", "c"]].sum(axis=1, skipna=False)}),
    "statistics": lambda t: pd.DataFrame(
        {
            "mean": t[["a", "b", "c"]].mean(axis=1),
            "low": t[["a", "c"]].min(axis=1),
            "high": t[["a", "c"]].max(axis=1),
            "count": t[["a", "c"]].count(axis=1),
            "any": (t[["a", "b"]] > 1).any(axis=1),
            "all": (t[["a", "b"]] > -1).all(axis="columns"),
            "median": t[["a", "b", "c"]].median(axis=1),
            "middle": t[["a", "b", "c", "k"]].median(axis=1),
            "strict": t[["a", "c"]].median(axis=1, skipna=False),
        }
    ),
    "by row": lambda t: t[["a"]].assign(x=t.apply(by_row, axis=1)),
    "rows of rows": lambda t: t.apply(lambda r: pd.Series({"p": r["a"] + 1, "q": r["k"] * 2}), axis=1),
    "column by column": lambda t: t[["a", "b"]].apply(lambda column: column * 2 - 1),
    "concat": lambda t: pd.concat([t[["a"]], t.b.rename("z") * 2, pd.DataFrame({"n": t.k > 0})], axis=1),
    "to arrays": lambda t: np.column_stack([t["a"].values, t[["b", "c"]].to_numpy(), np.asarray(t["k"]) + 1]),
    "select types": lambda t: t.select_dtypes(include=["number"]),
    "types": lambda t: t[[name for name in t.columns if t.dtypes[name] == np.float64]],
    "columns": lambda t: t.loc[:, "a":"c"].iloc[:, ::-1],
    "loops": lambda t: pd.DataFrame({f"{p}_{q}": t[p] * t[q] for p in ("a", "b") for q in ("a", "b", "k")}),
    "pop and del": lambda t: (lambda u: (u.pop("a"), u)[1])(t[["a", "b", "c"]].copy()),
    "pipe": lambda t: t[["a", "b"]].pipe(lambda u: u - u["a"].to_numpy()[:, None]),
    "categories": with_category,
}
"""Functions of numbers, whose bits are pandas'."""

STRINGS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "equal": lambda t: t[["a"]].assign(x=t.city == "Bonn", y=t["city"] != "Köln", z=(t.city == "Rom") | t.flag),
    "missing": lambda t: t[["a"]].assign(x=t.city.isna(), y=t.city.notna() & t.flag),
    "map": lambda t: t[["a"]].assign(x=t.city.map({"Bonn": 3, "Köln": 4.5}), y=t.city.map({"Bonn": 1}).fillna(0)),
    "isin": lambda t: t[["a"]].assign(x=t.city.isin(["Bonn", "Rom"]), y=~t.city.isin(["Köln"])),
    "lengths": lambda t: t[["a"]].assign(
        x=t.city.str.len(), y=t.city.str.strip().str.len().fillna(-1), z=t.city.str.count("o")
    ),
    "tests": lambda t: t[["a"]].assign(
        x=t.city.str.contains("o", na=False),
        y=t.city.fillna("").str.startswith("B"),
        z=t.city.str.lower().str.endswith("n", na=False),
    ),
    "function": lambda t: t[["a"]].assign(
        x=t.city.fillna("none").map(lambda s: len(s) * 2), y=t.city.apply(lambda s: s == "Bonn")
    ),
    "where": lambda t: t[["a"]].assign(x=np.where(t.city.str.upper() == "BONN", t.a, t.b)),
    "select": lambda t: t[["a"]].assign(x=np.select([t.city == "Bonn", t.city.isna()], [1, 2], default=0)),
    "chain": lambda t: t[["a"]].assign(x=t.city.str.split("-").str[0].map({"San": 1, "Bonn": 2})),
    "numbers": lambda t: t[["a"]].assign(
        x=t.city.replace(dict(zip(CITIES, [1, 2.5, 3, 4], strict=True))).astype(float)
    ),
    "whole numbers": lambda t: t[["a"]].assign(
        x=t.k.astype(str) == "3",
        y=t.k.apply(str).isin(["-1", "0", "07"]),
        z=t.flag.astype(str).map({"True": 2.0, "False": 1.0}),
    ),
    "choice": lambda t: t[["a"]].assign(x=pd.Series(np.where(t.a > 0, "up", "down")).map({"up": 1, "down": -1})),
}
"""Functions of strings with numbers as results."""


def values(found: Any) -> np.ndarray:
    frame = pd.DataFrame(found)
    return np.column_stack(
        [frame.iloc[:, i].astype("Float64").to_numpy(np.float64, na_value=np.nan) for i in range(frame.shape[1])]
    )


def compare(function: Callable[[pd.DataFrame], Any], rows: pd.DataFrame) -> None:
    expected = function(rows.copy())
    traced = Traced(function, rows)
    np.testing.assert_array_equal(traced.transform(rows), values(expected))
    if hasattr(expected, "columns"):
        assert list(traced.names) == list(expected.columns)


@pytest.mark.parametrize("name", EXACT)
def test_pandas_bits(name: str) -> None:
    compare(EXACT[name], table())


@pytest.mark.parametrize("kind", ["str", "object"])
@pytest.mark.parametrize("name", STRINGS)
def test_strings(name: str, kind: str) -> None:
    compare(STRINGS[name], table(kind))
