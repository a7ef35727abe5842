"""Own code on strings: entries answer strings that no sample held as `predict` does, or refuse them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder, TargetEncoder

import triton_regressors as tr

N = 200
NONE = {"str": None, "object": None, "string[python]": "U"}
"""A missing cabin, by the dtype of strings; no encoder takes pandas.NA."""


def sample(dtype: str) -> pd.DataFrame:
    """Passengers, some of whose cabins are missing."""
    rng = np.random.default_rng(7)
    titles = rng.choice(["Mr", "Mrs", "Miss"], N)
    names = [
        f"{a}, {b}. {c}" for a, b, c in zip(rng.choice(["Öz", "Braun"], N), titles, rng.permutation(N), strict=True)
    ]
    columns = {
        "name": names,
        "cabin": rng.choice(["C85", "E46", NONE[dtype], "B1"], N),
        "city": rng.choice(["Bonn", " bonn", "ULM", "Straße"], N),
        "sex": rng.choice(["m", "f"], N),
    }
    text = {name: pd.Series(values, dtype=dtype) for name, values in columns.items()}
    return pd.DataFrame({**text, "age": rng.normal(30, 9, N)})


def unseen(dtype: str) -> pd.DataFrame:
    """Passengers with spellings that no sample holds."""
    columns = {
        "name": ["Zed, Mr. Éric 𝐀", "X. Y, Mrs. Ö. Ü", "Öz, Miss. \u00a0 Ann"],
        "cabin": ["E999", NONE[dtype], "B"],
        "city": ["\u00a0STRASSE ", "BONN\u2003", "uLm\n"],
        "sex": ["f", "m", "f"],
    }
    text = {name: pd.Series(values, dtype=dtype) for name, values in columns.items()}
    return pd.DataFrame({**text, "age": [1.0, 2.0, 3.0]})


def title(t: pd.DataFrame) -> pd.DataFrame:
    return t.assign(title=t["name"].str.split(", ").str[1].str.split(".").str[0])[["title", "age"]]


def deck(t: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"deck": t["cabin"].fillna("U").str[0], "age": t["age"]})


def spelling(t: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"city": t["city"].str.strip().str.casefold().str.replace("ß", "ss"), "age": t["age"]})


def joined(t: pd.DataFrame) -> pd.DataFrame:
    both = t["sex"] + "_" + t["city"].str.strip().str.casefold().str.replace("ß", "ss")
    return pd.DataFrame({"both": both, "again": t["sex"].str.cat(t["cabin"].str[:1], sep="/"), "age": t["age"]})


def numbers(t: pd.DataFrame) -> pd.DataFrame:
    city = t["city"].str.strip().str.lower()
    return pd.DataFrame(
        {
            "length": t["name"].str.len() + t["city"].str.len(),
            "dots": t["name"].str.count(r"\."),
            "starts": t["city"].str.startswith("B").astype(int),
            "of bonn": t["city"].str.contains("onn", na=False) & (city != "ulm"),
            "room": t["cabin"].str.len().fillna(-1),
            "known": city.map({"bonn": 1.0, "rom": 2.0}).fillna(0.0),
            "in": city.isin(["ulm", "rom"]).astype(float),
            "age": t["age"],
        }
    )


def raw_too(t: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {"city": t["city"].str.strip().str.casefold(), "sex": t["sex"], "m": (t["sex"] == "m") * t["age"]}
    )


HOT = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
MODELS: dict[str, tuple[Callable[[pd.DataFrame], pd.DataFrame], Any]] = {
    "title": (title, make_column_transformer((HOT, ["title"]), remainder="passthrough")),
    "deck": (deck, make_column_transformer((OneHotEncoder(), ["deck"]), remainder="passthrough")),
    "spelling": (spelling, make_column_transformer((OrdinalEncoder(), ["city"]), remainder="passthrough")),
    "joined": (joined, make_column_transformer((HOT, ["both", "again"]), remainder="passthrough")),
    "numbers": (numbers, "passthrough"),
    "raw too": (raw_too, make_column_transformer((TargetEncoder(), ["city"]), (HOT, ["sex"]), remainder="passthrough")),
}


def fitted(name: str, table: pd.DataFrame, regressor: Any = None) -> Any:
    function, encoder = MODELS[name]
    y = table["age"] + table["name"].str.len().astype(float) + 5.0 * (table["sex"] == "m").astype(float)
    return make_pipeline(FunctionTransformer(function), encoder, Ridge() if regressor is None else regressor).fit(
        table, y
    )


@pytest.mark.parametrize("dtype", NONE)
@pytest.mark.parametrize("name", MODELS)
def test_unseen_strings_are_answered(name: str, dtype: str, tmp_path: Path) -> None:
    table = sample(dtype)
    regressor = RandomForestRegressor(5, random_state=0) if name == "numbers" else Ridge()
    model = fitted(name, table, regressor)
    export = tr.export(model, tmp_path, name="passengers", sample=table)
    loaded = tr.load(tmp_path / "passengers")
    asked = pd.concat([table[:20], unseen(dtype)], ignore_index=True).astype(table.dtypes)
    np.testing.assert_allclose(loaded.predict(asked), model.predict(asked), rtol=1e-5, atol=1e-5)
    assert {column for tensor in export.contract.inputs for column in tensor.columns} <= set(table.columns)


def test_an_unseen_result_is_refused_or_unknown_as_the_encoder_says(tmp_path: Path) -> None:
    table = sample("str")
    new = table[:1].assign(cabin="Z1", name="Öz, Dr. No")
    tr.export(fitted("deck", table), tmp_path, name="deck", sample=table)
    with pytest.raises(tr.InvalidRequest, match=r"categories that the model was fitted on: row 0, .*'cabin'.* is 'Z1'"):
        tr.load(tmp_path / "deck").predict(new)
    model = fitted("title", table)
    tr.export(model, tmp_path, name="title", sample=table)
    np.testing.assert_allclose(tr.load(tmp_path / "title").predict(new), model.predict(new), rtol=1e-5)


def test_strings_that_no_step_may_read_are_refused(tmp_path: Path) -> None:
    table = sample("str")
    tr.export(fitted("title", table), tmp_path, name="title", sample=table)
    loaded = tr.load(tmp_path / "title")
    texts = lambda name: {"X": np.array([[30.0]], np.float32), "text": np.array([[name]], dtype=object)}  # noqa: E731
    for name, words in ((b"\xff, Mr. X", "is not UTF-8"), (b"a" * 5000, "no string of more than 4,096 bytes")):
        with pytest.raises(tr.InvalidRequest, match=words):
            loaded.predict(texts(name))


def test_a_string_without_the_part_is_missing_and_answered_if_the_encoder_takes_that(tmp_path: Path) -> None:
    table = sample("str")
    asked = table[:2].assign(name=["no comma", "Öz, Mr. X"])
    model = fitted("title", table)
    tr.export(model, tmp_path, name="ignoring", sample=table)
    np.testing.assert_allclose(tr.load(tmp_path / "ignoring").predict(asked), model.predict(asked), rtol=1e-5)
    encoder = make_column_transformer((OneHotEncoder(), ["title"]), remainder="passthrough")
    tr.export(
        make_pipeline(FunctionTransformer(title), encoder, Ridge()).fit(table, table["age"]),
        tmp_path,
        name="refusing",
        sample=table,
    )
    with pytest.raises(tr.InvalidRequest, match=r"'name'\), 'no comma', has no part that the model reads"):
        tr.load(tmp_path / "refusing").predict(asked)


def test_an_entry_holds_no_other_strings_than_it_needs(tmp_path: Path) -> None:
    table = sample("str")
    tr.export(fitted("title", table), tmp_path, name="title", sample=table)
    document = json.loads((tmp_path / "title" / "1" / "plan.json").read_text())
    (text,), made = document["inputs"]["text"], document["inputs"]["made"]
    assert len(text["categories"][0]) <= 20
    assert [column["categories"] for column in made["columns"]] == [["Miss", "Mr", "Mrs"]]
    assert made["unread"] == [0]


def test_a_function_of_ones_own_behind_a_step_is_asked_about_its_known_results(tmp_path: Path) -> None:
    def features(t: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"vowels": t["city"].str.strip().str.lower().map(lambda c: sum(v in c for v in "aeiou"))})

    table = sample("str")
    model = make_pipeline(FunctionTransformer(features), Ridge()).fit(table, table["age"])
    tr.export(model, tmp_path, name="vowels", sample=table)
    loaded, asked = tr.load(tmp_path / "vowels"), table[:2].assign(city=["  BONN", "ulm  "])
    np.testing.assert_allclose(loaded.predict(asked), model.predict(asked), rtol=1e-5)
    with pytest.raises(tr.InvalidRequest, match="'city'"):
        loaded.predict(asked.assign(city="rom"))


def test_steps_of_two_functions_are_one_chain(tmp_path: Path) -> None:
    def first(t: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"city": t["city"].str.strip()})

    def second(t: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"city": t["city"].str.casefold(), "length": t["city"].str.len()})

    table = sample("str")
    encoder = make_column_transformer((HOT, ["city"]), remainder="passthrough")
    model = make_pipeline(FunctionTransformer(first), FunctionTransformer(second), encoder, Ridge())
    model.fit(table, table["age"])
    tr.export(model, tmp_path, name="chain", sample=table)
    asked = unseen("str")
    np.testing.assert_allclose(tr.load(tmp_path / "chain").predict(asked), model.predict(asked), rtol=1e-5)
