"""Models made of models: what their plans come down to, and what they must not depend on."""

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.cross_decomposition import CCA, PLSCanonical, PLSRegression
from sklearn.decomposition import PCA, SparseCoder
from sklearn.ensemble import BaggingRegressor, StackingRegressor, VotingRegressor
from sklearn.feature_selection import RFE
from sklearn.linear_model import BayesianRidge, Lasso, Ridge
from sklearn.multioutput import RegressorChain
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, PolynomialFeatures, StandardScaler

from tests.exporter.data import as_frame, diabetes, far_from_zero, linnerud, several_targets, small
from triton_regressors.exporter.compile import Compilation, compile_estimator
from triton_regressors.kernels.ops.linear.affine import Affine
from triton_regressors.kernels.ops.networks.dense_layers import DenseLayers
from triton_regressors.kernels.ops.trees.tree_ensemble import TreeEnsemble

MEMBERS = [("ridge", Ridge()), ("lasso", make_pipeline(StandardScaler(), Lasso(0.1)))]


def compiled(estimator: Any, data: Any = small) -> Compilation:
    X, y = data()
    return compile_estimator(clone(estimator).fit(X, y), sample=np.asarray(X, dtype=np.float32))


def kinds(compilation: Compilation) -> list[type]:
    return [type(step.operation) for step in compilation.plan.steps]


@pytest.mark.parametrize(
    "estimator",
    [
        VotingRegressor(MEMBERS, weights=[1, 2]),
        BaggingRegressor(Ridge(), 30, max_features=3, bootstrap_features=True, random_state=0),
        StackingRegressor(MEMBERS, cv=2),
        StackingRegressor([("bagging", BaggingRegressor(Ridge(), 3)), ("voting", VotingRegressor(MEMBERS))], cv=2),
    ],
    ids=["voting", "bagging", "stacking", "nested"],
)
def test_an_ensemble_of_linear_models_is_one_affine_map(estimator: Any) -> None:
    plan = compiled(estimator).plan
    assert [type(step.operation) for step in plan.steps] == [Affine]
    assert plan.parameter_count() == 5 + 1


def test_bagged_trees_are_one_forest() -> None:
    X, y = several_targets()
    bagging = BaggingRegressor(n_estimators=6, max_features=0.5, random_state=0).fit(X, y)
    compilation = compile_estimator(bagging, sample=X.astype(np.float32))
    assert kinds(compilation) == [TreeEnsemble]
    assert compilation.report.outputs["y"].max_error < 1e-6


def test_layers_of_a_network_are_one_step() -> None:
    compilation = compiled(
        make_pipeline(StandardScaler(), MLPRegressor(hidden_layer_sizes=(6, 4), solver="lbfgs", tol=1.0))
    )
    (step,) = compilation.plan.steps
    assert isinstance(step.operation, DenseLayers)
    assert step.operation.widths == (5, 6, 4, 1)
    assert (step.operation.activation, step.operation.function) == ("relu", "identity")


def test_a_thresholded_code_is_one_step() -> None:
    coder = SparseCoder(np.eye(5)[:3], transform_algorithm="threshold", split_sign=True)
    assert kinds(compiled(make_pipeline(StandardScaler(), coder, Ridge()))) == [DenseLayers]


@pytest.mark.parametrize(
    "estimator",
    [
        make_pipeline(StandardScaler(), PCA(3), Ridge()),
        make_pipeline(ColumnTransformer([("a", StandardScaler(), [0, 2])], remainder="passthrough"), Ridge()),
        make_pipeline(make_union(StandardScaler(), MinMaxScaler()), Ridge()),
        make_pipeline(VotingRegressor(MEMBERS), Ridge()),
    ],
    ids=["pipeline", "columns", "union", "voting"],
)
def test_the_container_of_outputs_changes_nothing(estimator: Any) -> None:
    X, y = as_frame()
    fitted = clone(estimator).fit(X, y)
    plan = compile_estimator(fitted, sample=X).plan
    fitted.set_output(transform="pandas")
    after = compile_estimator(fitted, sample=X).plan
    assert after.to_json() == plan.to_json()
    assert all(np.array_equal(array, after.to_tensors()[name]) for name, array in plan.to_tensors().items())


@pytest.mark.parametrize("transformer", [PLSRegression(3), PLSCanonical(2), CCA(2)])
def test_a_regressor_before_another_step_transforms_and_as_the_last_one_predicts(transformer: Any) -> None:
    X, y = linnerud()
    scores = clone(transformer).fit(X, y)
    last = Ridge().fit(scores.transform(X), y)
    report = compile_estimator(Pipeline([("scores", scores), ("model", last)]), sample=X).report
    assert report.outputs["y"].max_ulp <= 1
    assert compile_estimator(make_pipeline(scores), sample=X).report.outputs["y"].max_ulp <= 1


