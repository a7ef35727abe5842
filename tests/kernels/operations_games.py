"""Coalitions and orders of columns, for the tests that every operation must pass."""

import numpy as np

from triton_regressors.kernels.ops.columns.elementwise import Elementwise
from triton_regressors.kernels.ops.games.coalitions import Coalitions
from triton_regressors.kernels.ops.games.orders import Orders
from triton_regressors.kernels.ops.linear.affine import Affine
from triton_regressors.kernels.plan.plan import INPUT, Operation, Plan, Step


def coalitions(features: int, targets: int, background: int, count: int, seed: int = 0) -> Coalitions:
    rng = np.random.default_rng(seed)
    steps = (
        Step(Affine(rng.standard_normal((features, targets)), rng.standard_normal(targets)), (INPUT,), "sum"),
        Step(Elementwise("tanh"), ("sum",), "y"),
    )
    rows = rng.standard_normal((background, features)).astype(np.float32)
    taken = rng.integers(0, 2, (count, features)).astype(np.uint8)
    return Coalitions.of_plan(Plan(features, steps, {"y": "y"}), rows, taken)


def orders(players: int, targets: int, pairs: int, coalitions: int, seed: int = 0) -> Orders:
    before, after = np.random.default_rng(seed).integers(-1, coalitions, (2, pairs, 2, players)).astype(np.int32)
    return Orders(before, after, targets)


OPERATIONS: dict[str, tuple[Operation, tuple[int, ...]]] = {
    f"coalitions {count} of {features} × {background} to {targets}": (
        coalitions(features, targets, background, count),
        (features,),
    )
    for features, targets, background, count in ((1, 1, 1, 2), (3, 1, 5, 8), (7, 2, 3, 5))
} | {
    f"orders {pairs} × 2 of {players} in {count} coalitions to {targets}": (
        orders(players, targets, pairs, count),
        (count * targets,),
    )
    for players, targets, pairs, count in ((1, 1, 2, 2), (7, 1, 3, 40), (130, 2, 5, 90))
}
