"""XGBoost's regressors as plans: their bits through the kernels, what is missing, categories, files and refusals."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import skops.io
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    SplineTransformer,
    StandardScaler,
)
from xgboost import XGBClassifier, XGBRanker, XGBRegressor, XGBRFRegressor
from xgboost.core import XGBoostError

from docs.boosters import compare, count
from tests.exporter.adversarial import adversarial_rows, edges_of
from tests.exporter.catalogue.cases import CASES
from tests.exporter.catalogue.cases_xgboost import CODES, SIZE, coded, mostly_zero, shops, words
from tests.exporter.data import small
from triton_regressors import ExportError, load_estimator
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.exporter.lowering.sparsity import makes_sparse
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.ops.linear.ordered_affine import OrderedAffine
from triton_regressors.kernels.ops.trees.tree_ensemble import TreeEnsemble

TINY = {**SIZE, "n_estimators": 6, "max_depth": 3}


def answers(estimator: Any, X: np.ndarray, engine: str = "torch", **options: Any) -> np.ndarray:
    plan = compile_estimator(estimator, **options).plan
    return Runner(plan, engine=engine, max_rows=len(X)).predict(X.astype(plan.dtype))["y"]


def at_edges(estimator: Any, X: np.ndarray, rows: int) -> np.ndarray:
    steps = compile_estimator(estimator).plan.steps
    (ensemble,) = [step.operation for step in steps if isinstance(step.operation, TreeEnsemble)]
    return adversarial_rows(X, *edges_of(ensemble), rows=rows, infinite=False)


@pytest.mark.parametrize("name", ["missing", "missing-zero", "targets", "vector-leaves", "codes", "early"])
def test_kernels_answer_with_xgboosts_bits(name: str, engine: str) -> None:
    estimator, X = CASES[f"xgboost-{name}"].fitted()
    rows = at_edges(estimator, X, 40)
    expected = estimator.predict(rows).reshape(len(rows), -1)
    np.testing.assert_array_equal(answers(estimator, rows, engine), expected)


OPTIONS = st.fixed_dictionaries(
    {"max_depth": st.sampled_from([1, 4])},
    optional={
        "base_score": st.sampled_from([0.25, -1e4, 1e-30]),
        "booster": st.sampled_from(["dart", "gblinear"]),
        "colsample_bynode": st.just(0.5),
        "gamma": st.just(1.0),
        "grow_policy": st.just("lossguide"),
        "learning_rate": st.sampled_from([0.05, 1.0]),
        "max_bin": st.just(4),
        "max_cat_to_onehot": st.sampled_from([1, 64]),
        "max_leaves": st.just(7),
        "missing": st.sampled_from([0.0, 3.0, -999.0, np.float64(0.1)]),
        "monotone_constraints": st.just((1, 0, 0, -1)),
        "multi_strategy": st.just("multi_output_tree"),
        "num_parallel_tree": st.just(3),
        "objective": st.sampled_from(["reg:absoluteerror", "reg:pseudohubererror", "reg:logistic", "reg:gamma"]),
        "rate_drop": st.just(0.4),
        "reg_alpha": st.sampled_from([5.0, 1e6]),
        "subsample": st.just(0.6),
        "tree_method": st.sampled_from(["approx", "exact"]),
    },
)


@pytest.mark.filterwarnings("ignore::UserWarning:xgboost")
@settings(max_examples=30, derandomize=True, database=None)
@given(options=OPTIONS, categories=st.booleans(), targets=st.sampled_from([1, 2]), seed=st.integers(0, 99))
def test_whatever_the_options(options: dict[str, Any], categories: bool, targets: int, seed: int) -> None:
    X, y = coded(40)
    X = X.copy()
    X[::7, 3] = np.nan
    Y = np.column_stack([y, -2 * y])[:, :targets]
    Y = (Y - Y.min() + 0.1) / 20 if options.get("objective", "")[4:] in ("logistic", "gamma") else Y
    if categories and options.get("booster") != "gblinear":
        options = {**options, "enable_categorical": True, "feature_types": CODES}
    try:
        estimator = XGBRegressor(n_estimators=4, n_jobs=1, random_state=seed, **options).fit(X, Y)
    except (ValueError, XGBoostError):  # it refuses some together
        assume(False)
    found = compare("drawn", estimator, X, 1500, seed=seed)
    assert (found.wrong, found.other_bits) == (0, 0)
    assert found.ulp <= 2


@pytest.mark.parametrize("objective", ["reg:squarederror", "count:poisson"])
@pytest.mark.parametrize("missing", [np.nan, 0.0])
def test_linear_boosters_have_xgboosts_bits(objective: str, missing: float, engine: str) -> None:
    """The bits are the same also if products and sums vanish or overflow, and with numbers missing."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((200, 9)) * 10 ** rng.uniform(-3, 3, 9), np.exp(rng.standard_normal((200, 3)))
    X[rng.random(X.shape) < 0.1] = missing
    outputs = 3 if objective == "reg:squarederror" else 1
    linear = XGBRegressor(booster="gblinear", objective=objective, missing=missing, n_estimators=20, n_jobs=1)
    linear.fit(X, Y[:, :outputs])
    rows = adversarial_rows(X, {}, rows=400, infinite=False)
    rows[rng.random(rows.shape) < 0.01] = 3e38
    plan = compile_estimator(linear).plan
    (step,) = [step for step in plan.steps if isinstance(step.operation, OrderedAffine)]
    plain = plan.with_steps(
        dataclasses.replace(each, operation=dataclasses.replace(step.operation, function="identity"))
        if each is step
        else each
        for each in plan.steps
    )
    found = Runner(plain, engine=engine, max_rows=400).predict(rows)["y"]
    expected = linear.predict(rows, output_margin=True).reshape(found.shape)
    assert not np.isfinite(expected).all()
    np.testing.assert_array_equal(found, expected)
    assert compile_estimator(linear).report.outputs["y"].max_ulp <= (2 if objective == "count:poisson" else 0)


