"""Computes only the columns that are selected afterwards."""

from __future__ import annotations

import dataclasses

from triton_regressors.kernels.ops.columns.columns import Columns
from triton_regressors.kernels.ops.linear.contraction import Contraction
from triton_regressors.kernels.ops.linear.piecewise import Piecewise
from triton_regressors.kernels.ops.linear.polynomial import Polynomial
from triton_regressors.kernels.ops.points.pairwise import Pairwise
from triton_regressors.kernels.plan.plan import Operation


def select_early(first: Operation, columns: Operation, width: int) -> Operation | None:
    """Compute only the columns that are selected afterwards."""
    if not isinstance(columns, Columns):
        return None
    kept = columns.indices
    match first:
        case Columns():
            return Columns(first.indices[kept])
        case Polynomial():
            return dataclasses.replace(first, indices=first.indices[kept])
        case Piecewise():
            tables = first.source[kept], first.knots[kept], first.coefficients[kept]
            return Piecewise(*tables, first.nan_is_zero)
        case Pairwise():
            return dataclasses.replace(first, points=first.points[kept])
    if isinstance(first, Contraction):
        return dataclasses.replace(first, weight=first.weight[:, kept], intercept=first.intercept[kept])
    return None
