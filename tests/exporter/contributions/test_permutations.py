"""Contributions from some orders of the columns: against the definition, and what they say of their error."""

import itertools

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsRegressor

from triton_regressors.contribution_game import ERROR, OUTPUT
from triton_regressors.exporter.contributions.coalitions import definition_weights, shapley_values
from triton_regressors.exporter.contributions.game import Game
from triton_regressors.exporter.contributions.permutations import draw_orders, joins, number_of_orders
from triton_regressors.exporter.contributions.players import players_of_inputs
from triton_regressors.exporter.errors import ExportError
from triton_regressors.exporter.lowering.lower import lower
from triton_regressors.exporter.passes.optimise import fuse
from triton_regressors.exporter.passes.specialise import specialise
from triton_regressors.kernels.engine.runner import Runner
from triton_regressors.kernels.ops.games.orders import Orders

rng = np.random.default_rng(0)
X = rng.standard_normal((80, 10))
TWO = np.stack([X[:, 0] * X[:, 1] + X[:, 2], X[:, 3] - np.abs(X[:, 4])], axis=1)
ROWS, BACKGROUND = X[:6], X[50:59]
MODEL = KNeighborsRegressor(3).fit(X, TWO)
SHAPE = (len(ROWS), 2, X.shape[1] + 1)


def estimated(permutations: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the contributions `[rows, targets, columns + 1]` and their errors, as an entry on a CPU answers them."""
    lowered = lower(MODEL, X)
    plan = specialise(lowered.plan, "float64")
    game = Game(plan, players_of_inputs(lowered.inputs), X.shape[1], BACKGROUND, permutations=permutations)
    runner = Runner(fuse(game.contributions()), engine="torch", device="cpu", max_rows=len(ROWS))
    assert game.permutations == permutations
    found = runner.predict(ROWS, (OUTPUT, ERROR))
    return found[OUTPUT].reshape(SHAPE), found[ERROR].reshape(SHAPE)


def test_all_orders_are_the_definition() -> None:
    worth = np.random.default_rng(1).standard_normal((3, 16, 2))  # [rows, coalitions, targets]
    orders = [order[::way] for order in itertools.permutations(range(4)) if order < order[::-1] for way in (1, -1)]
    coalitions, before, after = joins(np.array(orders))
    assert len(orders) == 24
    assert coalitions.shape == (16, 4)
    assert not coalitions[0].any()
    pairs = [numbers.reshape(12, 2, 4) for numbers in (before, after)]
    operation = Orders(pairs[0], pairs[1], targets=2)
    found = operation.reference(
        {name: torch.from_numpy(array) for name, array in operation.arrays()}, torch.from_numpy(worth).flatten(1)
    )
    exact = np.einsum("kp,rkt->rtp", definition_weights(coalitions.astype(int)), worth)
    np.testing.assert_allclose(found[:, :8].numpy(), exact.reshape(3, 8), rtol=1e-12, atol=1e-12)


def test_estimates_near_the_definition_as_their_errors_say() -> None:
    exact = shapley_values(MODEL.predict, ROWS, BACKGROUND, np.arange(X.shape[1]), X.shape[1]).reshape(SHAPE)
    margin, missed = MODEL.predict(ROWS), {}
    for permutations in (10, 100):
        found, error = estimated(permutations)
        np.testing.assert_allclose(found.sum(axis=2, dtype=np.float64), margin, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(found[:, :, -1], exact[:, :, -1], rtol=1e-6)
        assert (error[:, :, -1] == 0).all()
        off = np.abs(found - exact)[:, :, :-1]
        missed[permutations] = off.mean()
        assert (off < 6 * error[:, :, :-1] + 1e-6).mean() > 0.97
        assert 0.3 < off.mean() / error[:, :, :-1].mean() < 1.5
    assert missed[100] < 0.5 * missed[10]


def test_an_order_comes_with_its_reverse_and_is_always_the_same() -> None:
    orders = draw_orders(7, 6)
    assert (orders[::2] == orders[1::2, ::-1]).all()
    assert (np.sort(orders, axis=1) == np.arange(7)).all()
    assert (orders == draw_orders(7, 6)).all()


@pytest.mark.parametrize(
    ("players", "asked", "number"),
    [(12, None, 0), (13, None, 340), (50, None, 82), (1000, None, 10), (10, 100, 100), (10, 200, 0), (1, 4, 0)],
)
def test_all_coalitions_are_computed_if_orders_have_no_fewer(players: int, asked: int | None, number: int) -> None:
    assert number_of_orders(players, asked) == number


def test_too_many_background_rows_are_refused_with_their_cost() -> None:
    lowered = lower(MODEL, X)
    many = np.zeros((2**14 + 1, X.shape[1]), np.float32)
    game = Game(specialise(lowered.plan, "float32"), players_of_inputs(lowered.inputs), X.shape[1], many)
    says = r"neighbors has no closed form, .* 1,024 coalitions × 16,385 background rows takes 16,778,240 answers"
    with pytest.raises(ExportError, match=says):
        game.contributions()
