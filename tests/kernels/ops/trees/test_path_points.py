"""How many points tips need: bounds of errors, and what is allowed by them."""

import dataclasses

import numpy as np
import pytest

from tests.kernels.operations import run_on_cpu, run_reference
from tests.kernels.operations_trees import path_contributions
from triton_regressors.kernels.ops.trees import path_points
from triton_regressors.kernels.ops.trees.path_contributions import PathContributions


def integrals(a: np.ndarray, r: np.ndarray, points: int) -> np.ndarray:
    """Return what the rule finds for each player of a leaf of the value 1, `[rows, players]`; `a` has such a shape."""
    at, weights = np.polynomial.legendre.leggauss(points)
    t = ((at + 1) / 2)[:, None, None]
    factors = t * a + (1 - t) * r  # [points, rows, players]
    others = [np.delete(factors, player, axis=2).prod(axis=2) for player in range(len(r))]
    return np.einsum("p,kpr->rk", weights / 2, np.stack(others)) * (a - r)


def chain(players: int, trees: int = 1, seed: int = 0) -> PathContributions:
    """Return trees whose nodes each ask another player; their left child is a leaf, and the last leaf has all."""
    rng, nodes = np.random.default_rng(seed), 2 * players + 1
    inner, every = 2 * np.arange(players), np.arange(trees)[:, None]
    feature, child = np.full((trees, nodes), -1, np.int32), np.zeros((trees, nodes), np.int32)
    feature[:, inner], child[:, inner] = np.arange(players), every * nodes + inner + 1
    child[feature < 0] = np.arange(trees * (players + 1))
    feature = feature.ravel()
    return PathContributions(
        feature,
        rng.standard_normal(len(feature)).astype(np.float32),
        child.ravel(),
        flags=np.zeros(len(feature), np.uint8),
        sets=np.zeros((0, 1), np.int32),
        roots=(every * nodes).ravel().astype(np.int32),
        player=np.maximum(feature, 0),
        share=rng.uniform(0.3, 0.7, len(feature)),
        values=rng.standard_normal((trees * (players + 1), 2)) * [1, 100],
        base=np.zeros(2),
        columns=players,
        rounding="trunc",
    )


@pytest.mark.parametrize("points", [4, 8, 12])
@pytest.mark.parametrize("players", range(9, 25))
def test_errors_of_rules_are_within_their_bounds(players: int, points: int) -> None:
    rng = np.random.default_rng(players)
    drawn = rng.uniform(0, 1, (players, 5))
    drawn[:, 1] = rng.uniform(0, 0.1, players)
    drawn[:, 2] = rng.uniform(0.9, 1, players)
    drawn[:, 3:] = [0.5, 1.0]
    (bounds,) = path_points.largest_errors(drawn, [points])
    a = np.append(rng.integers(0, 2, (200, players)), [[0] * players, [1] * players], axis=0)
    a = np.append(a, rng.random((200, players)) < 0.9, axis=0)
    for r, bound in zip(drawn.T, bounds, strict=True):
        error = np.abs(integrals(a, r, points) - integrals(a, r, 20)).max()
        assert error <= bound + 2e-15  # NumPy has points and weights to about 1e-15
    assert (bounds > 0).all() == (players > 2 * points)


@pytest.mark.parametrize(("r", "bound"), [(0.5, 1e-11), (0.0, 1e-8), (1.0, 1e-8)])
def test_bounds_are_small(r: float, bound: float) -> None:
    assert path_points.largest_errors(np.full((17, 1), r), [8]).item() < bound


def test_bounds_know_the_player_that_is_left_out_and_all_patterns() -> None:
    """All patterns of few players, with the one whose absence matters most first, in the middle and last."""
    a = np.array(np.meshgrid(*[[0, 1]] * 9)).reshape(9, -1).T
    for place in (0, 4, 8):
        r = np.full(9, 0.5)
        r[place] = 0.98
        (bound,) = path_points.largest_errors(r[:, None], [4])
        error = np.abs(integrals(a, r, 4) - integrals(a, r, 20)).max()
        assert error <= bound[0] <= 10**5 * error


