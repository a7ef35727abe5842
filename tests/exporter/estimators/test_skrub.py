"""Unknown, missing and null strings, dates and numbers given as strings to skrub, and what of it is refused."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import skrub
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder, TargetEncoder

from tests.exporter.catalogue.cases_skrub import flats, to_linear
from triton_regressors import ExportError, export, load
from triton_regressors.commands.model_file import read_rows
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.exporter.lowering.lower import lower

BOOSTER = HistGradientBoostingRegressor(max_iter=10, categorical_features="from_dtype", random_state=0)
CITIES = ["Bonn", "Cairo", "N/A", "", " ", None, "nan", "Köln", "NULL", "?"]


def fitted(model: Any, X: pd.DataFrame, y: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, y)


def asked() -> pd.DataFrame:
    """Return a row for each of `CITIES`, with known streets."""
    X, _ = flats()
    return X.head(len(CITIES)).assign(city=pd.Series(CITIES))


@pytest.mark.parametrize(
    "model",
    [
        to_linear(skrub.TableVectorizer(high_cardinality=TargetEncoder())),
        make_pipeline(skrub.TableVectorizer(low_cardinality=skrub.ToCategorical()), BOOSTER),
        skrub.tabular_pipeline(RandomForestRegressor(5, random_state=0)),
    ],
    ids=["one-hot", "categories", "ordinal"],
)
def test_unknown_strings_and_strings_that_stand_for_missing_ones(model: Any, tmp_path: Any) -> None:
    X, y = flats()
    fitted(model, X, y)
    export(model, tmp_path, name="flats", sample=X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = model.predict(asked())
    found = load(tmp_path / "flats").predict(asked())
    np.testing.assert_allclose(np.asarray(found).ravel(), expected, atol=1e-5 * y.std())


def test_a_string_that_the_sample_lacks_is_refused_where_characters_count(tmp_path: Any) -> None:
    X, y = flats()
    model = fitted(to_linear(skrub.TableVectorizer(high_cardinality=skrub.StringEncoder(3))), X, y)
    export(model, tmp_path, name="flats", sample=X)
    instance = load(tmp_path / "flats")
    rows = X.head(4)
    np.testing.assert_allclose(np.asarray(instance.predict(rows)).ravel(), model.predict(rows), atol=1e-5 * y.std())
    with pytest.raises(Exception, match="Elsewhere"):
        instance.predict(rows.assign(street="Elsewhere"))


def test_dates_and_numbers_that_were_strings_are_taken_as_such() -> None:
    X, y = flats()
    written = X.assign(sold=X["sold"].dt.strftime("%d/%m/%Y %H:%M"), rooms=X["rooms"].astype(str))
    model = fitted(make_pipeline(skrub.TableVectorizer(high_cardinality="drop"), BOOSTER), written, y)
    sample = X.assign(sold=X["sold"].dt.floor("min"))
    np.testing.assert_array_equal(model.predict(sample), model.predict(written))
    compilation = compile_estimator(model, sample=sample)
    assert compilation.report.outputs["y"].within(1e-5)
    with pytest.raises(ExportError, match=r"sold.*a string: pd\.to_datetime makes dates of strings"):
        compile_estimator(model, sample=sample.assign(sold=written["sold"]))


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_files_of_rows_tell_the_strings_that_the_model_does_not_hold(kind: str, tmp_path: Any) -> None:
    X, y = flats()
    model = fitted(to_linear(skrub.TableVectorizer(high_cardinality=skrub.MinHashEncoder(n_components=3))), X, y)
    path = tmp_path / f"rows.{kind}"
    X.to_csv(path, index=False) if kind == "csv" else X.to_parquet(path)
    compilation = compile_estimator(model, sample=read_rows(path, model))
    assert compilation.report.outputs["y"].within(1e-5)


def test_dropped_columns_are_no_inputs() -> None:
    X, y = flats()
    model = fitted(make_pipeline(skrub.TableVectorizer(datetime="drop", high_cardinality="drop"), BOOSTER), X, y)
    compilation = compile_estimator(model, sample=X)
    taken = {column for columns in compilation.inputs.columns().values() for column in columns}
    assert {list(X)[column] for column in taken} == {"area", "rooms", "city", "lift"}


def test_decisions_behind_a_vectorizer_see_float32_as_skrub_hands_it_on() -> None:
    X, y = flats()
    model = fitted(make_pipeline(skrub.TableVectorizer(high_cardinality="drop"), BOOSTER), X, y)
    edges = pd.concat([X.assign(area=X["area"] + step) for step in (0.0, 1e-7, -1e-7, 3e-6, -3e-6)])
    assert compile_estimator(model, sample=edges.reset_index(drop=True)).report.outputs["y"].max_error < 1e-6


REFUSED: dict[str, tuple[Any, str]] = {
    "no sample": (
        skrub.TableVectorizer(),
        "Cannot export StringEncoder (step 'tablevectorizer.transformers_['street']'): it computes with the characters "
        "of strings, and an entry reads strings only as known categories. Give rows of your data (sample=, --sample), "
        "which hold every string of the column, or encode the column by its categories, as with a TargetEncoder or an "
        "OrdinalEncoder.",
    ),
    "no type": (
        skrub.ApplyToCols(skrub.DatetimeEncoder(), ["sold"]),
        "Cannot export DatetimeEncoder (step 'applytocols.transformers_['sold']'): nothing tells the type and the time "
        "zone of the dates that it reads. Give rows of your data with their types: a DataFrame as sample, or --sample "
        "with a .parquet file.",
    ),
    "nanoseconds": (
        skrub.TableVectorizer(datetime=skrub.DatetimeEncoder("nanosecond"), high_cardinality="drop"),
        "Cannot export DatetimeEncoder (step 'tablevectorizer.transformers_['sold']'): its resolution is 'nanosecond'; "
        "supported: up to 'microsecond'.",
    ),
    "nothing": (
        skrub.SelectCols([]),
        "Cannot export SelectCols (step 'selectcols'): it keeps no column.",
    ),
    "signs": (
        skrub.ApplyToCols(skrub.ToFloat(decimal=","), ["price"]),
        "Cannot export ToFloat (step 'applytocols'): it reads numbers from strings with signs of their own (decimal, "
        "thousand, parentheses), and an entry reads strings only as known categories. Make numbers of them before the "
        "fit.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_exported_is_named(case: str) -> None:
    step, why = REFUSED[case]
    X, _ = flats()
    fitted(step, X.assign(price="1,5"), None if case != "target" else X["rooms"])
    model = make_pipeline(skrub.TableVectorizer(), Ridge().fit(np.ones((2, 1)), [1, 2]))
    model.steps[0] = (type(step).__name__.lower(), step)
    with pytest.raises(ExportError) as raised:
        lower(model)
    assert str(raised.value) == why


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (skrub.TextEncoder(), "its embeddings come from a language model"),
        (skrub.DurationToFloat(), "it reads durations"),
        (skrub.SessionEncoder("sold"), "it joins rows with another table, or makes numbers of several rows"),
    ],
)
def test_steps_that_no_entry_has_are_named_with_another_way(step: Any, why: str) -> None:
    model = make_pipeline(OrdinalEncoder(), Ridge().fit(np.ones((2, 1)), [1, 2]))
    model.steps[0] = ("step", step)
    with pytest.raises(ExportError, match=why):
        lower(model, sample=flats()[0])
