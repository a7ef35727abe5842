"""The training covers of trees, and with them the path-dependent game as each library answers it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from catboost import CatBoostRegressor, Pool
from lightgbm import LGBMRegressor
from quantile_forest import RandomForestQuantileRegressor
from sklearn.ensemble import (
    BaggingRegressor,
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
    VotingRegressor,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.tree import DecisionTreeRegressor
from xgboost import DMatrix, XGBRegressor

from tests.exporter.contributions.path_game import as_nodes, path_values, reached
from triton_regressors.exporter.contributions.covers import covers_of
from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.files.loading import load_estimator
from triton_regressors.exporter.lowering.lower import Lowered, lower
from triton_regressors.exporter.lowering.rounding import round_input
from triton_regressors.exporter.lowering.row_types import row_types
from triton_regressors.exporter.passes.specialise import specialise
from triton_regressors.kernels.ops.trees.symmetric_trees import SymmetricTrees
from triton_regressors.kernels.ops.trees.tree_ensemble import TreeEnsemble
from triton_regressors.kernels.plan.plan import Step

ROWS, COLUMNS = 300, 4
RNG = np.random.default_rng(0)
X = np.round(RNG.standard_normal((ROWS, COLUMNS)), 2).astype(np.float32)
X[:, 3] = RNG.integers(0, 7, ROWS)
Y = (X[:, 0] * X[:, 1] + X[:, 2] + X[:, 3] % 3).astype(np.float64)
TWO = np.stack([Y, X[:, 0] - Y], axis=1)
WEIGHTS = np.append(RNG.uniform(0.2, 3, ROWS - 100), np.full(100, 2.0))
NEW = np.concatenate([X[:4], 2 * RNG.standard_normal((6, COLUMNS)).astype(np.float32)])
"""Rows of the training data and others, which also reach leaves without training rows."""

SILENT: dict[str, Any] = {"verbose": -1}
QUIET: dict[str, Any] = {"verbose": 0, "allow_writing_files": False}
NESTED = ("Depthwise", "Lossguide")


def steps_of(lowered: Lowered) -> list[Step]:
    return [step for step in lowered.plan.steps if isinstance(step.operation, TreeEnsemble | SymmetricTrees)]


def nodes_of(step: Step, lowered: Lowered) -> tuple[TreeEnsemble, np.ndarray]:
    covers, trees = covers_of(step, lowered), step.operation
    assert covers.dtype == np.float64
    if isinstance(trees, SymmetricTrees):
        assert len(covers) == len(trees.values)
        return as_nodes(trees, covers)
    assert isinstance(trees, TreeEnsemble)
    assert len(covers) == len(trees.feature)
    return trees, covers


ON_ALL_ROWS = {
    "tree": (DecisionTreeRegressor(max_depth=6), True),
    "forest": (RandomForestRegressor(20, max_features=2, bootstrap=False, max_depth=7, random_state=0), True),
    "boosting": (GradientBoostingRegressor(n_estimators=15, max_leaf_nodes=9), True),
    "hist": (HistGradientBoostingRegressor(max_iter=12, categorical_features=[3], min_samples_leaf=3), False),
    "bag": (BaggingRegressor(DecisionTreeRegressor(max_depth=4), 6, max_features=2, bootstrap=False), False),
    "vote": (VotingRegressor([("a", DecisionTreeRegressor(max_depth=3)), ("b", GradientBoostingRegressor())]), True),
    "quantiles": (RandomForestQuantileRegressor(9, bootstrap=False, max_features=1, max_depth=4), False),
    "xgboost": (XGBRegressor(n_estimators=25, max_depth=5, gamma=0.3), True),
    "xgboost categories": (XGBRegressor(n_estimators=9, feature_types=["q", "q", "q", "c"], max_cat_to_onehot=1), True),
    "xgboost vectors": (XGBRegressor(n_estimators=9, multi_strategy="multi_output_tree", max_depth=4), True),
    "lightgbm": (LGBMRegressor(n_estimators=25, num_leaves=9, **SILENT), False),
    "lightgbm linear": (LGBMRegressor(n_estimators=9, num_leaves=5, linear_tree=True, **SILENT), False),
    "catboost": (CatBoostRegressor(iterations=15, depth=5, bootstrap_type="No", **QUIET), True),
    "catboost two": (CatBoostRegressor(iterations=9, depth=3, loss_function="MultiRMSE", **QUIET), False),
    **{
        f"catboost {kind}": (CatBoostRegressor(iterations=9, grow_policy=kind, bootstrap_type="No", **QUIET), True)
        for kind in NESTED
    },
}
"""Estimators whose trees all train on all rows, each with whether they weigh rows by their weights."""


@pytest.mark.parametrize("name", ON_ALL_ROWS)
def test_covers_are_the_weights_of_the_training_rows_that_reach_a_node(name: str) -> None:
    estimator, weighted = ON_ALL_ROWS[name]
    target = TWO if name in ("xgboost vectors", "catboost two", "forest") else Y
    weights = WEIGHTS if weighted else np.ones(ROWS)
    estimator.fit(X, target, **({"sample_weight": weights} if weighted else {}))
    lowered = lower(estimator, covers=True)
    assert set(lowered.covers) == {step.output for step in steps_of(lowered)} != set()
    for step in steps_of(lowered):
        trees, covers = nodes_of(step, lowered)
        rows = X
        if name == "hist":  # its trees read the codes of categories after the columns
            rows = np.append(X, np.unique(X[:, 3:], return_inverse=True)[1].reshape(-1, 1).astype(np.float32), axis=1)
        sums = reached(trees, rows) @ weights
        np.testing.assert_allclose(covers, sums * (2 if name == "xgboost vectors" else 1), rtol=2e-6)  # both outputs'


def by_shap(estimator: Any) -> np.ndarray:
    explainer = pytest.importorskip("shap").TreeExplainer(estimator)
    values, base = explainer.shap_values(NEW), np.atleast_1d(explainer.expected_value)
    values = values.reshape(len(NEW), COLUMNS, -1).transpose(0, 2, 1)
    return np.concatenate([values, np.broadcast_to(base[:, None], (len(NEW), len(base), 1))], axis=2)


def by_xgboost(estimator: Any) -> np.ndarray:
    rounds = 0, estimator.get_booster().num_boosted_rounds()
    if estimator.early_stopping_rounds is not None:  # the Booster itself would explain all rounds
        rounds = 0, estimator.best_iteration + 1
    found: np.ndarray = estimator.get_booster().predict(DMatrix(NEW), pred_contribs=True, iteration_range=rounds)
    return found


def by_lightgbm(estimator: Any) -> np.ndarray:
    found: np.ndarray = estimator.predict(NEW.astype(np.float64), pred_contrib=True)
    return found


def by_catboost(estimator: Any) -> np.ndarray:
    found: np.ndarray = estimator.get_feature_importance(Pool(NEW), type="ShapValues")
    return found


SAMPLED: dict[str, Any] = {"n_estimators": 8, "max_depth": 5, "random_state": 0}
BAGGED: dict[str, Any] = {"n_estimators": 8, "subsample": 0.5, "subsample_freq": 1, **SILENT}
EXPLAINED: dict[str, tuple[Callable[[Any], np.ndarray], Any, float]] = {
    "forest": (by_shap, RandomForestRegressor(**SAMPLED), 1e-13),
    "extra trees": (by_shap, ExtraTreesRegressor(**SAMPLED, bootstrap=True), 1e-13),
    "forest of two": (by_shap, RandomForestRegressor(**SAMPLED), 1e-13),
    "boosting": (by_shap, GradientBoostingRegressor(n_estimators=9, subsample=0.6, random_state=0), 1e-13),
    "hist exp": (by_shap, HistGradientBoostingRegressor(max_iter=9, loss="poisson"), 1e-13),
    "xgboost": (by_xgboost, XGBRegressor(n_estimators=9, max_depth=4, subsample=0.7), 1e-6),
    "xgboost exp": (by_xgboost, XGBRegressor(n_estimators=9, max_depth=4, objective="count:poisson"), 1e-6),
    "xgboost of two": (by_xgboost, XGBRegressor(n_estimators=9, max_depth=3), 1e-6),
    "xgboost dart": (by_xgboost, XGBRegressor(n_estimators=9, max_depth=3, booster="dart", rate_drop=0.5), 1e-6),
    "xgboost stopped": (by_xgboost, XGBRegressor(learning_rate=1, early_stopping_rounds=2), 1e-6),
    "lightgbm": (by_lightgbm, LGBMRegressor(**BAGGED), 1e-13),
    "lightgbm categories": (by_lightgbm, LGBMRegressor(**BAGGED, min_data_per_group=5, cat_smooth=1), 1e-13),
    "lightgbm goss": (by_lightgbm, LGBMRegressor(n_estimators=30, data_sample_strategy="goss", **SILENT), 1e-13),
    "catboost": (by_catboost, CatBoostRegressor(iterations=9, depth=6, **QUIET), 1e-13),
    "catboost of two": (by_catboost, CatBoostRegressor(iterations=9, loss_function="MultiRMSE", **QUIET), 1e-13),
    **{
        f"catboost {kind}": (by_catboost, CatBoostRegressor(iterations=3, depth=2, grow_policy=kind, **QUIET), 1e-13)
        for kind in NESTED
    },
}


@pytest.mark.parametrize("name", EXPLAINED)
def test_the_path_game_of_covers_is_the_librarys(name: str) -> None:
    explain, estimator, tolerance = EXPLAINED[name]
    target = np.exp(Y / 3) if "exp" in name else TWO if "two" in name else Y
    options: dict[str, Any] = {"sample_weight": WEIGHTS} if explain is not by_lightgbm else {}
    if "categories" in name:
        options |= {"categorical_feature": [3]}
    if "stopped" in name:
        options |= {"eval_set": [(X[::2], Y[::2][::-1])], "verbose": False}
    estimator.fit(X, target, **options)
    lowered = lower(estimator, covers=True)
    (step,) = steps_of(lowered)
    found, own = path_values(*nodes_of(step, lowered), NEW), explain(estimator).astype(np.float64)
    np.testing.assert_allclose(found, own.reshape(found.shape), atol=tolerance * np.abs(own).max())


def test_lightgbms_random_forest_explains_the_sum_of_its_trees_and_not_their_mean() -> None:
    """LightGBM's own contributions add up to its answer times the number of trees."""
    estimator = LGBMRegressor(boosting_type="rf", **BAGGED).fit(X, Y)
    lowered = lower(estimator, covers=True)
    found = path_values(*nodes_of(steps_of(lowered)[0], lowered), NEW)[:, 0]
    np.testing.assert_allclose(found, by_lightgbm(estimator) / 8, atol=1e-13)
    np.testing.assert_allclose(found.sum(axis=1), estimator.predict(NEW), atol=1e-13)


