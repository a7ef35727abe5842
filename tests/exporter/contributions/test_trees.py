"""Shapley values of trees against all coalitions, one by one, and against other libraries."""

import dataclasses
import itertools
from collections.abc import Callable
from math import factorial
from typing import Any

import numpy as np
import pytest
import shap
import torch
from catboost import CatBoostRegressor, Pool
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.tree import DecisionTreeRegressor

from tests.kernels.operations import run_kernel, run_on_cpu, run_plan, run_reference
from tests.kernels.operations_trees import symmetric_trees, tree_ensemble
from tests.kernels.ops.trees.test_tree_ensemble import leaves, walk
from triton_regressors.exporter.contributions import trees
from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.lowering.lower import lower
from triton_regressors.kernels.ops.trees.background_contributions import BackgroundContributions
from triton_regressors.kernels.ops.trees.leaf_patterns import LeafPatterns
from triton_regressors.kernels.ops.trees.path_contributions import PathContributions
from triton_regressors.kernels.ops.trees.symmetric_trees import SymmetricTrees
from triton_regressors.kernels.ops.trees.tree_contributions import TreeContributions
from triton_regressors.kernels.ops.trees.tree_ensemble import TreeEnsemble

CLOSE = 2.0**-46
"""The largest difference, relative to the sum of the leaves' sizes."""


def trees_of(estimator: Any) -> TreeEnsemble | SymmetricTrees:
    (operation,) = (
        step.operation
        for step in lower(estimator).plan.steps
        if isinstance(step.operation, TreeEnsemble | SymmetricTrees)
    )
    return operation


def tree_contributions(*arguments: Any, **game: Any) -> Any:
    """Return the operation where there is one."""
    (operation,) = trees.tree_contributions(*arguments, **game)
    return operation


def shapley(game: Callable[[tuple[int, ...]], np.ndarray], players: int) -> np.ndarray:
    """Return the Shapley values of a game `[rows, targets]`, and the value of no player as the last column."""
    values = {coalition: game(coalition) for coalition in itertools.product((0, 1), repeat=players)}
    empty = values[(0,) * players]
    found = np.zeros((*empty.shape, players + 1))
    found[:, :, -1] = empty
    for coalition, value in values.items():
        for player in np.flatnonzero(coalition):
            without = values[tuple(0 if each == player else own for each, own in enumerate(coalition))]
            others = sum(coalition) - 1
            weight = factorial(others) * factorial(players - 1 - others) / factorial(players)
            found[:, :, player] += weight * (value - without)
    return found.reshape(len(found), -1)


def interventional(
    op: TreeEnsemble, values: np.ndarray, players: np.ndarray, columns: int, x: np.ndarray, background: np.ndarray
) -> np.ndarray:
    def game(coalition: tuple[int, ...]) -> np.ndarray:
        own = np.append(coalition, 0)[players] == 1
        rows = np.where(own, x[:, None], background).reshape(-1, x.shape[1])
        mean: np.ndarray = values[leaves(op, rows)].sum(1).reshape(len(x), len(background), -1).mean(1)
        return mean

    return shapley(game, columns)


def path_dependent(
    op: TreeEnsemble, values: np.ndarray, players: np.ndarray, columns: int, x: np.ndarray, cover: np.ndarray
) -> np.ndarray:
    goes_left = [_decision(op, node) for node in range(len(op.feature))]

    def expected(node: int, row: np.ndarray, own: np.ndarray) -> np.ndarray:
        if op.feature[node] < 0:
            leaf: np.ndarray = values[op.child[node]]
            return leaf
        left, right = int(op.child[node]), int(op.child[node]) + 1
        if own[op.feature[node]]:
            return expected(left if goes_left[node](row) else right, row, own)
        whole = cover[left] + cover[right]
        share = cover[left] / whole if whole else 0.5
        mean: np.ndarray = share * expected(left, row, own) + (1 - share) * expected(right, row, own)
        return mean

    def game(coalition: tuple[int, ...]) -> np.ndarray:
        own = np.append(coalition, 0)[players] == 1
        return np.array([sum(expected(int(root), row, own) for root in op.roots) for row in x])

    return shapley(game, columns)