def test_probabilities_of_leaves_are_those_at_the_lowest_node_of_each_player() -> None:
    """Leaves whose paths ask some players again, and a constant."""
    op = path_contributions(8, 5, 3, 7, seed=3)
    trees = op._trees
    expected: dict[int, list[float]] = {}

    def walk(node: int, met: dict[int, float]) -> None:
        child, player, share = int(op.child[node]), int(op.player[node]), float(op.share[node])
        if op.feature[node] < 0:
            expected[node] = sorted(met.values())
            return
        for below, probability in ((child, share), (child + 1, 1 - share)):
            walk(below, met if player == op.columns else met | {player: met.get(player, 1.0) * probability})

    for root in op.roots.tolist():
        walk(root, {})
    leaf = np.flatnonzero(~trees.inner & (trees.players > 0))
    found = path_points.errors_of_leaves(trees, leaf, [1, 2])
    assert len(np.unique(trees.players[leaf])) > 1
    assert (trees.depth[leaf] > trees.players[leaf]).any()
    for at, node in enumerate(leaf):
        r = np.array(expected[int(trees.node[node])])[:, None]
        assert found[:, at] == pytest.approx(path_points.largest_errors(r, [1, 2])[:, 0], rel=1e-12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(path_points, "LEAVES_TOGETHER", 1)
        assert np.array_equal(path_points.errors_of_leaves(trees, leaf, [1, 2]), found)


def test_tips_have_fewer_points_where_errors_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    op = chain(18, trees=3)
    op.check(18)
    exact = dataclasses.replace(op)
    assert "columns, 8 points" in op.describe()
    x = np.random.default_rng(0).standard_normal((40, 18)).astype(np.float32) - np.float32(1.5)
    found = run_on_cpu(op, [x])
    monkeypatch.setattr(path_points, "LARGEST_ERROR", 0.0)
    assert "columns, 8 and 16 points" in exact.describe()
    known = run_on_cpu(exact, [x])
    assert not np.array_equal(found, known)
    assert np.abs(found - known).max() <= op.rounding_error()
    assert np.abs(found - run_reference(op, [x])).max() <= op.rounding_error()


@pytest.mark.parametrize("share", [0.1, 0.6, 1.0])
def test_errors_of_the_tips_of_a_tree_stay_within_what_is_allowed(
    monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    """Many tips of few players that would have 4 points, of which only some may."""
    monkeypatch.setattr(path_points, "POINTS", np.array([2, 3, 4]))
    op = path_contributions(8, 7, 4, 9, seed=1, outputs=2)
    trees, tips = op._trees, op._tips
    asks = ~trees.inner & (trees.players > 0)
    held = np.random.default_rng(0).uniform(0, 1, len(asks)) * asks
    leaf = np.flatnonzero(asks)
    tip = np.searchsorted(tips.node, leaf, side="right") - 1

    def totals(points: np.ndarray) -> np.ndarray:
        errors = path_points.errors_of_leaves(trees, leaf, [2, 3, 4]) * held[leaf]
        own = errors[np.searchsorted([2, 3, 4], points[tip]), np.arange(len(leaf))]
        return np.bincount(trees.tree[leaf], own)

    monkeypatch.setattr(path_points, "LARGEST_ERROR", 0.0)
    exact = path_points.points_needed(trees, tips, asks, held, 2)
    assert totals(exact).max() == 0
    allowed = share * float(totals(np.full(len(exact), 2)).max())
    monkeypatch.setattr(path_points, "LARGEST_ERROR", allowed)
    found = path_points.points_needed(trees, tips, asks, held, 2)
    assert (found <= exact).all()
    assert (found < exact).any()
    assert totals(found).max() <= allowed * (1 + 1e-12)
    assert ((found[found > 0] == 2).all()) == (share == 1)
    if share < 1:
        assert totals(found).max() > allowed / 2
