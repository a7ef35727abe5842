"""Trees decide as scikit-learn does: at their thresholds and beside them, for NaN, and for any category."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import (
    AdaBoostRegressor,
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
    RandomTreesEmbedding,
)
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor, ExtraTreeRegressor

from tests.exporter.catalogue.cases_trees import with_categories
from tests.exporter.data import several_targets, small
from tests.kernels.operations import run_plan
from triton_regressors.exporter.estimators.trees import fitted_trees
from triton_regressors.exporter.lowering import tree_nodes
from triton_regressors.exporter.lowering.builder import Builder
from triton_regressors.exporter.lowering.tree_nodes import Trees, arrange, round_down
from triton_regressors.exporter.passes.optimise import optimise
from triton_regressors.kernels.ops.columns.elementwise import Elementwise
from triton_regressors.kernels.ops.trees.nodes import CATEGORICAL
from triton_regressors.kernels.ops.trees.tree_ensemble import TreeEnsemble
from triton_regressors.kernels.plan.plan import Plan

Answer = Callable[[np.ndarray], np.ndarray]


def lowered(estimator: Any, between: bool = False) -> Plan:
    """Return the estimator's plan; `between` steps its input is a float64 value, equal to X, and not X itself."""
    builder = Builder(estimator.n_features_in_)
    x = builder.scale(builder.input, 0.0, 1.0) if between else builder.input
    return builder.plan(builder.lower_outputs(estimator, x))


def check(estimator: Any, X: np.ndarray, between: bool = False) -> None:
    """The plan's float64 answers are the estimator's to 1e-12 standard deviations."""
    expected = np.asarray(estimator.predict(X.astype(np.float64)), dtype=np.float64).reshape(len(X), -1)
    found = run_plan(lowered(estimator, between), X)["y"]
    assert found.shape == expected.shape
    assert (np.abs(found - expected) <= 1e-12 * np.maximum(expected.std(axis=0), 1e-300)).all()


def beside_thresholds(X: np.ndarray, trees: list[Any], dtype: type = np.float32) -> np.ndarray:
    """Return rows that come to each node of `sklearn.tree` trees with its threshold, and the numbers on both sides."""
    rows = []
    for tree in trees:
        path = tree.decision_path(X.astype(np.float32))
        for node in np.flatnonzero(tree.children_left >= 0)[:60]:
            at, feature = path[:, [node]].toarray().argmax(), tree.feature[node]
            rows.append(numbers_about(X[at], feature, tree.threshold[node], dtype))
    return np.concatenate(rows)


def numbers_about(row: np.ndarray, feature: int, threshold: float, dtype: type) -> np.ndarray:
    """Return copies of the row with three neighbouring numbers of a dtype around a threshold."""
    middle = dtype(threshold)
    rows = np.repeat(row[None].astype(dtype), 3, axis=0)
    rows[:, feature] = np.nextafter(middle, dtype(-np.inf)), middle, np.nextafter(middle, dtype(np.inf))
    return rows


def grown(estimator: Any, data: Any = small) -> tuple[Any, np.ndarray]:
    X, y = data()
    return estimator.fit(X, y), X


def number_leaves(tree: Any) -> None:
    """Let a fitted tree predict the number of the node that a row arrives at."""
    tree.tree_.value[:, 0, 0] = np.arange(tree.tree_.node_count)


@pytest.mark.parametrize(
    "tree",
    [
        DecisionTreeRegressor(),
        DecisionTreeRegressor(min_samples_leaf=7),
        DecisionTreeRegressor(splitter="random", random_state=1),
        ExtraTreeRegressor(random_state=1),
        DecisionTreeRegressor(max_depth=1),
    ],
)
def test_rows_at_a_threshold_arrive_at_the_same_leaf(tree: Any) -> None:
    tree, X = grown(tree)
    number_leaves(tree)
    rows = beside_thresholds(X, [tree.tree_])
    for between in (False, True):
        found = run_plan(lowered(tree, between), rows)["y"][:, 0]
        assert np.array_equal(found, tree.apply(rows.astype(np.float64)))


