"""Encoders against scikit-learn's own transform: known, unknown and missing categories, with every option."""

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import RandomForestRegressor
from sklearn.feature_selection import SelectKBest, f_regression
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, TargetEncoder
from sklearn.tree import DecisionTreeRegressor

from tests.exporter.catalogue.cases_encoding import categories
from tests.kernels.operations import run_plan
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.exporter.lowering.builder import Builder
from triton_regressors.exporter.passes.optimise import fuse
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.format.parity import measure, units

NAN = np.nan


def ours(transformer: Any, X: np.ndarray) -> np.ndarray:
    """Return what the transformer's plan makes of the rows, as float64."""
    builder = Builder(X.shape[1])
    return run_plan(fuse(builder.plan({"y": builder.lower(transformer, builder.input)})), X)["y"]


def theirs(transformer: Any, X: np.ndarray) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there are unknown categories
        found = transformer.transform(X.astype(np.float64))
    return np.asarray(found.toarray() if hasattr(found, "toarray") else found, dtype=np.float64)


def check(transformer: Any, X: np.ndarray) -> None:
    assert np.array_equal(ours(transformer, X), theirs(transformer, X), equal_nan=True)


def column(*numbers: float) -> np.ndarray:
    return np.array(numbers, dtype=np.float32)[:, None]


# Any encoder, any rows: values on a grid of few numbers, of both zeros and NaN


def draw_rows(rng: np.random.Generator, rows: int, features: int, nan: bool) -> np.ndarray:
    X = rng.integers(-4, 5, (rows, features)) * 0.5
    X[rng.random(X.shape) < 0.1] = -0.0
    if nan:
        X[rng.random(X.shape) < 0.15] = np.nan
    return X.astype(np.float32)


def fitted(encoder: Any, X: np.ndarray, rng: np.random.Generator) -> Any:
    """Return the fitted encoder, or None where scikit-learn does not take these options for these data."""
    try:
        return encoder.fit(X.astype(np.float64), rng.standard_normal(len(X)))
    except ValueError:
        return None


any_rows = settings(max_examples=150, deadline=None, derandomize=True, database=None)
seeds = st.integers(0, 2**32 - 1)
shapes = {"rows": st.integers(1, 30), "features": st.integers(1, 4), "nan": st.booleans(), "seed": seeds}
frequencies = st.sampled_from([None, None, 1, 2, 4, 0.1, 0.4])
at_most = st.sampled_from([None, None, 1, 2, 3, 50])


@any_rows
@given(
    **shapes,
    unknown=st.sampled_from(["ignore", "infrequent_if_exist", "warn"]),
    drop=st.sampled_from([None, "first", "if_binary", "given"]),
    min_frequency=frequencies,
    max_categories=at_most,
)
def test_any_one_hot_encoder(
    rows: int,
    features: int,
    nan: bool,
    seed: int,
    unknown: str,
    drop: str | None,
    min_frequency: Any,
    max_categories: Any,
) -> None:
    rng = np.random.default_rng(seed)
    X = draw_rows(rng, rows, features, nan)
    encoder = OneHotEncoder(
        handle_unknown=unknown,
        drop=X[0].astype(np.float64) if drop == "given" else drop,
        min_frequency=min_frequency,
        max_categories=max_categories,
    )
    encoder = fitted(encoder, X, rng)
    if encoder is not None and len(encoder.get_feature_names_out()):
        check(encoder, draw_rows(rng, 40, features, nan=True))


@any_rows
@given(
    **shapes,
    unknown=st.sampled_from([-1, 77, NAN]),
    missing=st.sampled_from([-2, 78, NAN]),
    dtype=st.sampled_from([np.float64, np.float32, np.int8]),
    min_frequency=frequencies,
    max_categories=at_most,
)
def test_any_ordinal_encoder(
    rows: int,
    features: int,
    nan: bool,
    seed: int,
    unknown: float,
    missing: float,
    dtype: Any,
    min_frequency: Any,
    max_categories: Any,
) -> None:
    rng = np.random.default_rng(seed)
    X = draw_rows(rng, rows, features, nan)
    encoder = OrdinalEncoder(
        handle_unknown="use_encoded_value",
        unknown_value=unknown,
        encoded_missing_value=missing,
        dtype=dtype,
        min_frequency=min_frequency,
        max_categories=max_categories,
    )
    encoder = fitted(encoder, X, rng)
    if encoder is not None:
        check(encoder, draw_rows(rng, 40, features, nan=True))


@any_rows
@given(
    **shapes, smooth=st.sampled_from(["auto", 0, 1.5]), target=st.sampled_from(["continuous", "binary", "multiclass"])
)
def test_any_target_encoder(rows: int, features: int, nan: bool, seed: int, smooth: Any, target: str) -> None:
    rng = np.random.default_rng(seed)
    X = draw_rows(rng, rows + 3, features, nan)
    y = rng.standard_normal(len(X)) if target == "continuous" else np.arange(len(X)) % (2 if target == "binary" else 3)
    encoder = TargetEncoder(smooth=smooth, target_type=target).fit(X.astype(np.float64), y)
    check(encoder, draw_rows(rng, 40, features, nan=True))