def _decision(op: TreeEnsemble, node: int) -> Callable[[np.ndarray], bool]:
    """Return whether the node sends a row to the left, by a tree of this node and two leaves."""
    alone = dataclasses.replace(
        op,
        feature=np.array([op.feature[node], -1, -1], np.int32),
        threshold=np.repeat(op.threshold[node], 3),
        child=np.array([1, 0, 1], np.int32),
        flags=np.repeat(op.flags[node], 3),
        roots=np.zeros(1, np.int32),
    )
    return lambda row: walk(alone, 0, row) == 0


def covers(op: TreeEnsemble, rng: np.random.Generator) -> np.ndarray:
    """Return drawn weights of nodes; some leaves, and some splits, have none."""
    return summed(op, rng.integers(0, 5, len(op.feature)).astype(np.float64))


def summed(op: TreeEnsemble, cover: np.ndarray) -> np.ndarray:
    """Return weights of leaves' nodes, added up at the nodes above."""
    for node in reversed(np.flatnonzero(op.feature >= 0)):
        cover[node] = cover[op.child[node]] + cover[op.child[node] + 1]
    return cover


def answers(op: LeafPatterns | PathContributions, x: np.ndarray, device: torch.device) -> np.ndarray:
    """Return the answers, the same bits of the kernels and of plain torch, in any batch, and near the reference."""
    op.check(x.shape[1])
    on_cpu = run_on_cpu(op, [x])
    assert run_kernel(op, [x], device, torch.float64).tobytes() == on_cpu.tobytes()
    assert np.concatenate([run_on_cpu(op, [row[None]]) for row in x]).tobytes() == on_cpu.tobytes()
    size = 0.0 if isinstance(op, TreeContributions) else CLOSE * np.abs(op.values).sum()
    allowed = op.rounding_error() if isinstance(op, PathContributions) else size
    assert np.abs(run_reference(op, [x]) - on_cpu).max() <= allowed
    return on_cpu


def close(found: np.ndarray, expected: np.ndarray, size: float, *ops: LeafPatterns | PathContributions) -> bool:
    """Return whether two forms are equal but for rounding, that of operations included."""
    own = sum(op.rounding_error() for op in ops if isinstance(op, TreeContributions | PathContributions))
    return bool(np.abs(found - expected).max() <= CLOSE * size + own)


@pytest.mark.parametrize(
    ("dtype", "sets", "rounding"), [(np.float32, 0, "trunc"), (np.float32, 4, "trunc"), (np.float64, 4, "floor")]
)
@pytest.mark.parametrize("seed", range(3))
def test_all_coalitions(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, dtype: type, sets: int, rounding: str, seed: int
) -> None:
    """Players read several columns or none, and constants are none; numbers are missing, categories or at borders."""
    op = tree_ensemble(6, 4, 4, 2, seed, dtype, sets, 0.1, words=2, rounding=rounding)
    rng, players, columns = np.random.default_rng(seed), np.array([2, 0, 1, 1, 4, -1]), 5
    x, background = (rng.choice([*op.threshold, *range(-1, 4), np.nan, -0.5], (rows, 6)) for rows in (7, 12))
    x += rng.choice([0, 1e-9], x.shape)
    x[:, 5] = background[:, 5] = 0.25
    size = np.abs(op.values).sum()
    against = tree_contributions(op, op.values, players, columns, background=background)
    found = answers(against, x, device)
    assert close(found, interventional(op, op.values, players, columns, x, background), size, against)
    additive = found.reshape(7, 2, -1).sum(2)
    assert close(additive, op.values[leaves(op, x)].sum(1), size, against)
    cover = covers(op, rng)
    expected = path_dependent(op, op.values, players, columns, x, cover)
    for most, kind in ((15, TreeContributions), (0, PathContributions)):
        monkeypatch.setattr(trees, "MOST_PLAYERS", most)
        path = tree_contributions(op, op.values, players, columns, cover=cover)
        assert isinstance(path, kind)
        assert close(answers(path, x, device), expected, size, path)
    background[::2, 5] = rng.choice(op.threshold, 6)  # constants of their own, which then miss some leaves
    expected = interventional(op, op.values, players, columns, x, background)
    monkeypatch.setattr(trees, "PATTERNS_AT_ONCE", 40)
    by_row = tree_contributions(op, op.values, players, columns, background=background)
    assert isinstance(by_row, BackgroundContributions)
    assert close(answers(by_row, x, device), expected, size)