def test_neighbouring_float32_training_numbers_keep_their_sides() -> None:
    """A threshold between two neighbours in float32 is the lower one: nothing may round it up."""
    x = 2**20 + np.arange(12, dtype=np.float32) / 8
    tree = DecisionTreeRegressor().fit(x[:, None], np.arange(12.0))
    assert np.array_equal(run_plan(lowered(tree), x[:, None])["y"][:, 0], np.arange(12.0))
    check(tree, x[:, None], between=True)


def test_values_between_steps_are_cast_to_float32_as_scikit_learn_does() -> None:
    tree, X = grown(DecisionTreeRegressor())
    number_leaves(tree)
    rows = beside_thresholds(X, [tree.tree_], np.float64)
    halves = rows.copy()  # halfway between two float32 numbers
    halves[::3] = (np.nextafter(rows[::3].astype(np.float32), np.float32(np.inf)) + rows[::3].astype(np.float32)) / 2.0
    for X64 in (rows, halves):
        assert np.array_equal(run_plan(lowered(tree, between=True), X64)["y"][:, 0], tree.apply(X64))


def test_thresholds_are_rounded_down() -> None:
    rng = np.random.default_rng(0)
    thresholds = rng.standard_normal(2000) * 10.0 ** rng.integers(-50, 50, 2000)
    thresholds = np.append(thresholds, [0.0, -0.0, np.inf, 1e300, -1e300, 0.1, -0.1, 1.5])
    rounded = round_down(thresholds)
    with np.errstate(over="ignore"):
        above = np.nextafter(rounded, np.float32(np.inf)).astype(np.float64)
    assert (rounded.astype(np.float64) <= thresholds).all()
    assert ((above > thresholds) | (thresholds == np.inf)).all()


FORESTS = {
    "forest": RandomForestRegressor(6, random_state=0),
    "extra trees": ExtraTreesRegressor(6, random_state=0),
    "gradient boosting": GradientBoostingRegressor(n_estimators=6, max_depth=5),
    "gradient boosting on a tree": GradientBoostingRegressor(n_estimators=6, init=DecisionTreeRegressor(max_depth=6)),
    "boosted trees": AdaBoostRegressor(DecisionTreeRegressor(max_depth=6), n_estimators=6, random_state=0),
    "boosted pipelines": AdaBoostRegressor(make_pipeline(DecisionTreeRegressor()), n_estimators=4, random_state=0),
}


@pytest.mark.parametrize("name", FORESTS)
def test_ensembles_at_their_thresholds(name: str) -> None:
    estimator, X = grown(FORESTS[name])
    members = [getattr(member, "steps", [(0, member)])[-1][1] for member in np.ravel(estimator.estimators_)]
    rows = beside_thresholds(X, [member.tree_ for member in members[:3]])
    check(estimator, rows)
    check(estimator, rows.astype(np.float64), between=True)


def test_several_targets_at_their_thresholds() -> None:
    forest, X = grown(RandomForestRegressor(5, random_state=0), several_targets)
    check(forest, beside_thresholds(X, [tree.tree_ for tree in forest.estimators_]))


def test_embedding_at_its_thresholds() -> None:
    embedding, X = grown(RandomTreesEmbedding(4, max_depth=6, random_state=0))
    rows = beside_thresholds(X, [tree.tree_ for tree in embedding.estimators_])
    found = run_plan(lowered(embedding), rows)["y"]
    assert np.array_equal(found, embedding.transform(rows.astype(np.float64)).toarray())


@pytest.mark.parametrize("loss", ["squared_error", "poisson"])
def test_hist_gradient_boosting_at_its_thresholds(loss: str) -> None:
    """In float32 on the plan's input; in float64, unrounded, between steps."""
    X, y = small()
    model = HistGradientBoostingRegressor(max_iter=5, loss=loss).fit(X, y - y.min() + 1)
    nodes = np.concatenate([predictor.nodes for (predictor,) in model._predictors])
    inner = nodes[nodes["is_leaf"] == 0]
    rng = np.random.default_rng(0)
    for dtype, between in ((np.float32, False), (np.float32, True), (np.float64, True)):
        rows = [numbers_about(X[rng.integers(len(X))], n["feature_idx"], n["num_threshold"], dtype) for n in inner]
        check(model, np.concatenate(rows), between)