def test_catboosts_contributions_miss_its_answers_where_a_node_lacks_a_child() -> None:
    """Trees that are not symmetric leave out a child of which CatBoost knows no rows, and its values are then wrong."""
    estimator = CatBoostRegressor(iterations=3, depth=6, grow_policy="Lossguide", random_seed=0, **QUIET).fit(X, Y)
    assert np.abs(by_catboost(estimator).sum(axis=1) - estimator.predict(NEW)).max() > 0.01
    lowered = lower(estimator, covers=True)
    found = path_values(*nodes_of(steps_of(lowered)[0], lowered), NEW)[:, 0]
    np.testing.assert_allclose(found.sum(axis=1), estimator.predict(NEW), atol=1e-13)


def test_rounding_and_tables_leave_the_trees_their_names_and_the_order_of_their_nodes() -> None:
    """The number of an embedded step changes in none of the plans that are made from the lowered one."""
    model = make_pipeline(
        FunctionTransformer(np.arcsinh, feature_names_out="one-to-one"),
        StandardScaler(),
        VotingRegressor([("a", DecisionTreeRegressor(max_depth=5)), ("b", RandomForestRegressor(3, max_depth=4))]),
    ).fit(X, Y)
    lowered = lower(model, X, types=row_types(X, None), covers=True)
    assert {type(step.operation) for step in lowered.plan.steps} > {TreeEnsemble}
    assert set(lowered.covers) == {step.output for step in steps_of(lowered)}
    for plan in (round_input(lowered.plan, lowered.inputs), specialise(lowered.plan, "float32")):
        others = {step.output: step.operation for step in plan.steps}
        for step in steps_of(lowered):
            assert np.array_equal(others[step.output].child, step.operation.child)  # type: ignore[attr-defined]


