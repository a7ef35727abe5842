"""Imputers and indicators against scikit-learn's own transform, with NaN and with numbers for what is missing."""

import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.impute._iterative import IterativeImputer
from sklearn.linear_model import BayesianRidge, LinearRegression, PoissonRegressor, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, PolynomialFeatures, StandardScaler

from tests.exporter.catalogue.cases_encoding import holes
from tests.exporter.estimators.test_encoding import ours
from tests.kernels.operations import run_plan
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.exporter.lowering.builder import Builder
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.format.parity import measure, units
from triton_regressors.kernels.ops.columns.impute import Impute
from triton_regressors.kernels.ops.columns.impute_sequence import ImputeSequence
from triton_regressors.kernels.ops.linear.affine import Affine

NAN = np.nan


def with_nan() -> tuple[np.ndarray, np.ndarray]:
    """The rows of `holes` with NaN where they have zero."""
    X, y = holes()
    return np.where(X == 0, NAN, X), y


def rows_asked() -> np.ndarray:
    """Training rows, moved rows, NaN where there was none in training, and a row of NaN alone."""
    rng = np.random.default_rng(5)
    X = with_nan()[0][:60].copy()
    X[20:] += 0.3 * rng.standard_normal((40, X.shape[1]))
    X[rng.random(X.shape) < 0.15] = NAN
    X[40, :], X[:20, 4] = NAN, rng.standard_normal(20)
    return X.astype(np.float32)


def quietly(call: Callable[[], Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # columns without numbers, rounds that do not converge
        return call()


def check(transformer: Any, X: np.ndarray, tolerance: float = 0.0) -> None:
    expected = np.asarray(quietly(lambda: transformer.transform(X.astype(np.float64))), dtype=np.float64)
    found = ours(transformer, X)
    assert found.shape == expected.shape
    assert np.isnan(found).tolist() == np.isnan(expected).tolist()
    assert (
        np.nan_to_num(np.abs(found - expected)) <= tolerance * np.maximum(np.nanstd(expected, axis=0), 1e-300)
    ).all()


# SimpleImputer and MissingIndicator: the very same numbers


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(
    features=st.integers(1, 6),
    rows=st.integers(1, 20),
    seed=st.integers(0, 2**32 - 1),
    missing=st.sampled_from([NAN, 0, -1, 0.5]),
    strategy=st.sampled_from(["mean", "median", "most_frequent", "constant", np.ptp]),
    empty=st.booleans(),
    indicator=st.booleans(),
)
def test_any_simple_imputer(
    features: int, rows: int, seed: int, missing: float, strategy: Any, empty: bool, indicator: bool
) -> None:
    rng = np.random.default_rng(seed)
    fill = 7.25 if strategy == "constant" else None
    X, asked = (rng.integers(-3, 4, (n, features)) * 0.5 for n in (rows, 30))
    for array in (X, asked):
        array[rng.random(array.shape) < 0.4] = missing
        array[rng.random(array.shape) < 0.1] = -0.0
    X[:, rng.random(features) < 0.2] = missing
    imputer = SimpleImputer(
        missing_values=missing, strategy=strategy, fill_value=fill, add_indicator=indicator, keep_empty_features=empty
    )
    if strategy is np.ptp:
        X[0] = 1.0  # a function of the user's may not take an empty column
    quietly(lambda: imputer.fit(X))
    if quietly(lambda: imputer.transform(asked)).shape[1]:
        check(imputer, asked.astype(np.float32))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64])
def test_fills_as_the_dtype_of_the_training_data_holds_it(dtype: Any) -> None:
    X = np.array([[1, 3], [2, 0], [4, 3], [0, 5]]).astype(dtype)
    asked = np.array([[0, 0], [1.5, 0]], dtype=np.float32)
    for strategy in ("mean", "median", "most_frequent"):
        check(SimpleImputer(missing_values=0, strategy=strategy).fit(X), asked)
    check(SimpleImputer(missing_values=0, strategy="constant", fill_value=dtype(7)).fit(X), asked)


def test_a_missing_number_is_that_of_float64() -> None:
    X = np.array([[0.1], [0.5], [2.0]])
    for missing in (0.1, np.float32(0.1), 0.5):
        check(SimpleImputer(missing_values=missing).fit(X), np.array([[0.1], [0.5]], dtype=np.float32))