# Unknown categories where scikit-learn raises an error


@pytest.mark.parametrize(
    "encoder",
    [
        OneHotEncoder(),
        OneHotEncoder(drop="first"),
        OneHotEncoder(drop="if_binary"),
        OneHotEncoder(drop=[2.0, 7.0]),
        OneHotEncoder(min_frequency=2),
        OneHotEncoder(categories=[np.array([1.0, 2, 3, 9]), np.array([7.0, 8])]),
        OrdinalEncoder(),
        OrdinalEncoder(max_categories=2),
    ],
)
def test_an_unknown_category_makes_its_feature_nan_where_it_is_an_error(encoder: Any) -> None:
    encoder.fit(np.array([[1.0, 7], [2, 8], [2, 8], [3, 8]]))
    X = np.array([[2, 7], [4, 8], [1, 8], [1, 9], [0, 0], [NAN, 7], [3, 8]], dtype=np.float32)
    found, right = ours(encoder, X), [0, 2, 6]
    assert np.array_equal(found[right], theirs(encoder, X[right]))
    for row in (1, 3, 4, 5):
        with pytest.raises(ValueError, match="Found unknown categories"):
            theirs(encoder, X[row : row + 1])
        assert np.isnan(found[row]).any()
    of_first = len(encoder.get_feature_names_out()) - (1 if encoder.get_feature_names_out()[-2][:2] == "x0" else 2)
    assert np.isnan(found[1]).tolist() == [True] * of_first + [False] * (found.shape[1] - of_first)


def test_the_answer_to_an_unknown_category_is_nan(engine: str) -> None:
    X, y = categories()
    model = make_pipeline(OneHotEncoder(), SelectKBest(f_regression, k=20), Ridge()).fit(X, y)
    plan = compile_estimator(model, sample=X).plan
    asked = X[:50].astype(np.float32)
    asked[::3, 2] += 5e5
    found = Runner(plan, engine=engine, max_rows=64).predict(asked)["y"][:, 0]
    assert np.isnan(found[::3]).all()
    known = np.delete(np.arange(50), np.arange(0, 50, 3))
    expected = model.predict(asked[known].astype(np.float64))[:, None]
    assert measure(found[known, None], expected, units(expected)).within(1e-5)


def test_a_feature_without_columns_makes_the_others_nan() -> None:
    encoder = OneHotEncoder(drop="first").fit(np.array([[5.0, 1], [5, 2], [5, 3]]))
    X = np.array([[5, 2], [4, 2], [5, 9]], dtype=np.float32)
    found = ours(encoder, X)
    assert found[0].tolist() == [1, 0]
    assert np.isnan(found[1:]).all()


# Edges


def test_categories_are_compared_as_float64() -> None:
    """float32 has no 0.1: no row of float32 holds that category, and scikit-learn says the same of such rows."""
    for dtype, row in ((np.float64, [0.0, 0.0, 0.0]), (np.float32, [1.0, 0.0, 0.0])):
        encoder = OneHotEncoder(handle_unknown="ignore").fit(np.array([[0.1], [0.5], [16777217.0]], dtype=dtype))
        X = column(0.1, 0.5, 16777217.0)
        check(encoder, X)
        assert ours(encoder, X)[0].tolist() == row
        assert ours(encoder, X)[1].tolist() == [0.0, 1.0, 0.0]
    encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    check(encoder.fit(np.array([[1e-45], [3e38], [1e-320], [1e300], [0.0]])), column(1e-45, 3e38, 0.0, -1e-45))


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_both_zeros_are_one_category(zero: float) -> None:
    X = np.array([[zero], [1.0], [-1.0]])
    for encoder in (OneHotEncoder(), OrdinalEncoder(), TargetEncoder(target_type="continuous")):
        encoder.fit(X, [1.0, 2.0, 3.0])
        check(encoder, column(0.0, -0.0, 1.0))


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.int32, bool, np.float32, np.float16])
def test_categories_of_other_dtypes(dtype: Any) -> None:
    X = np.array([[0, 1], [1, 0], [1, 1]]).astype(dtype)
    for encoder in (
        OneHotEncoder(handle_unknown="ignore"),
        OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
    ):
        encoder.fit(X)
        if dtype is bool:  # scikit-learn's encoder of bools takes numbers that are 0 or 1
            check(encoder, np.array([[0, 1], [1, 1]], dtype=np.float32))
        else:
            check(encoder, np.array([[0, 1], [1, 2], [-1, NAN]], dtype=np.float32))


