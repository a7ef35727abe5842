"""Stacked operations, each with the members' own operations behind it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.kernels.operations_trees import ordered_ensemble, symmetric_trees, tree_ensemble
from triton_regressors.kernels.ops.linear.affine import Affine
from triton_regressors.kernels.plan.plan import Operation
from triton_regressors.kernels.plan.stacked import Stacked, stacked_class


def affine(features: int, seed: int, function: str = "identity") -> Affine:
    """Return a drawn map to one target; every third has a feature without weight."""
    rng = np.random.default_rng(seed)
    weight = rng.standard_normal((features, 1))
    if features > 1 and seed % 3 == 0:
        weight[seed % features] = 0.0
    return Affine(weight, rng.standard_normal(1), function)


def ensembles(trees: Sequence[int], **options: Any) -> list[Operation]:
    """Return drawn ensembles of these numbers of trees, of different depths and divisors."""
    return [
        tree_ensemble(5, count, place % 5, seed=place, divisor=1.0 + place, **options)
        for place, count in enumerate(trees)
    ]


def stacked(members: Sequence[Operation], start: int = 0) -> Stacked[Any]:
    """Return members' operations as one."""
    kind = stacked_class(members[0])
    assert kind is not None
    assert len({kind.alike(member) for member in members} | {None}) == 2, "they are not alike"
    return kind.of(members, start)


MEMBERS: dict[str, tuple[list[Operation], tuple[int, ...]]] = {
    **{
        f"affine {features}": ([affine(features, seed) for seed in range(7)], (features,))
        for features in (1, 5, 13, 32, 37, 300, 1500)
    },
    "affine 9 then exp": ([affine(9, seed, "exp") for seed in range(3)], (9,)),
    "trees": (ensembles((3, 1, 12, 40, 7, 3)), (5,)),
    "trees then exp": (ensembles((2, 9, 4), outputs=3, function="exp"), (5,)),
    "trees in order": (
        [ordered_ensemble(5, trees, trees % 4, seed=trees, function="exp") for trees in (3, 1, 40, 12)],
        (5,),
    ),
    "trees with categories": (
        [
            tree_ensemble(5, 6 - place, 3, seed=place, sets=sets, words=words)
            for place, (sets, words) in enumerate([(4, 3), (0, 1), (9, 1), (2, 8)])
        ],
        (5,),
    ),
    "trees with categories float64": (
        [tree_ensemble(5, 5, 2, 2, seed, np.float64, sets=seed, rounding="floor") for seed in (6, 1, 2)],
        (5,),
    ),
    "symmetric trees": (
        [
            symmetric_trees(5, [3, 0, 6, 2, 9][: 2 + place] * trees, 2, place, questions=9 + place, function="exp")
            for place, trees in enumerate((1, 20, 3))
        ],
        (5,),
    ),
    "symmetric trees float64": (
        [symmetric_trees(5, [0], dtype=np.float64), symmetric_trees(5, [3] * 9, seed=1, dtype=np.float64)],
        (5,),
    ),
}
"""Members' operations, which are alike, and the widths of their inputs."""

OPERATIONS: dict[str, tuple[Operation, tuple[int, ...]]] = {
    f"stacked {name}": (stacked(members, 2), (*widths, 1)) for name, (members, widths) in MEMBERS.items()
}