def test_columns_without_a_number_are_dropped_before_a_model() -> None:
    X, y = with_nan()
    for imputer in (SimpleImputer(), SimpleImputer(add_indicator=True), SimpleImputer(keep_empty_features=True)):
        model = quietly(lambda imputer=imputer: make_pipeline(imputer, Ridge()).fit(X, y))
        check_model(model, rows_asked())


def check_model(model: Any, X: np.ndarray, tolerance: float = 1e-10) -> None:
    """Compare answers in float64, and in float32 with NaN allowed where the model takes it."""
    expected = np.asarray(quietly(lambda: model.predict(X.astype(np.float64)))).reshape(len(X), -1)
    compilation = compile_estimator(model, sample=X.astype(np.float64))
    found = run_plan(compilation.plan, X)["y"]
    assert (np.abs(found - expected) <= tolerance * units(expected)).all()
    assert compilation.report.rows == len(X)
    assert compilation.report.outputs["y"].within(1e-5)
    assert list(compilation.nan_columns) == list(range(X.shape[1]))


def test_pandas_missing_values() -> None:
    X = pd.DataFrame({"a": pd.array([1, None, 3], dtype="Int64"), "b": pd.array([None, 5, 6], dtype="Int64")})
    imputer = SimpleImputer(missing_values=pd.NA).fit(X)
    expected = quietly(lambda: imputer.transform(pd.DataFrame({"a": [NAN, 7.0], "b": [1.5, NAN]})))
    assert np.array_equal(ours(imputer, np.array([[NAN, 1.5], [7, NAN]], dtype=np.float32)), expected)


@pytest.mark.parametrize("missing", [NAN, 0.0])
@pytest.mark.parametrize("features", ["missing-only", "all"])
@pytest.mark.parametrize("error_on_new", [False, True])
def test_missing_indicator(missing: float, features: str, error_on_new: bool) -> None:
    X = np.nan_to_num(with_nan()[0], nan=missing)
    asked = np.nan_to_num(rows_asked(), nan=missing)
    indicator = MissingIndicator(missing_values=missing, features=features, error_on_new=error_on_new).fit(X)
    new = error_on_new & (features == "missing-only") & (np.isnan(rows_asked()[:, 2]))
    assert new.any() == (error_on_new and features == "missing-only")
    check(indicator, asked[~new])
    assert np.isnan(ours(indicator, asked)[new]).all()  # where scikit-learn raises an error
    if new.any():
        with pytest.raises(ValueError, match="have missing values in transform but have no missing values in fit"):
            indicator.transform(asked[new].astype(np.float64))


# IterativeImputer


iterative = functools.partial(IterativeImputer, max_iter=3, random_state=0)
LINEAR: dict[str, Any] = {
    "default": IterativeImputer(),
    "bayesian": iterative(BayesianRidge()),
    "linear": iterative(LinearRegression()),
    "scaled": iterative(make_pipeline(StandardScaler(), Ridge())),
    "ascending": iterative(imputation_order="ascending"),
    "descending": iterative(imputation_order="descending"),
    "roman": iterative(imputation_order="roman"),
    "arabic": iterative(imputation_order="arabic"),
    "random": iterative(imputation_order="random"),
    "skip complete": iterative(skip_complete=True),
    "most frequent": iterative(initial_strategy="most_frequent"),
    "constant": iterative(initial_strategy="constant", fill_value=1.5),
    "stops early": iterative(tol=0.5, max_iter=20),
    "nearest": iterative(n_nearest_features=1),
    "limits": iterative(min_value=-0.5, max_value=1.0),
    "limits of None": iterative(min_value=None, max_value=None),
    "limits each": iterative(min_value=[-1, 0, 0, -25, 0], max_value=[1, 4, 9, -18, 7]),
    "indicator": iterative(add_indicator=True),
    "empty": iterative(keep_empty_features=True),
    "empty constant": iterative(initial_strategy="constant", fill_value=3, keep_empty_features=True),
    "empty limits": iterative(keep_empty_features=True, max_value=1, add_indicator=True),
}
CURVED: dict[str, Any] = {
    "polynomial": iterative(make_pipeline(StandardScaler(), PolynomialFeatures(2), Ridge())),
    "clipped": iterative(make_pipeline(MinMaxScaler(clip=True), Ridge()), min_value=-1),
    "link": iterative(make_pipeline(MinMaxScaler(), PoissonRegressor()), max_value=9),
}
FIRST_GUESS: dict[str, Any] = {
    "no round": iterative(max_iter=0),
    "no round with indicator": iterative(max_iter=0, add_indicator=True, keep_empty_features=True),
}