def test_covers_are_noted_if_they_are_asked_for() -> None:
    tree = DecisionTreeRegressor(max_depth=3).fit(X, Y)
    lowered = lower(tree)
    assert lowered.covers == {}
    message = "^DecisionTreeRegressor does not hold the training covers of its trees; use contributions='background'"
    with pytest.raises(ExportError, match=message):
        covers_of(steps_of(lowered)[0], lowered)


def test_a_model_without_covers_says_so(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    CatBoostRegressor(iterations=3, depth=3, **QUIET).fit(X, Y).save_model(path, format="json")
    document = json.loads(path.read_text())
    for tree in document["oblivious_trees"]:
        del tree["leaf_weights"]
    path.write_text(json.dumps(document))
    lowered = lower(load_estimator(path), covers=True)
    with pytest.raises(ExportError, match=r"^CatBoostRegressor does not hold the training covers"):
        covers_of(steps_of(lowered)[0], lowered)


def test_covers_that_are_no_weights_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    XGBRegressor(n_estimators=2, max_depth=2).fit(X, Y).save_model(path)
    document = json.loads(path.read_text())
    document["learner"]["gradient_booster"]["model"]["trees"][1]["sum_hessian"][2] = -7.0
    path.write_text(json.dumps(document))
    lowered = lower(load_estimator(path, missing=np.nan), covers=True)
    with pytest.raises(ExportError, match=r"^a node of XGBRegressor has the training cover -7\.0; use"):
        covers_of(steps_of(lowered)[0], lowered)
