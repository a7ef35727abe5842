"""Known, unknown and missing categories of category_encoders' encoders, and what of them is refused."""

import warnings
from typing import Any

import category_encoders as ce
import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

from tests.exporter.catalogue.cases_category_encoders import ENCODERS
from tests.kernels.operations import run_plan
from triton_regressors import ExportError
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.exporter.lowering.builder import Builder
from triton_regressors.exporter.lowering.input_columns import Profile
from triton_regressors.kernels.engine.runner import Runner

CITIES = ["Rome", "Paris", "Bonn", "Rome", "Paris", "Rome", "Oslo", "Bonn", "Rome", "Bonn"]
SIZES = ["s", "m", "m", "l", "s", "s", "m", "l", "l", "m"]
AGES = [1.0, 5, 2, 4, 4, 3, 1, 9, 7, 6]
TARGET = [3.0, 4, 1, 5, 9, 2, 6, 5, 3, 5]
POLICIES = ("value", "return_nan", "error")


def table(missing: Any = "", cities: Any = CITIES) -> pd.DataFrame:
    """Return a table of strings and numbers; unless `missing` is a string, it stands for two of the cities."""
    found = list(cities)
    if not isinstance(missing, str):
        found[3] = found[7] = missing
    return pd.DataFrame(
        {
            "city": pd.Series(found, dtype=object),
            "age": AGES[: len(found)],
            "size": pd.Series(SIZES[: len(found)], dtype=object),
        }
    )


def asked() -> pd.DataFrame:
    """Return known, unknown and missing categories, one row each."""
    return table(cities=["Rome", "Paris", "Bonn", "Oslo", "Cairo", None, np.nan])


