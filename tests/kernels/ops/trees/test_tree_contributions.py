"""Shapley values of leaves: kernels, plain torch and reference; tables of leaves against all coalitions."""

import dataclasses
import itertools
from math import factorial
from typing import Any

import numpy as np
import pytest
import torch

from tests.kernels.operations import inputs_for, run_kernel, run_on_cpu, run_reference
from tests.kernels.operations_trees import OPERATIONS, path_contributions, tree_contributions
from triton_regressors.kernels.format.errors import PlanError
from triton_regressors.kernels.ops.trees import path_contributions as paths
from triton_regressors.kernels.ops.trees import tree_contributions as tables
from triton_regressors.kernels.ops.trees.launch import ContributionsTile, contributions_tile
from triton_regressors.kernels.ops.trees.leaf_patterns import LeafPatterns
from triton_regressors.kernels.ops.trees.shapley_tables import leaf_tables

NAMES = [name for name, (op, _) in OPERATIONS.items() if isinstance(op, LeafPatterns)]
TILES = [contributions_tile(rows) for rows in (1, 1000, 65536)]


@pytest.mark.parametrize("players", range(1, 6))
def test_tables_of_leaves(players: int) -> None:
    """A coalition's value is the probability that nobody in it misses in the row, and nobody else in the drawn row."""
    rng = np.random.default_rng(players)
    chance = rng.dirichlet(np.ones(1 << players), 3)
    found = leaf_tables(chance)
    for row in range(1 << players):
        value = {
            coalition: chance[:, [(row & coalition | drawn & ~coalition) == 0 for drawn in range(1 << players)]].sum(1)
            for coalition in range(1 << players)
        }
        for player in range(players):
            expected = np.zeros(3)
            for coalition in value:
                if not coalition >> player & 1:
                    others = coalition.bit_count()
                    weight = factorial(others) * factorial(players - 1 - others) / factorial(players)
                    expected += weight * (value[coalition | 1 << player] - value[coalition])
            assert np.abs(found[:, row, player] - expected).max() < 1e-15


@pytest.mark.parametrize("name", NAMES)
def test_kernels_and_plain_torch_have_the_same_bits_near_the_reference(device: torch.device, name: str) -> None:
    op, widths = OPERATIONS[name]
    (x,) = inputs_for(widths, 19)
    x[1], x[2, 0], x[3:6, 1] = np.nan, np.nan, [np.inf, -np.inf, -1]
    x[6:12] = x[6:12].round()
    found = run_on_cpu(op, [x])
    assert run_kernel(op, [x], device, torch.float64).tobytes() == found.tobytes()
    assert np.array_equal(run_kernel(op, [x], device), found.astype(np.float32))
    assert np.abs(found - run_reference(op, [x])).max() <= 2.0**-46 * np.abs(op.values).sum()
    assert not found[:0].any() or not np.array_equal(found[0], found[1])


@pytest.mark.parametrize("tile", [*TILES, ContributionsTile(4, 2, 2)])
@pytest.mark.parametrize("name", ["tree contributions", "path contributions"])
def test_tiles_and_batches_do_not_change_a_bit(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, name: str, tile: ContributionsTile
) -> None:
    assert len({*TILES}) == len(TILES)
    op, widths = OPERATIONS[name]
    (x,) = inputs_for(widths, 11)
    whole = run_on_cpu(op, [x])
    for module in (tables, paths):
        monkeypatch.setattr(module, "contributions_tile", lambda _: tile)
    assert run_kernel(op, [x], device, torch.float64).tobytes() == whole.tobytes()
    for module in (tables, paths):
        monkeypatch.setattr(module, "LARGEST_SCRATCH", 1)
    assert run_kernel(op, [x], device, torch.float64).tobytes() == whole.tobytes()
    monkeypatch.setattr(tables, "LANES", 1)
    monkeypatch.setattr(paths, "NUMBERS_AT_ONCE", 1)
    assert run_on_cpu(dataclasses.replace(op), [x]).tobytes() == whole.tobytes()