def test_the_count_of_wrong_decisions() -> None:
    found = count("xgboost-codes", CASES["xgboost-codes"], 4000)
    assert (found.wrong, found.other_bits, found.ulp) == (0, 0, 0)
    assert found.pairs >= 4000
    assert found.trees == 40


# Missing numbers


@pytest.mark.parametrize("missing", [np.inf, -np.inf])
def test_missing_infinity(missing: float) -> None:
    X, y = small()
    estimator = XGBRegressor(**TINY, missing=missing).fit(X, y)
    np.testing.assert_array_equal(answers(estimator, X)[:, 0], estimator.predict(X))
    piped = make_pipeline(StandardScaler(), XGBRegressor(**TINY, missing=missing)).fit(X, y)
    with pytest.raises(
        ExportError, match=r"missing is -?inf, which another step may make; supported: NaN, or a number"
    ):
        compile_estimator(piped)


def test_zeros_of_a_sparse_matrix_are_missing() -> None:
    X, y = words()
    encoder = ColumnTransformer([("word", OneHotEncoder(), ["word"])], remainder="passthrough")
    sparse = make_pipeline(encoder, XGBRegressor(**SIZE)).fit(X, y)
    assert sparse[0].sparse_output_
    dense = make_pipeline(clone(encoder).set_params(sparse_threshold=0).fit(X), sparse[1])
    assert np.abs(sparse.predict(X) - dense.predict(X)).max() > 0.1
    for pipeline in (sparse, dense):
        assert compile_estimator(pipeline, sample=X).report.outputs["y"].max_ulp == 0


def test_which_transformers_make_a_sparse_matrix() -> None:
    X, y = mostly_zero()
    codes = np.abs(X).astype(int)
    hot, dense = OneHotEncoder(), OneHotEncoder(sparse_output=False)
    for makes, table in (
        (hot, codes),
        (dense, codes),
        (KBinsDiscretizer(3, strategy="uniform"), X),
        (KBinsDiscretizer(3, encode="ordinal", strategy="uniform"), X),
        (SplineTransformer(sparse_output=True), X),
        (SplineTransformer(), X),
        (make_pipeline(hot, MaxAbsScaler(), SelectKBest(k=3), PolynomialFeatures(2), FunctionTransformer()), codes),
        (make_pipeline(hot, "passthrough", StandardScaler(with_mean=False), SimpleImputer()), codes),
        (make_pipeline(dense, MaxAbsScaler()), codes),
        (FeatureUnion([("hot", hot), ("scaled", StandardScaler())]), codes),
        (FeatureUnion([("hot", dense), ("all", "passthrough")]), codes),
        (ColumnTransformer([("hot", hot, [0])], remainder="passthrough", sparse_threshold=1.0), codes),
        (ColumnTransformer([("hot", hot, [0])], remainder="passthrough", sparse_threshold=0), codes),
        (GridSearchCV(make_pipeline(hot, SelectKBest()), {"selectkbest__k": [2]}, scoring=lambda *_: 0.0, cv=2), codes),
    ):
        transformer = makes.fit(table, y)
        assert makes_sparse(transformer, False) == hasattr(transformer.transform(table), "tocsr"), transformer


# Categories


