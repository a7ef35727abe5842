"""Contributions of plans of many kinds against Shapley's definition, in float64."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    BaggingRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
    StackingRegressor,
    VotingRegressor,
)
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern
from sklearn.impute import SimpleImputer
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import PoissonRegressor, Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    KBinsDiscretizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    SplineTransformer,
    StandardScaler,
    TargetEncoder,
)
from sklearn.svm import SVR
from sklearn.tree import DecisionTreeRegressor

from triton_regressors.contribution_game import OUTPUT
from triton_regressors.exporter.contributions import trees
from triton_regressors.exporter.contributions.coalitions import definition_weights, shapley_values
from triton_regressors.exporter.contributions.game import Game
from triton_regressors.exporter.contributions.margin import MARGIN
from triton_regressors.exporter.contributions.players import players_of_inputs
from triton_regressors.exporter.contributions.values import Values
from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.lowering.lower import lower
from triton_regressors.exporter.passes.optimise import fuse
from triton_regressors.exporter.passes.specialise import specialise
from triton_regressors.kernels.engine.runner import Runner

rng = np.random.default_rng(0)
X = rng.standard_normal((120, 4))
Y = X[:, 0] + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(len(X))
ROWS, BACKGROUND = X[:6], X[50:59]
TWO = np.stack([Y, Y * X[:, 3]], axis=1)
FACTORED = {"scale", "affine", "combine", "concatenate"}
"""What computes a polynomial of degree 2: columns multiplied by linear maps."""


def voting() -> VotingRegressor:
    return VotingRegressor(
        [("line", Ridge()), ("square", make_pipeline(PolynomialFeatures(2, interaction_only=True), Ridge()))],
        weights=[1, 3],
    )


CLOSED: dict[str, tuple[Any, np.ndarray, set[str]]] = {
    "linear": (make_pipeline(StandardScaler(), Ridge()), Y, {"affine"}),
    "two targets": (Ridge(), TWO, {"affine"}),
    "principal components": (make_pipeline(StandardScaler(), PCA(2), Ridge()), Y, {"affine"}),
    "splines": (make_pipeline(SplineTransformer(4), Ridge()), Y, {"piecewise_affine"}),
    "splines of two targets": (make_pipeline(SplineTransformer(4), Ridge()), TWO, {"piecewise", "affine"}),
    "bins": (make_pipeline(KBinsDiscretizer(4), Ridge()), Y, {"piecewise", "affine"}),
    "degree 2": (make_pipeline(StandardScaler(), PolynomialFeatures(2), Ridge()), Y, FACTORED),
    "degree 2 of two targets": (make_pipeline(PolynomialFeatures(2), Ridge()), TWO, FACTORED - {"scale"} | {"columns"}),
    "degree 3": (make_pipeline(PolynomialFeatures(3), Ridge()), Y, {"polynomial_affine"}),
    "link": (PoissonRegressor(), np.exp(Y / 4), {"affine"}),
    "transformed target": (TransformedTargetRegressor(Ridge(), func=np.log1p, inverse_func=np.expm1), Y**2, {"affine"}),
    "scaled target": (TransformedTargetRegressor(Ridge(), transformer=StandardScaler()), Y, {"affine"}),
    "bags": (BaggingRegressor(Ridge(), 3, max_features=0.6, random_state=0), Y, {"affine"}),
    "votes": (voting(), Y, {"affine", "combine", "concatenate"}),
    "stack": (StackingRegressor([("a", Ridge()), ("b", Ridge(10.0))], final_estimator=Ridge()), Y, {"affine"}),
    "forest of two targets": (RandomForestRegressor(3, max_depth=4, random_state=0), TWO, {"tree_contributions"}),
    "boosted link": (
        make_pipeline(StandardScaler(), HistGradientBoostingRegressor(loss="poisson", max_iter=5)),
        Y**2,
        {"scale", "tree_contributions"},
    ),
    "bags of trees": (
        BaggingRegressor(DecisionTreeRegressor(max_depth=3), 3, max_features=0.6, random_state=0),
        Y,
        {"tree_contributions"},
    ),
    "bins before trees": (
        make_pipeline(KBinsDiscretizer(4), GradientBoostingRegressor(n_estimators=4)),
        Y,
        {"piecewise", "tree_contributions"},
    ),
    "process": (
        GaussianProcessRegressor(alpha=0.1, normalize_y=True),
        Y,
        {"pairwise_contributions", "affine", "combine"},
    ),
    "votes of a line, trees and points": (
        VotingRegressor([("line", Ridge()), ("trees", GradientBoostingRegressor(n_estimators=3)), ("points", SVR())]),
        Y,
        {"pairwise_contributions", "tree_contributions", "affine", "combine"},
    ),
}
DEFINED: dict[str, tuple[Any, np.ndarray]] = {
    "network": (MLPRegressor(hidden_layer_sizes=(6,), max_iter=50, random_state=0), Y),
    "neighbours": (KNeighborsRegressor(3), Y),
    "process of two targets": (GaussianProcessRegressor(Matern(nu=1.5), alpha=0.1), TWO),
    "components before trees": (make_pipeline(PCA(2), GradientBoostingRegressor(n_estimators=3)), Y),
    "products of components": (make_pipeline(PCA(2), PolynomialFeatures(2), Ridge()), Y),
    "votes of a line and links": (VotingRegressor([("line", Ridge()), ("link", PoissonRegressor())]), Y**2),
}


def solved(model: Any, rows: Any, targets: np.ndarray, dtype: str = "float64") -> tuple[Game, Any, int]:
    """Return the game of a fitted model, its plan and the number of columns."""
    lowered = lower(model.fit(rows, targets), rows)
    plan, columns = specialise(lowered.plan, dtype), lowered.inputs.n_given
    game = Game(plan, players_of_inputs(lowered.inputs), columns, BACKGROUND.astype(dtype))
    return game, game.contributions(), columns


def check(game: Game, plan: Any, columns: int, targets: int) -> None:
    found = Runner(fuse(plan), engine="torch", device="cpu", max_rows=len(ROWS)).predict(ROWS, (OUTPUT,))[OUTPUT]
    margin = game.margin.outputs[MARGIN]

    def of_margin(rows: np.ndarray) -> np.ndarray:
        return Values(game.margin.steps, rows)[margin]

    exact = shapley_values(of_margin, ROWS, BACKGROUND, np.arange(columns), columns)
    assert found.shape == exact.shape == (len(ROWS), targets * (columns + 1))
    np.testing.assert_allclose(found, exact, rtol=2e-7, atol=2e-7 * np.abs(exact).max())
    sums = found.astype(np.float64).reshape(len(ROWS), targets, -1).sum(axis=2)
    np.testing.assert_allclose(sums, of_margin(ROWS), rtol=1e-6, atol=1e-6 * np.abs(exact).max())


@pytest.mark.parametrize("case", CLOSED)
def test_closed_forms_are_shapley_s_values(case: str) -> None:
    model, targets, kinds = CLOSED[case]
    game, plan, columns = solved(model, X, targets)
    assert {step.operation.kind() for step in fuse(plan).steps} == kinds
    check(game, plan, columns, np.atleast_2d(targets.T).shape[0])


def test_trees_without_tables_are_explained_by_each_background_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "MOST_PLAYERS", 2)
    game, plan, columns = solved(GradientBoostingRegressor(n_estimators=5), X, Y)
    assert {step.operation.kind() for step in plan.steps} == {"background_contributions"}
    check(game, plan, columns, 1)


@pytest.mark.parametrize("case", DEFINED)
def test_other_models_are_explained_by_the_definition(case: str) -> None:
    model, targets = DEFINED[case]
    game, plan, columns = solved(model, X, targets)
    kinds = {step.operation.kind() for step in plan.steps}
    assert "coalitions" in kinds
    check(game, plan, columns, np.atleast_2d(targets.T).shape[0])


def test_functions_behind_the_margin_are_named() -> None:
    assert solved(PoissonRegressor(), X, np.exp(Y / 4))[0].links == ("exp",)
    assert solved(CLOSED["transformed target"][0], X, Y**2)[0].links == ("expm1",)
    assert solved(CLOSED["scaled target"][0], X, Y)[0].links == ()
    assert solved(IsotonicRegression(out_of_bounds="clip"), X[:, :1], Y)[0].links == ()


def test_columns_that_encoders_make_belong_to_their_column() -> None:
    table = pd.DataFrame({"kind": list("abc") * 40, "size": X[:, 0], "town": list("uvwx") * 30, "age": X[:, 1]})
    table.loc[::7, "size"] = np.nan
    encoded = make_column_transformer(
        (OneHotEncoder(), ["kind"]),
        (make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()), ["size"]),
        (make_pipeline(OrdinalEncoder(), SplineTransformer(3)), ["town"]),
        (TargetEncoder(), ["town"]),
    )
    model = make_pipeline(encoded, Ridge()).fit(table, Y)
    lowered = lower(model, table)
    matrix = np.stack([np.tile([0, 1, 2], 40), table["size"], np.tile([0, 1, 2, 3], 30), table["age"]], axis=1)
    plan = specialise(lowered.plan, "float64")
    game = Game(plan, players_of_inputs(lowered.inputs), 4, matrix[60:70])
    found = Values((contributions := game.contributions()).steps, matrix[:5])[contributions.outputs[OUTPUT]]

    def predict(rows: np.ndarray) -> np.ndarray:
        cells = {"kind": np.array(list("abc"))[rows[:, 0].astype(int)], "size": rows[:, 1]}
        cells |= {"town": np.array(list("uvwx"))[rows[:, 2].astype(int)], "age": rows[:, 3]}
        return np.asarray(model.predict(pd.DataFrame(cells))[:, None])

    exact = shapley_values(predict, matrix[:5], matrix[60:70], np.arange(4), 4)
    np.testing.assert_allclose(found, exact, rtol=1e-10, atol=1e-10)
    assert (found[:, 3] == 0).all()  # the model does not read age


def test_the_path_game_is_refused_where_it_is_not_defined() -> None:
    lowered = lower(Ridge().fit(X, Y))
    game = Game(specialise(lowered.plan, "float64"), players_of_inputs(lowered.inputs), 4, None)
    with pytest.raises(ExportError, match="'path' is defined for trees alone"):
        game.contributions()


def test_the_weights_of_the_definition_are_those_of_orders() -> None:
    """The share of the orders in which a player comes right after a coalition, by counting them."""
    coalitions = (np.arange(8)[:, None] >> np.arange(3)) & 1
    weights = definition_weights(coalitions)
    np.testing.assert_allclose(weights[0b000], [-1 / 3] * 3)
    np.testing.assert_allclose(weights[0b001], [1 / 3, -1 / 6, -1 / 6])
    np.testing.assert_allclose(weights[0b111], [1 / 3] * 3)