def test_the_largest_sums_are_exact() -> None:
    """They are below 2⁵³ however unlike leaves are."""
    op = dataclasses.replace(tree_contributions(6, 5, [3] * 40), values=np.geomspace(1e-300, 1e300, 40)[:, None])
    parameters = op.parameters()
    largest = np.abs(parameters["table"]).reshape(-1, 8).max(1)[(parameters["entries"] & 2**30 - 1) // 8]
    sums = [largest[first:end].sum() for first, end in itertools.pairwise(parameters["first_entry"])]
    assert 2**50 < max(sums) < 2**53


OP = tree_contributions(6, 5, [1, 2, 2, 3])
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "terms": ({"lower": OP.lower[1:]}, "feature, lower, upper, flags and player must be [terms]."),
    "dtype": ({"lower": OP.lower.astype(np.float64)}, "lower and upper must both be float32 or float64."),
    "rounding": ({"rounding": "up"}, "rounding must be one of ('trunc', 'floor'), not 'up'."),
    "flags": ({"flags": OP.flags + np.uint8(4)}, "flags must be uint8 of at most 3."),
    "feature": ({"feature": OP.feature + 1}, "feature must be int32 in [0, 6)."),
    "player": ({"player": OP.player - 1}, "player must be int32 in [0, 5)."),
    "sets": ({"sets": OP.sets.astype(float)}, "sets must be int32 [sets, words]."),
    "no set": ({"flags": OP.flags | np.uint8(2)}, "upper must be a row of sets where a term is categorical."),
    "leaves": ({"values": OP.values[1:]}, "asked, players and values must have a row for each leaf."),
    "players": ({"players": OP.players + 1}, "players must be int32 in [0, 5]."),
    "too many": ({"players": np.tile(OP.players, 4)}, "leaves must have at most 10 players, and a term for each."),
    "order": ({name: getattr(OP, name)[::-1] for name in ("players", "asked")}, "ascend in their number of players"),
    "asked": ({"asked": OP.asked + 25}, "asked must be fewer than 2**31 int32 in [-1, 25)."),
    "others": ({"asked": OP.asked[:, ::-1]}, "a leaf's terms must be one for each of its players, then the others."),
    "chance": ({"chance": OP.chance[1:]}, "chance must be float64, 2 ** players numbers for each leaf."),
    "infinite": ({"values": OP.values * np.inf}, "values and base must be float64, and values finite."),
    "base": ({"base": np.zeros(2)}, "base must be [targets]."),
}


@pytest.mark.parametrize("case", WRONG)
def test_fields_that_do_not_fit_are_named(case: str) -> None:
    changes, message = WRONG[case]
    with pytest.raises(PlanError) as raised:
        dataclasses.replace(OP, **changes).check(6)
    assert message in str(raised.value)
    assert str(raised.value).startswith("tree_contributions: ")


PATHS = path_contributions(6, 5, [1, 2, 2, 3])
WRONG_PATHS: dict[str, tuple[dict[str, Any], str]] = {
    "leaves": ({"values": PATHS.values[1:]}, "asked, players and values must have a row for each leaf."),
    "share": ({"share": PATHS.share[1:]}, "share must be float64 and of the shape of players."),
    "shares": ({"share": PATHS.share + 0.5}, "share must lie in [0, 1]."),
    "rule": ({"weights": PATHS.weights[1:]}, "points and weights must be float64, one for each two players."),
    "few": (
        {"points": PATHS.points[1:], "weights": PATHS.weights[1:]},
        "points and weights must be float64, one for each two players.",
    ),
    "points": ({"points": PATHS.points - 0.5}, "points must lie between 0 and 1."),
}


@pytest.mark.parametrize("case", WRONG_PATHS)
def test_fields_of_paths_that_do_not_fit_are_named(case: str) -> None:
    changes, message = WRONG_PATHS[case]
    with pytest.raises(PlanError) as raised:
        dataclasses.replace(PATHS, **changes).check(6)
    assert str(raised.value) == f"path_contributions: {message}"