def test_categories_come_as_strings_and_numbers() -> None:
    X, y = shops()
    estimator = XGBRegressor(**SIZE, enable_categorical=True).fit(X, y)
    compilation = compile_estimator(estimator, sample=X)
    inputs = compilation.inputs
    assert inputs.datatypes() == {"X": "FP32", "categories": "BYTES"}
    assert [tensor.closed for tensor in inputs.text] == [(True,)]
    other = X.assign(
        town=X["town"].cat.reorder_categories(sorted(X["town"].cat.categories)), kind=X["kind"].astype(int)
    )
    again = compile_estimator(estimator, sample=other)
    assert again.plan.to_json() == compilation.plan.to_json()
    rows = compilation.sample.X[:2].copy()
    rows[0, 2] = 25  # none of 10, 20, 30 and 40
    found = Runner(compilation.plan, engine="torch", max_rows=2).predict(rows)["y"]
    assert np.isnan(found[0])
    assert found[1] == compilation.sample.expected["y"][1]


def test_what_xgboost_makes_of_unknown_strings_is_what_the_page_on_boosters_says() -> None:
    X, y = shops()
    estimator = XGBRegressor(**SIZE, enable_categorical=True).fit(X, y)

    def answer(town: str) -> float:
        return float(estimator.predict(X[:1].assign(town=pd.Series([town], dtype="category")))[0])

    assert answer("nowhere") == answer("town 0")
    assert answer("town 2x") == answer("town 3") != answer("town 2")
    with pytest.raises(XGBoostError, match="Found a category not in the training set"):
        answer("zoo")


def test_categories_that_cannot_be_served() -> None:
    X, y = shops()
    options = {**TINY, "enable_categorical": True}
    zero = XGBRegressor(**options, missing=0).fit(X, y)
    with pytest.raises(ExportError, match="missing is 0 beside pandas' categories; supported there: NaN"):
        compile_estimator(zero)
    named = X.assign(town=X["town"].cat.rename_categories({"town 5": "Köln"}))
    with pytest.raises(ExportError, match="a category of column 'town' has letters beyond ASCII"):
        compile_estimator(XGBRegressor(**options).fit(named, y))
    codes, y = coded()
    older = XGBRegressor(**options, feature_types=CODES).fit(codes, y)  # those hold names and no categories
    older.get_booster().feature_names = list("abcd")
    with pytest.raises(ExportError, match="its model does not hold the pandas categories of column 'b'"):
        compile_estimator(older)


# Files


@pytest.mark.parametrize("suffix", ["json", "ubj"])
def test_a_file_holds_all_but_what_is_missing(tmp_path: Path, suffix: str) -> None:
    X, y = mostly_zero()
    estimator = XGBRegressor(**TINY, missing=0).fit(X, y)
    path = tmp_path / f"model.{suffix}"
    estimator.save_model(path)
    loaded = load_estimator(path, missing=0)
    np.testing.assert_array_equal(answers(loaded, X)[:, 0], estimator.predict(X))
    with pytest.raises(ExportError, match="does not record which number means a missing value"):
        load_estimator(path)


def test_a_skops_file_of_a_pipeline(tmp_path: Path) -> None:
    X, y = mostly_zero()
    pipeline = make_pipeline(StandardScaler(), XGBRFRegressor(n_estimators=4, missing=0, n_jobs=1)).fit(X, y)
    skops.io.dump(pipeline, tmp_path / "model.skops")
    loaded = load_estimator(tmp_path / "model.skops")
    np.testing.assert_array_equal(answers(loaded, X, input="fp64")[:, 0], pipeline.predict(X))


# Refusals


def test_refusals() -> None:
    X, y = small()
    up = y > 0
    for estimator, reason in (
        (XGBClassifier(**TINY).fit(X, up), "it answers with classes. Export an XGBRegressor"),
        (XGBRanker(**TINY).fit(X, up, group=[len(X)]), "it ranks rows within groups"),
        (XGBRegressor(**TINY).fit(X, y).get_booster(), "Save it with save_model, load it with load_model"),
        (XGBRegressor(**TINY, objective="binary:hinge").fit(X, up), "its objective is 'binary:hinge'; supported: "),
        (XGBRegressor(), "it is not fitted; call fit first"),
    ):
        with pytest.raises(ExportError, match=reason):
            compile_estimator(estimator)


def test_categories_of_another_step_are_codes() -> None:
    X, y = words()
    encoder = ColumnTransformer([("word", OrdinalEncoder(), ["word"])], remainder="passthrough")
    types = ["c", "q", "q"]
    estimator = XGBRegressor(**SIZE, enable_categorical=True, feature_types=types, max_cat_to_onehot=1)
    compilation = compile_estimator(make_pipeline(encoder, estimator).fit(X, y), sample=X)
    assert compilation.report.outputs["y"].max_ulp == 0


def test_a_frame_of_numbers_keeps_its_names() -> None:
    X, y = small()
    frame = pd.DataFrame(X, columns=list("edcba"))
    compilation = compile_estimator(XGBRegressor(**TINY).fit(frame, y), sample=frame[list("abcde")])
    assert compilation.report.outputs["y"].max_ulp == 0
