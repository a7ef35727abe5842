"""The contributions of a sum of kernel functions of rows and points: SVR, KernelRidge and a Gaussian process's mean."""

from __future__ import annotations

import numpy as np

from triton_regressors.kernels.ops.points.function import PointFunction
from triton_regressors.kernels.ops.points.pairwise_contributions import METRICS, PairwiseContributions


def point_contributions(
    operation: PointFunction, weight: np.ndarray, players: np.ndarray, columns: int, background: np.ndarray
) -> PairwiseContributions | None:
    """Return the operation that writes the contributions of `k(x, points) @ weight`, without an intercept.

    The result is None for functions that are no product over the columns of `x`: only `exp(c − γ · m)` with `γ ≥ 0` is
    one, for the squared Euclidean and the Manhattan metric.

    Args:
        operation: `k`, a step's operation before any pass.
        weight: `[points, targets]`, with all constant factors.
        players: the column of the table that each column of `x` is a function of, `[width]`; any for a constant.
        columns: the number of columns of the table.
        background: `x` of the background rows, `[B, width]`.
    """
    if operation.profile != "exp" or operation.metric not in METRICS or operation.gamma > 0:
        return None
    scale = -operation.gamma if operation.metric == "manhattan" else np.sqrt(-operation.gamma)
    return PairwiseContributions(
        points=operation.points * scale,
        shift=operation.shift,
        factor=operation.factor * scale,
        weight=weight * np.exp(operation.coef0),
        players=np.asarray(players, dtype=np.int32),
        background=np.asarray(background, dtype=np.float64),
        columns=columns,
        metric=operation.metric,
    )
