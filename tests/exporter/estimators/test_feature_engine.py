"""Known, unknown and missing values in feature_engine's transformers, and what of them is refused."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from feature_engine.creation import RelativeFeatures
from feature_engine.datetime import DatetimeFeatures, DatetimeOrdinal
from feature_engine.discretisation import ArbitraryDiscretiser, DecisionTreeDiscretiser, EqualWidthDiscretiser
from feature_engine.encoding import (
    CountFrequencyEncoder,
    MeanEncoder,
    OneHotEncoder,
    OrdinalEncoder,
    RareLabelEncoder,
    StringSimilarityEncoder,
)
from feature_engine.imputation import DropMissingData, RandomSampleImputer
from feature_engine.outliers import OutlierTrimmer, Winsorizer
from feature_engine.preprocessing import MatchCategories, MatchVariables
from feature_engine.selection import DropFeatures
from feature_engine.timeseries.forecasting import LagFeatures
from feature_engine.transformation import ArcsinTransformer, LogCpTransformer, LogTransformer, ReciprocalTransformer
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

from tests.exporter.estimators.test_category_encoders import TARGET, ours, table
from triton_regressors import ExportError
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.exporter.lowering.builder import Builder
from triton_regressors.exporter.lowering.input_columns import Profile
from triton_regressors.kernels.engine.runner import Runner

X = pd.DataFrame({"a": [0.2, 0.5, 0.9, 0.3, 0.7] * 4, "b": np.linspace(0.1, 0.95, 20)})
Y = np.linspace(0.0, 3.0, 20)
BOOSTER = HistGradientBoostingRegressor(max_iter=5, min_samples_leaf=2)
STRINGS = table(cities=["Rome", "Paris", "Bonn", "Oslo", "Cairo", np.nan])


def fitted(step: Any, rows: pd.DataFrame, target: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return step.fit(rows, pd.Series(target))


def row_by_row(step: Any, rows: pd.DataFrame) -> list[np.ndarray | None]:
    """Return a step's own answer to each row, None where it raises an error."""
    found: list[np.ndarray | None] = []
    for row in range(len(rows)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found.append(step.transform(rows.iloc[[row]]).to_numpy(np.float64)[0])
            except ValueError:
                found.append(None)
    return found


@pytest.mark.parametrize("unseen", ["ignore", "raise", "encode"])
@pytest.mark.parametrize("missing", ["ignore", "raise"])
@pytest.mark.parametrize("encoder", [MeanEncoder, CountFrequencyEncoder, OrdinalEncoder])
def test_unknown_and_missing_categories(encoder: Any, missing: str, unseen: str) -> None:
    step = fitted(encoder(unseen=unseen, missing_values=missing), table(), TARGET)
    found = ours(step, STRINGS)
    for ours_, theirs in zip(found, row_by_row(step, STRINGS), strict=True):
        if theirs is None:
            assert np.isnan(ours_).any()
        else:
            assert np.array_equal(ours_, theirs, equal_nan=True)


def test_one_hot_columns_of_unknown_categories_are_zero() -> None:
    step = fitted(OneHotEncoder(), table(), TARGET)
    found = ours(step, STRINGS)
    for ours_, theirs in zip(found, row_by_row(step, STRINGS), strict=True):
        assert np.isnan(ours_).any() if theirs is None else np.array_equal(ours_, theirs)


EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, np.nextafter(0.5, 1), np.nextafter(0.5, 0), 1e-300, 1.5, np.nan, 3.0]
NUMBERS: dict[str, Any] = {
    "log": LogTransformer(),
    "log-cp": LogCpTransformer(C=0.5),
    "reciprocal": ReciprocalTransformer(),
    "arcsin": ArcsinTransformer(),
    "bins": ArbitraryDiscretiser({"a": [0, 0.5, 1.0]}),
    "bins-raise": ArbitraryDiscretiser({"a": [-1.0, 0.5, 1.0]}, errors="raise"),
    "width": EqualWidthDiscretiser(bins=3),
    "capped": Winsorizer("quantiles", tail="both", fold=0.2),
    "capped-missing": Winsorizer("quantiles", tail="both", fold=0.2, missing_values="ignore", add_indicators=True),
    "tree": DecisionTreeDiscretiser(cv=2, precision=2),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_at_edges_and_outside_domains(name: str) -> None:
    step = fitted(NUMBERS[name], X, Y)
    rows = pd.DataFrame({"a": EDGES, "b": 0.5})
    model = make_pipeline(step, Ridge().fit(np.ones((2, len(step.get_feature_names_out()))), [1.0, 1.0]))
    builder = Builder(2, Profile(2))
    plan = builder.plan({"y": builder.lower(model, builder.input)})
    assert plan.n_features == 2
    found = ours(step, rows)
    for ours_, theirs in zip(found, row_by_row(step, rows), strict=True):
        if theirs is not None:
            np.testing.assert_allclose(ours_, theirs, rtol=1e-12)


def test_an_error_of_a_transformer_is_nan_even_before_trees() -> None:
    model = make_pipeline(LogTransformer(), RandomForestRegressor(3, random_state=0)).fit(X, Y)
    plan = compile_estimator(model, sample=X, input="fp32").plan
    rows = np.array([[0.3, 0.5], [0.0, 0.5], [0.3, -1.0], [np.nan, 0.5]], dtype=np.float32)
    found = Runner(plan, engine="torch").predict(rows)["y"][:, 0]
    assert np.isnan(found).tolist() == [False, True, True, True]


def test_a_rare_label_takes_unknown_strings_in_front_of_an_encoder_that_refuses_them() -> None:
    rare = RareLabelEncoder(tol=0.3, n_categories=1, variables=["city"])
    model = make_pipeline(rare, OrdinalEncoder(variables=["city"], unseen="raise"), DropFeatures(["size"]), Ridge())
    rows = table()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(rows, TARGET)
    asked = rows.assign(city="Cairo")
    compilation = compile_estimator(model, sample=asked)
    assert compilation.report.outputs["y"].within(1e-5)
    (text,) = compilation.inputs.text
    assert not any(text.closed)


@pytest.mark.parametrize("strings", [True, False])
def test_a_column_that_is_dropped_may_hold_anything(strings: bool) -> None:
    kept = [OrdinalEncoder(variables=["city"], unseen="encode")] if strings else [DropFeatures(["city"])]
    rows = table()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make_pipeline(Winsorizer(tail="both", variables=["age"]), *kept, DropFeatures(["size"]), Ridge())
        model.fit(rows, TARGET)
    compilation = compile_estimator(model, sample=rows)
    assert compilation.report.outputs["y"].within(1e-5)
    assert compilation.inputs.numeric == (1,)
    assert compile_estimator(model, sample=rows.drop(columns="size")).report.outputs["y"].within(1e-5)


@pytest.mark.parametrize("start", [None, "2020-03-01"])
@pytest.mark.parametrize("zone", [None, "Asia/Tokyo"])
def test_ordinals_of_dates(zone: str | None, start: str | None) -> None:
    days = pd.Series(pd.date_range("1969-12-28 22:30", periods=40, freq="173h", tz=zone))
    rows = pd.DataFrame({"day": days, "a": np.arange(40.0)})
    model = make_pipeline(DatetimeOrdinal(start_date=start), Ridge()).fit(rows, days.dt.dayofweek + rows["a"])
    assert compile_estimator(model, sample=rows).report.outputs["y"].within(1e-5)


@pytest.mark.parametrize("step", [DatetimeFeatures(["day"]), DatetimeFeatures(["day"], features_to_extract=["week"])])
def test_a_missing_date_that_is_an_error_has_no_answer(step: Any) -> None:
    days = pd.Series(pd.date_range("2024-01-01", periods=40, freq="31h"))
    rows = pd.DataFrame({"day": days, "a": np.arange(40.0)})
    model = make_pipeline(step, RandomForestRegressor(3, random_state=0)).fit(rows, days.dt.month + rows["a"])
    plan = compile_estimator(model, sample=rows).plan
    asked = np.array([[17e14, 1.0], [np.nan, 1.0]])
    assert np.isnan(Runner(plan, engine="torch").predict(asked)["y"][:, 0]).tolist() == [False, True]


@pytest.mark.parametrize("fill", [None, -1.0])
def test_division_by_zero(fill: float | None) -> None:
    step = RelativeFeatures(["a"], ["b"], ["div", "floordiv", "mod"], fill_value=fill).fit(X)
    rows = pd.DataFrame({"a": [1.0, -7.5, 3.0], "b": [2.0, 0.0, -0.8]})
    for ours_, theirs in zip(ours(step, rows), row_by_row(step, rows), strict=True):
        assert np.isnan(ours_).any() if theirs is None else np.array_equal(ours_, theirs)


@pytest.mark.parametrize("missing", ["raise", "ignore"])
def test_categories_outside_those_of_the_fit_are_missing(missing: str) -> None:
    step = MatchCategories(variables=["city"], missing_values=missing)
    model = make_pipeline(step, MeanEncoder(missing_values="ignore", unseen="ignore"), BOOSTER)
    rows = table()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(rows, TARGET)
        compilation = compile_estimator(model, sample=rows if missing == "raise" else rows.assign(city="Cairo"))
    assert compilation.report.outputs["y"].within(1e-5)


REFUSED: dict[str, tuple[Any, Any, str]] = {
    "trimmer": (
        OutlierTrimmer("quantiles", tail="right", fold=0.1),
        X,
        "it drops rows, and a served row has an answer. Fit the steps behind it on the rows that it keeps, without it "
        "in the Pipeline.",
    ),
    "drop missing": (
        DropMissingData(),
        X,
        "it drops rows, and a served row has an answer. Fit the steps behind it on the rows that it keeps, without it "
        "in the Pipeline.",
    ),
    "random": (
        RandomSampleImputer(),
        X,
        "it fills in values that it draws at random. Use a MeanMedianImputer or a CategoricalImputer.",
    ),
    "similarity": (
        StringSimilarityEncoder(),
        table(),
        "it computes with the characters of strings, and an entry reads strings only as known categories. Give rows of "
        "your data (sample=, --sample), which hold every string of the column, or encode the column by its categories, "
        "as with a TargetEncoder or an OrdinalEncoder.",
    ),
    "lags": (
        LagFeatures(["a"]),
        X,
        "it makes numbers of other rows of the table, and an entry answers each row alone. Send such numbers as "
        "columns of the row: export the steps behind it, pipeline[k:], and send pipeline[:k].transform(rows).",
    ),
    "dates": (
        DatetimeFeatures(["date"]),
        X.assign(date=pd.Timestamp("2024-01-01")),
        "it reads dates, and nothing tells that column 'date' holds them. Give rows of your data with their types: a "
        "DataFrame as sample, or --sample with a .parquet file; pd.to_datetime makes dates of strings, before the fit.",
    ),
    "dtypes": (
        MatchVariables(match_dtypes=True),
        X,
        "match_dtypes=True changes the types of columns, which an entry fixes; leave it out.",
    ),
    "boundaries": (
        EqualWidthDiscretiser(return_boundaries=True),
        X,
        "return_boundaries=True makes strings of numbers; supported: the numbers of the bins.",
    ),
    "tree boundaries": (
        DecisionTreeDiscretiser(bin_output="boundaries", precision=2, cv=2),
        X,
        "bin_output='boundaries' makes strings of numbers; supported: 'prediction', 'bin_number'.",
    ),
    "label among numbers": (
        RareLabelEncoder(variables=["a"], ignore_format=True, n_categories=1, tol=0.2),
        X,
        "it puts the label 'Rare' among the categories of column 'a'; supported: a string among strings, a number "
        "among numbers.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_exported_is_named(case: str) -> None:
    step, rows, why = REFUSED[case]
    fitted(step, rows, np.linspace(0.0, 2.0, len(rows)))
    model = make_pipeline(step, Ridge().fit(np.ones((2, 2)), [1.0, 2.0]))
    model.steps[0] = ("step", step)
    with pytest.raises(ExportError) as raised:
        compile_estimator(model)
    assert str(raised.value) == f"Cannot export {type(step).__name__} (step 'step'): {why}"
