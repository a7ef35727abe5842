"""Operations of models made of models, for the tests that every operation must pass."""

import numpy as np

from triton_regressors.kernels.ops.columns.pool import Pool
from triton_regressors.kernels.plan.plan import Operation


def clusters(features: int, count: int, seed: int = 0) -> np.ndarray:
    """Return the members of `count` clusters that hold every one of the features, filled up with −1."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.append(np.arange(count), rng.integers(0, count, features - count)))
    found = [np.flatnonzero(labels == cluster) for cluster in range(count)]
    members = np.full((count, max(map(len, found))), -1, dtype=np.int32)
    for row, columns in zip(members, found, strict=True):
        row[: len(columns)] = columns
    return members


OPERATIONS: dict[str, tuple[Operation, tuple[int, ...]]] = {
    "pool max": (Pool(clusters(5, 2), "max"), (5,)),
    "pool min of one each": (Pool(clusters(3, 3), "min"), (3,)),
    "pool median": (Pool(clusters(9, 2), "median"), (9,)),
    "pool median of many": (Pool(clusters(20, 1), "median"), (20,)),
}