def with_holes(X: np.ndarray, seed: int = 0) -> np.ndarray:
    holes = np.array(X, dtype=np.float64)
    holes[np.random.default_rng(seed).random(X.shape) < 0.2] = np.nan
    return holes


NAN = {
    "tree": DecisionTreeRegressor(),
    "tree absolute": DecisionTreeRegressor(criterion="absolute_error", max_depth=4),
    "tree random": DecisionTreeRegressor(splitter="random", random_state=0),
    "extra tree": ExtraTreeRegressor(random_state=0),
    "forest": RandomForestRegressor(6, random_state=0),
    "extra trees": ExtraTreesRegressor(6, random_state=0),
    "hist": HistGradientBoostingRegressor(max_iter=8),
    "embedding": make_pipeline(RandomTreesEmbedding(4, random_state=0), Ridge()),
    "scaled forest": make_pipeline(StandardScaler(), RandomForestRegressor(4, random_state=0)),
    "scaled hist": make_pipeline(StandardScaler(), HistGradientBoostingRegressor(max_iter=8)),
}


@pytest.mark.parametrize("fitted_on_nan", [True, False])
@pytest.mark.parametrize("name", NAN)
def test_nan_goes_where_scikit_learn_sends_it(name: str, fitted_on_nan: bool) -> None:
    X, y = small()
    estimator = NAN[name].fit(with_holes(X) if fitted_on_nan else X, y)
    rows = np.concatenate([with_holes(X, 1), np.full((1, X.shape[1]), np.nan), X[:20]]).astype(np.float32)
    check(estimator, rows)


def test_a_split_between_numbers_and_nan() -> None:
    """Its threshold is infinite: every number goes one way, NaN the other."""
    X = np.array([[1.0], [2], [3], [np.nan], [np.nan], [np.nan]])
    for estimator in (
        DecisionTreeRegressor(max_depth=1),
        HistGradientBoostingRegressor(max_iter=1, max_leaf_nodes=2, min_samples_leaf=1),
    ):
        estimator.fit(X, [0.0, 0, 0, 5, 5, 5])
        rows = np.array([[-3e38], [0], [3e38], [np.nan]], dtype=np.float32)
        assert len(np.unique(estimator.predict(rows.astype(np.float64)))) == 2
        check(estimator, rows)
        check(estimator, rows.astype(np.float64), between=True)


@pytest.mark.parametrize("missing", [True, False])
def test_categories_known_unknown_and_missing(missing: bool) -> None:
    X, y = with_categories()
    trained = with_holes(X) if missing else X
    model = HistGradientBoostingRegressor(max_iter=9, categorical_features=[1, 2], min_samples_leaf=4).fit(trained, y)
    asked = [-3, -2, -1, 0, 3, 9, 10, 255, 256, 1e9, -1e9, 0.25, 0.5, 0.3, np.float32(0.1), 1.25, np.nan]
    rows = np.repeat(X[:8], len(asked) ** 2, axis=0).astype(np.float32)
    rows[:, 1:3] = np.tile(np.stack(np.meshgrid(asked, asked), axis=-1).reshape(-1, 2), (8, 1))
    rows[::3, 0] = np.nan
    check(model, rows)
    check(model, rows, between=True)


def test_a_category_column_that_was_always_missing() -> None:
    X, y = with_categories()
    X = X.copy()
    X[:, 1] = np.nan
    model = HistGradientBoostingRegressor(max_iter=4, categorical_features=[1, 2], min_samples_leaf=4).fit(X, y)
    rows = X.astype(np.float32)
    rows[::2, 1] = 3
    check(model, rows)


