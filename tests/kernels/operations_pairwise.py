"""Kernel functions of rows and points, and combinations of matrices, of every kind for the kernels' tests."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from triton_regressors.kernels.ops.columns.combine import Combine
from triton_regressors.kernels.ops.points.pairwise import Pairwise
from triton_regressors.kernels.ops.points.pairwise_affine import PairwiseAffine, contract
from triton_regressors.kernels.ops.points.pairwise_contributions import PairwiseContributions
from triton_regressors.kernels.ops.points.squared_norm import SquaredNorm
from triton_regressors.kernels.plan.plan import Operation

FUNCTIONS: dict[str, dict[str, Any]] = {
    "polynomial": {"metric": "dot", "profile": "power", "gamma": 0.3, "coef0": 0.5, "exponent": 3.0},
    "power 2.5": {"metric": "squared_euclidean", "profile": "power", "gamma": 0.3, "coef0": 1.0, "exponent": 2.5},
    "rational_quadratic": {"metric": "squared_euclidean", "profile": "power", "coef0": 1.0, "exponent": -0.7},
    "reciprocal": {"metric": "squared_euclidean", "profile": "power", "coef0": 1.0, "exponent": -1.0},
    "constant": {"metric": "dot", "profile": "power", "exponent": 0.0},
    "sigmoid": {"metric": "dot", "profile": "tanh", "gamma": 0.2, "coef0": -0.3},
    "cosine": {"metric": "cosine", "profile": "identity"},
    "rbf": {"metric": "squared_euclidean", "profile": "exp", "gamma": -0.2},
    "laplacian": {"metric": "manhattan", "profile": "exp", "gamma": -0.3},
    "chi2": {"metric": "chi2", "profile": "exp", "gamma": -0.02},
    "distance": {"metric": "euclidean", "profile": "identity"},
    "matern_1_2": {"metric": "euclidean", "profile": "exp", "gamma": -0.8},
    "matern_3_2": {"metric": "euclidean", "profile": "matern_3_2", "gamma": 0.8},
    "matern_5_2": {"metric": "euclidean", "profile": "matern_5_2", "gamma": 0.8},
    "sine": {"metric": "euclidean", "profile": "sine", "gamma": 1.3, "exponent": 0.9},
    "table": {"metric": "euclidean", "profile": "table"},
}


def pairwise(name: str, features: int, points: int, seed: int = 0) -> Pairwise:
    """Return the function of that name with drawn points; for chi2 no point is negative, and rows may be."""
    rng = np.random.default_rng(seed)
    fields = dict(FUNCTIONS[name])
    if fields["profile"] == "table":  # drawn polynomials from 2⁻⁵² to 2³: past that the function is zero
        fields["table"] = rng.standard_normal((55 * 4, 5))
    drawn = rng.standard_normal((points, features))
    shift, factor = 0.3 * rng.standard_normal(features), rng.uniform(0.5, 1.5, features)
    if fields["metric"] == "chi2":
        drawn, shift = np.abs(drawn) * (drawn > -0.5), np.full(features, -8.0)
    return Pairwise(points=drawn, shift=shift, factor=factor, **fields)


def pairwise_affine(
    name: str, features: int, points: int, targets: int = 1, parts: int = 1, seed: int = 0, function: str = "identity"
) -> PairwiseAffine:
    rng = np.random.default_rng(seed)
    first = pairwise(name, features, points, seed)
    op = contract(first, rng.standard_normal((points, targets)), rng.standard_normal(targets), function)
    assert op is not None
    return PairwiseAffine(**{**vars(op), "parts": parts})


def contributions(
    players: Sequence[int], columns: int, points: int, background: int, targets: int = 1, **fields: Any
) -> PairwiseContributions:
    rng, width = np.random.default_rng(0), len(players)
    return PairwiseContributions(
        points=0.5 * rng.standard_normal((points, width)),
        shift=0.3 * rng.standard_normal(width),
        factor=rng.uniform(0.3, 0.6, width),
        weight=rng.standard_normal((points, targets)),
        players=np.array(players, dtype=np.int32),
        background=rng.standard_normal((background, width)),
        columns=columns,
        **fields,
    )


def squared_norm(features: int, targets: int, seed: int = 0, triangular: bool = False) -> SquaredNorm:
    rng = np.random.default_rng(seed)
    weight = rng.standard_normal((features, targets))
    return SquaredNorm(np.triu(weight) if triangular else weight, rng.standard_normal(targets))


OPERATIONS: dict[str, tuple[Operation, tuple[int, ...]]] = {
    **{f"pairwise {name}": (pairwise(name, 3, 11), (3,)) for name in FUNCTIONS},
    # Many features are multiplied as matrices.
    **{f"pairwise {name} of 19": (pairwise(name, 19, 70), (19,)) for name in ("polynomial", "cosine", "rbf", "chi2")},
    **{
        f"pairwise {name} of {features} in ten digits": (
            pairwise(name, features, 70).in_precision("ten digits"),
            (features,),
        )
        for name, features in (("rbf", 9), ("matern_3_2", 17), ("matern_1_2", 20), ("cosine", 3))
    },
    "pairwise_affine": (pairwise_affine("rbf", 5, 9), (5,)),
    "pairwise_affine of 40": (pairwise_affine("rbf", 40, 70, function="exp"), (40,)),
    "pairwise_affine to 3": (pairwise_affine("matern_3_2", 2, 150, 3), (2,)),
    "pairwise_affine in 2 parts": (pairwise_affine("laplacian", 2, 150, 1, 2), (2,)),
    "pairwise_affine to 2 in 3 parts": (pairwise_affine("sigmoid", 17, 150, 2, 3), (17,)),
    **{
        f"pairwise_affine {name} of {features} to {targets} in float32": (
            pairwise_affine(name, features, 150, targets, 2).in_precision("float32"),
            (features,),
        )
        for name, features, targets in (
            ("rbf", 3, 1),
            ("matern_5_2", 40, 1),
            ("rational_quadratic", 20, 3),
            ("laplacian", 9, 1),
        )
    },
    **{
        f"pairwise_affine {name} of {features} in float32 pairs": (
            pairwise_affine(name, features, 150, 1, 2).in_precision("float32 pairs"),
            (features,),
        )
        for name, features in (
            ("rbf", 40),
            ("matern_1_2", 20),
            ("matern_5_2", 3),
            ("rational_quadratic", 20),
            ("polynomial", 5),
            ("laplacian", 9),
            ("chi2", 9),
        )
    },
    **{
        f"pairwise_affine {name} of {features} to {targets} in ten digits": (
            pairwise_affine(name, features, 150, targets, 2).in_precision("ten digits"),
            (features,),
        )
        for name, features, targets in (
            ("rbf", 3, 1),
            ("rbf", 40, 1),
            ("matern_5_2", 20, 3),
            ("chi2", 4, 1),
            ("chi2", 19, 1),
            ("laplacian", 33, 2),
            ("matern_1_2", 20, 1),
            ("sigmoid", 9, 2),
        )
    },
    "pairwise_contributions": (contributions([3, 0, 3, 1, 6], 7, 150, 2, 2), (5,)),
    "pairwise_contributions of laplacian": (contributions([1, 0], 2, 9, 17, metric="manhattan"), (2,)),
    "squared_norm": (squared_norm(40, 70), (40,)),
    "squared_norm by a triangle": (squared_norm(70, 50, triangular=True), (70,)),
    "squared_norm in ten digits": (squared_norm(370, 363, triangular=True).in_precision("ten digits"), (370,)),
    "combine": (Combine("sum", (1.0, -2.0, 0.3), (0.0, 0.5, 0.0)), (5, 5, 1)),
    "combine plain": (Combine("sum"), (3, 1)),
    "combine product": (Combine("product", (1.0, 1.0, 0.5, 2.0), (0.0, 3.0, 1.0, 0.0)), (4, 1, 4, 4)),
    "combine power": (Combine("sum", (0.5, 0.1), (3.0, 2.0), 1.5), (3, 3)),
    "combine columns": (Combine("product", (1.0, 2.0), exponent=-2.0), (1, 1)),
}
