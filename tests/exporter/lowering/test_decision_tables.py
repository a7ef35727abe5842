"""Functions in front of thresholds decide as the estimator does, to the last bit.

HistGradientBoosting takes values of the training rows as thresholds. Every model here is therefore exported with the
rows that it was trained on, many of which lie exactly on a threshold.
"""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingRegressor, StackingRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    PowerTransformer,
    QuantileTransformer,
    SplineTransformer,
    StandardScaler,
)
from sklearn.tree import DecisionTreeRegressor

from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.kernels.ops.columns.elementwise import Elementwise
from triton_regressors.kernels.ops.columns.power import Power
from triton_regressors.kernels.ops.linear.piecewise import Piecewise

ROWS = 900
BOOSTER = HistGradientBoostingRegressor(max_iter=20, random_state=0)


def training_rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, 3)) * [1.0, 100.0, 0.1] + [0.0, 1000.0, 0.0]
    return X, X[:, 0] * 3 + np.sin(X[:, 1] / 30) + 9 * X[:, 2] + rng.normal(size=ROWS)


TRANSFORMERS = {
    "splines": SplineTransformer(),
    "splines-at-quantiles": SplineTransformer(knots="quantile", include_bias=False),
    "splines-linear-beyond": SplineTransformer(degree=2, extrapolation="linear"),
    "yeo-johnson": PowerTransformer(),
    "yeo-johnson-unscaled": PowerTransformer(standardize=False),
    "quantiles-uniform": QuantileTransformer(n_quantiles=100),
    "quantiles-normal": QuantileTransformer(n_quantiles=100, output_distribution="normal"),
    "arcsinh": FunctionTransformer(np.arcsinh),
    "arcsinh-scaled": make_pipeline(FunctionTransformer(np.arcsinh), StandardScaler()),
    "tanh": FunctionTransformer(np.tanh),
    "cbrt": FunctionTransformer(np.cbrt),
    "bins-of-powers": make_pipeline(PowerTransformer(), KBinsDiscretizer(10, encode="ordinal")),
}


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_training_rows_are_answered_as_the_estimator_answers_them(name):
    X, y = training_rows()
    model = make_pipeline(clone(TRANSFORMERS[name]), clone(BOOSTER)).fit(X, y)
    assert compile_estimator(model, sample=X).report.within


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_trees_that_round_to_float32_are_answered_as_the_estimator_answers_them(name):
    X, y = training_rows()
    model = make_pipeline(clone(TRANSFORMERS[name]), DecisionTreeRegressor(random_state=0)).fit(X, y)
    assert compile_estimator(model, sample=X).report.within


@pytest.mark.parametrize("function", [np.log, np.log1p, np.sqrt, np.log2], ids=lambda function: function.__name__)
def test_functions_of_positive_numbers_are_answered_alike(function):
    X, y = training_rows()
    X = np.abs(X) + 1e-9
    model = make_pipeline(FunctionTransformer(function), BOOSTER).fit(X, y)
    assert compile_estimator(model, sample=X).report.within


def test_rows_within_the_last_bits_of_thresholds_decide_alike():
    X, y = training_rows()
    model = make_pipeline(PowerTransformer(), BOOSTER).fit(X, y)
    steps = np.random.default_rng(1).integers(-3, 4, X.shape)
    beside = X + steps * np.spacing(X)
    report = compile_estimator(model, sample=beside, input="fp64").report
    assert report.within


def test_columns_that_several_transformers_make_decide_alike():
    X, y = training_rows()
    table = pd.DataFrame(X, columns=["a", "b", "c"])
    columns = ColumnTransformer(
        [
            ("power", PowerTransformer(), ["a"]),
            ("quantiles", QuantileTransformer(n_quantiles=100), ["b"]),
            ("splines", SplineTransformer(), ["c"]),
        ],
        remainder="passthrough",
    )
    model = make_pipeline(columns, BOOSTER).fit(table, y)
    assert compile_estimator(model, sample=table).report.within


def test_other_readers_of_a_function_keep_reading_the_function():
    X, y = training_rows()
    stack = StackingRegressor([("ridge", Ridge()), ("trees", BOOSTER)], cv=2)
    model = make_pipeline(PowerTransformer(), stack).fit(X, y)
    compiled = compile_estimator(model, sample=X)
    operations = [step.operation for step in compiled.plan.steps]
    assert any(isinstance(operation, Power) for operation in operations)
    assert any(isinstance(operation, Piecewise) for operation in operations)
    assert compiled.report.within


def test_nothing_is_computed_in_front_of_decisions_alone():
    X, y = training_rows()
    model = make_pipeline(FunctionTransformer(np.arcsinh), BOOSTER).fit(X, y)
    operations = [step.operation for step in compile_estimator(model, sample=X).plan.steps]
    assert not any(isinstance(operation, Elementwise) for operation in operations)


def test_no_number_is_outside_a_table():
    X, y = training_rows()
    model = make_pipeline(PowerTransformer(), BOOSTER).fit(X, y)
    far = np.concatenate([X, X * 1e150, -X * 1e150, [[0.0] * 3, [-0.0] * 3]])
    assert compile_estimator(model, sample=far, input="fp64").report.within
