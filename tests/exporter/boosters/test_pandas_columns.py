"""The columns of pandas' categories are found in the text of LightGBM's models, or it is said that they are not."""

import dataclasses

import numpy as np
import pytest

from tests.exporter.catalogue.cases_lightgbm import lgbm, with_pandas_categories
from triton_regressors.exporter.boosters.lightgbm_model import read_model
from triton_regressors.exporter.boosters.pandas_columns import pandas_columns


def test_columns_of_pandas_categories() -> None:
    X, y = with_pandas_categories()
    model = read_model(lgbm().fit(X, y).booster_.model_to_string())
    assert pandas_columns(model) == {
        1: ("Bonn", "Paris", "Rome", "東京"),
        2: ("small", "medium", "large"),
        3: (7, 10, 20, 35),
    }
    changed = dataclasses.replace(model, infos=("[0:1]", *model.infos[1:2], "[0.5:2]", *model.infos[3:]))
    with pytest.raises(ValueError, match="no columns may hold"):
        pandas_columns(changed)
    assert pandas_columns(dataclasses.replace(model, pandas_categories=(), categorical=(0,))) == {}


@pytest.mark.filterwarnings("ignore:categorical_feature")
def test_columns_beside_others_that_were_declared() -> None:
    X, y = with_pandas_categories()
    X = X[["age", "city"]].assign(floor=np.arange(len(X)) % 9)
    model = read_model(lgbm().fit(X, y, categorical_feature=["city", "floor"]).booster_.model_to_string())
    assert model.categorical == (1, 2)
    assert pandas_columns(model) == {1: ("Bonn", "Paris", "Rome", "東京")}
    assert model.codes(2) == list(range(9))
    model = read_model(lgbm(categorical_feature=[1, 2]).fit(X, y).booster_.model_to_string())  # LightGBM ignores it
    assert model.categorical == (1,)
    assert pandas_columns(model) == {1: ("Bonn", "Paris", "Rome", "東京")}