def test_recursive_elimination_selects_before_another_step_and_predicts_as_the_last_one() -> None:
    selector = RFE(Ridge(), n_features_to_select=2)
    for estimator in (selector, make_pipeline(selector, Ridge()), make_pipeline(StandardScaler(), selector)):
        assert compiled(estimator).report.outputs["y"].max_error < 1e-6


def test_the_standard_deviation_of_a_member_is_not_an_output() -> None:
    bayesian = BayesianRidge()
    for estimator in (
        VotingRegressor([("bayesian", bayesian)]),
        StackingRegressor(MEMBERS, bayesian, cv=2),
        BaggingRegressor(bayesian, 2),
        TransformedTargetRegressor(bayesian),
        RFE(bayesian),
    ):
        assert list(compiled(estimator).plan.outputs) == ["y"]


def test_a_chain_of_another_order_predicts_the_targets_in_their_own() -> None:
    X, y = several_targets()
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        chain = RegressorChain(Ridge(1e-8), order=order).fit(X, y)
        assert compile_estimator(chain, sample=X.astype(np.float32)).report.outputs["y"].max_error < 1e-6
        assert np.abs(chain.predict(X) - y).max() < 10  # in another order they would be far off


def test_weights_are_those_of_the_members_that_stay() -> None:
    X, y = small()
    members = [("one", Ridge()), ("two", "drop"), ("three", Lasso(1.0))]
    voting = VotingRegressor(members, weights=[1, 100, 3]).fit(X, y)
    plan = compile_estimator(voting, sample=X.astype(np.float32)).plan
    one, three = voting.estimators_
    assert isinstance(plan.steps[0].operation, Affine)
    np.testing.assert_allclose(plan.steps[0].operation.weight[:, 0], 0.25 * one.coef_ + 0.75 * three.coef_, rtol=1e-12)


def test_a_union_that_drops_everything_but_one() -> None:
    union = FeatureUnion([("scaled", StandardScaler()), ("out", "drop")], transformer_weights={"out": 5, "scaled": 2})
    X, y = diabetes()
    model = make_pipeline(union, Ridge()).fit(X, y)
    assert kinds(compile_estimator(model, sample=X)) == [Affine]


def test_a_function_of_features_is_applied_in_place() -> None:
    function = FunctionTransformer(np.clip, kw_args={"a_min": -1, "a_max": 1})
    compilation = compiled(make_pipeline(StandardScaler(), function, Ridge()))
    assert compilation.report.outputs["y"].max_error < 1e-6
    assert [step.operation.describe() for step in compilation.plan.steps][1] == "identity clipped to [-1.0, 1.0]"


@pytest.mark.parametrize(
    "estimator",
    [
        make_pipeline(
            ColumnTransformer([("a", StandardScaler(), [4, 1])], remainder=make_pipeline(MinMaxScaler(), PCA(2))),
            Ridge(),
        ),
        BaggingRegressor(make_pipeline(StandardScaler(), Ridge()), 8, max_features=4, random_state=0),
    ],
    ids=["columns", "bagging"],
)
def test_rows_are_drawn_where_the_columns_of_the_parts_lie(estimator: Any) -> None:
    X, y = far_from_zero()
    drawn = compile_estimator(clone(estimator).fit(X, y)).sample.X
    assert np.abs(drawn.mean(axis=0) - X.mean(axis=0)).max() < 1
    assert (drawn.std(axis=0) / X.std(axis=0)).max() < 2


def test_a_mixed_ensemble_has_one_step_for_its_linear_members() -> None:
    members = [MEMBERS[0], ("polynomial", make_pipeline(PolynomialFeatures(3), Ridge())), MEMBERS[1]]
    steps = [step.operation.describe() for step in compiled(VotingRegressor(members)).plan.steps]
    assert len(steps) == 4
    assert steps.count("5 → 1") == 1


def test_an_export_checks_each_operation_once(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[Affine] = []

    def check(self: Affine, *widths: int) -> None:
        checked.append(self)
        original(self, *widths)

    original = Affine.check
    monkeypatch.setattr(Affine, "check", check)
    parts = [(f"ridge{index}", make_pipeline(StandardScaler(), Ridge(alpha=index + 1.0))) for index in range(4)]
    plan = compiled(StackingRegressor(parts, Ridge())).plan
    assert len(plan.steps) == 1
    assert any(op is plan.steps[0].operation for op in checked)
    assert len(set(checked)) == len(checked) > 5