def fitted(encoder: Any, X: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return encoder.fit(X, TARGET)


def ours(encoder: Any, X: pd.DataFrame) -> np.ndarray:
    profile = Profile(X.shape[1])
    builder = Builder(X.shape[1], profile)
    plan = builder.plan({"y": builder.lower(encoder, builder.input)})
    matrix = np.zeros(X.shape)
    for place, name in enumerate(X):
        if place not in profile.text.columns():
            matrix[:, place] = X[name]
    profile.text.fill(matrix, X)
    return run_plan(plan, matrix)["y"]


def theirs(encoder: Any, X: pd.DataFrame) -> np.ndarray:
    """Return an encoder's own answers, NaN in rows at which it raises an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return np.asarray(encoder.transform(X), dtype=np.float64)
        except ValueError:
            if len(X) == 1:
                return np.full((1, len(encoder.get_feature_names_out())), np.nan)
    return np.vstack([theirs(encoder, X.iloc[[row]]) for row in range(len(X))])


def check(encoder: Any, X: pd.DataFrame) -> None:
    found, expected = ours(encoder, X), theirs(encoder, X)
    refused = np.isnan(expected).all(axis=1)
    assert np.isnan(found[refused]).any(axis=1).all()
    assert np.array_equal(found[~refused], expected[~refused], equal_nan=True)


@pytest.mark.parametrize("unknown", POLICIES)
@pytest.mark.parametrize("handle_missing", POLICIES)
@pytest.mark.parametrize("encoder", ENCODERS, ids=[encoder.__name__ for encoder in ENCODERS])
def test_each_policy_for_unknown_and_missing_categories(encoder: Any, handle_missing: str, unknown: str) -> None:
    made = encoder(handle_unknown=unknown, handle_missing=handle_missing)
    check(fitted(made, table()), asked())


@pytest.mark.parametrize("handle_missing", ["value", "return_nan"])
@pytest.mark.parametrize("encoder", ENCODERS, ids=[encoder.__name__ for encoder in ENCODERS])
def test_missing_categories_in_the_training_data(encoder: Any, handle_missing: str) -> None:
    made = encoder(handle_missing=handle_missing)
    X = asked()
    if encoder in (ce.CatBoostEncoder, ce.LeaveOneOutEncoder):  # they answer None by the other rows of a batch
        X = X.drop(index=5)
    missing = np.nan if handle_missing == "value" else None
    check(fitted(made, table(missing)), X)


@pytest.mark.parametrize(
    "encoder", [ce.OneHotEncoder, ce.BinaryEncoder, ce.HelmertEncoder, ce.SumEncoder, ce.BaseNEncoder]
)
def test_indicators(encoder: Any) -> None:
    check(fitted(encoder(handle_unknown="indicator", handle_missing="value"), table()), asked())


def test_an_empty_string_is_a_category_if_it_was_one() -> None:
    X = table(cities=["", *CITIES[1:]])
    check(fitted(ce.TargetEncoder(), X), table(cities=["Rome", "Cairo", ""]))


@pytest.mark.parametrize("cells", [[1.5, 2, 2, 4, 1.5, 2, 4, 4, 2, 2], [1, 2, 2, 4, 1, 2, 4, 4, 2, 2]])
@pytest.mark.parametrize("encoder", [ce.TargetEncoder, ce.CatBoostEncoder, ce.OneHotEncoder, ce.CountEncoder])
def test_numbers_as_categories(encoder: Any, cells: list[float]) -> None:
    X = pd.DataFrame({"code": cells, "age": AGES})
    made = fitted(encoder(cols=["code"]), X)
    check(made, pd.DataFrame({"code": [2.0, 4.0, 3.0, np.nan], "age": AGES[:4]}))


def test_large_whole_numbers_are_told_apart() -> None:
    codes = np.array([2**53, 2**53 + 1, 7, 2**53 + 2] * 5)
    X = pd.DataFrame({"code": codes, "age": np.arange(20.0)})
    encoder = ce.OrdinalEncoder(cols=["code"], handle_unknown="error", handle_missing="error")
    model = make_pipeline(encoder, RandomForestRegressor(5, random_state=0)).fit(X, np.arange(20) % 4)
    compilation = compile_estimator(model, sample=X)
    assert compilation.inputs.datatypes()["integers"] == "INT64"
    assert compilation.report.outputs["y"].within(1e-5)


def test_an_unknown_category_before_a_forest_has_no_answer() -> None:
    X = pd.DataFrame({"code": [1.0, 2, 3, 4] * 10, "age": np.arange(40.0)})
    encoder = ce.TargetEncoder(cols=["code"], handle_unknown="error", handle_missing="error")
    model = make_pipeline(encoder, RandomForestRegressor(5, random_state=0)).fit(X, X["code"] * 3)
    rows = np.array([[2.0, 1], [9, 1], [np.nan, 1], [4, 1]])
    found = Runner(compile_estimator(model, sample=X).plan, engine="torch").predict(rows.astype(np.float32))["y"]
    assert np.isnan(found[:, 0]).tolist() == [False, True, True, False]


def test_many_categories_make_a_small_plan() -> None:
    X = pd.DataFrame({"name": pd.Series([f"n{number}" for number in range(2000)], dtype=object)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        encoder = ce.OneHotEncoder().fit(X)
    builder = Builder(1)
    plan = builder.plan({"y": builder.lower(encoder, builder.input)})
    assert plan.parameter_count() < 10 * len(X)


REFUSED: dict[str, tuple[Any, str]] = {
    "hashing": (
        ce.HashingEncoder(max_process=1),
        "it hashes the characters of whatever string a row holds, and an entry reads strings only as known categories. "
        "Use a BinaryEncoder or a CountEncoder, which also make few columns, or transform rows before they are sent: "
        "export the steps behind it, as in pipeline[1:].",
    ),
    "multi-hot": (
        ce.MultiHotEncoder(),
        "it splits the strings of a row at a delimiter, and an entry reads strings only as known categories. "
        "Transform rows before they are sent: export the steps behind it, as in pipeline[1:].",
    ),
    "composite": (
        ce.TargetEncoder(composite_cols=[("city", "size")]),
        "composite_cols encodes several columns together; supported: each column alone.",
    ),
    "function": (
        ce.OrdinalEncoder(handle_unknown=lambda value, mapping: len(value)),
        "handle_unknown is a function of the unknown category; supported: one number.",
    ),
    "no column": (
        make_pipeline(ce.OrdinalEncoder(drop_invariant=True)),
        "it makes no column.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_exported_is_named(case: str) -> None:
    step, why = REFUSED[case]
    X = table()
    if case == "no column":
        step, X = step[0], pd.DataFrame({"city": pd.Series(["Rome"] * len(CITIES), dtype=object)})
    model = make_pipeline(fitted(step, X), Ridge().fit(np.ones((2, 1)), [1, 2]))
    model.steps[0] = ("encoder", step)
    with pytest.raises(ExportError) as raised:
        compile_estimator(model)
    assert str(raised.value) == f"Cannot export {type(step).__name__} (step 'encoder'): {why}"