def test_many_categories() -> None:
    """255 of them, the most that there can be, so that every word of a set is used."""
    rng = np.random.default_rng(0)
    kind = np.arange(2550) % 255
    effect = rng.permutation(255)
    model = HistGradientBoostingRegressor(max_iter=3, categorical_features=[0], min_samples_leaf=1)
    model.fit(np.column_stack([kind * 3 - 100, rng.standard_normal(2550)]), effect[kind] + rng.standard_normal(2550))
    asked = np.arange(-110, 700, dtype=np.float32)
    check(model, np.column_stack([asked, np.zeros_like(asked)]))


def test_a_deep_and_narrow_tree() -> None:
    """The target grows so fast that each split takes the last row off."""
    X = np.arange(60, dtype=np.float64)[:, None]
    tree = DecisionTreeRegressor().fit(X, 4.0 ** np.arange(60))
    assert tree.get_depth() > 40
    assert tree.get_n_leaves() == 60
    check(tree, np.arange(-1, 61, 0.25, dtype=np.float32)[:, None])


def test_initial_predictions_in_float32_differ_by_no_more_than_their_rounding() -> None:
    """`GradientBoostingRegressor` casts to float32, and a Ridge computes in float32 what it is given in float32."""
    X, y = small()
    model = GradientBoostingRegressor(n_estimators=5, init=Ridge()).fit(X, y)
    assert model.init_.coef_.dtype == np.float32
    rows = X.astype(np.float32)
    terms = np.abs(rows.astype(np.float64)) @ np.abs(model.init_.coef_) + np.abs(model.init_.intercept_)
    difference = np.abs(run_plan(lowered(model), rows)["y"][:, 0] - model.predict(rows.astype(np.float64)))
    assert (difference <= (X.shape[1] + 1) * 2.0**-24 * terms).all()


@pytest.mark.parametrize("weights", [[1.0, 1, 1, 1], [0.1, 0.1, 0.1, 0.1], [3.0, 1, 1, 1], [0.0, 0, 0, 0]])
def test_ada_boost_medians_on_the_edge_between_two(weights: list[float]) -> None:
    estimator, X = grown(AdaBoostRegressor(DecisionTreeRegressor(max_depth=2), n_estimators=4, random_state=0))
    assert len(estimator.estimators_) == 4
    estimator.estimator_weights_ = np.array(weights)
    check(estimator, X.astype(np.float32))


def test_a_scale_is_noted_from_the_thresholds() -> None:
    X, y = several_targets()
    builder = Builder(X.shape[1])
    builder.lower(RandomForestRegressor(10, random_state=0).fit(X, y), builder.input)
    assert builder.profile.location is not None
    assert builder.profile.scale is not None
    assert (np.abs(builder.profile.location - X.mean(axis=0)) < 0.5 * X.std(axis=0)).all()
    assert (np.abs(np.log2(builder.profile.scale / X.std(axis=0))) < 1).all()


def test_trees_of_like_depth_are_neighbours_where_they_are_summed() -> None:
    forest, _ = grown(RandomForestRegressor(20, random_state=0))
    op = lowered(forest).steps[0].operation
    assert isinstance(op, TreeEnsemble)
    nodes = np.diff(np.append(op.roots, len(op.feature)))
    by_depth = sorted(forest.estimators_, key=lambda tree: tree.get_depth())
    assert nodes.tolist() == [tree.tree_.node_count for tree in by_depth]


@pytest.mark.parametrize("several", [False, True])
def test_ordered_sums_are_loops_in_float32_whatever_folds_into_them(several: bool) -> None:
    """Columns in front and a function behind are folded in; each tree adds to one output alone, or to all."""
    X, y = several_targets() if several else small()
    forest = RandomForestRegressor(12, max_depth=5, random_state=0).fit(X[:, ::-1], y)
    baseline, output_of_tree = np.array([0.1, -3, 7], dtype=np.float32), np.arange(12) % 3
    if several:
        baseline = np.full(y.shape[1], 0.1, dtype=np.float32)
    trees = fitted_trees(forest.estimators_)
    ensemble = arrange(trees, output="ordered", baseline=baseline, output_of_tree=None if several else output_of_tree)
    assert ensemble.values.dtype == np.float32
    total = np.repeat(baseline[None], len(X), axis=0)
    for tree, column in zip(forest.estimators_, output_of_tree, strict=True):
        values = tree.predict(X[:, ::-1]).reshape(len(X), -1).astype(np.float32)
        total[:, slice(None) if several else slice(column, column + 1)] += values
    builder = Builder(X.shape[1])
    sums = builder.add(ensemble, builder.columns(builder.input, np.arange(X.shape[1])[::-1]))
    plan = builder.plan({"y": builder.add(Elementwise("square"), sums)})
    for steps, optimised in ((3, plan), (1, optimise(plan, X.astype(np.float32), 1e-6).stages[-1][1])):
        assert len(optimised.steps) == steps
        assert np.array_equal(run_plan(optimised, X.astype(np.float32))["y"], total.astype(np.float64) ** 2)


