"""Columns that a Pipeline drops: no inputs, not asked for, in no profile, and whatever they hold in a table."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.feature_selection import SelectKBest, f_regression
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import StandardScaler

import triton_regressors as tr
from triton_regressors.clients.client.tensors import input_tensors, model_tensors
from triton_regressors.exporter.compile import compile_estimator, export
from triton_regressors.exporter.errors import ExportError
from triton_regressors.kernels.format.inputs import Inputs
from triton_regressors.scoring.columns import Columns
from triton_regressors.scoring.entry_choice import read_config
from triton_regressors.scoring.scorer import Scorer

RANDOM = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "when": pd.date_range("2026-01-01", periods=80),
        "area": RANDOM.normal(80, 20, 80),
        "note": RANDOM.choice(["new", "old", None], 80),
        "rooms": RANDOM.integers(1, 6, 80),
        "id": np.arange(80),
    }
)
PRICE = 3.0 * TABLE["area"] + 50 * TABLE["rooms"]


def pipeline(*steps: Any) -> Any:
    chosen = ColumnTransformer([("scale", StandardScaler(), ["area", "rooms"])])
    return make_pipeline(chosen, *steps, Ridge()).fit(TABLE, PRICE)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return tr.export(pipeline(), tmp_path_factory.mktemp("models"), name="rents", sample=TABLE)


def test_a_whole_table_is_a_sample_and_columns_that_are_dropped_are_no_inputs(exported: Any) -> None:
    contract = exported.contract
    assert [(each.name, each.columns) for each in contract.inputs] == [("X", ("area", "rooms"))]
    for dropped in ("when", "note", "id"):
        assert dropped not in contract.text().replace("id='", "")
        assert dropped not in contract.python
    assert exported.compilation.sample.X.shape == (80, 5)
    config = read_config(exported.entry.directory)
    assert [list(tensor.dims) for tensor in config.input] == [[2]]


def test_clients_and_scoring_take_any_table_that_has_the_columns(exported: Any, tmp_path: Path) -> None:
    inputs = input_tensors(read_config(exported.entry.directory))
    predictor = Scorer(exported.entry.directory)
    wanted = pipeline().predict(TABLE)
    for table in (TABLE, TABLE[["rooms", "area"]], TABLE.assign(when="later", note=5)):
        assert model_tensors(table, inputs, "rents")["X"].shape == (80, 2)
        np.testing.assert_allclose(predictor.answers(Columns(table))["y"][:, 0], wanted, rtol=1e-6)
    TABLE.to_csv(tmp_path / "rows.csv", index=False)
    tr.score(exported.entry.directory, tmp_path / "rows.csv", tmp_path / "y.csv")
    np.testing.assert_allclose(pd.read_csv(tmp_path / "y.csv")["y"], wanted, rtol=1e-6)


def test_a_sample_may_lack_what_the_model_drops() -> None:
    found = compile_estimator(pipeline(), sample=TABLE[["rooms", "area"]])
    assert found.inputs.columns() == {"X": (1, 3)}
    with pytest.raises(ExportError, match="lacks column 'rooms', which the model was fitted on"):
        compile_estimator(pipeline(), sample=TABLE.drop(columns="rooms"))
    assert compile_estimator(pipeline()).inputs.columns() == {"X": (1, 3)}


@pytest.mark.parametrize(
    ("estimator", "columns"),
    [
        (GridSearchCV(pipeline(), {"ridge__alpha": [0.1, 1.0]}, cv=2), (1, 3)),
        (make_pipeline(ColumnTransformer([("all", "passthrough", ["id", "area"])]), Ridge()), (1, 4)),
        (
            make_pipeline(
                ColumnTransformer([("all", SimpleImputer(), ["id", "area"])]), SelectKBest(f_regression, k=1), Ridge()
            ),
            (1, 4),
        ),
        (
            make_pipeline(
                FeatureUnion(
                    [
                        ("one", ColumnTransformer([("a", StandardScaler(), ["area"])])),
                        ("other", ColumnTransformer([("b", "passthrough", ["rooms"])])),
                    ]
                ),
                HistGradientBoostingRegressor(max_iter=3),
            ),
            (1, 3),
        ),
        (
            make_pipeline(
                ColumnTransformer([("numbers", StandardScaler(), make_column_selector(dtype_include=float))]), Ridge()
            ),
            (1,),
        ),
    ],
    ids=["search", "passthrough", "selected", "union", "selector"],
)
def test_columns_are_inputs_if_a_part_of_the_model_is_given_them(estimator: Any, columns: tuple[int, ...]) -> None:
    found = compile_estimator(estimator.fit(TABLE, PRICE), sample=TABLE)
    assert found.inputs.columns() == {"X": columns}


def test_what_a_selection_leaves_out_stays_an_input_since_the_next_fit_may_take_it() -> None:
    numbers = TABLE[["area", "rooms", "id"]]
    model = make_pipeline(SelectKBest(f_regression, k=1), Ridge()).fit(numbers, PRICE)
    assert compile_estimator(model, sample=numbers).inputs == Inputs.plain(3)


def test_a_model_without_names_takes_the_whole_matrix() -> None:
    X = TABLE[["area", "rooms", "id"]].to_numpy()
    model = make_pipeline(ColumnTransformer([("scale", StandardScaler(), [0, 1])]), Ridge()).fit(X, PRICE)
    assert compile_estimator(model, sample=X).inputs == Inputs.plain(3)


def test_the_next_version_of_an_entry_of_a_former_release_keeps_its_interface(tmp_path: Path) -> None:
    numbers = TABLE[["area", "rooms", "id"]]
    chosen = ColumnTransformer([("scale", StandardScaler(), ["area", "rooms"])])
    everything = export(Ridge().fit(numbers, PRICE), tmp_path, name="rents", sample=numbers)
    assert everything.compilation.inputs == Inputs.plain(3)
    second = export(make_pipeline(chosen, Ridge()).fit(numbers, PRICE), tmp_path, name="rents", sample=numbers)
    assert (second.entry.version, second.compilation.inputs) == (2, Inputs.plain(3))


def test_the_profile_has_the_columns_that_are_inputs_alone(exported: Any) -> None:
    said = " ".join(exported.contract.profile)
    assert "area: " in said
    assert "rooms: " in said
    assert not any(f"{name}: " in said for name in ("when", "note", "id"))
