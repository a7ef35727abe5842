"""Folds two linear maps in a row into one, in float64."""

from __future__ import annotations

import dataclasses

import numpy as np

from triton_regressors.exporter.lowering.products import product
from triton_regressors.exporter.passes.rewriting import SMALL
from triton_regressors.kernels.ops.columns.columns import Columns
from triton_regressors.kernels.ops.columns.scale import Scale
from triton_regressors.kernels.ops.linear.affine import Affine
from triton_regressors.kernels.ops.linear.contraction import Contraction
from triton_regressors.kernels.plan.plan import Operation


def fold_linear(first: Operation, second: Operation, width: int) -> Operation | None:
    """Two linear maps in a row are one, unless one rounds to float32 on the way."""
    if any(isinstance(each, Scale) and each.single for each in (first, second)):
        return None
    if isinstance(first, Contraction) and first.function == "identity":
        match second:
            case Scale():
                weight, intercept = first.weight * second.factor, (first.intercept - second.shift) * second.factor
                return dataclasses.replace(first, weight=weight, intercept=intercept)
            case Affine() if _product_is_no_larger(first.weight.shape, second.weight.shape):
                weight = product(first.weight, second.weight)
                intercept = product(first.intercept, second.weight) + second.intercept
                return dataclasses.replace(first, weight=weight, intercept=intercept, function=second.function)
    match first, second:
        case Scale(), Scale():
            # ((x − s₁) f₁ − s₂) f₂ = (x − s₁ − s₂ / f₁) f₁ f₂
            if np.all(first.factor != 0) and first.form == second.form == "factor":
                return Scale(first.shift + second.shift / first.factor, first.factor * second.factor)
        case Scale(), Affine():
            weight = first.factor[:, None] * second.weight
            return dataclasses.replace(second, weight=weight, intercept=second.intercept - product(first.shift, weight))
        case Columns(), Affine():
            if width <= max(8 * len(first.indices), 1024):
                weight = np.zeros((width, second.weight.shape[1]))
                np.add.at(weight, first.indices, second.weight)
                return dataclasses.replace(second, weight=weight)
    return None


def _product_is_no_larger(first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    """Return whether one matrix costs no more than two; small ones are folded in any case, to save a launch."""
    product = first[0] * second[1]
    return product <= max(first[0] * first[1] + second[0] * second[1], SMALL)