def test_whole_numbers_that_float64_merges_are_told_apart() -> None:
    X = np.array([[2**53], [2**53 + 1], [7]])
    encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1).fit(X)
    compilation = compile_estimator(make_pipeline(encoder, DecisionTreeRegressor()).fit(X, [1.0, 2.0, 3.0]))
    assert compilation.inputs.datatypes() == {"integers": "INT64"}
    asked = np.array([[2**53 + 1], [7], [2**53], [8], [2**53 + 2]])
    found = run_plan(compilation.plan, compilation.inputs.encode({"integers": asked}))["y"]
    assert found.tolist() == compilation.estimator.predict(asked)[:, None].tolist()


def test_a_feature_of_nan_alone() -> None:
    X = np.array([[NAN, 1], [NAN, 2]])
    asked = np.array([[NAN, 1], [3, 2], [NAN, 3]], dtype=np.float32)
    for encoder in (
        OneHotEncoder(handle_unknown="ignore"),
        OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-5),
        TargetEncoder(target_type="continuous"),
    ):
        check(encoder.fit(X, [1.0, 4.0]), asked)


def test_one_training_row() -> None:
    for encoder in (OneHotEncoder(handle_unknown="ignore"), OrdinalEncoder(), TargetEncoder(target_type="continuous")):
        encoder.fit(np.array([[3.0, 4.0]]), [2.0])
        check(encoder, np.array([[3, 4]], dtype=np.float32))


def test_nan_categories_in_a_model() -> None:
    X, y = categories()
    X = np.where(np.random.default_rng(0).random(X.shape) < 0.2, np.nan, X)
    for encoder in (
        OneHotEncoder(),
        OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=3),
        OrdinalEncoder(encoded_missing_value=-1),
        TargetEncoder(),
    ):
        model = make_pipeline(encoder, Ridge()).fit(X, y)
        compilation = compile_estimator(model, sample=X)
        expected = model.predict(X.astype(np.float32).astype(np.float64))[:, None]
        found = run_plan(compilation.plan, X.astype(np.float32))["y"]
        assert np.abs(found - expected).max() <= 1e-10 * expected.std()
        assert compilation.report.outputs["y"].within(1e-5)
        assert list(compilation.nan_columns) == [0, 1, 2, 3]


@pytest.mark.parametrize("encoder", [OneHotEncoder(dtype=np.float32), OrdinalEncoder(dtype=np.float32)])
def test_what_follows_float32_is_computed_more_exactly_than_scikit_learn_does(encoder: Any) -> None:
    """scikit-learn goes on in float32 after an encoder with dtype=float32; the plan goes on in float64."""
    X, y = categories()
    model = make_pipeline(encoder, Ridge()).fit(X, y)
    assert compile_estimator(model, sample=X).report.outputs["y"].within(1e-6)
    model[-1].coef_, model[-1].intercept_ = np.float64(model[-1].coef_), np.float64(model[-1].intercept_)
    expected = theirs(model[0], X.astype(np.float32)) @ model[-1].coef_.ravel() + model[-1].intercept_
    found = run_plan(compile_estimator(model, sample=X).plan, X.astype(np.float32))["y"][:, 0]
    assert np.abs(found - expected).max() <= 1e-12 * expected.std()


def test_many_categories_make_a_small_plan() -> None:
    X = np.arange(3000.0)[:, None]
    encoder = OneHotEncoder(handle_unknown="ignore").fit(X)
    builder = Builder(1)
    plan = builder.plan({"y": builder.lower(encoder, builder.input)})
    assert plan.parameter_count() < 10 * len(X)
    asked = column(0, 17, 2999, 3000, 0.5)
    assert np.array_equal(run_plan(plan, asked)["y"], theirs(encoder, asked))


def test_rows_are_drawn_about_the_categories() -> None:
    encoder = OrdinalEncoder().fit(np.array([[1.0, 5, NAN], [3, 5, NAN]]))
    builder = Builder(3)
    builder.lower(encoder, builder.input)
    assert builder.profile.location is not None
    assert builder.profile.location.tolist() == [2, 5, 0]
    assert builder.profile.scale is not None
    assert builder.profile.scale.tolist() == [1, 1, 1]


@pytest.mark.parametrize("encoder", [OneHotEncoder(sparse_output=False), OrdinalEncoder()])
def test_an_unknown_category_before_a_forest_has_no_answer(encoder: Any) -> None:
    """Trees would take the NaN for a missing value and answer some number."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 5, (200, 3)).astype(np.float64)
    model = make_pipeline(encoder, RandomForestRegressor(5, random_state=0)).fit(X, X @ [1.0, 2.0, 3.0])
    rows = X[:3].astype(np.float32)
    rows[1, 2] = 77
    found = Runner(compile_estimator(model, sample=X).plan, engine="torch").predict(rows)["y"][:, 0]
    assert np.isnan(found).tolist() == [False, True, False]
    np.testing.assert_allclose(found[[0, 2]], model.predict(X[:3])[[0, 2]], rtol=1e-6)
