"""A Concatenate selects columns itself, and whole pipelines take few launches."""

from typing import Any

import numpy as np
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, PolynomialFeatures, StandardScaler

from tests.kernels import operations
from tests.kernels.operations import run_plan
from triton_regressors.exporter.compile import compile_estimator
from triton_regressors.exporter.passes.select_in_place import select_in_place
from triton_regressors.kernels.ops.columns.columns import Columns
from triton_regressors.kernels.ops.columns.concatenate import Concatenate
from triton_regressors.kernels.plan.plan import Plan, Step


def columns(*indices: int) -> Columns:
    return Columns(np.array(indices, dtype=np.int32))


def test_selections_are_made_as_they_are_put_side_by_side() -> None:
    steps = (
        Step(columns(2, 0), ("X",), "a"),
        Step(operations.affine(3, 2), ("X",), "b"),
        Step(columns(1), ("X",), "c"),
        Step(Concatenate(), ("a", "b", "c"), "y"),
    )
    plan = Plan(3, steps, {"y": "y"})
    selected = select_in_place(plan)
    affine, together = selected.steps
    assert affine is steps[1]
    assert together.inputs == ("X", "b")
    X = np.random.default_rng(0).standard_normal((9, 3)).astype(np.float32)
    assert np.array_equal(run_plan(selected, X)["y"], run_plan(plan, X)["y"])
    assert select_in_place(selected) is selected


def test_a_selection_that_is_read_elsewhere_stays() -> None:
    steps = (Step(columns(1), ("X",), "a"), Step(Concatenate(), ("a", "X"), "y"))
    selected = select_in_place(Plan(2, steps, {"y": "y", "std": "a"}))
    assert [step.output for step in selected.steps] == ["a", "y"]
    assert selected.steps[1].inputs == ("X",)


def test_a_concatenate_of_whole_values_stays_as_it_is() -> None:
    plan = Plan(2, (Step(operations.affine(2, 2), ("X",), "a"), Step(Concatenate(), ("a", "X"), "y")), {"y": "y"})
    assert select_in_place(plan) is plan


def one_hot_and_scaled(**options: Any) -> Any:
    return make_column_transformer((OneHotEncoder(**options), [0, 1]), (StandardScaler(), list(range(2, 6))))


PIPELINES = {
    "one-hot, degree 2": make_pipeline(one_hot_and_scaled(), PolynomialFeatures(2), Ridge()),
    "one-hot, degree 2, unknown": make_pipeline(
        one_hot_and_scaled(handle_unknown="ignore"), PolynomialFeatures(2), Ridge()
    ),
    "one-hot, degree 2 of the others": make_pipeline(
        make_column_transformer(
            (OneHotEncoder(), [0, 1]), (make_pipeline(StandardScaler(), PolynomialFeatures(2)), list(range(2, 6)))
        ),
        Ridge(),
    ),
    "imputer": make_pipeline(SimpleImputer(add_indicator=True), HistGradientBoostingRegressor(max_iter=3)),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_whole_pipelines_take_three_launches_at_most(name: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 6))
    X[:, 0], X[:, 1] = rng.integers(0, 4, 120), rng.integers(0, 9, 120)
    y = X[:, 2] * X[:, 3] + X[:, 0]
    if name == "imputer":
        X[rng.random(X.shape) < 0.1] = np.nan
    compilation = compile_estimator(PIPELINES[name].fit(X, y), sample=X)
    assert sum(step.launches() for step in compilation.plan.steps) <= 3
    assert compilation.report.outputs["y"].within(1e-5)
