"""Folds the operations before and after an expansion into it, so that its features never reach memory."""

from __future__ import annotations

import dataclasses

import numpy as np

from triton_regressors.kernels.ops.columns.columns import Columns
from triton_regressors.kernels.ops.columns.scale import Scale
from triton_regressors.kernels.ops.linear.affine import Affine
from triton_regressors.kernels.ops.linear.piecewise import Piecewise
from triton_regressors.kernels.ops.linear.piecewise_affine import PiecewiseAffine, worth_contracting
from triton_regressors.kernels.ops.linear.polynomial import Polynomial
from triton_regressors.kernels.ops.linear.polynomial_affine import PolynomialAffine
from triton_regressors.kernels.ops.linear.quadratic import Quadratic
from triton_regressors.kernels.ops.points.function import PointFunction
from triton_regressors.kernels.ops.points.pairwise import Pairwise
from triton_regressors.kernels.ops.points.pairwise_affine import contract
from triton_regressors.kernels.plan.plan import Operation


def fold_into_expansion(first: Operation, second: Operation, width: int) -> Operation | None:
    """Fold scales and selections before an expansion into its reads, and an Affine after it into a contraction."""
    if any(isinstance(each, Polynomial) and each.single for each in (first, second)):
        return None
    match first, second:
        case Scale(), (Polynomial() | PolynomialAffine() | Quadratic() | PointFunction()):
            # ((x − s₁) f₁ − s₂) f₂, as two scales in a row
            if np.all(first.factor != 0) and not first.single:
                shift, factor = first.shift + second.shift / first.factor, first.factor * second.factor
                return dataclasses.replace(second, shift=shift, factor=factor)
        case Columns(), (Polynomial() | PolynomialAffine()):
            if len(np.unique(first.indices)) == len(first.indices):
                indices = np.append(first.indices, width)[second.indices].astype(np.int32)
                shift, factor = _spread_scale(first, second, width)
                return dataclasses.replace(second, indices=indices, shift=shift, factor=factor)
        case Columns(), Quadratic():
            if len(np.unique(first.indices)) == len(first.indices) and width <= max(2 * len(first.indices), 64):
                return _spread_quadratic(first, second, width)
        case Polynomial(), Affine():
            return PolynomialAffine(
                first.indices, first.shift, first.factor, second.weight, second.intercept, second.function
            )
        case Columns(), (Piecewise() | PiecewiseAffine()):
            return dataclasses.replace(second, source=first.indices[second.source])
        case Piecewise(), Affine() if worth_contracting(first, second.weight.shape[1]):
            tables = first.source, first.knots, first.coefficients, second.weight, second.intercept
            return PiecewiseAffine(*tables, second.function, first.nan_is_zero)
        case Pairwise(), Affine():
            return contract(first, second.weight, second.intercept, second.function)
    return None


def _spread_scale(
    columns: Columns, op: Polynomial | PolynomialAffine | Quadratic, width: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the scaling of all columns, given the scaling of the selected ones."""
    shift, factor = np.zeros(width), np.ones(width)
    shift[columns.indices], factor[columns.indices] = op.shift, op.factor
    return shift, factor


def _spread_quadratic(columns: Columns, op: Quadratic, width: int) -> Quadratic:
    """Return the quadratic form in all columns, given the form in the selected ones."""
    targets, kept = len(op.intercept), columns.indices
    form, linear = np.zeros((targets, width, width)), np.zeros((targets, width))
    row, column = np.meshgrid(kept, kept, indexing="ij")
    for target in range(targets):
        np.add.at(form[target], (np.minimum(row, column), np.maximum(row, column)), op.quadratic[target])
    linear[:, kept] = op.linear
    shift, factor = _spread_scale(columns, op, width)
    return dataclasses.replace(op, quadratic=form, linear=linear, shift=shift, factor=factor)
