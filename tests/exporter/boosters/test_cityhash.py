"""Hashes of strings of every length that is hashed in its own way are those that CatBoost keeps of its categories."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
from catboost import Pool

from tests.exporter.catalogue.cases_catboost import catboost
from triton_regressors.exporter.boosters.catboost_model import category_hash


def test_strings_have_the_hashes_that_catboost_gives_them(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lengths = [*range(140), 191, 192, 193, 1000]
    strings = ["".join(map(chr, rng.integers(33, 1500, length))) for length in lengths] + ["7", "nul\0x", " "]
    X = pd.DataFrame({"text": pd.Series(strings, dtype=object)})
    model = catboost(cat_features=["text"], iterations=1).fit(X, np.arange(len(X)))
    model.save_model(str(tmp_path / "m.json"), format="json", pool=Pool(X, cat_features=[0]))
    kept = json.loads((tmp_path / "m.json").read_bytes())["features_info"]["cat_features_hash"]
    assert {own["value"]: own["hash"] for own in kept} == {text: category_hash(text) % 2**32 for text in strings}
