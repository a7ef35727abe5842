"""Contributions of sums of kernel functions: kernel and plain torch against the reference, with few and many players.

`tests/exporter/contributions/test_points.py` has the reference against sums over all coalitions.
"""

import dataclasses
import itertools

import numpy as np
import pytest
import torch

from tests.kernels.operations import inputs_for, run_kernel, run_on_cpu, run_reference
from tests.kernels.operations_pairwise import contributions
from triton_regressors.kernels.format.errors import PlanError
from triton_regressors.kernels.ops.points import pairwise_contributions
from triton_regressors.kernels.ops.points.pairwise_contributions import MOST_PLAYERS, PairwiseContributions


@pytest.mark.parametrize(
    ("players", "spread"), [*itertools.product([1, 2, 5, 37], [0.3, 1.0, 30.0]), (70, 30.0)]
)  # 70 players have two groups of nodes
def test_all_ways_agree_and_add_up(device: torch.device, players: int, spread: float) -> None:
    """With a large spread most factors underflow, some of the row's and others of the background's."""
    op = contributions(range(players), players + 1, 40, 3, 2)
    op = dataclasses.replace(op, points=op.points * spread, factor=op.factor * spread)
    (x,) = inputs_for([players], 3)
    x[1, 0] = op.background[1, 0]
    x[2] = op.points[0] / op.factor + op.shift
    expected, f = run_reference(op, [x]), values(op, x)
    allowed = 1e-14 * np.abs(op.weight).sum()
    assert np.abs(expected.reshape(3, 2, -1).sum(axis=2) - f).max() <= allowed
    assert (expected[:, players :: players + 2] == 0).all()  # a column that nobody reads
    assert np.abs(run_on_cpu(op, [x]) - expected).max() <= allowed
    assert np.abs(run_kernel(op, [x.astype(np.float64)], device, torch.float64) - expected).max() <= allowed
    if spread <= 1:
        assert np.abs(expected).max() > 1e-4 * 0.1**players


def values(op: PairwiseContributions, x: np.ndarray) -> np.ndarray:
    d = ((x.astype(np.float64) - op.shift) * op.factor)[:, None] - op.points
    found: np.ndarray = np.exp(-(d**2).sum(axis=2)) @ op.weight
    return found


def test_a_batch_in_several_launches_has_the_same_bits(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    op, x = contributions([0, 1, 1], 2, 20, 9), inputs_for([3], 40)
    whole = run_kernel(op, x, device)
    monkeypatch.setattr(pairwise_contributions, "MOST_SUMS", 1)
    assert run_kernel(op, x, device).tobytes() == whole.tobytes()


def test_more_players_than_a_product_allows_are_refused() -> None:
    assert contributions(range(MOST_PLAYERS), 600, 1, 1).checked_width(MOST_PLAYERS) == 601
    with pytest.raises(PlanError, match=f"may be {MOST_PLAYERS} players, not 513"):
        contributions(range(MOST_PLAYERS + 1), 600, 1, 1).check(MOST_PLAYERS + 1)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"weight": np.ones((2, 1))}, r"weight must be \[9, 1\] without zeros, not \[2, 1\]"),
        ({"background": np.ones((0, 2))}, r"background must be \[0, 2\] without zeros"),
        ({"players": np.array([0, 2], np.int32)}, r"players must be columns of a table of 2, not \[0, 2\]"),
        ({"metric": "chi2"}, "metric must be one of squared_euclidean, manhattan, not 'chi2'"),
    ],
)
def test_fields_that_do_not_fit_are_named(fields: dict[str, object], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        dataclasses.replace(contributions([0, 1], 2, 9, 1), **fields).check(2)  # type: ignore[arg-type]