def test_sets_of_categories_that_are_alike_are_kept_once() -> None:
    """Each tree's root asks for one of 2,000 categories or several, and two of the trees for the same."""
    left = [[0, 31, 1999], [7], [0, 31, 1999], [-1, *range(5, 2000, 3)]]  # −1 is the last bit: what is no category
    bits = np.zeros((4, 2016), dtype=np.uint8)
    for row, categories in zip(bits, left, strict=True):
        row[categories] = 1
    root = np.tile([True, False, False], 4)
    threshold = np.where(root, np.repeat(np.arange(4.0), 3), 0.0)
    trees = Trees(
        sizes=np.full(4, 3),
        feature=np.zeros(12, dtype=np.int32),
        threshold=threshold,
        left=np.where(root, 1, -1),
        right=np.where(root, 2, -1),
        flags=np.where(root, CATEGORICAL, 0).astype(np.uint8),
        value=np.array([1.0, 0, 10, 0, 100, 0, 1000, 0])[:, None],
        sets=np.packbits(bits, axis=1, bitorder="little").view(np.int32),
    )
    ensemble = arrange(trees)
    assert ensemble.sets.shape == (3, 63)
    X = np.array([-1e9, -1, *range(2020), 7.75, 2**24, np.nan], dtype=np.float32)[:, None]
    asked = np.nan_to_num(np.where((X >= 0) & (X < 2015), np.trunc(X), 2015), nan=2015).astype(int)
    expected = np.where(np.isnan(X), 0, (bits[:, asked[:, 0]].T * [1, 10, 100, 1000]).sum(axis=1, keepdims=True))
    for each in (ensemble, arrange(trees, exact=True)):
        builder = Builder(1)
        assert np.array_equal(run_plan(builder.plan({"y": builder.add(each, builder.input)}), X)["y"], expected)


def test_what_does_not_take_nan_is_not_asked_to() -> None:
    """The tests above cover every estimator of the family that takes NaN."""
    X, y = small()
    for estimator in (GradientBoostingRegressor(n_estimators=2), AdaBoostRegressor(n_estimators=2)):
        estimator.fit(X, y)
        with pytest.raises(ValueError, match="NaN"):
            estimator.predict(with_holes(X))


@pytest.mark.parametrize("output", ["sum", "ordered", "each", "leaves"])
def test_trees_laid_out_some_at_a_time_are_laid_out_alike(output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = small()
    forest = RandomForestRegressor(30, max_depth=6, random_state=0).fit(X, y)
    unequal = [*forest.estimators_, DecisionTreeRegressor().fit(X, y), DecisionTreeRegressor(max_depth=1).fit(X, y)]
    trees = fitted_trees([unequal[-1], *unequal])
    whole = dict(arrange(trees, output=output).arrays())
    monkeypatch.setattr(tree_nodes, "NODES_AT_ONCE", 50)
    for name, array in arrange(trees, output=output).arrays():
        np.testing.assert_array_equal(array, whole[name])
    assert len(whole["roots"]) == 33


def test_numbers_that_do_not_fit_in_16_bits_keep_32() -> None:
    assert tree_nodes.narrow(np.array([-1, 2**15 - 1])).dtype == np.int16
    assert tree_nodes.narrow(np.array([-1, 2**15])).tolist() == [-1, 2**15]
    assert tree_nodes.narrow(np.zeros(0, dtype=np.int64)).dtype == np.int16