def positive(X: np.ndarray) -> np.ndarray:
    return np.abs(X) + 0.5


@pytest.mark.parametrize("name", [*LINEAR, *CURVED, *FIRST_GUESS])
def test_iterative_imputer(name: str) -> None:
    imputer = {**LINEAR, **CURVED, **FIRST_GUESS}[name]
    change = positive if name == "link" else lambda X: X
    quietly(lambda: imputer.fit(change(with_nan()[0])))
    asked = change(rows_asked())
    check(imputer, asked, 1e-10)
    builder = Builder(asked.shape[1])
    plan = builder.plan({"y": builder.lower(imputer, builder.input)})
    updates = [step for step in plan.steps if isinstance(step.operation, ImputeSequence)]
    made = len([t for t in imputer.imputation_sequence_ if not (imputer.keep_empty_features and t.feat_idx == 4)])
    if name in LINEAR:
        assert len(updates) == 1
        assert len(updates[0].operation.targets) == made  # type: ignore[attr-defined]
    else:
        assert len(updates) == (made if name in CURVED else 0)


def test_a_linear_iterative_imputer_before_a_model_is_three_steps(engine: str) -> None:
    X, y = with_nan()
    model = quietly(lambda: make_pipeline(IterativeImputer(), StandardScaler(), Ridge()).fit(X, y))
    check_model(model, rows_asked())
    plan = compile_estimator(model, sample=rows_asked()).plan
    assert [type(step.operation) for step in plan.steps] == [Impute, ImputeSequence, Affine]
    found = Runner(plan, engine=engine, max_rows=64).predict(rows_asked())["y"]
    expected = model.predict(rows_asked().astype(np.float64))[:, None]
    assert measure(found, expected, units(expected)).within(1e-5)


def test_iterative_imputers_of_numbers_and_of_few_columns() -> None:
    X, _ = holes()
    check(quietly(lambda: iterative(missing_values=0).fit(X)), np.nan_to_num(rows_asked()), 1e-10)
    for columns in ([0], [0, 1], [1, 4], [4, 3, 2]):  # one column is given its first guess alone
        few = with_nan()[0][:, columns]
        check(quietly(lambda few=few: iterative().fit(few)), rows_asked()[:, columns], 1e-10)


def test_far_and_tiny_columns() -> None:
    scale, shift = np.array([1e-6, 1e6, 1, 1e3, 1]), np.array([0, 1e7, 0, -1e4, 0])
    X = with_nan()[0] * scale + shift
    check(quietly(lambda: iterative().fit(X)), (rows_asked() * scale + shift).astype(np.float32), 1e-8)


def test_a_row_of_nothing_is_imputed_as_among_others() -> None:
    """scikit-learn gives it the first guess where the whole batch is such rows, and goes through the rounds else."""
    imputer = quietly(lambda: iterative(min_value=2.0).fit(with_nan()[0]))
    nothing = np.full((1, 5), NAN, dtype=np.float32)
    among = np.vstack([nothing, with_nan()[0][:1]]).astype(np.float32)
    check(imputer, among, 1e-10)
    assert np.array_equal(ours(imputer, nothing), ours(imputer, among)[:1])
    alone = quietly(lambda: imputer.transform(nothing.astype(np.float64)))
    assert np.array_equal(alone, quietly(lambda: imputer.initial_imputer_.transform(nothing.astype(np.float64))))
    assert not np.allclose(alone, ours(imputer, nothing))


def test_rows_are_drawn_about_what_is_filled_in() -> None:
    builder = Builder(3)
    builder.lower(SimpleImputer(keep_empty_features=True).fit(np.array([[-4.0, NAN, 2], [NAN, NAN, 3]])), builder.input)
    assert builder.profile.location is not None
    assert builder.profile.location.tolist() == [-4, 0, 2.5]
    assert builder.profile.scale is not None
    assert builder.profile.scale.tolist() == [4, 1, 2.5]