@pytest.mark.parametrize(("largest", "bound", "few"), [(2**30, 2**30, 2), (1, 2**12, 15)])
def test_some_trees_have_tables(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, largest: int, bound: int, few: int
) -> None:
    """The others have leaves of more players, or would take too many bytes; trees may come in any order."""
    monkeypatch.setattr(trees, "MOST_PLAYERS", few)
    monkeypatch.setattr(trees, "LARGEST_TABLE", largest)
    monkeypatch.setattr(trees, "SOME_TABLES", bound)
    op = tree_ensemble(5, 9, 3, 2, seed=4, stop=0.4)
    op, rng, players = dataclasses.replace(op, roots=op.roots[::-1]), np.random.default_rng(0), np.arange(5)
    cover, x = covers(op, rng), rng.choice([*op.threshold, np.nan], (7, 5))
    tables, walked = trees.tree_contributions(op, op.values, players, 5, cover=cover)
    assert isinstance(tables, TreeContributions)
    assert isinstance(walked, PathContributions)
    assert 0 < 8 * len(tables.table) <= bound
    assert tables.players.shape[1] <= few
    found, size = answers(tables, x, device) + answers(walked, x, device), np.abs(op.values).sum()
    assert close(found, path_dependent(op, op.values, players, 5, x, cover), size, tables, walked)


def test_symmetric_trees_are_trees_that_ask_their_last_question_first(device: torch.device) -> None:
    op = symmetric_trees(4, [3, 0, 1, 4], 2, questions=9)
    nodes = []
    for depth in op.depth.tolist():
        nodes += [(level, place) for level in range(depth + 1) for place in range(1 << level)]
    first = np.cumsum([0, *(2 << op.depth[:-1]) - 1])
    feature, threshold, child, flags = [], [], [], []
    asked = leaf = 0
    for depth, root in zip(op.depth.tolist(), first.tolist(), strict=True):
        for level in range(depth + 1):
            for place in range(1 << level):
                inner = level < depth
                question = op.asked[asked + depth - 1 - level] if inner else 0
                feature.append(op.feature[question] if inner else -1)
                threshold.append(op.threshold[question])
                flags.append(inner and not op.missing[question])
                child.append(root + (2 << level) - 1 + 2 * place if inner else leaf + place)
        asked, leaf = asked + depth, leaf + (1 << depth)
    same = TreeEnsemble(
        np.array(feature, np.int32),
        np.array(threshold, np.float32),
        np.array(child, np.int32),
        np.array(flags, np.uint8),
        np.zeros((0, 1), np.int32),
        first.astype(np.int32),
        op.values,
        op.baseline,
    )
    same.check(4)
    rng, players = np.random.default_rng(0), np.array([0, 1, 1, 2])
    x, background = rng.standard_normal((2, 9, 4))
    x[3], background[2, 1] = np.nan, np.nan
    found = answers(tree_contributions(op, op.values, players, 3, background=background), x, device)
    assert (
        found.tobytes()
        == run_on_cpu(tree_contributions(same, op.values, players, 3, background=background), [x]).tobytes()
    )
    cover = covers(same, rng)
    at_leaves = np.zeros(len(op.values))
    at_leaves[same.child[same.feature < 0]] = cover[same.feature < 0]
    path = tree_contributions(op, op.values, players, 3, cover=at_leaves)
    expected = path_dependent(same, op.values, players, 3, x, cover)
    assert close(answers(path, x, device), expected, np.abs(op.values).sum(), path)


