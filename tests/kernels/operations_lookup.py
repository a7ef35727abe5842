"""Lookups and imputations, and inputs that hold keys and missing numbers."""

import numpy as np

from triton_regressors.kernels.ops.columns.impute import Impute
from triton_regressors.kernels.ops.columns.impute_sequence import ImputeSequence
from triton_regressors.kernels.ops.columns.lookup import Lookup
from triton_regressors.kernels.plan.plan import Operation


def lookup(
    width: int, counts: list[int], targets: int = 0, seed: int = 0, function: str = "identity", grid: float = 0.25
) -> Lookup:
    """Return lookups with these numbers of keys, multiples of `grid`; `targets` columns are summed, or none."""
    rng = np.random.default_rng(seed)
    keys = [np.sort(rng.permutation(4 * count + 1)[:count] - 2 * count) * grid for count in counts]
    table = rng.standard_normal((sum(counts) + 2 * len(counts), max(targets, 1)))
    return Lookup(
        rng.integers(0, width, len(counts)),
        np.cumsum([0, *counts]),
        np.concatenate([np.empty(0), *keys]),
        table,
        bool(targets),
        function,
    )


def impute(width: int, columns: int, indicators: int, missing: float | None = None, seed: int = 0) -> Impute:
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(width)
    return Impute(chosen[:columns], rng.standard_normal(columns), chosen[width - indicators :], missing)


def impute_sequence(
    width: int, kept: int, updates: int, missing: float | None = None, seed: int = 0, scale: float = 1.0
) -> ImputeSequence:
    rng = np.random.default_rng(seed)
    limits = np.sort(scale * rng.standard_normal((2, updates)), axis=0)
    limits[:, ::3] = [[-np.inf], [np.inf]]
    return ImputeSequence(
        rng.permutation(width)[:kept],
        rng.integers(0, kept, updates),
        rng.standard_normal((updates, kept)) / kept,
        scale * rng.standard_normal(updates),
        *limits,
        missing=missing,
    )


def one_number(found: float) -> Lookup:
    """Return a lookup that finds one number, the first that tests draw."""
    return Lookup(np.array([0]), np.array([0, 1]), np.array([found]), np.array([[3.0], [2.0], [1.0]]))


FIRST = np.random.default_rng(0).standard_normal(1000 * 3).astype(np.float32).astype(np.float64)

OPERATIONS: dict[str, tuple[Operation, tuple[int, ...]]] = {
    "lookup": (lookup(4, [3, 0, 40, 1, 7]), (4,)),
    "lookup then exp": (lookup(2, [3, 5], function="exp"), (2,)),
    "lookup without keys": (lookup(3, [0, 0]), (3,)),
    "lookup of a drawn number": (one_number(FIRST[0]), (3,)),
    "lookup of every drawn number": (
        Lookup(np.array([1]), np.array([0, 1000]), np.sort(FIRST[1::3]), np.arange(1002.0)[:, None]),
        (3,),
    ),
    "lookup summed": (lookup(4, [3, 0, 40, 1, 7], 1), (4,)),
    "lookup summed to 3, then tanh": (lookup(5, [5] * 40, 3, function="tanh"), (5,)),
    "impute": (impute(5, 4, 3), (5,)),
    "impute a number": (impute(5, 5, 2, FIRST[7]), (5,)),
    "impute indicators alone": (impute(5, 0, 2), (5,)),
    "impute_sequence": (impute_sequence(6, 4, 7), (6, 4)),
    "impute_sequence of a number": (impute_sequence(3, 3, 2, FIRST[4]), (3, 3)),
    "impute_sequence with predictions": (impute_sequence(9, 9, 2), (9, 9, 2)),
}