def drawn(rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, 6)).astype(np.float32)
    y = X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2]) + X[:, 3] * (X[:, 4] > 0) + 3
    return X, y + rng.standard_normal(rows) / 10


@pytest.mark.parametrize(
    "estimator",
    [
        DecisionTreeRegressor(max_depth=5),
        RandomForestRegressor(8, max_depth=5, max_features=3, bootstrap=False, random_state=0),
        GradientBoostingRegressor(n_estimators=12, max_depth=4, random_state=0),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_shap_has_the_same_answers(device: torch.device, estimator: Any) -> None:
    X, y = drawn(400)
    model = estimator.fit(X, y)
    op = trees_of(model)
    assert isinstance(op, TreeEnsemble)
    cover = np.zeros(len(op.feature))
    cover[op.feature < 0] = np.bincount(leaves(op, X).ravel(), minlength=len(op.values))[op.child[op.feature < 0]]
    values = op.values / op.divisor
    size = np.abs(values).sum()
    for game, options in (
        ({"cover": summed(op, cover)}, {"feature_perturbation": "tree_path_dependent"}),
        ({"background": X[:30].astype(float)}, {"data": X[:30], "feature_perturbation": "interventional"}),
    ):
        ours = tree_contributions(op, values, np.arange(6), 6, **game)  # type: ignore[arg-type]
        found = answers(ours, X[:20].astype(float), device)
        explainer = shap.TreeExplainer(model, **options)
        assert np.abs(found[:, :6] - explainer.shap_values(X[:20], check_additivity=False)).max() < 1e-5
        base = float(np.ravel(explainer.expected_value)[0]) - op.baseline[0] / op.divisor
        assert abs(found[0, 6] - base) < 1e-5
        total = found.sum(1) + op.baseline[0] / op.divisor
        assert close(total, model.predict(X[:20]), size + abs(float(op.baseline[0])), ours)


def test_categories_and_missing_numbers(device: torch.device) -> None:
    X, y = drawn(300)
    X = X.astype(float)
    X[:, 4] = np.random.default_rng(1).integers(0, 5, 300)
    X[::7, 0] = np.nan
    model = HistGradientBoostingRegressor(max_iter=5, max_leaf_nodes=8, categorical_features=[4], random_state=0)
    plan = lower(model.fit(X, y + (X[:, 4] == 2))).plan
    *_, (op, inputs) = ((step.operation, step.inputs) for step in plan.steps)
    assert isinstance(op, TreeEnsemble)
    given = run_plan(dataclasses.replace(plan, outputs={"given": inputs[0]}), X)["given"]
    players = np.array([0, 1, 2, 3, 4, 5, 4])  # a lookup makes one column more of the categories
    x, background = given[15:25], given[:15]
    ours, size = tree_contributions(op, op.values, players, 6, background=background), np.abs(op.values).sum()
    found = answers(ours, x, device)
    assert close(found, interventional(op, op.values, players, 6, x, background), size, ours)
    assert close(found.sum(1) + op.baseline, model.predict(X[15:25]), size + abs(op.baseline[0]), ours)


def test_catboost_has_the_same_answers(device: torch.device) -> None:
    X, y = drawn(300)
    options = {"verbose": 0, "random_seed": 0, "thread_count": 1, "allow_writing_files": False}
    model = CatBoostRegressor(iterations=10, depth=4, **options).fit(X, y)
    op = trees_of(model)
    assert isinstance(op, SymmetricTrees)
    weights = np.array(model.get_leaf_weights(), dtype=float)
    found = answers(tree_contributions(op, op.values, np.arange(6), 6, cover=weights), X[:20].astype(float), device)
    expected = model.get_feature_importance(Pool(X[:20]), type="ShapValues")
    assert np.abs(found[:, :6] - expected[:, :6]).max() < 1e-6


def test_what_is_alike_in_all_leaves_of_a_tree_costs_no_bits() -> None:
    """Leaves of a forest for large targets are near each other."""
    op, rng = tree_ensemble(4, 6, 4), np.random.default_rng(0)
    op.values[:] = np.ldexp(np.rint(np.ldexp(op.values, 20)), -20)  # large numbers can be added to them exactly
    x, background = rng.standard_normal((2, 10, 4))
    near, far = (
        run_on_cpu(tree_contributions(op, op.values + far, np.arange(4), 4, background=background), [x])
        for far in (0.0, 2.0**20)
    )
    assert np.abs(near - far)[:, :4].max() <= CLOSE * np.abs(op.values).sum()
    assert np.allclose(far[:, 4] - near[:, 4], 6 * 2.0**20, rtol=1e-12)


def test_trees_without_players_are_the_base(device: torch.device) -> None:
    x = np.zeros((3, 2))
    op = tree_ensemble(2, 3, 0, 2)
    found = answers(tree_contributions(op, op.values, np.arange(2), 2, background=x), x, device)
    assert np.array_equal(found, np.repeat([[0, 0, op.values[:, 0].sum(), 0, 0, op.values[:, 1].sum()]], 3, axis=0))
    op = tree_ensemble(2, 1, 0)  # one leaf in all
    single = tree_contributions(op, op.values, np.arange(2), 2, cover=np.ones(1))
    assert np.array_equal(answers(single, x, device), np.repeat([[0, 0, op.values.item()]], 3, axis=0))
    op = tree_ensemble(2, 3, 3, stop=0.0)
    constant = tree_contributions(op, op.values, np.array([-1, -1]), 1, background=x)
    assert np.allclose(answers(constant, x, device), [[0, op.values[leaves(op, x[:1])].sum()]])


def test_tables_that_are_too_large_are_left_to_patterns_of_the_background_rows() -> None:
    op, background = tree_ensemble(600, 16, 10, stop=0.0), np.random.default_rng(0).standard_normal((5, 600))
    found = tree_contributions(op, op.values, np.arange(600), 600, background=background)
    assert isinstance(found, BackgroundContributions)
    assert len(found.unmet) <= 5 * len(op.values)


def test_trees_that_are_too_large_for_a_background_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    op = tree_ensemble(600, 2, 11, stop=0.0)
    monkeypatch.setattr(trees, "LARGEST_TABLE", 12 * 2**12)
    with pytest.raises(
        ExportError, match=r"patterns of 3 background rows at 4,096 leaves take more than .*; give fewer"
    ):
        tree_contributions(
            op, op.values, np.arange(600), 600, background=np.random.default_rng(0).normal(size=(3, 600))
        )
    monkeypatch.setattr(BackgroundContributions, "MOST", 10)
    with pytest.raises(ExportError, match=r"a leaf of the trees depends on 11 columns, .* at most 10"):
        tree_contributions(op, op.values, np.arange(600), 600, background=np.zeros((1, 600)))


def test_leaves_are_looked_up_together_where_that_takes_no_more_numbers() -> None:
    """Two leaves below a split share all other conditions, and a symmetric tree asks as little as one of its leaves."""
    rng = np.random.default_rng(0)
    op = tree_ensemble(60, 9, 6, stop=0.0)
    found = tree_contributions(op, op.values, np.arange(60), 60, background=rng.standard_normal((9, 60)))
    assert len(found.asked) < 9 * 2**5
    assert found.table.size <= 9 * 2**6 * 6 * 2**6
    sums = np.zeros(61)
    for conditions, players, own in found.groups:
        numbers = found.table[: (own.stop - own.start) * players << conditions].reshape(-1, 1 << conditions)
        shift = found.shift[: len(numbers)]
        np.add.at(sums, found.outputs_of(own, players).ravel(), np.ldexp(np.abs(numbers).max(1), shift))
        found = dataclasses.replace(found, table=found.table[numbers.size :], shift=found.shift[len(numbers) :])
    assert 2**50 < sums.max() < 2**53
    symmetric = symmetric_trees(60, [6] * 9, questions=200)
    whole = tree_contributions(symmetric, symmetric.values, np.arange(60), 60, background=rng.standard_normal((9, 60)))
    assert len(whole.asked) == 9


@pytest.mark.parametrize("game", ["cover", "background"])
def test_conditions_that_most_rows_meet_or_most_do_not_are_the_highest_bits(game: str) -> None:
    X, y = drawn(2000)
    op = trees_of(GradientBoostingRegressor(n_estimators=10, max_depth=6, random_state=0).fit(X, y))
    assert isinstance(op, TreeEnsemble)
    cover = np.zeros(len(op.feature))
    cover[op.feature < 0] = np.bincount(leaves(op, X).ravel(), minlength=len(op.values))[op.child[op.feature < 0]]
    given = {"cover": {"cover": summed(op, cover)}, "background": {"background": X[:200].astype(float)}}[game]
    found = tree_contributions(op, op.values, np.arange(6), 6, **given)
    patterns = found.patterns(torch.from_numpy(X)).numpy().astype(np.int64)
    some = np.flatnonzero(found.depth >= 4)
    assert len(some) > 50
    lowest, highest = (
        np.abs((patterns[some] >> bit & 1).mean(axis=1) - 0.5)
        for bit in (np.zeros((len(some), 1), np.int64), found.depth[some, None] - 1)
    )
    assert (highest - lowest).mean() > 0.1
    assert (highest >= lowest - 0.05).mean() > 0.8


def test_forests_that_were_grown_out(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves depend on more columns than tables can have."""
    monkeypatch.setattr(trees, "MOST_PLAYERS", 10)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((250, 30)).astype(np.float32)
    y = X @ rng.standard_normal(30) + X[:, 0] * X[:, 1]
    model = RandomForestRegressor(2, max_features=1, bootstrap=False, random_state=0).fit(X, y)
    op = trees_of(model)
    assert isinstance(op, TreeEnsemble)
    cover = np.zeros(len(op.feature))
    cover[op.feature < 0] = np.bincount(leaves(op, X).ravel(), minlength=len(op.values))[op.child[op.feature < 0]]
    path = tree_contributions(op, op.values / op.divisor, np.arange(30), 30, cover=summed(op, cover))
    assert isinstance(path, PathContributions)
    assert path.players_of_leaves().max() > 10
    assert path.rounding_error() < 1e-6 * y.std()
    found = answers(path, X[:4].astype(float), device)
    explainer = shap.TreeExplainer(model, feature_perturbation="tree_path_dependent")
    assert np.abs(found[:, :30] - explainer.shap_values(X[:4], check_additivity=False)).max() < 1e-5
    assert close(found.sum(1) + op.baseline / op.divisor, model.predict(X[:4]), np.abs(op.values).sum(), path)
    background = X[100:120].astype(float)
    rows = tree_contributions(op, op.values / op.divisor, np.arange(30), 30, background=background)
    assert isinstance(rows, BackgroundContributions)
    found = answers(rows, X[:4].astype(float), device)
    explainer = shap.TreeExplainer(model, shap.maskers.Independent(background))
    assert np.abs(found[:, :30] - explainer.shap_values(X[:4], check_additivity=False)).max() < 1e-5
    assert close(found.sum(1) + op.baseline / op.divisor, model.predict(X[:4]), np.abs(op.values).sum())
